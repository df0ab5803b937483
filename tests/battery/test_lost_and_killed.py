"""A1 to A7: workers killed at each boundary, and replies lost on the wire."""

from __future__ import annotations

import pytest

from tests.battery.stage import Stage


def test_a1_an_intent_whose_process_died_is_found(stage: Stage) -> None:
    """A1: the intent is committed and nothing else happens; a worker finds it in the agenda."""
    operation = stage.intend()
    stage.worker()
    done = stage.wait(operation, "succeeded")
    assert (stage.requests(), stage.effects()) == (1, 1)
    assert done.receipt is not None and done.reference == "re_1"
    stage.check_invariant(done)


def test_a4_performed_and_killed_before_the_reply_is_recorded(stage: Stage) -> None:
    """A4: the effect exists and its receipt does not; another worker resends the same request."""
    operation = stage.intend()
    stage.simulator.fault(hold_after=True)
    first = stage.worker("first")
    stage.simulator.wait(held=1)
    first.kill()
    stage.simulator.release()
    stage.worker("second")
    done = stage.wait(operation, "succeeded")
    assert stage.names(done).count("Dispatching") == 2
    assert "OutcomeUnknown" in stage.names(done)
    assert (stage.requests(), stage.effects()) == (2, 1)
    assert done.receipt is not None
    stage.check_invariant(done)
