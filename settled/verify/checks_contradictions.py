"""Evidence that disagrees with what was settled, and evidence that only seems to."""

from __future__ import annotations

import json
from typing import Any

from settled import Money, OperationView
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.check import check, check_each
from settled.verify.receiver import event_of, tell
from settled.verify.stage import AGENT, OPERATOR, Stage

FAILURE = {"error": {"code": "invalid_amount", "message": "Planned."}}


def success(reference: str = "re_77", status: str = "succeeded", **fields: Any) -> dict[str, Any]:
    """Return an event about an object that was made for order-72."""
    data = {"id": reference, "status": status, "order": "order-72", "amount": "30.00"}
    return {"id": f"evt_{reference}_{status}", "data": {**data, "currency": "USD", **fields}}


def settled_as(stage: Stage, state: str) -> OperationView:
    """Bring an operation to an end in which nothing was performed."""
    if state == "cancelled":
        params = {"order": "order-72", "amount": Money("30.00", "USD")}
        proposal = stage.app.operations.propose("decided", "refund-cancelled", params, by=AGENT)
        return stage.app.operations.cancel(proposal, by=AGENT, reason="no longer wanted")
    kind = "fleeting" if state == "expired" else "refund"
    if state == "failed":
        stage.simulator.fault(execute=False, status=400, body=FAILURE)
    return stage.intend(f"refund-{state}", kind=kind)


@check_each("A37", "{}, and then a webhook reports success", ["failed", "cancelled", "expired"])
def a37_success_after_an_end_without_effect(stage: Stage, state: str) -> None:
    """It is Contradicted, handed over, the owner is told, and nothing is sent."""
    told = stage.folder / "told"
    notify = """sh -c 'cat >> "$TOLD"'"""
    stage.worker(options=("--notify-command", notify), environment={"TOLD": str(told)})
    operation = stage.wait(settled_as(stage, state), state)
    requests = stage.requests()
    tell(stage, success(), kind=operation.kind, operation_id=operation.operation_id)
    view = stage.get(operation)
    assert (view.state, view.owner) == ("handed_over", "payments-oncall")
    assert stage.fields(view, "Contradicted")[0]["was"] == state
    eventually(lambda: "OwnerNotified" in stage.names(view))
    assert json.loads(told.read_text().splitlines()[0])["operation_id"] == view.operation_id
    done = stage.app.operations.settle(
        view,
        outcome="succeeded",
        evidence={"statement": "line 7"},
        reference="re_77",
        by=OPERATOR,
        reason="seen on the statement",
    )
    assert done.state == "succeeded"
    assert stage.requests() == requests


@check("A37", "settled without effect, and then a pending object")
def a37_a_pending_object_contradicts_too(stage: Stage) -> None:
    """An object that exists may still have its effect, so "nothing was done" is not true."""
    stage.worker()
    for state in ("failed", "cancelled", "expired"):
        operation = stage.wait(settled_as(stage, state), state)
        event = success(f"re_{state}", status="pending")
        tell(stage, event, kind=operation.kind, operation_id=operation.operation_id)
        assert stage.get(operation).state == "handed_over"
        assert "Contradicted" in stage.names(operation)


@check("A37", "a second, different receipt")
def a37_a_second_receipt_on_a_success(stage: Stage) -> None:
    """Another reference means another effect; the first receipt stays, a person looks."""
    stage.worker()
    done = stage.wait(stage.intend(), "succeeded")
    tell(stage, event_of(stage, "re_1"), operation_id=done.operation_id)
    assert stage.get(done).state == "succeeded"
    tell(stage, success("re_77"), operation_id=done.operation_id)
    view = stage.get(done)
    assert (view.state, view.reference, view.receipt) == ("handed_over", "re_1", done.receipt)
    eventually(lambda: "OwnerNotified" in stage.names(view))
    assert stage.names(view).count("Contradicted") == 1
    assert stage.requests() == 1


@check("A37", "reversed, and then old news")
def a37_a_reversal_is_recorded_and_old_news_does_not_contradict_it(stage: Stage) -> None:
    """Webhooks arrive out of order: the success of what was reversed since is no news."""
    stage.worker()
    done = stage.wait(stage.intend(), "succeeded")
    before = event_of(stage, "re_1")
    stage.simulator.settle("re_1", "reversed")
    tell(stage, event_of(stage, "re_1"), operation_id=done.operation_id)
    assert stage.get(done).state == "reversed"
    tell(stage, before, operation_id=done.operation_id)
    view = stage.get(done)
    assert (view.state, stage.names(view)[-1]) == ("reversed", "EvidenceRecorded")


@check("A37", "bad news of another object")
def a37_bad_news_of_another_object_reverses_nothing(stage: Stage) -> None:
    """An object that failed, or was reversed, beside ours: a person tells, ours stays."""
    stage.worker()
    for status in ("failed", "reversed"):
        done = stage.wait(stage.intend(f"refund-{status}"), "succeeded")
        tell(stage, success(f"re_{status}", status), operation_id=done.operation_id)
        view = stage.get(done)
        assert (view.state, view.reference) == ("handed_over", done.reference)
        assert "Reversed" not in stage.names(view)


@check("A37", "reversed before anything was sent")
def a37_a_reversal_before_anything_else_is_handed_over(stage: Stage) -> None:
    """An effect that came and went was ours; sending it (again) is for a person to decide."""
    operation = stage.intend()
    tell(stage, success(status="reversed"), operation_id=operation.operation_id)
    stage.worker()
    view = stage.wait(operation, "handed_over")
    eventually(lambda: "OwnerNotified" in stage.names(view))
    assert stage.requests() == 0
