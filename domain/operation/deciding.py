"""Commands on a proposal: approve, reject, revoke, revise, and what the policy decides by itself.

Pure. Each records what follows from it, or is refused with a named error and records nothing. The
first decision on a version stands: the same again records nothing, the opposite is refused with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from settled.domain.approval import POLICY, Requirement
from settled.domain.clock import Stamp
from settled.domain.errors import DecisionRefused, PermissionDenied, TransitionRefused
from settled.domain.identity import Principal
from settled.domain.keys import Keys
from settled.domain.kind import Kind
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, fields, propose
from settled.domain.operation.terms import Terms
from settled.domain.params import Params


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody says about one version of a proposal, and what they looked at for it.

    `valid_until` ends their approval sooner than the policy does.
    """

    by: Principal
    proposal_version: int
    digest: str
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    valid_until: datetime | None = None


def begin_proposal(
    kind: Kind[Any], terms: Terms, params: Params, stamp: Stamp, key: str
) -> Operation:
    """Begin a proposal; approved and intended at once where its policy approves it by itself.

    `key` is the provider key of its intent. Raises PermissionDenied where the policy says nothing
    about such an amount.
    """
    asked = kind.policy.asks(params)
    operation = propose(terms, stamp, stamp.at + kind.decide_within, asked)
    _let_policy_decide(operation, kind, params, stamp, key)
    return operation


def approve(operation: Operation, said: Said, asked: Requirement, stamp: Stamp, key: str) -> None:
    """Record an approval of this version, and the intent once there are as many as it needs.

    `asked` is what was recorded with it or, for streams from before that was, what today's policy
    asks. Raises PermissionDenied for whoever may not approve it, DecisionRefused where it does not
    fit.
    """
    authority = _entitled(operation, said.by, asked, "approve")
    if asked.four_eyes and said.by.actor in operation.authors:
        raise PermissionDenied(
            f"{said.by.actor} proposed or revised {operation.label}: somebody else must approve.",
            hint=f"Somebody else with the role {asked.named_roles} may.",
        )
    if _is_approved_so(operation, said):
        return
    _must_be_this(operation, said)
    if operation.expires_at is not None and stamp.at >= operation.expires_at:
        raise DecisionRefused("The time to decide on this proposal is over.")
    operation.record(
        ev.Approved,
        stamp,
        proposal_version=said.proposal_version,
        digest=said.digest,
        roles=tuple(sorted(said.by.roles)),
        authority=authority,
        policy_version=asked.policy_version,
        valid_until=_valid_until(said, asked, stamp),
        reason=said.reason,
        evidence=said.evidence,
    )
    if not operation.approvals_missing:
        _intend(operation, stamp, key)


def reject(operation: Operation, said: Said, asked: Requirement, stamp: Stamp) -> None:
    """Record that this version is declined. Raises as `approve` does."""
    authority = _entitled(operation, said.by, asked, "reject")
    stands = operation.decided
    if stands is not None and stands.decided == "rejected" and _is_about(said, operation):
        return
    _must_be_this(operation, said)
    operation.record(
        ev.Rejected,
        stamp,
        proposal_version=said.proposal_version,
        digest=said.digest,
        authority=authority,
        policy_version=asked.policy_version,
        reason=said.reason,
        evidence=said.evidence,
    )


def revoke(
    operation: Operation,
    by: Principal,
    reason: str,
    asked: Requirement,
    stamp: Stamp,
    expires_at: datetime,
) -> None:
    """Withdraw the approval before a worker has claimed the operation; it waits to be decided on.

    Raises PermissionDenied for whoever may not approve it, TransitionRefused where no approval
    can be withdrawn.
    """
    _entitled(operation, by, asked, "revoke the approval of")
    if operation.state == "ready" and operation.decided is None:
        raise TransitionRefused(
            f"{operation.label} was intended without an approval, so none can be withdrawn.",
            hint="Cancel it.",
        )
    operation.record(ev.ApprovalRevoked, stamp, reason=reason, expires_at=expires_at)


