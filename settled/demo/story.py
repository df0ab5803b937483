"""The story: intend, dispatch, perform, kill, recover; told as it happens and checked at its end.

Nothing that it tells is written down here: it is what the store's events, the processes and the
provider's own log say.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from settled.app import App
from settled.cli.output import document_of
from settled.cli.telling import counted, duration, event_name, short_key, told
from settled.demo.refund import PROVIDER_VARIABLE, RefundParams, refund_at
from settled.demo.stage import Place, WorkerProcess, workers
from settled.domain.errors import WaitTimeout
from settled.domain.identity import Principal
from settled.domain.money import Money
from settled.infrastructure.simulator.client import SimulatorClient, running_simulator
from settled.infrastructure.simulator.record import SimulatorLog
from settled.projections.history import HistoryEntry
from settled.projections.operation_view import OperationView

OPERATION_ID = "refund-request-9"

_PATIENCE_SECONDS = 20.0
_LOOK_SECONDS = 0.01
_NAME_WIDTH = len("outcome_unknown")

Say = Callable[[str], None]


@dataclass
class Story:
    """What happened, and what of it was not as it has to be."""

    entries: list[HistoryEntry]
    operation: OperationView
    provider: SimulatorLog
    killed: WorkerProcess
    states: list[str]
    problems: list[str] = field(default_factory=list[str])

    @property
    def keys(self) -> set[str | None]:
        """The idempotency keys that the provider saw."""
        return {call.key for call in self.provider.calls()}

    def document(self) -> dict[str, Any]:
        """Return the story as JSON has it."""
        return {
            "operation": document_of(self.operation),
            "events": [document_of(entry) for entry in self.entries],
            "killed": {"worker": self.killed.name, "pid": self.killed.pid},
            "provider": {
                "requests": len(self.provider.calls()),
                "keys": len(self.keys),
                "effects": len(self.provider.effects),
            },
            "problems": self.problems,
        }


def tell(place: Place, say: Say) -> Story:
    """Stage the crash and tell it, line by line. What is wrong is in the story's problems."""
    with running_simulator(log=place.folder / "provider.jsonl", cache_failures=True) as provider:
        provider.fault(hold_after=True)  # perform the first request, and keep its reply
        environment = {PROVIDER_VARIABLE: provider.refunds_url}
        with workers(place, environment, 2) as running, _opened(place, provider) as app:
            teller = _Teller(app, say, {one.name: one.pid for one in running})
            params = RefundParams(order="order-72", amount=Money("30.00", "USD"))
            operation = app.operations.intend("refund", OPERATION_ID, params, by=teller.agent)
            seen_before = _held(provider)
            teller.until(operation, lambda entry: entry.name == "Dispatching")
            killed = _kill_sender(teller, running, say)
            teller.until(operation, lambda entry: entry.name in ("Succeeded", "HandedOver"))
            story = Story(
                entries=teller.entries,
                operation=app.operations.get("refund", OPERATION_ID, by=teller.agent),
                provider=provider.log(),
                killed=killed,
                states=[row.state for row in app.journal.heads(teller.agent.tenant)],
            )
            exits = [one.stop() for one in running if one is not killed]
            story.problems += _problems(story, seen_before, exits)
    _sum_up(story, say)
    return story


@contextmanager
def _opened(place: Place, provider: SimulatorClient) -> Generator[App]:
    kinds = [refund_at(provider.refunds_url)]
    # A test server without fsync will do: what dies here is a process, never the machine.
    with closing(App(place.url, kinds=kinds, migrate=False, require_fsync=False)) as app:
        yield app


def _held(provider: SimulatorClient) -> SimulatorLog:
    """Wait until the provider has performed the request and holds its reply; return its log."""
    return provider.wait(seconds=_PATIENCE_SECONDS, effects=1, held=1)


def _kill_sender(teller: _Teller, running: Sequence[WorkerProcess], say: Say) -> WorkerProcess:
    sender = teller.entries[-1].fields["worker"]
    victim = next(one for one in running if one.name == sender)
    status = victim.kill()
    teller.killed_at = teller.app.clock.now()
    say(
        f"   worker {victim.pid} killed ({signal.Signals(-status).name}) after the provider"
        " performed, before the reply was recorded"
    )
    return victim


