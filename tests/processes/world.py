"""A small world in memory for the process managers: a provider that keeps its contract, and time.

It exists to run the unmodified managers through thousands of histories in which a worker dies at
any step. It takes the place of no database and of no socket in the tests that prove those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from settled.domain.clock import Stamp
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.identity import Identity, provider_key
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.unit import RecordedEvent
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.machine.machine import StateMachine
from settled.domain.money import Money
from settled.domain.notifier import Notice
from settled.domain.operation.operation import Operation, intend
from settled.domain.params import Params
from settled.domain.provider import Answered, Call, Echo, Finding, Lookup, SealedRequest, Via
from settled.domain.retry import FullJitter
from settled.infrastructure.testing.manual_clock import ManualClock
from settled.processes.dispatcher import Dispatcher
from settled.processes.escalation import Escalation
from settled.processes.expiry import Expiry
from settled.processes.manager import Perform, Position, ProcessManager, Record, Rest
from settled.processes.operations import Desk
from settled.processes.reconciler import Reconciler

INSTALLATION = UUID(int=7)


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


@dataclass
class ModelProvider:
    """Performs, remembers keys for its window, and loses replies when told to."""

    contract: ProviderContract
    clock: ManualClock
    keyed: bool
    window: timedelta
    visible_lookup: bool
    name: str = "psp"
    requests: list[tuple[str, int, bytes]] = field(default_factory=list[tuple[str, int, bytes]])
    effects: list[str] = field(default_factory=list[str])
    kept: dict[str, datetime] = field(default_factory=dict[str, datetime])
    lose_next: bool = False
    fail_next: Answered | None = None

    def seal(self, identity: Identity, key: str, params: Any, secret: bytes) -> SealedRequest:
        return SealedRequest("POST", "mem:", (), f"{identity}:{params}".encode(), "model/1")

    async def send(self, call: Call) -> Finding:
        late = call.permit.check(self.clock.monotonic())
        if late is not None:
            return Finding(Answered.NOT_SENT, Via.REPLY, late)
        if self.fail_next in (Answered.NOT_SENT,):
            self.fail_next = None
            return Finding(Answered.NOT_SENT, Via.REPLY, "refused connection")
        self.requests.append((call.key, call.attempt, call.request.body))
        if self.fail_next is not None:
            answered, self.fail_next = self.fail_next, None
            return Finding(answered, Via.REPLY, f"told to answer {answered}")
        seen = self.kept.get(call.key)
        replay = self.keyed and seen is not None and self.clock.at - seen <= self.window
        if not replay:
            self.effects.append(call.key)
            self.kept[call.key] = self.clock.at
        if self.lose_next:
            self.lose_next = False
            return Finding(Answered.LOST, Via.REPLY, "the reply was lost")
        return self._performed(call.key, Via.REPLY, replay)

    async def look_up(self, lookup: Lookup) -> Finding:
        if lookup.key in self.effects and self.visible_lookup:
            return self._performed(lookup.key, Via.LOOKUP, False)
        return Finding(Answered.ABSENT, Via.LOOKUP, "nothing is listed")

    def _performed(self, key: str, via: Via, replay: bool) -> Finding:
        number = self.effects.index(key) + 1
        return Finding(
            Answered.PERFORMED,
            via,
            "performed",
            reference=f"re_{number}",
            receipt={"id": f"re_{number}"},
            echo=Echo.EQUAL,
            replayed=replay,
        )


class Memory:
    """A notifier that remembers."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def notify(self, notice: Notice) -> None:
        self.notices.append(notice)


class World:
    """One operation, its journal in memory, and workers that may die between any two steps."""

    def __init__(self, provider: ModelProvider, clock: ManualClock, **policy: Any) -> None:
        self.provider, self.clock = provider, clock
        self.mapper = EventMapper(DerivedKeys(b"k" * 32))
        policy.setdefault("retry", FullJitter(1, 60, 8))
        self.kind = Kind("refund", RefundParams, provider, "payments-oncall", **policy)
        self.notifier = Memory()
        desk = Desk(Kinds.of([self.kind]), clock, b"s" * 32, self._execute)
        self.managers: list[ProcessManager] = [
            Dispatcher(desk),
            Reconciler(desk),
            Expiry(),
            Escalation(desk, self.notifier),
        ]
        self.log: list[RecordedEvent] = []
        self.epoch = 1
        self.dispatched_before: list[int] = []

    def intend(self) -> None:
        identity = Identity("acme", "refund", "refund-request-9")
        params = RefundParams(order="order-72", amount=Money("30.00", "USD"))
        terms = self.kind.terms(identity, params, DerivedKeys(b"k" * 32), {})
        key = provider_key(INSTALLATION, identity, 1)
        self.commit(intend(terms, Stamp(self.clock.at, "support-agent"), key))

    def _execute(self, operation: Operation, command: Callable[[Operation], None]) -> None:
        newer = self.load()
        command(newer)
        self.commit(newer)

    def load(self) -> Operation:
        machine = self.mapper.fold(self.log)
        assert isinstance(machine, Operation)
        return machine

    def commit(self, machine: StateMachine) -> None:
        self.log.extend(self.mapper.seal(machine, self.clock.new_ids))

    def step(self, crash: str | None = None, stall: timedelta = timedelta()) -> None:
        """Let a worker take the row, and die at `crash`: before_commit, before_call, after_call."""
        machine = self.load()
        if machine.next_due() is None:
            return
        in_flight = machine.held
        if in_flight:
            self.epoch += 1  # whoever takes a held row is another worker: its owner is gone
        position = Position("worker", self.epoch, draining=False)
        for _ in range(6):
            if not self._turn(machine, position, crash, stall):
                return
            if not machine.held:
                return

    def _turn(
        self, machine: Operation, position: Position, crash: str | None, stall: timedelta
    ) -> bool:
        manager = next(m for m in self.managers if m.interested(machine))
        decision = manager.decide(machine, Stamp(self.clock.at, manager.name), position)
        if isinstance(decision, Rest) or crash == "before_commit":
            return False
        if machine.pending_events:
            self.commit(machine)
        if isinstance(decision, Record):
            return True
        assert isinstance(decision, Perform)
        if crash == "before_call":
            return False
        self.clock.at += stall
        before = len(self.provider.requests)
        result: Any = asyncio.run(_result(decision))
        if len(self.provider.requests) > before:
            self.dispatched_before.append(self.count("Dispatching"))
        if crash == "after_call":
            return False
        decision.conclude(machine, result, Stamp(self.clock.at, manager.name))
        if machine.pending_events:
            self.commit(machine)
        return True

    def count(self, name: str) -> int:
        return sum(record.topic.endswith(f".{name}") for record in self.log)

    def names(self) -> list[str]:
        return [record.topic.rpartition(".")[2] for record in self.log]


async def _result(decision: Perform) -> Any:
    try:
        return await decision.act()
    except Exception as error:
        return error


def equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Compare two machines' attributes, but for what is never recorded."""
    skip = {"_pending_events", "revalidated", "new_references", "_created_on"}
    return {k: v for k, v in one.items() if k not in skip} == {
        k: v for k, v in other.items() if k not in skip
    }
