"""From a finding and the step that recovery decided to the events that record them.

What the one who asked learned: a reply, a lookup, or that the owner is gone. Evidence that came by
itself is `evidence.admit`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.domain.provider import Answered, Echo, Finding
from settled.domain.recovery import Step, StepKind

_WAITED = frozenset({Answered.IN_PROGRESS, Answered.RATE_LIMITED, Answered.STORE_UNAVAILABLE})

_WITHOUT_EFFECT = frozenset({StepKind.SETTLE_FAILED, StepKind.CONFIRM_ABSENT, StepKind.DISPATCH})
"""Steps that are right only where no effect exists."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an outcome is unknown when nobody answered: a stable word and a sentence."""

    word: str
    reason: str


OWNER_GONE = Cause("owner_gone", "its worker is gone, and its request may have been sent")
SHUT_DOWN = Cause("shut_down", "its worker was shut down while the request may have been sent")


def conclude(
    operation: Operation,
    step: Step,
    stamp: Stamp,
    finding: Finding | None = None,
    cause: Cause = OWNER_GONE,
) -> None:
    """Record a step that needs no further call to the provider.

    In outcome_unknown a step of RESEND or LOOK_UP without a finding is work to do, not something
    to record: callers do it instead of calling this.
    """
    performed = finding if step.kind is StepKind.SETTLE_SUCCEEDED else None
    ends = performed is not None or step.kind in _WITHOUT_EFFECT
    if ends and told_otherwise(operation, performed):
        return dispute(operation, step.reason, stamp, finding, cause)
    next_at = max(step.not_before or stamp.at, stamp.at)
    evidence = evidence_of(finding)
    via = finding.via.value if finding else "reply"
    match step.kind:
        case StepKind.SETTLE_SUCCEEDED:
            assert finding is not None, "only evidence settles"
            succeed(operation, step, stamp, finding)
        case StepKind.SETTLE_FAILED:
            operation.record(
                ev.Failed, stamp, via=via, reason=step.reason, rule=step.rule, evidence=evidence
            )
        case StepKind.SETTLE_REVERSED:
            _require_unknown(operation, step, stamp, finding, cause)
            _hand_over(operation, step, stamp, finding)
        case StepKind.ACCEPT if operation.state != "accepted":
            operation.record(
                ev.Accepted,
                stamp,
                reference=finding.reference if finding else None,
                via=via,
                reason=step.reason,
                rule=step.rule,
                next_at=next_at,
                evidence=evidence,
            )
        case StepKind.DISPATCH if operation.state == "dispatching":
            operation.record(
                ev.RetryScheduled,
                stamp,
                reason=step.reason,
                rule=step.rule,
                retry_at=next_at,
                counts=finding is None or finding.answered is not Answered.UNAUTHORISED,
                evidence=evidence,
            )
        case StepKind.CONFIRM_ABSENT | StepKind.DISPATCH:
            _require_unknown(operation, step, stamp, finding, cause)
            operation.record(
                ev.ConfirmedAbsent,
                stamp,
                via=via,
                reason=step.reason,
                rule=step.rule,
                due_at=next_at,
                evidence=evidence,
            )
        case StepKind.HAND_OVER:
            _require_unknown(operation, step, stamp, finding, cause)
            _hand_over(operation, step, stamp, finding)
        case _:
            go_on(operation, step, stamp, finding, cause, next_at)


def told_otherwise(operation: Operation, performed: Finding | None) -> bool:
    """Tell whether evidence that was kept disagrees with this effect, or without one with none.

    It was kept because nothing showed yet which object it spoke of. Had it come after the end, it
    would have contradicted that; so it does when it came before.
    """
    if performed is None:
        return bool(operation.told)
    name = performed.reference or operation.our_reference
    return any(
        answered == Answered.REVERSED or reference not in (None, name)
        for answered, reference in operation.told
    )


