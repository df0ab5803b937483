"""The stage as a fixture, on each of the two databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.verify.stage import Stage, staged


@pytest.fixture
def stage(
    store_url: str,
    simulator: SimulatorClient,
    tmp_path: Path,
) -> Iterator[Stage]:
    """A fresh database, a provider with an empty log, and no worker yet."""
    seed = str(random.randrange(1 << 32))
    print(f"seed {seed}")
    with staged(store_url, simulator, tmp_path, seed=seed) as open_stage:
        yield open_stage
