"""A16: what was approved is looked at again before it is sent; changed terms are decided on."""

from __future__ import annotations

from settled import DecisionRefused, Money, OperationView
from settled.verify.check import check, check_each, refused
from settled.verify.checks_changes import approved
from settled.verify.kinds import TERMS_FILE
from settled.verify.stage import AGENT, APPROVER, Stage


def _approved(stage: Stage, operation_id: str = "refund-request-9") -> OperationView:
    params = {"order": "order-72", "amount": Money("30.00", "USD")}
    proposal = stage.app.operations.propose("rechecked", operation_id, params, by=AGENT)
    return approved(stage, proposal)


def _shop_says(stage: Stage, what: str) -> None:
    (stage.folder / TERMS_FILE).write_text(what, encoding="utf-8")


@check("A16", "the amount has changed since it was approved")
def a16_changed_terms_are_a_new_version_that_needs_its_own_decision(stage: Stage) -> None:
    """Approved for 30, and 20 by the time a worker comes: nothing is sent before 20 is approved."""
    operation = _approved(stage)
    _shop_says(stage, "amount 20.00")
    stage.worker()
    changed = stage.wait(operation, "proposed")
    assert (changed.proposal_version, changed.label) == (2, "Refund 20.00 USD for order-72")
    assert changed.approved_by is None and changed.digest != operation.digest
    with refused(DecisionRefused):
        stage.app.operations.approve(
            operation, proposal_version=1, digest=operation.digest, by=APPROVER
        )
    assert stage.get(operation).version == changed.version
    stage.expect(requests=0, effects=0)
    done = stage.wait(approved(stage, changed), "succeeded")
    assert done.receipt is not None and done.receipt["amount"] == "20.00"
    names = ["Proposed", "Approved", "Intended", "Claimed", "Revised", "Approved", "Intended"]
    assert stage.names(done)[:7] == names
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A16", "no longer eligible")
def a16_what_is_no_longer_eligible_is_called_off(stage: Stage) -> None:
    """The shop says no by the time a worker comes: called off with its reason, 0 requests."""
    operation = _approved(stage)
    _shop_says(stage, "no it was delivered after all")
    stage.worker()
    done = stage.wait(operation, "cancelled")
    assert done.reason == "no longer valid: it was delivered after all"
    stage.expect(requests=0, effects=0)


@check_each("A16", "the shop does not answer: {}", ["hang", "broken"])
def a16_without_an_answer_nothing_is_sent(stage: Stage, says: str) -> None:
    """A hook that hangs or fails is given its time, and then left alone; others go on."""
    operation = _approved(stage)
    _shop_says(stage, says)
    stage.worker()
    stage.wait_event(operation, "Released")
    resting = stage.get(operation)
    assert resting.state == "ready" and "revalidation did not end" in str(resting.reason)
    stage.wait(stage.intend("other"), "succeeded")
    assert "Dispatching" not in stage.names(operation)
    stage.expect(requests=1, effects=1)


@check_each("A16", "killed {} the shop was asked", ["before", "after"])
def a16_a_killed_worker_has_been_told_nothing(stage: Stage, when: str) -> None:
    """What a dead worker was told counts for nobody: the next one asks, and is told otherwise."""
    operation = _approved(stage)
    stage.worker("first", fault=f"{when}_lookup:revalidate=kill").wait_killed()
    _shop_says(stage, "no it was delivered meanwhile")
    stage.worker("second")
    done = stage.wait(operation, "cancelled")
    assert stage.names(done).count("Claimed") == 2 and "Dispatching" not in stage.names(done)
    stage.expect(requests=0, effects=0)


@check("A16", "asked again once an absence was confirmed")
def a16_it_is_asked_again_before_the_next_dispatch(stage: Stage) -> None:
    """Fresh, it is sent without asking; killed then, and absent for certain, it is asked about.

    While the first request might still have arrived, the shop was not asked: it says no from the
    beginning, and what may be out cannot be called off.
    """
    operation = stage.intend(kind="rechecked-lookup")
    _shop_says(stage, "no it was delivered meanwhile")
    stage.worker("first", fault="before_call:rechecked-lookup=kill").wait_killed()
    stage.worker("second")
    done = stage.wait(operation, "cancelled")
    names = stage.names(done)
    assert names.count("Dispatching") == 1
    assert names.index("ConfirmedAbsent") < names.index("Cancelled")
    stage.expect(requests=0, effects=0)
