"""Proposals on which nobody decided in time."""

from __future__ import annotations

from dataclasses import dataclass

from settled.domain.clock import Stamp
from settled.domain.machine.machine import StateMachine
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.processes.manager import Decision, Position, Record, Rest


@dataclass(frozen=True)
class Expiry:
    """Ends proposals whose time is over; what is ready expires when the dispatcher looks at it."""

    name: str = "expiry"

    def interested(self, machine: StateMachine) -> bool:
        """Operations that wait for a decision."""
        return isinstance(machine, Operation) and machine.state == "proposed"

    def decide(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        """Expire the proposal when it is due."""
        if machine.expires_at is None or stamp.at < machine.expires_at:
            return Rest()
        machine.record(ev.ProposalExpired, stamp)
        return Record()
