"""The first half of A15: who decides. Its second half needs roles that come later."""

from __future__ import annotations

import pytest

from settled import (
    DecisionRefused,
    Money,
    PermissionDenied,
)
from settled.verify.checks_changes import approved, proposed, revised
from settled.verify.stage import AGENT, APPROVER, Stage


def test_a15_only_this_decision_by_one_who_may_counts(stage: Stage) -> None:
    """A15: wrong version, wrong digest, not allowed, after a decline: refused, and no request."""
    stage.worker()
    operations, proposal = stage.app.operations, proposed(stage)
    with pytest.raises(PermissionDenied):
        operations.intend("decided", "other", {"order": "1", "amount": Money("1", "USD")}, by=AGENT)
    with pytest.raises(PermissionDenied):
        operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=AGENT)
    with pytest.raises(DecisionRefused):
        operations.approve(proposal, proposal_version=2, digest=proposal.digest, by=APPROVER)
    with pytest.raises(DecisionRefused):
        operations.approve(proposal, proposal_version=1, digest="0" * 64, by=APPROVER)
    changed = revised(stage, proposal, "35.00")
    with pytest.raises(DecisionRefused):
        operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=APPROVER)
    declined = operations.reject(
        changed, proposal_version=2, digest=changed.digest, by=APPROVER, reason="too much"
    )
    with pytest.raises(DecisionRefused):
        approved(stage, changed)
    assert stage.get(declined).state == "rejected" and stage.requests() == 0
    assert stage.names(declined) == ["Proposed", "Revised", "Rejected"]


def test_a15_approved_twice_is_approved_once(stage: Stage) -> None:
    """A15: the second approval is answered with the first: one decision, one request."""
    proposal = proposed(stage)
    first, second = approved(stage, proposal), approved(stage, proposal)
    assert (first.version, first.approved_by) == (second.version, "grace")
    stage.worker()
    done = stage.wait(proposal, "succeeded")
    assert approved(stage, proposal).version == done.version
    assert stage.names(done).count("Approved") == 1
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done, unsent=0)


def test_a15_nobody_decided_in_time(stage: Stage) -> None:
    """A15: an expired proposal cannot be approved any more, whether or not a worker has seen it."""
    params = {"order": "order-72", "amount": Money("30.00", "USD")}
    proposal = stage.app.operations.propose("brief", "refund-request-9", params, by=AGENT)
    assert proposal.next_at is not None
    stage.wait_until(proposal.next_at)
    with pytest.raises(DecisionRefused):
        approved(stage, proposal)
    stage.worker()
    stage.wait(proposal, "expired")
    with pytest.raises(DecisionRefused):
        approved(stage, proposal)
    assert stage.requests() == 0
