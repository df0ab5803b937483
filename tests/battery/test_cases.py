"""Cases 1 to 5 and 7 to 10 from the field: lost replies, and what a second request does.

Each asserts what the provider's own log says. The amounts and statuses are those of the reports;
hours have become seconds where nobody wants to wait for them.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from email.utils import formatdate

from settled import Identity, OperationView
from settled.domain.identity import provider_key
from settled.verify.receiver import receiving
from settled.verify.stage import AGENT, Stage


def test_case_01_the_retry_is_the_same_request(stage: Stage) -> None:
    """Case 1: 30.00 of a captured 100.00, the reply dropped: the same key, bytes and refund."""
    stage.simulator.conduct(captured={"order-72": "100.00"})
    stage.simulator.fault(reply="close")
    operation = stage.intend()
    stage.worker()
    done = stage.wait(operation, "succeeded")
    first, second = stage.simulator.log().calls()
    assert first.key == second.key == done.provider_key
    assert (first.body, first.path) == (second.body, second.path)
    assert done.receipt is not None and done.receipt["amount"] == "30.00"
    assert stage.effects() == 1 and stage.names(done)[0] == "Intended"
    stage.check_invariant(done, unsent=0)
    rest = stage.wait(stage.intend("the-rest", amount="70.00"), "succeeded")
    assert rest.reference != done.reference, "70.00 were left, so 30.00 went out once"


def test_case_02_the_key_does_not_depend_on_the_day(stage: Stage) -> None:
    """Case 2: sent on one day and again on the next: the workers' dates differ, the keys do not."""
    operation = stage.intend(amount="412.00")
    stage.simulator.fault(hold_after=True)
    before = stage.worker("before", environment={"TZ": "Pacific/Pago_Pago"})
    stage.simulator.wait(held=1)
    before.kill()
    stage.simulator.release()
    # 25 hours apart: whatever the time is now, these two have another date each.
    stage.worker("after", environment={"TZ": "Pacific/Kiritimati"})
    done = stage.wait(operation, "succeeded")
    identity = Identity("acme", "refund", "refund-request-9")
    key = provider_key(stage.app.installation.id, identity, 1)
    assert [call.key for call in stage.simulator.log().calls()] == [key, key]
    assert stage.effects() == 1
    stage.check_invariant(done, unsent=0)


def test_case_03_resent_inside_the_window(stage: Stage) -> None:
    """Case 3, +23:20: the key is still kept, so the request goes out again."""
    stage.simulator.conduct(retention_seconds=6)
    gate = stage.folder / "gate"
    stage.simulator.fault(hold_after=True)
    first = stage.worker("first", kinds="window")
    stage.worker("second", fault=f"before_claim=wait:{gate}")
    operation = stage.intend(kind="window")
    stage.simulator.wait(held=1)
    first.kill()
    gate.touch()
    done = stage.wait(operation, "succeeded")
    assert stage.names(done).count("Dispatching") == 2 and not stage.simulator.log().lookups()
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.simulator.release()
    stage.check_invariant(done, unsent=0)


def test_case_03_looked_up_or_handed_over_behind_the_window(stage: Stage) -> None:
    """Case 3, +23:45 and +25:00: a resend would pay twice; look up, and without that hand over."""
    stage.simulator.conduct(retention_seconds=5)
    looked_up = stage.intend("72", kind="window")
    blind = stage.intend("73", kind="window-blind")
    stage.simulator.fault(hold_after=True, times=2)
    first = stage.worker("first")
    stage.simulator.wait(held=2)
    first.kill()
    stage.simulator.release()
    sent_at = max(stage.get(one).since for one in (looked_up, blind))
    stage.wait_until(sent_at + timedelta(seconds=5))
    stage.worker("second")
    done, handed = stage.wait(looked_up, "succeeded"), stage.wait(blind, "handed_over")
    assert stage.fields(done, "Succeeded")[0]["via"] == "lookup"
    assert handed.owner == "payments-oncall"
    assert (stage.requests(), stage.effects()) == (2, 2)
    stage.check_invariant(done, handed, unsent=0)


def test_case_04_a_duplicate_is_not_a_failure(stage: Stage) -> None:
    """Case 4: the resend is a 409 that names nothing: looked up, then succeeded; never failed."""
    stage.simulator.conduct(duplicate_completed="conflict")
    stage.simulator.fault(reply="close")
    operation = stage.intend()
    stage.worker()
    done = stage.wait(operation, "succeeded")
    log = stage.simulator.log()
    assert [call.status for call in log.calls()] == [201, 409] and len(log.lookups()) == 1
    assert "Failed" not in stage.names(done) and stage.effects() == 1
    assert done.receipt is not None and done.receipt["amount"] == "30.00"


def test_case_05_a_webhook_before_the_reply(stage: Stage) -> None:
    """Case 5: the webhook lands before the HTTP reply, so its commit conflicts: one POST."""
    stage.worker()
    with receiving(stage) as url:
        stage.simulator.conduct(webhooks={"url": url, "when": "before_reply"})
        done = stage.wait(stage.intend("72", order="72"), "succeeded")
        stage.wait_event(done, "EvidenceRecorded")
        assert [webhook.status for webhook in stage.simulator.log().webhooks] == [200]
    names = stage.names(done)
    assert names.count("Succeeded") == 1 and "Failed" not in names
    assert stage.fields(done, "Succeeded")[0]["via"] == "webhook"
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done, unsent=0)


