"""A12, A13: answers that are no outcome yet, and conflicts that prove nothing by their number."""

from __future__ import annotations

import httpx2

from settled import OperationView
from settled.verify.check import check, check_each
from settled.verify.receiver import receiving
from settled.verify.stage import Stage


def settled_once(stage: Stage, operation: OperationView, *others: OperationView) -> list[str]:
    """Check that one request had one effect and one settlement; return the events' names.

    `others` are those that have sent something too.
    """
    names = stage.names(operation)
    assert names.count("Succeeded") == 1
    assert len(stage.simulator.log().calls(operation.provider_key)) == names.count("Dispatching")
    assert [effect.key for effect in stage.simulator.effects()].count(operation.provider_key) == 1
    stage.check_invariant(operation, *others, unsent=0)
    return names


@check("A12", "pending, and polled until it is settled")
def a12_pending_is_polled(stage: Stage) -> None:
    """A12: "pending" is no outcome: it is polled until there is one, and never created again."""
    stage.simulator.conduct(pending={"polls": 3})
    stage.worker()
    done = stage.wait(stage.intend(kind="polled"), "succeeded")
    names = settled_once(stage, done)
    assert names.count("Accepted") == 1 and names.count("LookedUp") == 2
    assert len(stage.simulator.log().lookups()) == 3 and stage.requests() == 1
    assert done.receipt is not None and done.receipt["status"] == "succeeded"


@check("A12", "pending, and then failed")
def a12_pending_and_then_failed(stage: Stage) -> None:
    """The final outcome may be that nothing was performed; that settles it too."""
    stage.simulator.conduct(pending={"polls": 1, "final": "failed"})
    stage.worker()
    done = stage.wait(stage.intend(kind="polled"), "failed")
    assert "Succeeded" not in stage.names(done) and stage.requests() == 1


@check("A12", "pending, and told by three copies of a webhook")
def a12_pending_is_told_by_webhook(stage: Stage) -> None:
    """The next poll is an hour away and a webhook tells, three times: settled once."""
    stage.worker()
    with receiving(stage, "told") as url:
        stage.simulator.conduct(pending={}, webhooks={"url": url, "copies": 3})
        operation = stage.wait(stage.intend("72", kind="told", order="72"), "accepted")
        assert operation.reference == "re_1"
        stage.simulator.settle("re_1")
        log = stage.simulator.wait(webhooks=6)
    assert [webhook.status for webhook in log.webhooks] == [200] * 6
    done = stage.wait(operation, "succeeded")
    settled_once(stage, done)
    assert stage.fields(done, "Succeeded")[0]["via"] == "webhook"
    assert stage.requests() == 1 and not log.lookups()


@check_each("A12", "pending, and killed at {}", ["after_call:polled", "after_commit:Accepted"])
def a12_a_crash_around_accepted_loses_nothing(stage: Stage, fault: str) -> None:
    """Killed before or after "pending" is recorded: the next worker polls what there is."""
    stage.simulator.conduct(pending={"polls": 2})
    operation = stage.intend(kind="polled")
    stage.worker("first", fault=f"{fault}=kill").wait_killed()
    stage.worker("second")
    done = stage.wait(operation, "succeeded")
    names = settled_once(stage, done)
    assert names.count("Accepted") == 1
    assert stage.requests() == (2 if fault == "after_call:polled" else 1)


@check("A13", "409 while the first request still runs")
def a13_in_progress_is_waited_for(stage: Stage) -> None:
    """409 while the first request still runs: neither a failure nor a success, so wait."""
    operation = stage.intend()
    stage.simulator.fault(hold_before=True)
    first = stage.worker("first")
    stage.simulator.wait(held=1)
    first.kill()
    stage.worker("second")
    stage.simulator.wait(answers=1)
    waiting = stage.wait(operation, "outcome_unknown")
    assert stage.effects() == 0 and stage.simulator.log().calls()[1].status == 409
    stage.simulator.release()
    done = stage.wait(waiting, "succeeded")
    assert "Failed" not in settled_once(stage, done) and stage.effects() == 1


