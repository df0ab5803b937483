"""A simulated provider as pytest fixtures: import both names into a conftest or a test module."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from settled.infrastructure.simulator.client import SimulatorClient, running_simulator


@pytest.fixture(scope="session")
def simulator_process() -> Generator[SimulatorClient]:
    """One provider process for all tests of this test process."""
    with running_simulator() as client:
        yield client


@pytest.fixture
def simulator(simulator_process: SimulatorClient) -> SimulatorClient:
    """The provider, with nothing left of the tests before."""
    simulator_process.reset()
    return simulator_process
