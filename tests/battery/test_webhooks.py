"""What the provider tells by itself: early, late, twice, and across our own steps."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from settled.domain.inbox import KIND as EVIDENCE
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.checks_webhooks import cross_all, waiting
from settled.verify.receiver import event_of, perform_elsewhere, receiving, tell
from settled.verify.stage import AGENT, Stage


@pytest.fixture
def endpoint(stage: Stage) -> Iterator[str]:
    """Where the provider sends its events."""
    with receiving(stage) as url:
        yield url


def test_case_27_a_webhook_before_the_intent_is_kept_and_joined(
    stage: Stage, endpoint: str
) -> None:
    """CASE 27: stored before it is acknowledged, and joined when the operation appears."""
    perform_elsewhere(stage, "refund-request-9")
    stage.simulator.send_webhooks(endpoint)
    assert [event.status for event in stage.simulator.log().webhooks] == [200]
    assert waiting(stage) == 1
    operation = stage.intend("refund-request-9", order="refund-request-9")
    stage.worker()
    done = stage.wait(operation, "succeeded")
    eventually(lambda: waiting(stage) == 0)
    assert done.reference == "re_1"
    assert stage.names(done).count("Succeeded") == 1
    assert stage.effects() == 1
    (evidence,) = stage.app.journal.heads("acme", kind=EVIDENCE)
    assert evidence.state == "joined"


def test_case_27_evidence_by_reference_waits_until_the_reference_is_known(stage: Stage) -> None:
    """CASE 27: a webhook that names only the provider's object is joined after the reply."""
    said = stage.app.operations.record_evidence(
        by=AGENT, provider="simulator", answered="performed", reference="re_1"
    )
    assert said is None
    stage.worker()
    done = stage.wait(stage.intend(), "succeeded")
    eventually(lambda: waiting(stage) == 0)
    assert done.reference == "re_1"
    assert stage.names(done)[-1] == "EvidenceRecorded"
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_case_28_the_same_webhook_three_times_at_once(stage: Stage) -> None:
    """CASE 28: three copies within milliseconds settle it once."""
    stage.simulator.conduct(pending={})
    stage.worker()
    operation = stage.wait(stage.intend(), "accepted")
    stage.simulator.settle("re_1", "succeeded")
    event = event_of(stage, "re_1")
    together = threading.Barrier(3)

    def copy(_: int) -> None:
        together.wait(10)
        tell(stage, event, operation_id=operation.operation_id)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(copy, range(3)))
    done = stage.wait(operation, "succeeded")
    names = Counter(stage.names(done))
    assert names["Succeeded"] == 1
    assert names["EvidenceRecorded"] <= 1, "the same words are kept once"
    assert names["Contradicted"] == 0
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_case_28_three_copies_before_the_operation_are_one(stage: Stage) -> None:
    """CASE 28: copies that nothing is known of yet are one piece of evidence."""
    perform_elsewhere(stage, "refund-request-9")
    event = event_of(stage, "re_1")
    with ThreadPoolExecutor(3) as pool:
        copies = [pool.submit(tell, stage, event) for _ in range(3)]
    assert [copy.result() for copy in copies] == [None] * 3
    assert waiting(stage) == 1
    stage.worker()
    operation = stage.intend("refund-request-9", order="refund-request-9")
    done = stage.wait(operation, "succeeded")
    eventually(lambda: waiting(stage) == 0)
    assert stage.names(done).count("Succeeded") == 1
    assert stage.effects() == 1


def test_case_29_reply_and_webhook_settle_at_once(stage: Stage, endpoint: str) -> None:
    """CASE 29: the webhook settles it while the reply is on its way; the reply is evidence."""
    stage.simulator.conduct(webhooks={"url": endpoint, "when": "before_reply"})
    stage.simulator.fault(hold_after=True)
    worker = stage.worker()
    operation = stage.intend("refund-request-9", order="refund-request-9")
    stage.simulator.wait(held=1, webhooks=1)
    settled = stage.get(operation)
    assert (settled.state, stage.fields(settled, "Succeeded")[0]["via"]) == ("succeeded", "webhook")
    stage.simulator.release()
    eventually(lambda: "EvidenceRecorded" in stage.names(operation))
    assert stage.names(operation).count("Succeeded") == 1
    assert stage.fields(operation, "EvidenceRecorded")[0]["via"] == "reply"
    assert (stage.requests(), stage.effects()) == (1, 1)
    assert worker.terminate() == 0
    assert "Traceback" not in stage.log_of(worker)
    stage.check_invariant(settled)


def test_a38_at_full_size(stage: Stage) -> None:
    """A38: `settled verify` has fewer crossings: these are 500 on each of the two databases."""
    cross_all(stage, 500)