@check("A13", "409 that names the object")
def a13_a_conflict_that_names_the_object_is_fetched_and_compared(stage: Stage) -> None:
    """409 duplicate with a reference: read that object; equal settles, different does not."""
    stage.simulator.conduct(duplicate_completed="conflict_with_reference")
    stage.simulator.fault(reply="close")
    stage.worker()
    ours = stage.wait(stage.intend("ours"), "succeeded")
    settled_once(stage, ours)
    assert stage.fields(ours, "Succeeded")[0]["via"] == "lookup" and ours.reference == "re_1"
    said = {"error": {"code": "duplicate", "reference": "re_1"}}
    stage.simulator.fault(execute=False, status=409, body=said)
    foreign = stage.wait(stage.intend("foreign", amount="31.00"), "handed_over")
    assert foreign.reason is not None and "amount" in foreign.reason
    assert stage.effects() == 1 and len(stage.simulator.log().calls(foreign.provider_key)) == 1


@check("A13", "409 that names nothing")
def a13_a_conflict_without_a_name_is_looked_up_or_handed_over(stage: Stage) -> None:
    """409 duplicate and nothing else: look up; where that is not possible, hand over."""
    stage.simulator.conduct(duplicate_completed="conflict")
    stage.simulator.fault(reply="close", times=2)
    looked_up, blind = stage.intend("72"), stage.intend("73", kind="resend-only")
    stage.worker()
    done, handed = stage.wait(looked_up, "succeeded"), stage.wait(blind, "handed_over")
    settled_once(stage, done, handed)
    assert stage.fields(done, "Succeeded")[0]["via"] == "lookup"
    assert len(stage.simulator.log().calls(handed.provider_key)) == 2 and stage.effects() == 2
    assert "Failed" not in stage.names(handed) and handed.owner == "payments-oncall"


@check("A13", "the key was used with other parameters")
def a13_a_key_that_was_used_otherwise_stops_everything(stage: Stage) -> None:
    """The provider knows our key with other parameters: hand over, and mint no new key."""
    operation = stage.intend()
    headers = {"Idempotency-Key": operation.provider_key}
    body = {"order": "order-1", "amount": "1.00", "currency": "USD"}
    httpx2.post(stage.simulator.refunds_url, json=body, headers=headers, trust_env=False)
    worker = stage.worker()
    handed = stage.wait(operation, "handed_over")
    calls = stage.simulator.log().calls()
    assert {call.key for call in calls} == {operation.provider_key}
    assert calls[1].status == 422 and len(calls) == 2 and stage.effects() == 1
    assert handed.owner == "payments-oncall" and "needs_attention" in stage.log_of(worker)


@check("A13", "200 without the object")
def a13_a_status_alone_is_never_a_success(stage: Stage) -> None:
    """A 200 without the object, or with a status that nobody declared, settles nothing."""
    stage.simulator.conduct(duplicate_completed="current_state")
    silent, odd = stage.intend("silent"), stage.intend("odd", kind="polled")
    stage.simulator.fault(key=silent.provider_key, status=200, body="OK")
    booked = {"id": "re_1", "status": "booked", "order": "order-72"}
    stage.simulator.fault(key=odd.provider_key, status=200, body=booked)
    stage.worker(kinds="polled")
    odd = stage.wait(odd, "succeeded")
    assert stage.names(odd).count("Accepted") == 1
    assert stage.fields(odd, "Succeeded")[0]["via"] == "lookup"
    stage.worker(kinds="refund")
    silent = stage.wait(silent, "succeeded")
    assert stage.fields(silent, "OutcomeUnknown") and stage.names(silent).count("Dispatching") == 2
    assert stage.effects() == 2
    stage.check_invariant(silent, odd, unsent=0)
