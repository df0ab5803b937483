"""Cases 20 and 30 from the field: two who have one operation, and two who press one button.

What a run adds to case 20 comes with it.
"""

from __future__ import annotations

import pytest

from settled import Principal, TransitionRefused
from settled.domain.identity import provider_key
from settled.verify.stage import OPERATOR, Stage

COLLEAGUE = Principal("acme", "alan", frozenset({"operator"}))


def test_case_20_the_loser_sends_nothing_more(stage: Stage) -> None:
    """Case 20: a worker that was overtaken in the middle of its attempts makes none after that."""
    gate = stage.folder / "gate"
    loser = stage.worker(
        "loser", fault=f"before_commit:OutcomeUnknown=wait:{gate}", lease_seconds=0.5
    )
    stage.simulator.fault(reply="close")
    stage.simulator.fault(hold_after=True)
    operation = stage.intend(kind="patient")
    stage.worker("winner", lease_seconds=0.5)
    stage.simulator.wait(calls=2, held=1, seconds=20)
    gate.touch()
    stage.wait_log(loser, "overtaken")
    assert stage.requests() == 2
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    sent = [fields["worker"] for fields in stage.fields(done, "Dispatching")]
    assert sent == ["loser", "winner"]
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.check_invariant(done, unsent=0)


def test_case_30_what_is_unknown_is_reconciled_and_not_retried(stage: Stage) -> None:
    """Case 30: two people press at once: no new attempt, and one reconciliation."""
    stage.simulator.fault(reply="close")
    stage.worker()
    handed = stage.wait(stage.intend(kind="nothing"), "handed_over")
    for person in (OPERATOR, COLLEAGUE):
        with pytest.raises(TransitionRefused):
            stage.app.operations.reissue(handed, by=person, reason="the customer waits")
    for worker in stage.workers:
        worker.terminate()  # so that it stays as the first press has left it
    stage.app.operations.resume(handed, by=OPERATOR, reason="look again")
    with pytest.raises(TransitionRefused):
        stage.app.operations.resume(handed, by=COLLEAGUE, reason="look again")
    assert stage.names(handed).count("ReconciliationResumed") == 1
    stage.worker("second")
    handed = stage.wait(handed, "handed_over")
    assert stage.names(handed).count("Dispatching") == 1 and handed.attempts == 1
    assert (stage.requests(), stage.effects()) == (1, 1)


def test_case_30_a_new_generation_exists_only_from_failed(stage: Stage) -> None:
    """Case 30: what has failed for certain is begun anew by a person, once, under a new key."""
    stage.simulator.conduct(pending={"polls": 1, "final": "failed"})
    stage.worker()
    failed = stage.wait(stage.intend(kind="polled"), "failed")
    stage.simulator.conduct(pending=None)
    again = stage.app.operations.reissue(failed, by=OPERATOR, reason="their account is open again")
    with pytest.raises(TransitionRefused):
        stage.app.operations.reissue(failed, by=COLLEAGUE, reason="their account is open again")
    done = stage.wait(again, "succeeded")
    installation = stage.app.installation.id
    keys = [provider_key(installation, done.identity, generation) for generation in (1, 2)]
    assert [call.key for call in stage.simulator.log().calls()] == keys
    (reissued,) = stage.fields(done, "Reissued")
    assert (reissued["generation"], reissued["provider_key"]) == (2, keys[1])
    sent = stage.fields(failed, "Dispatching")[0]
    (fired,) = reissued["fired"]
    assert fired.startswith("attempt 1 at ") and fired.endswith(f"key {sent['key']}")
    assert [effect.status for effect in stage.simulator.effects()] == ["failed", "succeeded"]
