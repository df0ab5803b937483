"""Who uses the service: customers who intend, operators who decide, providers that send webhooks.

Each of them asks a service process, and asks again when the store was away or the process died.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from settled.domain.errors import SettledError, StoreError
from settled.domain.identity import Identity, Principal
from settled.domain.money import Money
from settled.domain.provider import Answered
from settled.infrastructure.testing.memory_journal import MemoryJournal
from settled.operations import Operations
from settled.projections.operation_view import OperationView
from tests.simulation.contracts import RefundParams, receipt_of
from tests.simulation.process import Process
from tests.simulation.provider import Effect, SimulatedProvider
from tests.simulation.watch import Stream

if TYPE_CHECKING:
    from tests.simulation.history import History

TENANT = "acme"
BY = Principal(TENANT, "support-agent", frozenset({"operator", "approver"}))

_TOLD = {
    "pending": Answered.PENDING,
    "succeeded": Answered.PERFORMED,
    "failed": Answered.FAILED,
    "reversed": Answered.REVERSED,
}
_LOOK_AROUND_SECONDS = 120.0


@contextmanager
def _untrue(stream: Stream) -> Generator[None]:
    """Say what is not so. Whoever gets no answer may yet be heard; a refusal was not recorded."""
    stream.untrue = True
    try:
        yield
    except StoreError:
        raise
    except SettledError:
        stream.untrue = False
        raise
    stream.untrue = False


@dataclass(eq=False)
class Errand:
    """Something that is asked of a service until it was heard."""

    name: str
    command: Callable[[Operations], object]
    process: Process | None = None


class People:
    """Customers, operators, and the providers' webhooks of one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._scheduler = history.scheduler
        self._chance = history.chance
        self._identities: list[Identity] = []
        self._out: list[Errand] = []

    def begin(self) -> None:
        """Plan what customers and operators do while things go wrong."""
        chances, span = self._history.chances, self._history.chances.span_seconds
        for number in range(chances.operations):
            kind = chances.kinds[int(self._chance.random() * len(chances.kinds))]
            identity = Identity(TENANT, kind, f"refund-request-{number + 1}")
            self._identities.append(identity)
            at = self._chance.random() * span * 0.7
            self._later(at, partial(self._intend, identity))
            if self._chance.random() < chances.twice:
                at += self._chance.random() ** 3 * 2
                other = self._chance.random() < 0.3
                self._later(at, partial(self._intend, identity, other=other))
        for _ in range(int(chances.operations * chances.acts + self._chance.random())):
            self._later(self._chance.random() * span, self._act)

    def calm_down(self) -> None:
        """From here on operators see to what is parked, undecided or handed over."""
        self._later(_LOOK_AROUND_SECONDS, self._look_around)

    def are_done(self) -> bool:
        """Say whether nobody waits for an answer."""
        return not self._out

    def lost(self, process: Process) -> None:
        """A service died: what it was asked is asked again."""
        for errand in self._out:
            if errand.process is process:
                errand.process = None
                self._later(self._chance.random() * 3, partial(self._go, errand))

    def told_by_provider(self, provider: SimulatedProvider, effect: Effect) -> None:
        """Let the provider send a webhook, where it sends any: late, and at times twice."""
        told = 1.0 if effect.status == "reversed" else provider.conduct.webhooks
        if self._chance.random() >= told:
            return
        status, event_id = effect.status, f"evt_{effect.name}_{effect.status}"
        by_name = self._chance.random() < 0.6
        receipt = receipt_of(provider.contract, effect.params, effect.name, status)

        def tell(operations: Operations) -> object:
            return operations.record_evidence(
                by=BY,
                provider=provider.name,
                answered=_TOLD[status].value,
                kind=effect.identity.kind if by_name else None,
                operation_id=effect.identity.operation_id if by_name else None,
                reference=effect.name,
                receipt=receipt,
                event_id=event_id,
            )

        name = f"webhook {effect.name} {status}"
        for _ in range(2 if self._chance.random() < 0.2 else 1):
            self._later(self._chance.random() ** 6 * 900, lambda: self._ask(name, tell))

    # Customers.

    def _intend(self, identity: Identity, *, other: bool = False) -> None:
        proposing = bool(self._history.providers[identity.kind].conduct.approvers)
        params = self._params(identity, "31.00" if other else "30.00")

        def intend(operations: Operations) -> object:
            begin = operations.propose if proposing else operations.intend
            return begin(identity.kind, identity.operation_id, params, by=BY)

        self._ask(f"intend {identity.operation_id}", intend)

    def _params(self, identity: Identity, amount: str) -> RefundParams:
        return RefundParams(
            order=f"order-{identity.operation_id[-2:]}", amount=Money(amount, "USD")
        )

    # Operators.

    def _act(self) -> None:
        """Do something about one operation, whatever its state is by then."""
        identity = self._identities[int(self._chance.random() * len(self._identities))]
        self._ask(f"look at {identity.operation_id}", lambda ops: self._see_to(ops, identity))

    def _see_to(self, operations: Operations, identity: Identity) -> None:
        view = operations.get(identity.kind, identity.operation_id, by=BY)
        drawn = self._chance.random()
        match view.state:
            case "proposed":
                self._decide(operations, view, drawn)
            case "handed_over":
                if drawn < 0.3:
                    operations.resume(view, by=BY, reason="try again")
                else:
                    self._settle(operations, view)
            case "outcome_unknown" | "accepted" if drawn < 0.5:
                self._settle(operations, view)
            case "failed" if drawn < 0.5 and not self._approvers(identity):
                operations.reissue(view, by=BY, reason="once more")
            case _:
                operations.cancel(view, by=BY, reason="the customer called")

    def _decide(self, operations: Operations, view: OperationView, drawn: float) -> None:
        version, digest = view.proposal_version, view.digest
        if drawn < 0.7:
            operations.approve(view, proposal_version=version, digest=digest, by=BY)
        elif drawn < 0.8:
            operations.reject(
                view, proposal_version=version, digest=digest, by=BY, reason="too much"
            )
        elif drawn < 0.9:
            operations.revise(view, self._params(view.identity, "20.00"), by=BY)
        else:
            operations.cancel(view, by=BY, reason="the customer called")

    def _settle(self, operations: Operations, view: OperationView) -> None:
        """Say what the provider's own books say; at times what they do not say."""
        provider = self._history.providers[view.identity.kind]
        stream = self._history.watch.stream(view.identity)
        keys = dict.fromkeys(attempt.key for attempt in stream.attempts)
        effects = [e for key in keys for e in provider.effects.get(key, ()) if e.counts]
        travelling = any(r.open for key in keys for r in provider.requests.get(key, ()))
        given: dict[str, Any] = {
            "evidence": {"statement": "line 7"},
            "by": BY,
            "reason": "looked at the provider's books",
        }
        if self._chance.random() < self._history.chances.lies and not self._history.calm:
            self._history.say(f"what is said of {view.identity.operation_id} is not so")
            with _untrue(stream):
                operations.settle(view, outcome="failed" if effects else "succeeded", **given)
        elif effects and effects[0].status == "succeeded":
            receipt = receipt_of(provider.contract, effects[0].params, effects[0].name, "succeeded")
            operations.settle(
                view, outcome="succeeded", reference=effects[0].name, receipt=receipt, **given
            )
        elif effects and effects[0].status == "reversed":
            before = stream.by_hand
            with _untrue(stream):  # until all of it is said: the service may die in between
                operations.settle(view, outcome="succeeded", reference=effects[0].name, **given)
            operations.record_evidence(
                by=BY,
                provider=provider.name,
                answered="reversed",
                kind=view.identity.kind,
                operation_id=view.identity.operation_id,
                reference=effects[0].name,
            )
            stream.by_hand = before
        elif not effects and not travelling:
            absent = self._chance.random() < 0.5
            operations.settle(view, outcome="absent" if absent else "failed", **given)

    def _approvers(self, identity: Identity) -> bool:
        return bool(self._history.providers[identity.kind].conduct.approvers)

    def _look_around(self) -> None:
        """See to what only people see to, until nothing of that is left."""
        history, rows = self._history, list(self._history.store.tables.heads.values())
        again = False
        for row in rows:
            if row.parked_at is not None:
                MemoryJournal(history.store).unpark(row.tenant, row.stream)
                again = True
            elif row.state == "handed_over" and history.chances.resolves:
                identity = Identity(row.tenant, row.kind, row.identity)
                if self._settleable(identity):
                    self._ask(f"settle {row.identity}", partial(self._close, identity))
                    again = True
        if again or self._out or not all(map(history.watch.at_rest, rows)):
            self._later(_LOOK_AROUND_SECONDS * 10, self._look_around)

    def _settleable(self, identity: Identity) -> bool:
        provider = self._history.providers[identity.kind]
        stream = self._history.watch.stream(identity)
        keys = dict.fromkeys(attempt.key for attempt in stream.attempts)
        effects = [e for key in keys for e in provider.effects.get(key, ())]
        return not stream.by_hand and all(effect.status != "pending" for effect in effects)

    def _close(self, identity: Identity, operations: Operations) -> None:
        view = operations.get(identity.kind, identity.operation_id, by=BY)
        if view.state == "handed_over":
            self._settle(operations, view)

    # Asking.

    def _ask(self, name: str, command: Callable[[Operations], object]) -> None:
        errand = Errand(name, command)
        self._out.append(errand)
        self._go(errand)

    def _go(self, errand: Errand) -> None:
        """Ask some service; where there is none, after a while."""
        services = self._history.services
        if not services:
            self._later(1.0, lambda: self._go(errand))
            return
        process = services[int(self._chance.random() * len(services))]
        errand.process = process

        def ask() -> None:
            try:
                errand.command(process.operations)
            except StoreError as error:
                self._history.say(f"{errand.name}: {type(error).__name__}, asked again")
                errand.process = None
                self._later(self._chance.random() * 5, lambda: self._go(errand))
                return
            except SettledError as error:
                self._history.say(f"{errand.name}: {type(error).__name__}")
            self._out.remove(errand)

        process.thread(ask)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._scheduler.after(seconds, self._history.world, call)
