"""A22: a worker that stands still in its call, and is overtaken."""

from __future__ import annotations

from settled.verify.check import check
from settled.verify.stage import OPERATOR, Stage

LEASE_SECONDS = 1.0


@check("A22", "frozen in the call, resent by another, thawed")
def a22_a_zombie_brings_evidence_and_no_second_effect(stage: Stage) -> None:
    """Frozen in the call past its lease; another resends; the first reply is evidence."""
    operation = stage.intend(kind="patient")
    stage.simulator.fault(hold_after=True)
    zombie = stage.worker("zombie", lease_seconds=LEASE_SECONDS)
    stage.simulator.wait(held=1)
    stage.freeze(zombie)
    stage.worker("second")
    done = stage.wait(operation, "succeeded")
    assert stage.names(done).count("Dispatching") == 2
    stage.simulator.release()
    zombie.thaw()
    stage.wait_event(done, "EvidenceRecorded")
    after = stage.get(done)
    assert after.state == "succeeded" and stage.names(after).count("Succeeded") == 1
    assert stage.fields(after, "EvidenceRecorded")[0]["reference"] == after.reference == "re_1"
    stage.expect(requests=2, effects=1)
    stage.check_invariant(after, unsent=0)
    stage.wait(stage.intend("next"), "succeeded")
    assert zombie.process.poll() is None, "it has taken a new place among the workers"


@check("A22", "frozen in the call, without key and lookup")
def a22_without_a_contract_the_late_reply_settles_it(stage: Stage) -> None:
    """Nobody may send again, so it is handed over; the zombie's reply then settles it."""
    stage.simulator.conduct(key="none")
    operation = stage.intend(kind="patient-nothing")
    stage.simulator.fault(hold_after=True)
    zombie = stage.worker("zombie", lease_seconds=LEASE_SECONDS)
    stage.simulator.wait(held=1)
    stage.freeze(zombie)
    stage.worker("second")
    handed = stage.wait(operation, "handed_over")
    stage.simulator.release()
    zombie.thaw()
    done = stage.wait(handed, "succeeded")
    assert done.reference == "re_1" and stage.names(done).count("Dispatching") == 1
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A22", "frozen in the call, settled by a person, thawed")
def a22_a_late_reply_to_what_a_person_settled_as_failed(stage: Stage) -> None:
    """A person has said that there is no effect; the zombie's reply contradicts, visibly."""
    stage.simulator.conduct(key="none")
    operation = stage.intend(kind="patient-nothing")
    stage.simulator.fault(hold_after=True)
    zombie = stage.worker("zombie", lease_seconds=LEASE_SECONDS)
    stage.simulator.wait(held=1)
    stage.freeze(zombie)
    stage.worker("second")
    handed = stage.wait(operation, "handed_over")
    stage.app.operations.settle(
        handed,
        outcome="failed",
        evidence={"statement": "nothing on 2026-11-30"},
        by=OPERATOR,
        reason="not on the statement",
    )
    stage.simulator.release()
    zombie.thaw()
    stage.wait_event(handed, "Contradicted")
    again = stage.get(handed)
    assert again.state == "handed_over" and again.owner == "payments-oncall"
    stage.expect(requests=1, effects=1)
