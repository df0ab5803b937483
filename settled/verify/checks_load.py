"""A29: operations over several workers that are killed at random, at a provider that misbehaves."""

from __future__ import annotations

from settled.verify.check import check
from settled.verify.soak import soak
from settled.verify.stage import Stage

OPERATIONS = 1500
"""More than can be settled before the first worker dies, however quick the machine is."""


@check("A29", "workers killed at random under a misbehaving provider")
def a29_workers_killed_at_random(stage: Stage) -> None:
    """Every operation ends; effects are those that succeeded, or are in somebody's hands.

    `settled verify --soak` is this with more of everything.
    """
    figures = soak(stage, OPERATIONS, restarts=False)
    figures.expect_nothing_wrong()
    assert figures.operations == OPERATIONS
    assert figures.kills and figures.unknowns
