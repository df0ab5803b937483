"""The stage as a fixture, on each of the two databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.simulator_fixtures import simulator, simulator_process
from settled.verify.stage import Stage, staged

__all__ = ["simulator", "simulator_process"]


@pytest.fixture
def stage(
    store_url: str,
    simulator: SimulatorClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """A fresh database, a provider with an empty log, and no worker yet."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    seed = str(random.randrange(1 << 32))
    print(f"seed {seed}")
    with staged(store_url, simulator, tmp_path, seed=seed) as open_stage:
        yield open_stage
