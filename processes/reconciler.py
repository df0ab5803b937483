"""What is unknown, accepted, or left by a gone worker: look up, poll, resend, wait, hand over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from settled.domain.clock import Stamp
from settled.domain.machine.machine import StateMachine
from settled.domain.operation.judgement import OWNER_GONE, conclude
from settled.domain.operation.operation import Operation
from settled.domain.provider import SealedRequest
from settled.domain.recovery import StepKind, recover
from settled.processes.manager import Decision, Position, Record, Rest
from settled.processes.operations import Desk


@dataclass(frozen=True)
class Reconciler:
    """Takes the step that the contract allows, one at a time.

    A row in dispatching is only ever claimed when its owner is gone: whoever holds it concludes it.
    """

    desk: Desk
    name: str = "reconciler"

    def interested(self, machine: StateMachine) -> bool:
        """Operations whose outcome is not known."""
        return isinstance(machine, Operation) and machine.state in (
            "dispatching",
            "outcome_unknown",
            "accepted",
        )

    def decide(self, machine: Operation, stamp: Stamp, position: Position) -> Decision:
        """Ask recovery what the contract allows now, and do it or record it."""
        kind = self.desk.kinds.serving(machine)
        contract = kind.provider.contract
        if machine.state == "dispatching":
            jitter = self.desk.jitter(kind, machine)
            conclude(machine, recover(machine.situation(stamp.at), contract, None, jitter), stamp)
            return Record()
        if position.draining:
            return Rest()
        situation = machine.situation(stamp.at, today=self._sealed_today(machine))
        # The pause was drawn when the row was made due, and is over: none is drawn again.
        step = recover(situation, contract, None, timedelta())
        if step.not_before is None or step.not_before <= stamp.at:
            if step.kind is StepKind.RESEND and machine.state == "outcome_unknown":
                return self.desk.dispatch(machine, stamp, position)
            if step.kind in (StepKind.LOOK_UP, StepKind.POLL):
                return self.desk.look_up(machine, stamp)
        conclude(machine, step, stamp, cause=OWNER_GONE)
        return Record()

    def _sealed_today(self, machine: Operation) -> SealedRequest | None:
        """Return the request as today's adapter would make it, to compare what must not change."""
        if machine.request is None:
            return None
        kind = self.desk.kinds.serving(machine)
        return kind.provider.seal(
            machine.business_identity,
            machine.provider_key,
            self.desk.params(kind, machine),
            self.desk.secret,
        )
