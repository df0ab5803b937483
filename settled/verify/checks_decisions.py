"""A15: who decides, on what, and until when."""

from __future__ import annotations

from settled import DecisionRefused, InvalidIdentity, Money, PermissionDenied, Principal
from settled.verify.check import check, refused
from settled.verify.checks_changes import approved, proposed, revised
from settled.verify.stage import AGENT, APPROVER, Stage


@check("A15", "wrong version or digest, not allowed, by nobody, after a decline")
def a15_only_this_decision_by_one_who_may_counts(stage: Stage) -> None:
    """Whatever is not a decision on exactly this proposal by one who may is refused: 0 requests."""
    stage.worker()
    operations, proposal = stage.app.operations, proposed(stage)
    params = {"order": "1", "amount": Money("1", "USD")}
    with refused(PermissionDenied):
        operations.intend("decided", "other", params, by=AGENT)
    with refused(PermissionDenied):
        operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=AGENT)
    elsewhere = Principal("birch", "grace", frozenset({"approver"}))
    with refused(PermissionDenied):
        operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=elsewhere)
    with refused(InvalidIdentity):
        nobody = Principal("acme", "", frozenset({"approver"}))
        operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=nobody)
    with refused(DecisionRefused):
        operations.approve(proposal, proposal_version=2, digest=proposal.digest, by=APPROVER)
    with refused(DecisionRefused):
        operations.approve(proposal, proposal_version=1, digest="0" * 64, by=APPROVER)
    changed = revised(stage, proposal, "35.00")
    with refused(DecisionRefused):
        operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=APPROVER)
    declined = operations.reject(
        changed, proposal_version=2, digest=changed.digest, by=APPROVER, reason="too much"
    )
    with refused(DecisionRefused):
        approved(stage, changed)
    assert stage.get(declined).state == "rejected"
    stage.expect(requests=0, effects=0)
    assert stage.names(declined) == ["Proposed", "Revised", "Rejected"]


@check("A15", "approved twice")
def a15_approved_twice_is_approved_once(stage: Stage) -> None:
    """The second approval is answered with the first: one decision, one request."""
    proposal = proposed(stage)
    first, second = approved(stage, proposal), approved(stage, proposal)
    assert (first.version, first.approved_by) == (second.version, "grace")
    stage.worker()
    done = stage.wait(proposal, "succeeded")
    assert approved(stage, proposal).version == done.version
    assert stage.names(done).count("Approved") == 1
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A15", "nobody decided in time")
def a15_nobody_decided_in_time(stage: Stage) -> None:
    """An expired proposal cannot be approved any more, whether or not a worker has seen it."""
    params = {"order": "order-72", "amount": Money("30.00", "USD")}
    proposal = stage.app.operations.propose("brief", "refund-request-9", params, by=AGENT)
    assert proposal.next_at is not None
    stage.wait_until(proposal.next_at)
    with refused(DecisionRefused):
        approved(stage, proposal)
    stage.worker()
    stage.wait(proposal, "expired")
    with refused(DecisionRefused):
        approved(stage, proposal)
    stage.expect(requests=0, effects=0)