@dataclass
class _Teller:
    """Prints each event of the operation once, when it is there."""

    app: App
    say: Say
    pids: dict[str, int]
    entries: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    killed_at: datetime | None = None
    agent: Principal = Principal(tenant="acme", actor="support-agent")

    def until(self, operation: OperationView, last: Callable[[HistoryEntry], bool]) -> None:
        """Tell events up to the one that is waited for. Raises WaitTimeout."""
        give_up_at = self.app.clock.monotonic() + _PATIENCE_SECONDS
        while True:
            history = self.app.operations.history(operation, by=self.agent)
            for entry in history[len(self.entries) :]:
                self.say(self._line(entry))
                self.entries.append(entry)
                if last(entry):
                    return
            if self.app.clock.monotonic() > give_up_at:
                raise WaitTimeout(
                    f"The demo's operation went no further within {_PATIENCE_SECONDS:g} s.",
                    hint="`settled demo --keep` keeps the logs of its workers.",
                )
            time.sleep(_LOOK_SECONDS)

    def _line(self, entry: HistoryEntry) -> str:
        said = self._said(entry)
        return f"{entry.version}  {event_name(entry.name).ljust(_NAME_WIDTH)}  {said}"

    def _said(self, entry: HistoryEntry) -> str:
        match entry.name:
            case "Intended":
                return f"{OPERATION_ID}   {told(entry)}"
            case "Claimed":
                return self._worker(entry)
            case "Dispatching":
                return self._attempt(entry)
            case "OutcomeUnknown" if entry.fields["cause"] == "owner_gone" and self.killed_at:
                return f"owner lost after {duration(entry.at - self.killed_at)}"
            case _:
                return told(entry)

    def _attempt(self, entry: HistoryEntry) -> str:
        key = entry.fields["key"]
        earlier = [one.fields["key"] for one in self.entries if one.name == "Dispatching"]
        if not earlier:
            return f"attempt {entry.fields['attempt']}, key {short_key(key)}"
        same = "the same key" if earlier == [key] * len(earlier) else f"key {short_key(key)}"
        return f"attempt {entry.fields['attempt']}, {same}, by {self._worker(entry)}"

    def _worker(self, entry: HistoryEntry) -> str:
        return f"worker {self.pids[entry.fields['worker']]}"


def _problems(story: Story, seen_before: SimulatorLog, exits: Sequence[int]) -> list[str]:
    """Return what was not as it has to be; the log before the kill shows that it came in time."""
    calls = story.provider.calls()
    dispatched = [entry for entry in story.entries if entry.name == "Dispatching"]
    receipt = story.operation.receipt or {}
    demands = {
        "the first request was performed and unanswered when its worker was killed": (
            len(seen_before.effects) == 1 and seen_before.calls()[0].reply is None
        ),
        "the provider has exactly one effect": len(story.provider.effects) == 1,
        "every request was recorded before it left": len(calls) == len(dispatched) == 2,
        "both requests carried the operation's key": (story.keys == {story.operation.provider_key}),
        "both requests were the same, byte for byte": len({call.body for call in calls}) == 1,
        "the second request was sent by the other worker": (
            [entry.fields["worker"] == story.killed.name for entry in dispatched] == [True, False]
        ),
        "the operation succeeded": story.operation.state == "succeeded",
        "the receipt is the provider's object": (
            [effect.id for effect in story.provider.effects] == [receipt.get("id")]
        ),
        "there is one operation": len(story.states) == 1,
        "the other worker ended by itself": list(exits) == [0],
    }
    return [f"{demand}: no" for demand, met in demands.items() if not met]


def _sum_up(story: Story, say: Say) -> None:
    calls, effects = len(story.provider.calls()), len(story.provider.effects)
    unknown = story.states.count("outcome_unknown")
    in_hands = story.states.count("handed_over")
    seen = [counted(calls, "request"), counted(len(story.keys), "key"), counted(effects, "effect")]
    say("")
    say(f"provider log   {', '.join(seen)}")
    say(
        f"settled        {counted(len(story.states), 'operation')}, {story.operation.state},"
        f" {unknown} unknown, {in_hands} in anybody's hands"
    )
