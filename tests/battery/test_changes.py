"""A17 and the first half of A15: who decides, and what can still change once a request is out."""

from __future__ import annotations

import pytest

from settled import (
    DecisionRefused,
    EffectPossible,
    Money,
    OperationView,
    PermissionDenied,
    TransitionRefused,
)
from tests.battery.stage import AGENT, APPROVER, Stage


def proposed(stage: Stage, operation_id: str = "refund-request-9") -> OperationView:
    """Propose a refund of 30.00."""
    params = {"order": "order-72", "amount": Money("30.00", "USD")}
    return stage.app.operations.propose("decided", operation_id, params, by=AGENT)


def approved(stage: Stage, proposal: OperationView) -> OperationView:
    """Approve exactly this proposal."""
    return stage.app.operations.approve(
        proposal, proposal_version=proposal.proposal_version, digest=proposal.digest, by=APPROVER
    )


def revised(stage: Stage, operation: OperationView, amount: str) -> OperationView:
    """Give it another amount."""
    params = {"order": "order-72", "amount": Money(amount, "USD")}
    return stage.app.operations.revise(operation, params, by=AGENT)


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


def test_a17_nothing_changes_while_a_request_is_out(stage: Stage) -> None:
    """A17: after Dispatching, revise and cancel are refused until the outcome is known."""
    stage.worker()
    proposal = revised(stage, proposed(stage), "30.00")
    stage.simulator.fault(hold_after=True)
    operation = approved(stage, proposal)
    stage.simulator.wait(held=1)
    with pytest.raises(EffectPossible):
        revised(stage, operation, "35.00")
    for _ in range(2):
        with pytest.raises(EffectPossible):
            stage.app.operations.cancel(operation, by=AGENT, reason="the customer kept it")
    out = stage.get(operation)
    assert out.state == "dispatching" and out.cancel_requested
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    names = stage.names(done)
    assert names.count("CancelRequested") == 1 and "Cancelled" not in names
    with pytest.raises(TransitionRefused):
        stage.app.operations.cancel(done, by=AGENT, reason="the customer kept it")
    with pytest.raises(TransitionRefused):
        revised(stage, done, "35.00")
    assert done.receipt is not None and done.receipt["amount"] == "30.00"
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_a17_nothing_changes_while_the_outcome_is_unknown(stage: Stage) -> None:
    """A17: as above where nobody knows: neither by a worker nor by the first approval again."""
    stage.simulator.conduct(key="none")
    stage.simulator.fault(reply="close")
    stage.worker()
    handed = stage.wait(stage.intend(kind="nothing"), "handed_over")
    with pytest.raises(EffectPossible):
        revised(stage, handed, "35.00")
    with pytest.raises(EffectPossible):
        stage.app.operations.cancel(handed, by=AGENT, reason="the customer kept it")
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_a17_a_requested_cancel_is_acted_on_once_nothing_is_out(stage: Stage) -> None:
    """A17: killed before the request left; proven absent, it is cancelled and never sent again."""
    operation = stage.intend(kind="quick-lookup")
    stage.worker("first", fault="before_call:quick-lookup=kill").wait_killed()
    with pytest.raises(EffectPossible):
        stage.app.operations.cancel(operation, by=AGENT, reason="the customer kept it")
    stage.worker("second")
    done = stage.wait(operation, "cancelled")
    names = stage.names(done)
    assert names.index("ConfirmedAbsent") < names.index("Cancelled")
    assert (stage.requests(), stage.effects()) == (0, 0)
    assert names.count("Dispatching") == 1


def test_a17_before_anything_is_sent_a_change_needs_a_new_decision(stage: Stage) -> None:
    """A17: revised after the approval and before a worker has it: back to a proposal."""
    operation = approved(stage, proposed(stage))
    changed = revised(stage, operation, "35.00")
    assert (changed.state, changed.proposal_version) == ("proposed", 2)
    stage.worker()
    again = approved(stage, changed)
    done = stage.wait(again, "succeeded")
    assert done.receipt is not None and done.receipt["amount"] == "35.00"
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done, unsent=0)
