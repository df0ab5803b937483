"""Case 22: a lease and a window that are judged by clocks which disagree."""

from __future__ import annotations

import pytest

from settled.verify.checks_clocks import HOUR, shifted_worker, step_clock, times
from settled.verify.stage import Stage


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
    if seconds < 0 or stage.app.journal.dialect == "postgresql":
        # Under SQLite what a clock that is ahead has stamped is later than when it was sent.
        stage.check_invariant(done, other)


def test_case_22_a_clock_stepped_back_an_hour(stage: Stage) -> None:
    """CASE 22: the clock goes back an hour while a reply is lost: no age is negative.

    The window of the key counts from the first request by the store's time, so it is resent.
    """
    worker = shifted_worker(stage, "worker", 0, step_seconds=-HOUR)
    stage.simulator.fault(hold_after=True, reply="reset")
    operation = stage.intend(kind="enduring")
    stage.simulator.wait(held=1)
    step_clock(stage, worker, -HOUR)
    stage.simulator.release()
    done = stage.wait(operation, "succeeded")
    recorded = times(stage, done)
    assert recorded == sorted(recorded)
    assert stage.names(done).count("Dispatching") == 2, stage.fields(done, "OutcomeUnknown")
    assert (stage.requests(), stage.effects()) == (2, 1)
    stage.check_invariant(done)