def lapse(operation: Operation, stamp: Stamp, expires_at: datetime) -> None:
    """Record that the approval's time was over before anything was sent: it is asked for again.

    What was sent before, and of which nothing exists, expires instead: its terms cannot change.
    """
    until = operation.approved_until
    assert until is not None, "only an approval with an end lapses"
    if operation.attempts:
        operation.record(ev.Expired, stamp)
        return
    reason = f"its approval was valid until {until.isoformat()}, and nothing was sent by then"
    operation.record(ev.ApprovalRevoked, stamp, reason=reason, expires_at=expires_at, lapsed=True)


def revise(
    operation: Operation,
    kind: Kind[Any],
    params: Params,
    keys: Keys,
    stamp: Stamp,
    key: str,
    reason: str | None = None,
) -> None:
    """Give a proposal new terms under its next version, which needs a decision of its own.

    The policy decides anew, also by itself, unless somebody has said no to the operation before:
    what a person declined is not approved without one.
    """
    terms = kind.terms(operation.business_identity, params, keys, operation.terms.origin or {})
    operation.record(
        ev.Revised,
        stamp,
        **fields(terms),
        proposal_version=operation.proposal_version + 1,
        expires_at=stamp.at + kind.decide_within,
        requirement=kind.policy.asks(params),
        reason=reason,
    )
    if not operation.declined:
        _let_policy_decide(operation, kind, params, stamp, key)


def _let_policy_decide(
    operation: Operation, kind: Kind[Any], params: Params, stamp: Stamp, key: str
) -> None:
    if not kind.policy.approves(params):
        return
    version = kind.policy.version
    by_policy = Stamp(stamp.at, f"policy {kind.name} {version}", stamp.correlation, stamp.causation)
    valid_for = kind.policy.valid_for
    operation.record(
        ev.Approved,
        by_policy,
        proposal_version=operation.proposal_version,
        digest=operation.terms.digest.value,
        roles=(),
        authority=POLICY,
        policy_version=version,
        valid_until=stamp.at + valid_for if valid_for else None,
        reason="less than the policy asks people about",
    )
    _intend(operation, by_policy, key)


def _intend(operation: Operation, stamp: Stamp, key: str) -> None:
    operation.record(
        ev.Intended,
        stamp,
        **fields(operation.terms),
        provider_key=key,
        generation=1,
        give_up_at=stamp.at + timedelta(seconds=operation.terms.within_seconds),
    )


def _entitled(operation: Operation, by: Principal, asked: Requirement, what: str) -> str:
    authority = asked.authority(by)
    if authority is None:
        raise PermissionDenied(
            f"{by.actor} may not {what} {operation.label}.",
            hint=f"One of these roles may: {', '.join(asked.roles)}.",
        )
    return authority


def _is_about(said: Said, operation: Operation) -> bool:
    version, digest = operation.proposal_version, operation.terms.digest.value
    return (said.proposal_version, said.digest) == (version, digest)


def _is_approved_so(operation: Operation, said: Said) -> bool:
    """Tell whether that version is approved already, or this person has approved it before."""
    if not _is_about(said, operation):
        return False
    if operation.approved_version == said.proposal_version:
        return True
    waits = operation.state == "proposed"
    return waits and any(one.by == said.by.actor for one in operation.approvals)


def _must_be_this(operation: Operation, said: Said) -> None:
    stands = operation.decided
    if operation.state != "proposed":
        decided = f": {stands.decided} by {stands.by}" if stands else ""
        raise DecisionRefused(
            f"{operation.label} is {operation.state}{decided}; it waits for no decision.",
            hint="The first decision stands.",
            decision=stands,
        )
    if not _is_about(said, operation):
        raise DecisionRefused(
            f"The decision is about version {said.proposal_version}, and version"
            f" {operation.proposal_version} with its own digest waits for one.",
            hint="Look at the proposal as it is now, and decide on that.",
        )


def _valid_until(said: Said, asked: Requirement, stamp: Stamp) -> datetime | None:
    ends = [] if said.valid_until is None else [said.valid_until]
    if asked.valid_seconds is not None:
        ends.append(stamp.at + timedelta(seconds=asked.valid_seconds))
    until = min(ends, default=None)
    if until is not None and until <= stamp.at:
        raise DecisionRefused(
            f"An approval until {until.isoformat()} is over before it is given.",
            hint="Give a later moment, or reject the proposal.",
        )
    return until