def test_case_05_authorised_before_the_reply(stage: Stage) -> None:
    """Case 5: the webhook says "pending", and the reply behind it is final: settled once."""
    stage.worker()
    stage.simulator.fault(hold_after=True)
    operation = stage.intend(kind="told")
    stage.simulator.wait(held=1)
    told = stage.app.operations.record_evidence(
        by=AGENT,
        provider="simulator",
        answered="pending",
        kind="told",
        operation_id=operation.operation_id,
        reference="re_1",
        event_id="evt_re_1_pending",
    )
    assert told is not None and told.state in ("accepted", "dispatching")
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    assert stage.names(done).count("Succeeded") == 1 and "Failed" not in stage.names(done)
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_case_07_nothing_is_sent_behind_our_back(stage: Stage) -> None:
    """Case 7: the provider is slower than the client's patience: each request has its event."""
    stage.simulator.fault(hold_before=True)
    stage.worker()
    operation = stage.intend(kind="hasty")
    stage.wait_event(operation, "Dispatching", 2)
    log = stage.simulator.wait(calls=2)
    assert len(log.calls()) <= stage.names(operation).count("Dispatching")
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    assert stage.requests() <= stage.names(done).count("Dispatching")
    assert stage.effects() == 1
    stage.check_invariant(done)


def test_case_08_a_server_error_after_the_effect(stage: Stage) -> None:
    """Case 8: 500, and the comment exists; no key, and its list lags: found later, and once."""
    stage.simulator.conduct(key="none", lookup_lag_seconds=20)
    stage.simulator.fault(status=500, body={"error": "internal"})
    stage.worker()
    params = {"ticket": "ticket-4", "text": "Refunded 30.00 USD."}
    operation = stage.app.operations.intend("comment", "comment-1", params, by=AGENT)
    stage.simulator.wait(lookups=3)
    waiting = stage.get(operation)
    names = stage.names(waiting)
    assert waiting.state == "outcome_unknown" and "ConfirmedAbsent" not in names
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.simulator.advance_clock(20)
    done = stage.wait(operation, "succeeded")
    assert stage.fields(done, "Succeeded")[0]["via"] == "lookup"
    assert done.receipt is not None and done.receipt["text"] == "Refunded 30.00 USD."
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_case_09_the_echo_of_another_operation(stage: Stage) -> None:
    """Case 9: two operations share a key, and nothing is compared: the second is handed over."""
    stage.simulator.conduct(key_name="x-batch", compare_parameters=False)
    stage.worker()
    first = stage.wait(stage.intend("72", kind="batch", amount="30.00"), "succeeded")
    other = stage.wait(stage.intend("73", kind="batch", amount="35.00"), "handed_over")
    assert other.reason is not None and "amount" in other.reason
    assert other.owner == "payments-oncall" and "Succeeded" not in stage.names(other)
    assert first.reference == "re_1" and stage.effects() == 1 and stage.requests() == 2


def test_case_10_left_alone_beyond_the_window(stage: Stage) -> None:
    """Case 10: 429 with a Retry-After behind the window's end: wait, then look up, never resend."""
    operation = stage.intend(kind="window")
    key = operation.provider_key
    stage.simulator.fault(key=key, reply="close")
    stage.simulator.fault(key=key, execute=False, status=429, headers={"Retry-After": "5"})
    stage.worker()
    waiting = _limited(stage, operation)
    assert waiting.state == "outcome_unknown"
    done = stage.wait(waiting, "succeeded")
    log = stage.simulator.log()
    (question,) = log.lookups()
    answered_at = log.calls()[1].answered_at
    assert answered_at is not None and question.at >= answered_at + 5
    assert stage.fields(done, "Succeeded")[0]["via"] == "lookup"
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.check_invariant(done, unsent=0)


def test_case_10_every_form_of_retry_after(stage: Stage) -> None:
    """Case 10: seconds, a date, a fraction, a date in the past, and a number beyond all sense."""
    now, hour, day = time.time(), timedelta(hours=1), timedelta(days=1)
    forms = {
        "seconds": ("3600", hour),
        "fraction": ("0.5", timedelta(seconds=0.5)),
        "absurd": ("1000000000000", day),
        "past": (formatdate(now - 3600, usegmt=True), timedelta()),
        "date": (formatdate(now + 3600, usegmt=True), None),
    }
    operations = {name: stage.intend(name, kind="durable") for name in forms}
    for name, (form, _) in forms.items():
        key, headers = operations[name].provider_key, {"Retry-After": form}
        stage.simulator.fault(key=key, execute=False, status=429, headers=headers)
    stage.worker()
    for name, (_, expected) in forms.items():
        operation = operations[name]
        stage.wait_event(operation, "RetryScheduled")
        history = stage.app.operations.history(operation, by=AGENT)
        (retry,) = (entry for entry in history if entry.name == "RetryScheduled")
        retry_at = datetime.fromisoformat(retry.fields["retry_at"])
        if expected is None:
            assert retry_at.timestamp() >= now + 3600 - 1, name
            assert retry_at - retry.at <= hour, name
        else:
            assert expected <= retry_at - retry.at <= expected + timedelta(seconds=0.2), name
        if expected is not None and expected < hour:
            assert stage.wait(operation, "succeeded").attempts == 2
        else:
            assert stage.get(operation).state == "ready"
    assert stage.effects() == 2


def _limited(stage: Stage, operation: OperationView) -> OperationView:
    """Wait until the second request was refused for a while."""
    stage.wait_event(operation, "OutcomeUnknown", 2)
    return stage.get(operation)