def dispute(
    operation: Operation,
    reason: str,
    stamp: Stamp,
    finding: Finding | None,
    cause: Cause = OWNER_GONE,
    beside: str | None = None,
) -> None:
    """Hand over what evidence disagrees about. `beside` names an object beside the one we know."""
    told = [*operation.told, *([(Answered.PERFORMED.value, beside)] if beside else [])]
    words = sorted(f"{reference or 'an object'} was {answered}" for answered, reference in told)
    reason = f"{reason}; but {' and '.join(words)}"
    step = Step(StepKind.HAND_OVER, "told otherwise", reason)
    _require_unknown(operation, step, stamp, finding, cause)
    _hand_over(operation, step, stamp, finding, disputed=True, beside=beside)


def succeed(operation: Operation, step: Step, stamp: Stamp, finding: Finding) -> None:
    """Record that the effect exists, with what the provider says of it."""
    operation.record(
        ev.Succeeded,
        stamp,
        reference=finding.reference,
        via=finding.via.value,
        replayed=finding.replayed,
        reason=step.reason,
        rule=step.rule,
        receipt=dict(finding.receipt) if finding.receipt is not None else None,
        evidence=evidence_of(finding),
    )


def _hand_over(
    operation: Operation,
    step: Step,
    stamp: Stamp,
    finding: Finding | None,
    disputed: bool = False,
    beside: str | None = None,
) -> None:
    foreign = finding is not None and finding.echo is Echo.DIFFERS
    taken_back = finding is not None and finding.answered is Answered.REVERSED
    operation.record(
        ev.HandedOver,
        stamp,
        to=operation.terms.hand_over_to,
        reason=step.reason,
        rule=step.rule,
        next_at=stamp.at,
        disputed=disputed or foreign or taken_back,
        beside=beside,
        evidence=evidence_of(finding),
    )


def _require_unknown(
    operation: Operation, step: Step, stamp: Stamp, finding: Finding | None, cause: Cause
) -> None:
    """Pass through outcome_unknown: what follows is only reached from there."""
    if operation.state == "dispatching":
        go_on(operation, step, stamp, finding, cause, stamp.at)
    elif operation.state == "accepted" and step.kind is not StepKind.HAND_OVER:
        go_on(operation, step, stamp, finding, cause, stamp.at)


def go_on(
    operation: Operation,
    step: Step,
    stamp: Stamp,
    finding: Finding | None,
    cause: Cause,
    next_at: datetime,
) -> None:
    """Record that it stays open, and when to look again."""
    waited = finding is not None and finding.answered in _WAITED
    polled = step.kind in (StepKind.POLL, StepKind.WAIT, StepKind.LOOK_UP, StepKind.ACCEPT)
    if operation.state == "outcome_unknown" or (operation.state == "accepted" and polled):
        if finding is None:
            operation.record(
                ev.ReconciliationScheduled,
                stamp,
                reason=step.reason,
                rule=step.rule,
                next_at=next_at,
            )
            return
        operation.record(
            ev.LookedUp,
            stamp,
            answered=finding.answered.value,
            reason=step.reason,
            rule=step.rule,
            reference=finding.reference,
            waited=waited,
            next_at=next_at,
            evidence=evidence_of(finding),
        )
        return
    lost = finding is not None and finding.answered is Answered.LOST
    operation.record(
        ev.OutcomeUnknown,
        stamp,
        cause=cause.word if finding is None or cause.word == "evidence" else _word(lost),
        reason=cause.reason if finding is None else finding.reason,
        rule=step.rule,
        sender_reported=finding is not None and finding.may_arrive_until is None,
        waited=waited,
        attempt_out=finding is None or finding.answered is not Answered.NOT_SENT,
        next_at=next_at,
        answered=finding.answered.value if finding else None,
        reference=finding.reference if finding else None,
        look_up=step.kind is StepKind.LOOK_UP,
        may_arrive_until=finding.may_arrive_until if finding else None,
        evidence=evidence_of(finding),
    )


def _word(lost: bool) -> str:
    return "reply_lost" if lost else "unclear_answer"


def evidence_of(finding: Finding | None) -> dict[str, Any] | None:
    """Return what was seen, for the event that records it."""
    return dict(finding.evidence) if finding is not None and finding.evidence else None
