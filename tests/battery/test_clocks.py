"""Hosts whose clocks are wrong, or step while a call is out.

PostgreSQL's own clock decides everything. Under SQLite the host is the store's clock, and all that
can be promised is what no setting of it changes: leases count in time since boot, a stream's times
never go back, and what is due becomes due.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from settled import OperationView
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.stage import AGENT, CLOCK_SLACK_SECONDS, Stage, WorkerProcess

HOUR = 3600.0
NEVER = "never"
SLACK = timedelta(seconds=CLOCK_SLACK_SECONDS)


def shifted_worker(
    stage: Stage,
    name: str,
    seconds: float,
    step: Path | None = None,
    step_seconds: float = 0,
    lease_seconds: float = 1.0,
) -> WorkerProcess:
    """Start a worker on a host whose clock is off, and steps when the file `step` appears."""
    script = str(Path(__file__).with_name("shifted.py"))
    when = str(step or stage.folder / NEVER)
    program = (script, str(seconds), when, str(step_seconds))
    return stage.worker(name, program=program, lease_seconds=lease_seconds)


def step_clock(step: Path) -> None:
    """Let the clock of a worker step, and wait until it has."""
    step.touch()
    eventually(lambda: step.with_name(step.name + ".done").exists())


def times(stage: Stage, operation: OperationView) -> list[datetime]:
    """Return when each event was recorded."""
    return [entry.at for entry in stage.app.operations.history(operation, by=AGENT)]


@pytest.mark.parametrize(("first", "step_seconds"), [(HOUR, -2 * HOUR), (-HOUR, 2 * HOUR)])
def test_a27_a_clock_that_is_off_and_steps_during_the_call(
    stage: Stage, first: float, step_seconds: float, tmp_path: Path
) -> None:
    """A27: no effect on PostgreSQL; on both, no event is before its predecessor and it settles.

    The call is answered with 503 after the step, so that a retry has to become due as well.
    """
    step = tmp_path / "step"
    shifted_worker(stage, "off", first, step, step_seconds)
    stage.simulator.fault(hold_before=True, execute=False)
    before = stage.app.journal.time()
    operation = stage.intend(kind="enduring")
    stage.simulator.wait(held=1)
    step_clock(step)
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    recorded = times(stage, done)
    assert recorded == sorted(recorded)
    assert stage.effects() == 1
    if stage.app.journal.dialect == "postgresql":
        assert before - SLACK <= recorded[0]
        assert recorded[-1] <= stage.app.journal.time() + SLACK
        stage.check_invariant(done)


def test_a27_two_workers_an_hour_apart(stage: Stage) -> None:
    """A27: one is an hour early, the other an hour late: neither takes the other for dead.

    Nor does either resend what the other has out, whatever its own clock says of the deadline.
    """
    early = shifted_worker(stage, "early", HOUR)
    stage.simulator.fault(hold_after=True)
    held = stage.intend("refund-0", kind="enduring", order="order-0")
    stage.simulator.wait(held=1)
    shifted_worker(stage, "late", -HOUR)
    others = [
        stage.intend(f"refund-{n}", kind="enduring", order=f"order-{n}") for n in range(1, 11)
    ]
    for other in others:
        stage.wait(other, "succeeded")
    assert stage.get(held).state == "dispatching"
    assert {row.name for row in stage.app.journal.workers() if not row.lapsed} == {"early", "late"}
    stage.simulator.release()
    done = stage.wait(held, "succeeded")
    assert stage.names(done).count("Dispatching") == 1
    assert early.process.poll() is None
    assert stage.effects() == 11


@pytest.mark.parametrize("seconds", [25.0, -25.0])
def test_case_22_a_lease_judged_by_another_clock(stage: Stage, seconds: float) -> None:
    """CASE 22: a lease of 20 s, clocks 25 s apart: nobody's lease is over, nothing is resent."""
    stage.simulator.fault(hold_after=True)
    shifted_worker(stage, "holder", seconds, lease_seconds=20.0)
    held = stage.intend("refund-0", kind="enduring", order="order-0")
    stage.simulator.wait(held=1)
    stage.worker("other", lease_seconds=20.0)
    other = stage.wait(stage.intend("refund-1", order="order-1"), "succeeded")
    (holder,) = [row for row in stage.app.journal.workers() if row.name == "holder"]
    assert not holder.lapsed
    assert stage.get(held).state == "dispatching"
    stage.simulator.release()
    done = stage.wait(held, "succeeded")
    assert stage.names(done).count("Dispatching") == 1
    assert (stage.requests(), stage.effects()) == (2, 2)
    stage.check_invariant(*((done, other) if seconds < 0 else ()))


def test_case_22_a_clock_stepped_back_an_hour(stage: Stage, tmp_path: Path) -> None:
    """CASE 22: the clock goes back an hour while a reply is lost: no age is negative.

    The window of the key counts from the first request by the store's time, so it is resent.
    """
    step = tmp_path / "step"
    shifted_worker(stage, "worker", 0, step, -HOUR)
    stage.simulator.fault(hold_after=True, reply="reset")
    operation = stage.intend(kind="enduring")
    stage.simulator.wait(held=1)
    step_clock(step)
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    recorded = times(stage, done)
    assert recorded == sorted(recorded)
    assert stage.names(done).count("Dispatching") == 2, stage.fields(done, "OutcomeUnknown")
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.check_invariant(done)
