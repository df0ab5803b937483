"""What is unknown, accepted, or left by a gone worker: look up, poll, resend, wait, hand over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from settled.domain.clock import Stamp
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.machine.machine import StateMachine
from settled.domain.obstacles import way_obstacle
from settled.domain.operation.judgement import OWNER_GONE, conclude
from settled.domain.operation.operation import Operation
from settled.domain.provider import SealedRequest
from settled.domain.recovery import Step, StepKind, recover
from settled.processes.manager import Decision, Position, Record, Rest
from settled.processes.operations import PAUSE_SECONDS, Desk, NotSealed


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
            jitter = max(self.desk.jitter(kind, machine), contract.limits.min_spacing)
            conclude(machine, recover(machine.situation(stamp.at), contract, None, jitter), stamp)
            return Record()
        if position.draining:
            return Rest()
        try:
            today = self._sealed_today(machine, stamp)
        except NotSealed as error:
            next_at = min(stamp.at + timedelta(seconds=PAUSE_SECONDS), machine.give_up_at)
            step = Step(StepKind.WAIT, "request cannot be made", str(error), next_at)
            conclude(machine, step, stamp)
            return Record()
        situation = machine.situation(stamp.at, today=today)
        # The pause was drawn when the row was made due, and is over: none is drawn again.
        step = recover(situation, contract, None, timedelta())
        if machine.cancel_requested and step.kind is StepKind.RESEND:
            return self._withdrawn(machine, stamp, contract)
        if step.not_before is None or step.not_before <= stamp.at:
            if step.kind is StepKind.RESEND and machine.state == "outcome_unknown":
                return self.desk.dispatch(machine, stamp, position)
            if step.kind in (StepKind.LOOK_UP, StepKind.POLL):
                return self.desk.look_up(machine, stamp)
        conclude(machine, step, stamp, cause=OWNER_GONE)
        return Record()

    def _withdrawn(self, machine: Operation, stamp: Stamp, contract: ProviderContract) -> Decision:
        """Ask instead of resending: a resend might perform what somebody wants cancelled."""
        situation = machine.situation(stamp.at)
        if way_obstacle(situation, contract, situation.handle) is None:
            return self.desk.look_up(machine, stamp)
        reason = "a cancel was requested, and only a resend could tell what came of the request"
        conclude(machine, Step(StepKind.HAND_OVER, "cancel requested", reason), stamp)
        return Record()

    def _sealed_today(self, machine: Operation, stamp: Stamp) -> SealedRequest | None:
        """Return the request as today's adapter would make it, to compare what must not change.

        Not asked for once nothing may be sent any more.
        """
        if machine.request is None or stamp.at >= machine.give_up_at:
            return None
        return self.desk.seal(self.desk.kinds.serving(machine), machine)
