"""From ready to the reply: claim, revalidate, record Dispatching, send, conclude."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.kind import Kind
from settled.domain.machine.machine import StateMachine
from settled.domain.operation import deciding
from settled.domain.operation import events as ev
from settled.domain.operation.operation import CLAIM_SECONDS, Operation
from settled.processes.manager import Decision, Perform, Position, Record, Rest, Work
from settled.processes.operations import PAUSE_SECONDS, Desk, NotSealed
from settled.processes.revalidation import NoAnswer, Revalidation
from settled.processes.runner import ShutDown

LONGEST_PAUSE_SECONDS = 600.0
"""How long an operation is left alone at most whose revalidation does not end."""


@dataclass(frozen=True)
class Dispatcher:
    """Sends what is ready, and gives back what a gone worker had claimed without sending."""

    desk: Desk
    name: str = "dispatcher"
    revalidation: Revalidation = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "revalidation", Revalidation(self.desk))

    def interested(self, machine: StateMachine) -> bool:
        """Operations that are ready or claimed."""
        return isinstance(machine, Operation) and machine.state in ("ready", "claimed")

    def decide(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        """Claim and dispatch; or expire, cancel or release what must not be sent."""
        if machine.state == "claimed" and machine.claim_epoch != position.epoch:
            reason = "its worker is gone, and nothing was sent"
            return self._release(machine, stamp, reason, deliberate=False)
        if machine.cancel_requested:
            machine.record(ev.Cancelled, stamp, reason="cancelled before anything was sent")
            return Record()
        if machine.approved_until is not None and stamp.at >= machine.approved_until:
            return self._lapse(machine, stamp)
        if stamp.at >= machine.give_up_at:
            if machine.state == "claimed":
                return self._release(machine, stamp, "its time ran out")
            machine.record(ev.Expired, stamp)
            return Record()
        if position.draining:
            if machine.state == "claimed":
                return self._release(machine, stamp, "the worker is stopping")
            return Rest()
        return self._go(machine, stamp, position)

    def _go(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        kind = self.desk.kinds.serving(machine)
        if machine.state == "ready":
            machine.record(
                ev.Claimed,
                stamp,
                worker=position.worker,
                epoch=position.epoch,
                due_at=stamp.at + timedelta(seconds=CLAIM_SECONDS),
            )
            if self.revalidation.is_due(kind, machine, stamp):
                return Record()
        if self.revalidation.is_due(kind, machine, stamp):
            return self._revalidate(machine, kind)
        return self._send(machine, stamp, position)

    def _revalidate(self, machine: Operation, kind: Kind[Any]) -> Decision:
        async def revalidate() -> Any:
            return await self.revalidation.ask(kind, machine)

        return Perform(Work.LOOKUP, "revalidate", revalidate, self._revalidated)

    def _lapse(self, machine: Operation, stamp: Stamp) -> Decision:
        """Let the approval end: what has not been sent by it is asked for again."""
        if machine.state == "claimed":
            self._release(machine, stamp, "its approval is over")
        decide_within = self.desk.kinds[machine.kind].decide_within
        deciding.lapse(machine, stamp, stamp.at + decide_within)
        return Record()

    def _send(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        try:
            return self.desk.dispatch(machine, stamp, position)
        except NotSealed as error:
            return self._release(machine, stamp, str(error), seconds=PAUSE_SECONDS)

    def _revalidated(self, machine: Operation, result: Any, stamp: Stamp) -> None:
        """Record what the hook's answer means; without one it rests, the longer the older it is."""
        kind = self.desk.kinds.serving(machine)
        try:
            self.revalidation.conclude(machine, kind, result, stamp)
        except NoAnswer as error:
            assert machine.intended_at is not None, "what is claimed was intended"
            age_seconds = (stamp.at - machine.intended_at).total_seconds()
            seconds = min(max(PAUSE_SECONDS, age_seconds / 8), LONGEST_PAUSE_SECONDS)
            if isinstance(result, ShutDown):
                seconds = 0
            self._release(machine, stamp, f"revalidation did not end: {error}", seconds=seconds)

    def _release(
        self,
        machine: Operation,
        stamp: Stamp,
        reason: str,
        *,
        seconds: float = 0,
        deliberate: bool = True,
    ) -> Decision:
        due_at = min(stamp.at + timedelta(seconds=seconds), max(machine.give_up_at, stamp.at))
        machine.record(ev.Released, stamp, reason=reason, due_at=due_at, deliberate=deliberate)
        return Record()
