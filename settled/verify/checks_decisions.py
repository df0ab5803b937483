"""A15: who decides, on what, and until when."""

from __future__ import annotations

from settled import (
    DecisionRefused,
    InvalidIdentity,
    Money,
    NotFound,
    OperationView,
    ParametersChanged,
    PermissionDenied,
    Principal,
    TransitionRefused,
)
from settled.domain.identity import Identity
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


ADA = Principal("acme", "ada", frozenset({"approver", "finance-lead"}))
BARBARA = Principal("acme", "barbara", frozenset({"finance-lead"}))


def _ruled(
    stage: Stage, amount: str, operation_id: str = "refund-request-9", by: Principal = AGENT
) -> OperationView:
    params = {"order": "order-72", "amount": Money(amount, "USD")}
    return stage.app.operations.propose("ruled", operation_id, params, by=by)


def _approve(stage: Stage, proposal: OperationView, by: Principal) -> OperationView:
    return stage.app.operations.approve(
        proposal, proposal_version=proposal.proposal_version, digest=proposal.digest, by=by
    )


@check("A15", "not one's own proposal, and two people above a limit")
def a15_as_many_and_such_as_the_policy_asks(stage: Stage) -> None:
    """Four eyes, roles by amount, and different people: until all of it is there, 0 requests."""
    stage.worker()
    own = _ruled(stage, "50.00", "own", by=ADA)
    with refused(PermissionDenied, "somebody else"):
        _approve(stage, own, ADA)
    edited = stage.app.operations.revise(
        _ruled(stage, "50.00", "edited"),
        {"order": "order-72", "amount": Money("60.00", "USD")},
        by=APPROVER,
    )
    with refused(PermissionDenied, "somebody else"):
        _approve(stage, edited, APPROVER)
    large = _ruled(stage, "100.01")
    with refused(PermissionDenied, "finance-lead"):
        _approve(stage, large, APPROVER)
    for _ in range(2):
        once = _approve(stage, large, ADA)
        assert (once.state, once.decided) == ("proposed", None)
    assert stage.names(large) == ["Proposed", "Approved"]
    stage.expect(requests=0, effects=0)
    _approve(stage, large, BARBARA)
    done = stage.wait(large, "succeeded")
    assert stage.names(done)[:4] == ["Proposed", "Approved", "Approved", "Intended"]
    assert [one.authority for one in done.decisions] == ["role finance-lead"] * 2
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A15", "decided by the policy")
def a15_what_the_policy_decides_is_recorded_as_its_decision(stage: Stage) -> None:
    """Less than the limit is sent without a person; nobody is named for it but the policy.

    What somebody has declined is not made smaller until the policy lets it through.
    """
    stage.worker()
    done = stage.wait(_ruled(stage, "9.99"), "succeeded")
    assert done.decided is not None
    assert (done.decided.by, done.decided.authority) == ("policy ruled 4", "policy")
    assert done.decided.policy_version == 4
    declined = stage.app.operations.reject(
        (asked := _ruled(stage, "50.00", "declined")),
        proposal_version=1,
        digest=asked.digest,
        by=APPROVER,
        reason="not at all",
    )
    small = {"order": "order-72", "amount": Money("5.00", "USD")}
    with refused(ParametersChanged):
        stage.app.operations.propose("ruled", "declined", small, by=AGENT)
    again = stage.app.operations.revise(declined, small, by=AGENT)
    assert again.state == "proposed"
    stage.expect(requests=1, effects=1)


@check("A15", "an approval that is over, and one that was withdrawn")
def a15_an_approval_that_is_over_sends_nothing(stage: Stage) -> None:
    """Approved, and no worker came in time, or it was revoked: it waits for a decision again."""
    params = {"order": "order-72", "amount": Money("30.00", "USD")}
    over = stage.app.operations.propose("hurried", "over", params, by=AGENT)
    intended = _approve(stage, over, APPROVER)
    assert intended.decided is not None and intended.decided.valid_until is not None
    stage.wait_until(intended.decided.valid_until)
    withdrawn = approved(stage, proposed(stage, "withdrawn"))
    stage.app.operations.revoke(withdrawn, by=APPROVER, reason="on second thoughts")
    stage.worker()
    again = stage.wait(over, "proposed")
    assert again.decided is None and again.approved_by is None
    with refused(TransitionRefused):
        stage.app.operations.revoke(again, by=APPROVER, reason="again")
    assert stage.get(withdrawn).state == "proposed"
    stage.expect(requests=0, effects=0)
    done = stage.wait(approved(stage, withdrawn), "succeeded")
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A15", "by another route")
def a15_by_another_route_it_is_another_operation(stage: Stage) -> None:
    """A decision goes to one kind, tenant and identity; no other way in makes use of it."""
    stage.worker()
    proposal = proposed(stage)
    for kind, operation_id in (("ruled", "refund-request-9"), ("decided", "refund-request-8")):
        elsewhere = Identity("acme", kind, operation_id)
        with refused(NotFound):
            stage.app.operations.approve(
                elsewhere, proposal_version=1, digest=proposal.digest, by=APPROVER
            )
    twin = proposed(stage, "refund-request-10")
    approved(stage, twin)
    stage.wait(twin, "succeeded")
    assert stage.get(proposal).state == "proposed", "the twin's approval, with its very digest"
    params = {"order": "order-72", "amount": Money("30.00", "USD")}
    with refused(PermissionDenied):
        stage.app.operations.intend("decided", "refund-request-9", params, by=APPROVER)
    stage.expect(requests=1, effects=1)
