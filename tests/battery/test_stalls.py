"""Cases 17, 18 and 21: workers that are slow, frozen, overtaken or asked to stop."""

from __future__ import annotations

from datetime import timedelta

from settled.verify.stage import Stage


def test_case_17_a_call_longer_than_the_lease(stage: Stage) -> None:
    """Case 17: a live worker keeps its call for many leases; a silent one is reconciled."""
    operation = stage.intend(kind="patient-lookup")
    stage.simulator.fault(hold_before=True)
    slow = stage.worker("slow", lease_seconds=0.5)
    stage.simulator.wait(held=1)
    stage.worker("second", lease_seconds=0.5)
    stage.wait_until(stage.get(operation).since + timedelta(seconds=2))
    assert stage.names(operation)[-1] == "Dispatching" and stage.requests() == 1

    stage.freeze(slow)
    unknown = stage.wait(operation, "outcome_unknown")
    assert stage.fields(unknown, "OutcomeUnknown")[0]["cause"] == "owner_gone"
    stage.simulator.wait(lookups=2)
    assert stage.requests() == 1, "looked up, and not sent blindly"

    slow.thaw()
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    names = stage.names(done)
    assert names.count("Dispatching") == names.count("Succeeded") == 1
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done, unsent=0)


def test_case_18_acting_on_an_old_claim_makes_no_call(stage: Stage) -> None:
    """Case 18: claimed and decided at t0, claimed by another at t1: what was decided is void."""
    gate = stage.folder / "gate"
    old = stage.worker("old", fault=f"before_commit:Dispatching=wait:{gate}", lease_seconds=0.5)
    stage.simulator.fault(hold_after=True)
    operation = stage.intend(kind="patient")
    stage.worker("new", lease_seconds=0.5)
    stage.simulator.wait(held=1, seconds=20)
    before = stage.names(operation)
    gate.touch()
    stage.wait_log(old, "overtaken")
    assert stage.names(operation) == before
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    assert stage.fields(done, "Dispatching")[0]["worker"] == "new"
    assert stage.names(done).count("Dispatching") == 1
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done, unsent=0)


def test_case_18_an_old_recovery_scan_makes_no_call(stage: Stage) -> None:
    """Case 18: two workers recover one unknown outcome; the one that read it first is too late."""
    gate = stage.folder / "gate"
    old = stage.worker("old", fault=f"before_commit:Dispatching@2=wait:{gate}", lease_seconds=0.5)
    stage.simulator.fault(reply="close")
    operation = stage.intend(kind="patient")
    stage.wait_event(operation, "OutcomeUnknown")
    stage.worker("new", lease_seconds=0.5)
    done = stage.wait(operation, "succeeded")
    before = stage.names(done)
    assert stage.fields(done, "Dispatching")[1]["worker"] == "new"
    gate.touch()
    stage.wait_log(old, "overtaken")
    assert stage.names(done) == before and before.count("Dispatching") == 2
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.check_invariant(done, unsent=0)


def test_case_21_a_stop_in_the_call_leaves_an_unknown_outcome(stage: Stage) -> None:
    """Case 21: SIGTERM between Dispatching and the reply: outcome_unknown, never released."""
    operation = stage.intend(kind="patient")
    stage.simulator.fault(hold_after=True)
    stopping = stage.worker("stopping", options=("--drain-seconds", "0.2"))
    stage.simulator.wait(held=1)
    assert stopping.terminate() == 0
    unknown = stage.get(operation)
    assert unknown.state == "outcome_unknown"
    assert stage.fields(unknown, "OutcomeUnknown")[0]["cause"] == "shut_down"
    assert "Released" not in stage.names(unknown)
    stage.simulator.release()
    stage.worker("second")
    done = stage.wait(unknown, "succeeded")
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.check_invariant(done, unsent=0)


def test_case_21_a_stop_lets_a_call_end(stage: Stage) -> None:
    """Case 21: a reply that comes while the worker drains is recorded, and the worker ends well."""
    operation = stage.intend(kind="patient")
    stage.simulator.fault(hold_after=True)
    stopping = stage.worker("stopping")
    stage.simulator.wait(held=1)
    stopping.process.terminate()
    stage.simulator.release()
    assert stopping.process.wait(30) == 0
    assert stage.get(operation).state == "succeeded" and stage.requests() == 1
    stage.check_invariant(operation, unsent=0)
