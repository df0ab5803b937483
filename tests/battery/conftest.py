"""The stage as a fixture, on each of the two databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.simulator_fixtures import simulator, simulator_process
from tests.battery.stage import Stage, staged

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
    with staged(store_url, simulator, tmp_path) as open_stage:
        yield open_stage
