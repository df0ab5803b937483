"""The run: an aggregate whose events say where one execution of an agent stands.

It answers what it waits for, until when, what it has used, and what its calls returned. It never
answers whether an effect happened: that is the operation's own stream, to which its calls are
bound by the business's identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from settled.domain.clock import Stamp
from settled.domain.deadlines import Deadline
from settled.domain.errors import InvalidInput, NotPossible
from settled.domain.identity import Identity, stream_id
from settled.domain.machine.machine import StateMachine
from settled.domain.run import events as ev
from settled.domain.run.lifecycle import LIFECYCLE
from settled.domain.run.records import (
    Bound,
    CallRecord,
    Checkpoint,
    Lack,
    OnRecovery,
    Reason,
    Seen,
    Sort,
    Usage,
    Wait,
    add,
    lacking,
    left,
)

CATEGORY = "run"

FIRST_LOOK = timedelta(milliseconds=250)
"""How soon what is waited for is looked at, in case whoever changed it died before it told us."""

LONGEST_LOOK = timedelta(minutes=5)

SESSION, TURN, CALL = "session", "turn", "call"
"""The levels of deadlines, from the outermost."""


class Run(StateMachine):
    """One execution of an agent, identified by (tenant, kind, run id)."""

    TOPIC = "settled.run"
    LIFECYCLE = LIFECYCLE
    EVENTS = ev.EVENTS

    @staticmethod
    def stream(identity: Identity) -> UUID:
        """Return the stream of a run; its `operation_id` is the run's id."""
        return stream_id(identity.tenant, CATEGORY, identity.kind, identity.operation_id)

    def prepare(self) -> None:
        """Give every attribute its first value."""
        super().prepare()
        self.started: ev.Started
        self.state_version = 0
        self.epoch = 0
        self.worker: str | None = None
        self.membership: int | None = None
        self.calls: dict[str, CallRecord] = {}
        self.turns: dict[str, datetime] = {}
        self.bound: dict[UUID, Bound] = {}
        self.used: dict[str, int] = {}
        self.reserved: dict[str, dict[str, int]] = {}
        self.checkpoint: Checkpoint | None = None
        self.boundaries: dict[str, int] = {}
        self.wait: Wait | None = None
        self.waits: dict[str, Wait] = {}
        self.waiting_since: datetime
        self.looks = 0
        self.inputs: dict[str, str | None] = {}
        self.seen: dict[UUID, Seen] = {}
        self.passed: frozenset[tuple[str, str]] = frozenset()
        self.failures = 0
        self.withheld = 0
        self.cancel_requested = False
        self.last_reason: str | None = None
        self.result: str | None = None
        self.due: datetime

    # What is read.

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.identity

    @property
    def business_identity(self) -> Identity:
        """Tenant, kind and run id together."""
        return Identity.recorded(self.tenant, self.kind, self.identity)

    @property
    def left(self) -> dict[str, int]:
        """What is left of each limit, with what is reserved taken off."""
        return left(self.started.budget.limits, self.used, self.reserved.values())

    @property
    def all_used(self) -> dict[str, int]:
        """What was used, and what was reserved and never settled: it may have been used."""
        total: dict[str, int] = dict(self.used)
        for amounts in self.reserved.values():
            total = add(total, amounts)
        return total

    @property
    def pending(self) -> tuple[CallRecord, ...]:
        """The calls that were made and have not returned."""
        return tuple(call for call in self.calls.values() if call.state == "pending")

    def next_due(self) -> datetime | None:
        """Return when somebody has to look at it again; never later than its session ends."""
        if self.settled:
            return None
        until = self.started.session_until
        if self.wait is not None and self.state == "waiting":
            until = min(until, self.wait.until)
        return min(self.due, until)

    def is_told(self, wait: Wait) -> bool:
        """Tell whether what ends a wait stands in this stream. A timer is ended by its moment."""
        if wait.on == "input":
            return wait.key in self.inputs
        seen = self.seen.get(wait.operation.stream) if wait.operation else None
        if seen is None:
            return False
        return wait.is_over_in(seen)

    def is_over(self, wait: Wait, now: datetime) -> bool:
        """Tell whether the run can go on: told, at the timer's moment, or past the deadline."""
        timed = wait.at is not None and now >= wait.at
        return timed or self.is_told(wait) or (wait.level, wait.key) in self.passed

    def next_look(self, at: datetime) -> datetime:
        """Return when what is waited for is looked at again: ever later, in a fixed series."""
        assert self.wait is not None, "only a run that waits looks"
        if self.wait.at is not None:
            return self.wait.at
        if self.wait.operation is None:
            return self.wait.until  # an input arrives in this stream, or not at all
        return at + min(FIRST_LOOK * (1 << min(self.looks, 20)), LONGEST_LOOK)

    # Commands of its owner.

    def must_be_owned_by(self, epoch: int) -> None:
        """Refuse what another owner than the present one wants to record."""
        if self.state != "running" or epoch != self.epoch:
            raise NotPossible(
                f"Run {self.run_id} is {self.state} under owner epoch {self.epoch}, not {epoch}.",
                hint="Another worker has it by now; stop.",
            )

    def claim(self, stamp: Stamp, *, worker: str, membership: int) -> None:
        """Take the run under the next epoch."""
        self.record(
            ev.OwnerClaimed,
            stamp,
            epoch=self.epoch + 1,
            worker=worker,
            membership=membership,
            reason=Reason.RESUME if self.epoch else Reason.FRESH,
        )

    def deadline(
        self, now: datetime, within: timedelta | None, turn: str | None = None
    ) -> tuple[Deadline, str]:
        """Return the earliest of what bounds a call that begins now, and its level."""
        found, level = Deadline(self.started.session_until), SESSION
        if turn is not None and self.turns[turn] < found.at:
            found, level = Deadline(self.turns[turn]), TURN
        if within is not None and (child := found.child(within, now)) != found:
            found, level = child, CALL
        return found, level

    def begin_turn(self, stamp: Stamp, turn: str, within: timedelta) -> None:
        """Begin a turn; one that was begun keeps its deadline."""
        if turn not in self.turns:
            until = Deadline(self.started.session_until).child(within, stamp.at)
            self.record(ev.TurnStarted, stamp, turn=turn, until=until.at)

    def request(
        self,
        stamp: Stamp,
        *,
        sort: Sort,
        call_id: str,
        called: str,
        on_recovery: OnRecovery,
        digest: str,
        until: datetime,
        level: str,
        reserve: Usage,
        model_call_id: str | None = None,
        rpc_id: str | None = None,
    ) -> Lack | None:
        """Record that a call is about to be made, with what it reserves.

        Records BudgetExceeded instead, and returns what is lacking, where too little is left.
        """
        before = self.calls.get(call_id)
        wanted = add(reserve.amounts, {"calls": 1})
        lost = dict(self.reserved)
        used = add(self.used, lost.pop(call_id, {}))
        remaining = left(self.started.budget.limits, used, lost.values())
        lack = lacking(remaining, wanted, of_all=sort is Sort.MODEL)
        if lack is not None:
            self.record(
                ev.BudgetExceeded,
                stamp,
                call_id=call_id,
                unit=lack.unit,
                wanted=lack.wanted,
                left=lack.left,
            )
            return lack
        self.record(
            ev.REQUESTED[sort],
            stamp,
            call_id=call_id,
            called=called,
            on_recovery=on_recovery,
            digest=digest,
            until=until,
            level=level,
            attempt=before.attempt + 1 if before else 1,
            reserved=wanted,
            model_call_id=model_call_id,
            rpc_id=rpc_id,
        )
        return None

    def time_out(self, stamp: Stamp, call: CallRecord) -> None:
        """Record that a call has not returned in time; what it reserved may have been used."""
        used = dict(self.reserved.get(call.call_id, {}))
        self.pass_deadline(stamp, call.level, call.call_id, call.until)
        self.record(ev.CallTimedOut, stamp, call_id=call.call_id, used=used)

    def pass_deadline(self, stamp: Stamp, level: str, subject: str, until: datetime) -> None:
        """Record once that a deadline has passed."""
        if (level, subject) not in self.passed:
            self.record(ev.DeadlinePassed, stamp, level=level, subject=subject, until=until)

    def expire(self, stamp: Stamp) -> None:
        """End it because its session is over."""
        self.pass_deadline(stamp, SESSION, self.run_id, self.started.session_until)
        self.record(ev.Expired, stamp)

    # Commands of anybody.

    def receive(self, stamp: Stamp, name: str, value: str, rpc_id: str | None = None) -> bool:
        """Take an input, whether it is awaited yet or not; False when there is one by that name."""
        if name in self.inputs:
            return False
        self.record(ev.InputReceived, stamp, input_name=name, value=value, rpc_id=rpc_id)
        return True

    def see(self, stamp: Stamp, operation: Bound, seen: Seen) -> None:
        """Take news of an operation that it is bound to, once."""
        if not self.settled and operation.stream in self.bound:
            if self.seen.get(operation.stream) != seen:
                self.record(ev.OperationSeen, stamp, operation=operation, seen=seen)

    def cancel(self, stamp: Stamp, reason: str) -> None:
        """End it, or ask its owner to. Cancelled twice is cancelled once."""
        if self.state == "running":
            if not self.cancel_requested:
                self.record(ev.CancelRequested, stamp, reason=reason)
        elif self.state != "cancelled":
            self.record(ev.Cancelled, stamp, reason=reason)

    # Folding, called by the events.

    def take_call(self, call: CallRecord) -> None:
        """Remember a call."""
        self.calls = self.calls | {call.call_id: call}

    def change_call(self, call_id: str, **changes: Any) -> None:
        """Remember what became of a call."""
        if call_id in self.calls:  # a call may be refused before it was requested
            self.take_call(replace(self.calls[call_id], **changes))

    def use_lost(self, call_id: str) -> None:
        """Count what an earlier try of a call had reserved as used: it may have been."""
        self.settle(call_id, self.reserved.get(call_id, {}))

    def settle(self, call_id: str, used: Mapping[str, int]) -> None:
        """Take off what a call had reserved, and count what it used."""
        self.reserved = {name: what for name, what in self.reserved.items() if name != call_id}
        self.used = add(self.used, used)

    def take_news(self, at: datetime) -> None:
        """Become due where the news ends what is waited for."""
        if self.wait is not None and self.is_told(self.wait):
            self.due = at


