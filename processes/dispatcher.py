"""From ready to the reply: claim, revalidate, record Dispatching, send, conclude."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.machine.machine import StateMachine
from settled.domain.operation import events as ev
from settled.domain.operation.operation import CLAIM_SECONDS, Operation
from settled.processes.blocking import on_thread
from settled.processes.manager import Decision, Perform, Position, Record, Rest, Work
from settled.processes.operations import PAUSE_SECONDS, Desk, NotSealed
from settled.processes.runner import ShutDown


@dataclass(frozen=True)
class Dispatcher:
    """Sends what is ready, and gives back what a gone worker had claimed without sending."""

    desk: Desk
    name: str = "dispatcher"

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
            if kind.revalidate is not None:
                return Record()
        if kind.revalidate is None or machine.revalidated:
            return self._send(machine, stamp, position)
        hook, params = kind.revalidate, self.desk.params(kind, machine)

        async def revalidate() -> str | None:
            return await on_thread(hook, params, seconds=kind.call_timeout.total_seconds())

        return Perform(Work.LOOKUP, "revalidate", revalidate, self._revalidated)

    def _send(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        try:
            return self.desk.dispatch(machine, stamp, position)
        except NotSealed as error:
            return self._release(machine, stamp, str(error), seconds=PAUSE_SECONDS)

    def _revalidated(self, machine: Operation, result: Any, stamp: Stamp) -> None:
        """Go on, or call it off; a hook that fails settles nothing and is asked again later."""
        if result is None:
            machine.revalidated = True
        elif isinstance(result, BaseException):
            stopping = isinstance(result, ShutDown)
            reason = "the worker is stopping" if stopping else str(result) or "no answer in time"
            seconds = 0 if stopping else PAUSE_SECONDS
            self._release(machine, stamp, f"revalidation did not end: {reason}", seconds=seconds)
        else:
            machine.record(ev.Cancelled, stamp, reason=f"no longer valid: {result}")

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
