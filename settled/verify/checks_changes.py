"""A17: what can still change once a request is out."""

from __future__ import annotations

from settled import (
    EffectPossible,
    Money,
    OperationView,
    TransitionRefused,
)
from settled.verify.check import check, refused
from settled.verify.stage import AGENT, APPROVER, Stage


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


@check("A17", "revised and cancelled while the request is out")
def a17_nothing_changes_while_a_request_is_out(stage: Stage) -> None:
    """After Dispatching, revise and cancel are refused until the outcome is known."""
    stage.worker()
    proposal = revised(stage, proposed(stage), "30.00")
    stage.simulator.fault(hold_after=True)
    operation = approved(stage, proposal)
    stage.simulator.wait(held=1)
    with refused(EffectPossible):
        revised(stage, operation, "35.00")
    for _ in range(2):
        with refused(EffectPossible):
            stage.app.operations.cancel(operation, by=AGENT, reason="the customer kept it")
    out = stage.get(operation)
    assert out.state == "dispatching" and out.cancel_requested
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    names = stage.names(done)
    assert names.count("CancelRequested") == 1 and "Cancelled" not in names
    with refused(TransitionRefused):
        stage.app.operations.cancel(done, by=AGENT, reason="the customer kept it")
    with refused(TransitionRefused):
        revised(stage, done, "35.00")
    assert done.receipt is not None and done.receipt["amount"] == "30.00"
    stage.expect(requests=1, effects=1)


@check("A17", "revised and cancelled while nobody knows")
def a17_nothing_changes_while_the_outcome_is_unknown(stage: Stage) -> None:
    """As above where nobody knows: neither by a worker nor by the first approval again."""
    stage.simulator.conduct(key="none")
    stage.simulator.fault(reply="close")
    stage.worker()
    handed = stage.wait(stage.intend(kind="nothing"), "handed_over")
    with refused(EffectPossible):
        revised(stage, handed, "35.00")
    with refused(EffectPossible):
        stage.app.operations.cancel(handed, by=AGENT, reason="the customer kept it")
    stage.expect(requests=1, effects=1)


@check("A17", "cancel asked for, and then nothing was out")
def a17_a_requested_cancel_is_acted_on_once_nothing_is_out(stage: Stage) -> None:
    """Killed before the request left; proven absent, it is cancelled and never sent again."""
    operation = stage.intend(kind="quick-lookup")
    stage.worker("first", fault="before_call:quick-lookup=kill").wait_killed()
    with refused(EffectPossible):
        stage.app.operations.cancel(operation, by=AGENT, reason="the customer kept it")
    stage.worker("second")
    done = stage.wait(operation, "cancelled")
    names = stage.names(done)
    assert names.index("ConfirmedAbsent") < names.index("Cancelled")
    stage.expect(requests=0, effects=0)
    assert names.count("Dispatching") == 1


@check("A17", "revised after the approval, before anything is sent")
def a17_before_anything_is_sent_a_change_needs_a_new_decision(stage: Stage) -> None:
    """Revised after the approval and before a worker has it: back to a proposal."""
    operation = approved(stage, proposed(stage))
    changed = revised(stage, operation, "35.00")
    assert (changed.state, changed.proposal_version) == ("proposed", 2)
    stage.worker()
    again = approved(stage, changed)
    done = stage.wait(again, "succeeded")
    assert done.receipt is not None and done.receipt["amount"] == "35.00"
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)