def start(
    stamp: Stamp,
    identity: Identity,
    *,
    agent_build: str,
    state_version: int,
    session: timedelta,
    budget: Any,
    input: str | None,
) -> Run:
    """Begin a run."""
    return Run.begin(
        ev.Started,
        Run.stream(identity),
        stamp,
        tenant=identity.tenant,
        kind=identity.kind,
        identity=identity.operation_id,
        reason=Reason.FRESH,
        agent_build=agent_build,
        state_version=state_version,
        session_until=Deadline.after(session, stamp.at).at,
        budget=budget,
        input=input,
    )


def descend(
    parent: Run, stamp: Stamp, run_id: str, reason: Reason, *, agent_build: str, state_version: int
) -> Run:
    """Begin a run that goes on from another: with its input, its deadline, and what it had used.

    Of its calls it knows nothing: what it wants done has the same business identity, and meets the
    same operation. A historical replay is for looking: it answers from the parent's records.
    """
    if run_id == parent.run_id:
        raise InvalidInput(
            f"{run_id} is the run itself.", hint="Give the run that goes on a name of its own."
        )
    identity = Identity(parent.tenant, parent.kind, run_id)
    started = parent.started
    return Run.begin(
        ev.Started,
        Run.stream(identity),
        stamp,
        tenant=parent.tenant,
        kind=parent.kind,
        identity=run_id,
        reason=reason,
        agent_build=agent_build,
        state_version=state_version,
        session_until=started.session_until,
        budget=started.budget,
        parent=parent.run_id,
        used=parent.all_used,
        input=started.input,
        checkpoint=parent.checkpoint,
    )
