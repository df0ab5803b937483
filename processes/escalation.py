"""Tells the named owner of what was handed over, again and again, and then a second one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.machine.machine import StateMachine
from settled.domain.notifier import Notice, Notifier
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.processes.blocking import on_thread
from settled.processes.log import logger
from settled.processes.manager import Decision, Perform, Position, Rest, Work
from settled.processes.operations import Desk
from settled.processes.runner import ShutDown

NOTIFY_SECONDS = 60.0
"""How long telling an owner may take before it counts as not delivered."""

UNDELIVERED_RETRY_SECONDS = 60.0
"""How soon a notice that could not be delivered is tried again."""


@dataclass(frozen=True)
class Escalation:
    """Keeps what is handed over from being forgotten."""

    desk: Desk
    notifier: Notifier
    name: str = "escalation"

    def interested(self, machine: StateMachine) -> bool:
        """Operations that a person has to reconcile."""
        return isinstance(machine, Operation) and machine.state == "handed_over"

    def decide(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        """Notify the owner, and the second owner when the first has not acted."""
        if position.draining:
            return Rest()
        kind = self.desk.kinds.of_operation(machine)
        owner = machine.owner_name or machine.terms.hand_over_to
        second = machine.notified >= kind.second_owner_after and kind.second_owner is not None
        notice = Notice(
            tenant=machine.tenant,
            kind=machine.kind,
            operation_id=machine.operation_id,
            label=machine.label,
            owner=owner,
            second_owner=kind.second_owner if second else None,
            reason=machine.last_reason or "",
            since=machine.handed_over_at or machine.modified_on,
            times=machine.notified + 1,
        )

        async def notify() -> None:
            await on_thread(self.notifier.notify, notice, seconds=NOTIFY_SECONDS)

        def conclude(operation: Operation, result: Any, stamp: Stamp) -> None:
            if isinstance(result, ShutDown):
                return
            if isinstance(result, Exception):
                logger("settled.escalation").error(
                    "owner_not_told",
                    operation=operation.operation_id,
                    owner=owner,
                    error=str(result),
                )
            delivered = not isinstance(result, Exception)
            pause = kind.notify_every if delivered else timedelta(seconds=UNDELIVERED_RETRY_SECONDS)
            to = f"{owner}, {kind.second_owner}" if second else owner
            operation.record(
                ev.OwnerNotified, stamp, to=to, delivered=delivered, next_at=stamp.at + pause
            )

        return Perform(Work.NOTIFY, kind.name, notify, conclude)
