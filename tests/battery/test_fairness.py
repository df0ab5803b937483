"""A40 at full size: `settled verify` floods with fewer rows, as its users wait for it."""

from __future__ import annotations

import os

from settled.verify.checks_fairness import flood
from settled.verify.stage import Stage

DUE = 1_000_000 if os.environ.get("SETTLED_LONG") else 20_000


def test_a40_one_tenants_flood_delays_nobody_else(stage: Stage) -> None:
    """A40: 20,000 due rows of one tenant (a million with SETTLED_LONG): others take under 1 s."""
    flood(stage, DUE)
