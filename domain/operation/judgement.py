"""From a finding and the step that recovery decided to the events that record them.

`conclude` records what the one who asked learned (a reply, a lookup, or that the owner is gone);
`admit` records evidence that came by itself (a webhook, a late reply, a report), in any state.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.domain.provider import Answered, Echo, Finding
from settled.domain.recovery import Step, StepKind, recover

POSITIVE = frozenset(Answered(word) for word in ev.NEWS)
"""Answers that say that an effect exists, or did."""

_WAITED = frozenset({Answered.IN_PROGRESS, Answered.RATE_LIMITED, Answered.STORE_UNAVAILABLE})

_CLAIMS_NO_EFFECT = frozenset(
    {"proposed", "failed", "rejected", "expired", "cancelled", "reversed"}
)

_CONCLUSIVE = frozenset(
    {StepKind.SETTLE_SUCCEEDED, StepKind.SETTLE_FAILED, StepKind.SETTLE_REVERSED}
)
"""Steps that evidence which came by itself may cause in any open state."""


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
    next_at = max(step.not_before or stamp.at, stamp.at)
    evidence = _evidence(finding)
    via = finding.via.value if finding else "reply"
    match step.kind:
        case StepKind.SETTLE_SUCCEEDED:
            assert finding is not None, "only evidence settles"
            _succeed(operation, step, stamp, finding)
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
            _go_on(operation, step, stamp, finding, cause, next_at)


def admit(
    operation: Operation,
    contract: ProviderContract,
    finding: Finding,
    stamp: Stamp,
    jitter: timedelta,
    attempt: int | None = None,
) -> None:
    """Record evidence that came by itself, and what follows from it. Nothing is ever dropped.

    `attempt` is the number of the attempt that a late reply answers; None for what does not answer
    one of our requests.
    """
    positive = finding.answered in POSITIVE
    step = None
    match operation.state:
        case _ if not positive and _is_past(operation, attempt):
            pass  # it says nothing about the attempts that may be out
        case "ready" | "claimed" if positive:
            cause = Cause("evidence", f"evidence of an effect arrived: {finding.reason}")
            unknown = Step(StepKind.WAIT, "evidence of an effect", cause.reason, stamp.at)
            _go_on(operation, unknown, stamp, finding, cause, stamp.at)
            step = recover(operation.situation(stamp.at), contract, finding, jitter)
            if finding.echo is not Echo.EQUAL:
                # Nothing was sent from here, so whose effect it is has to be shown.
                reason = f"an effect is reported before anything was sent: {finding.reason}"
                step = Step(StepKind.HAND_OVER, "effect before any request", reason)
                return conclude(operation, step, stamp, finding)
        case "dispatching" | "accepted" | "outcome_unknown":
            step = recover(operation.situation(stamp.at), contract, finding, jitter)
        case "handed_over" if (
            finding.answered is Answered.PERFORMED
            and finding.echo is Echo.EQUAL
            and not operation.contradicted
            and not operation.disputed
        ):
            return _succeed(operation, _told(finding), stamp, finding)
        case "succeeded" if finding.answered in (Answered.REVERSED, Answered.FAILED):
            if finding.reference is None or finding.reference != operation.reference:
                # It may speak of an earlier try, or of another object: a person has to tell.
                return _contradict(operation, finding, stamp)
            return operation.record(
                ev.Reversed,
                stamp,
                via=finding.via.value,
                reason=finding.reason,
                evidence=_evidence(finding),
            )
        case "succeeded" if finding.answered in (
            Answered.PERFORMED,
            Answered.PENDING,
        ) and _of_another(operation, finding):
            return _contradict(operation, finding, stamp)
        case state if (
            state in _CLAIMS_NO_EFFECT and positive and not _is_old_news(operation, finding)
        ):
            return _contradict(operation, finding, stamp)
        case _:
            pass
    if step is not None and _concludes(operation, step, finding, attempt):
        return conclude(operation, step, stamp, finding)
    key = _key(finding)
    if key in operation.evidence_keys:
        return
    operation.record(
        ev.EvidenceRecorded,
        stamp,
        via=finding.via.value,
        answered=finding.answered.value,
        reference=finding.reference,
        reason=finding.reason,
        key=key,
        evidence=_evidence(finding),
    )


def _succeed(operation: Operation, step: Step, stamp: Stamp, finding: Finding) -> None:
    operation.record(
        ev.Succeeded,
        stamp,
        reference=finding.reference,
        via=finding.via.value,
        replayed=finding.replayed,
        reason=step.reason,
        rule=step.rule,
        receipt=dict(finding.receipt) if finding.receipt is not None else None,
        evidence=_evidence(finding),
    )


def _contradict(operation: Operation, finding: Finding, stamp: Stamp) -> None:
    operation.record(
        ev.Contradicted,
        stamp,
        to=operation.terms.hand_over_to,
        was=operation.state,
        reason=f"settled as {operation.state}, and now: {finding.reason}",
        reference=finding.reference,
        next_at=stamp.at,
        evidence=_evidence(finding),
    )


def _hand_over(operation: Operation, step: Step, stamp: Stamp, finding: Finding | None) -> None:
    operation.record(
        ev.HandedOver,
        stamp,
        to=operation.terms.hand_over_to,
        reason=step.reason,
        rule=step.rule,
        next_at=stamp.at,
        disputed=finding is not None and finding.echo is Echo.DIFFERS,
        evidence=_evidence(finding),
    )


def _require_unknown(
    operation: Operation, step: Step, stamp: Stamp, finding: Finding | None, cause: Cause
) -> None:
    """Pass through outcome_unknown: what follows is only reached from there."""
    if operation.state == "dispatching":
        _go_on(operation, step, stamp, finding, cause, stamp.at)
    elif operation.state == "accepted" and step.kind is not StepKind.HAND_OVER:
        _go_on(operation, step, stamp, finding, cause, stamp.at)


def _go_on(
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
            evidence=_evidence(finding),
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
        evidence=_evidence(finding),
    )


def _word(lost: bool) -> str:
    return "reply_lost" if lost else "unclear_answer"


def _told(finding: Finding) -> Step:
    return Step(StepKind.SETTLE_SUCCEEDED, "evidence after hand-over", finding.reason)


def _concludes(operation: Operation, step: Step, finding: Finding, attempt: int | None) -> bool:
    """Tell whether evidence that came by itself is enough for a step."""
    match step.kind:
        case StepKind.ACCEPT:
            return operation.state != "accepted"
        case StepKind.HAND_OVER:
            return finding.echo is Echo.DIFFERS
        case StepKind.DISPATCH:
            # The sender itself says that nothing of the only attempt was sent or performed.
            return operation.state == "outcome_unknown" and attempt is not None
        case kind:
            return kind in _CONCLUSIVE


def _is_past(operation: Operation, attempt: int | None) -> bool:
    """Tell whether a reply answers an attempt of which nothing can be out any more."""
    return attempt is not None and all(other.number != attempt for other in operation.out)


def _of_another(operation: Operation, finding: Finding) -> bool:
    """Tell whether evidence is about another object of the provider than the one we know."""
    known = operation.reference
    return known is not None and finding.reference is not None and finding.reference != known


def _is_old_news(operation: Operation, finding: Finding) -> bool:
    """Tell whether evidence speaks of an earlier state of the object whose end is recorded.

    Webhooks arrive out of order. An object that has failed, or was reversed, was pending before;
    that it succeeded is news of one that failed.
    """
    if finding.reference is None or finding.reference != operation.reference:
        return False
    return operation.state == "reversed" or finding.answered is not Answered.PERFORMED


def _evidence(finding: Finding | None) -> dict[str, Any] | None:
    return dict(finding.evidence) if finding is not None and finding.evidence else None


def _key(finding: Finding) -> str:
    said = [finding.via, finding.answered, finding.reference, finding.echo, dict(finding.evidence)]
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
