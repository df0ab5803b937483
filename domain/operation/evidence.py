"""Evidence that came by itself: a webhook, a late reply, a report. Admitted in any state.

Nothing is ever dropped. What it proves is recorded as what it is; what it leaves open is kept with
the operation; and what disagrees with how the operation had ended brings a person in.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

from settled.domain.clock import Stamp
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.operation import events as ev
from settled.domain.operation.judgement import (
    Cause,
    conclude,
    dispute,
    evidence_of,
    go_on,
    succeed,
    told_otherwise,
)
from settled.domain.operation.operation import Operation
from settled.domain.operation.terms import NEWS
from settled.domain.provider import Answered, Echo, Finding
from settled.domain.recovery import Step, StepKind, recover

POSITIVE = frozenset(Answered(word) for word in NEWS)
"""Answers that say that an effect exists, or did."""

_OPEN = frozenset({"dispatching", "accepted", "outcome_unknown"})

_CLAIMS_NO_EFFECT = frozenset(
    {"proposed", "failed", "rejected", "expired", "cancelled", "reversed"}
)

_CONCLUSIVE = frozenset(
    {StepKind.SETTLE_SUCCEEDED, StepKind.SETTLE_FAILED, StepKind.SETTLE_REVERSED}
)
"""Steps that evidence which came by itself may cause in any open state."""

_OF_ONE_OBJECT = _CONCLUSIVE | {StepKind.ACCEPT}
"""Steps by what became of one object, which says nothing about another one."""


def admit(
    operation: Operation,
    contract: ProviderContract,
    finding: Finding,
    stamp: Stamp,
    jitter: timedelta,
    attempt: int | None = None,
) -> None:
    """Record a piece of evidence, and what follows from it.

    `attempt` is the number of the attempt that a late reply answers; None for what does not answer
    one of our requests.
    """
    positive = finding.answered in POSITIVE
    if not positive and _is_past(operation, attempt):
        return _keep(operation, finding, stamp)  # it says nothing about what may be out
    if operation.state in ("ready", "claimed") and positive:
        return _before_any_request(operation, contract, finding, stamp, jitter)
    if operation.state in _OPEN:
        if _is_beside(operation, finding):
            return dispute(operation, finding.reason, stamp, finding, beside=finding.reference)
        step = recover(operation.situation(stamp.at), contract, finding, jitter)
        old = step.kind in _OF_ONE_OBJECT and _may_be_earlier(operation, finding, attempt)
        if not old and _concludes(operation, step, finding, attempt):
            return conclude(operation, step, stamp, finding)
    elif operation.state == "handed_over" and _ends_the_wait(operation, finding, attempt):
        step = Step(StepKind.SETTLE_SUCCEEDED, "evidence after hand-over", finding.reason)
        return succeed(operation, step, stamp, finding)
    elif operation.state == "succeeded":
        return _after_success(operation, finding, stamp)
    elif operation.state in _CLAIMS_NO_EFFECT and positive and not _is_old(operation, finding):
        return _contradict(operation, finding, stamp)
    _keep(operation, finding, stamp)


def _before_any_request(
    operation: Operation,
    contract: ProviderContract,
    finding: Finding,
    stamp: Stamp,
    jitter: timedelta,
) -> None:
    """An effect is reported although nothing is out: whose it is has to be shown by its echo."""
    cause = Cause("evidence", f"evidence of an effect arrived: {finding.reason}")
    unknown = Step(StepKind.WAIT, "evidence of an effect", cause.reason, stamp.at)
    go_on(operation, unknown, stamp, finding, cause, stamp.at)
    if finding.echo is not Echo.EQUAL:
        reason = f"an effect is reported before anything was sent: {finding.reason}"
        step = Step(StepKind.HAND_OVER, "effect before any request", reason)
        return conclude(operation, step, stamp, finding)
    step = recover(operation.situation(stamp.at), contract, finding, jitter)
    if _concludes(operation, step, finding, None):
        return conclude(operation, step, stamp, finding)
    _keep(operation, finding, stamp)


def _after_success(operation: Operation, finding: Finding, stamp: Stamp) -> None:
    named = finding.reference is not None and finding.reference == operation.reference
    if finding.answered in (Answered.REVERSED, Answered.FAILED):
        if not named:
            # It may speak of an earlier try, or of another object: a person has to tell.
            return _contradict(operation, finding, stamp)
        return operation.record(
            ev.Reversed,
            stamp,
            via=finding.via.value,
            reason=finding.reason,
            evidence=evidence_of(finding),
        )
    if finding.answered in (Answered.PERFORMED, Answered.PENDING) and _of_another(
        operation, finding
    ):
        return _contradict(operation, finding, stamp)
    _keep(operation, finding, stamp)


def _keep(operation: Operation, finding: Finding, stamp: Stamp) -> None:
    """Keep evidence that changes nothing by itself; the same words are kept once."""
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
        evidence=evidence_of(finding),
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
        evidence=evidence_of(finding),
    )


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


def _ends_the_wait(operation: Operation, finding: Finding, attempt: int | None) -> bool:
    """Tell whether evidence answers the question that a person was asked."""
    if operation.contradicted or operation.disputed or told_otherwise(operation, finding):
        return False
    if _is_beside(operation, finding) or _may_be_earlier(operation, finding, attempt):
        return False
    return finding.answered is Answered.PERFORMED and finding.echo is Echo.EQUAL


def _is_past(operation: Operation, attempt: int | None) -> bool:
    """Tell whether a reply answers an attempt of which nothing can be out any more."""
    return attempt is not None and all(other.number != attempt for other in operation.out)


def _may_be_earlier(operation: Operation, finding: Finding, attempt: int | None) -> bool:
    """Tell whether evidence may speak of an object other than that of the present generation.

    A webhook about an object that failed can come when the operation has been issued anew: it is
    equal in all that is compared, and only its name tells. Until ours is known, it may be either.
    A late reply speaks of the generation of its attempt.
    """
    if attempt is not None:
        mine = [a.generation for a in operation.attempts if a.number == attempt]
        return any(generation < operation.generation for generation in mine)
    if operation.our_reference is None:
        return operation.generation > 1
    if finding.reference is None:
        return operation.generation > 1
    return finding.reference != operation.reference


def _is_beside(operation: Operation, finding: Finding) -> bool:
    """Tell whether an effect like ours is newly reported beside the object that is known."""
    told = (finding.answered.value, finding.reference) in operation.told
    if told or finding.answered is not Answered.PERFORMED or finding.echo is Echo.DIFFERS:
        return False
    return operation.our_reference is not None and _of_another(operation, finding)


def _of_another(operation: Operation, finding: Finding) -> bool:
    """Tell whether evidence is about another object of the provider than the one we know."""
    known = operation.reference
    return known is not None and finding.reference is not None and finding.reference != known


def _is_old(operation: Operation, finding: Finding) -> bool:
    """Tell whether evidence speaks of an earlier state of the object whose end is recorded.

    Webhooks arrive out of order. An object that has failed, or was reversed, was pending before;
    that it succeeded is news of one that failed.
    """
    if finding.reference is None or finding.reference != operation.reference:
        return False
    return operation.state == "reversed" or finding.answered is not Answered.PERFORMED


def _key(finding: Finding) -> str:
    said = [finding.via, finding.answered, finding.reference, finding.echo, dict(finding.evidence)]
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
