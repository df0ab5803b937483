"""A36: a worker that stands still between Dispatching and the first byte, and thaws too late."""

from __future__ import annotations

from settled import OperationView
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.check import check, check_each
from settled.verify.stage import Stage
from settled.verify.worker import WorkerProcess


def frozen_before_sending(stage: Stage, kind: str) -> tuple[OperationView, WorkerProcess]:
    """Return an operation whose worker was frozen when its Dispatching was durable."""
    there, go = stage.folder / "there", stage.folder / "go"
    point = f"before_call:{kind}"
    worker = stage.worker("frozen", fault=f"{point}=touch:{there},{point}=wait:{go}")
    operation = stage.intend(kind=kind)
    eventually(there.exists)
    stage.freeze(worker)
    go.touch()
    assert stage.names(operation)[-1] == "Dispatching"
    return operation, worker


def permit_is_over(stage: Stage, operation: OperationView) -> bool:
    """Tell whether the first request must not begin any more."""
    until = stage.dispatches(operation)[0]
    return stage.app.journal.time() > until


@check_each("A36", "frozen before the first byte, thawed too late ({})", ["curt", "quick-lookup"])
def a36_a_thawed_worker_does_not_send(stage: Stage, kind: str) -> None:
    """Others went on meanwhile, by resending or looking up; the thawed one sends nothing."""
    operation, frozen = frozen_before_sending(stage, kind)
    stage.worker("second")
    done = stage.wait(operation, "succeeded")
    eventually(lambda: permit_is_over(stage, operation))
    frozen.thaw()
    eventually(lambda: "EvidenceRecorded" in stage.names(operation))
    (evidence,) = stage.fields(operation, "EvidenceRecorded")
    assert (evidence["answered"], evidence["via"]) == ("not_sent", "reply")
    stage.expect(requests=1, effects=1)
    assert stage.get(operation).state == "succeeded"
    stage.check_invariant(done)


@check("A36", "frozen, nothing found, nothing deduplicated")
def a36_absence_permits_no_dispatch_while_the_sender_is_silent(stage: Stage) -> None:
    """The provider deduplicates nothing, and nothing is found: still no second dispatch.

    Once the sender thaws and reports that it sent nothing, it is known, and is sent once.
    """
    operation, frozen = frozen_before_sending(stage, "unkeyed")
    stage.worker("second")
    eventually(lambda: permit_is_over(stage, operation))
    asked = len(stage.simulator.log().lookups())
    stage.simulator.wait(lookups=asked + 3)
    assert stage.get(operation).state == "outcome_unknown"
    assert stage.names(operation).count("Dispatching") == 1
    assert stage.requests() == 0
    frozen.thaw()
    done = stage.wait(operation, "succeeded")
    assert stage.names(done).count("Dispatching") == 2
    stage.expect(requests=1, effects=1)


@check("A36", "killed, nothing found, nothing deduplicated")
def a36_absence_permits_no_dispatch_when_the_sender_died(stage: Stage) -> None:
    """A killed sender may have sent; with no key, looking goes on and nothing is sent."""
    operation, frozen = frozen_before_sending(stage, "unkeyed")
    frozen.kill()
    stage.worker("second")
    eventually(lambda: permit_is_over(stage, operation))
    asked = len(stage.simulator.log().lookups())
    stage.simulator.wait(lookups=asked + 3)
    assert stage.get(operation).state == "outcome_unknown"
    assert stage.names(operation).count("Dispatching") == 1
    assert stage.requests() == 0
