"""A27: hosts whose clocks are wrong, or step while a call is out.

PostgreSQL's own clock decides everything. Under SQLite the host is the store's clock, and all that
can be promised is what no setting of it changes: leases count in time since boot, a stream's times
never go back, and what is due becomes due.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from settled import OperationView
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.check import check, check_each
from settled.verify.invariant import CLOCK_SLACK_SECONDS
from settled.verify.minded import CLOCK_VARIABLE, told_file
from settled.verify.stage import AGENT, Stage
from settled.verify.worker import WorkerProcess

HOUR = 3600.0
SLACK = timedelta(seconds=CLOCK_SLACK_SECONDS)
OFF_BY_SECONDS = 10.0
"""How exactly a clock is wrong: between reading and writing it, a busy machine may take a while."""

PACKAGE = "time_machine"


def shifted_worker(
    stage: Stage, name: str, seconds: float, step_seconds: float = 0, lease_seconds: float = 1.0
) -> WorkerProcess:
    """Start a worker on a host whose clock is off, and steps when it is told to."""
    wrong = {CLOCK_VARIABLE: f"{seconds} {step_seconds} {_step_of(stage, name)}"}
    stage.strike(f"clock of {name} off by {seconds:+g} s")
    worker = stage.worker(name, environment=wrong, lease_seconds=lease_seconds)
    expect_off(told_file(_step_of(stage, name), "shifted"), seconds)
    return worker


def step_clock(stage: Stage, worker: WorkerProcess, off: float) -> None:
    """Let the clock of a worker step, and see that it is off by so many seconds after that."""
    step = _step_of(stage, worker.name)
    stage.strike(f"clock of {worker.name} stepped")
    step.touch()
    told = told_file(step, "stepped")
    eventually(told.exists)
    expect_off(told, off)


def expect_off(told: Path, seconds: float) -> None:
    """Check what a worker took for the time against the system's stamp of the file."""
    off = float(told.read_text()) - told.stat().st_mtime
    assert abs(off - seconds) < OFF_BY_SECONDS, f"a clock is {off:+g} s off, not {seconds:+g} s"


def times(stage: Stage, operation: OperationView) -> list[datetime]:
    """Return when each event was recorded."""
    return [entry.at for entry in stage.app.operations.history(operation, by=AGENT)]


def _step_of(stage: Stage, name: str) -> Path:
    return stage.folder / f"step-{name}"


@check_each("A27", "off by {:+g} s, and stepped back in the call", [HOUR, -HOUR], package=PACKAGE)
def a27_a_clock_that_is_off_and_steps_during_the_call(stage: Stage, off: float) -> None:
    """No effect on PostgreSQL; on both, no event is before its predecessor and it settles.

    The call is answered with 503 after the step, so that a retry has to become due as well.
    """
    worker = shifted_worker(stage, "off", off, step_seconds=-2 * off)
    stage.simulator.fault(hold_before=True, execute=False)
    before = stage.app.journal.time()
    operation = stage.intend(kind="enduring")
    stage.simulator.wait(held=1)
    step_clock(stage, worker, -off)
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    recorded = times(stage, done)
    assert recorded == sorted(recorded)
    stage.expect(requests=2, effects=1)
    if stage.app.journal.dialect == "postgresql":
        assert before - SLACK <= recorded[0]
        assert recorded[-1] <= stage.app.journal.time() + SLACK
        stage.check_invariant(done, unsent=0)


@check("A27", "two workers two hours apart", package=PACKAGE)
def a27_two_workers_two_hours_apart(stage: Stage) -> None:
    """One is an hour early, the other an hour late: neither takes the other for dead.

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
    assert early.running
    stage.expect(requests=11, effects=11)
