"""What every test may ask for, under short names: the fixtures of our own pytest plugin.

A test never sees another test's rows: each has a database of its own, on SQLite or on a real
PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing import pytest_plugin
from tests.wheels import build_wheel


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin where the tree is not installed, and nobody has announced it to pytest."""
    if not config.pluginmanager.has_plugin("settled"):
        config.pluginmanager.register(pytest_plugin, "settled")


@pytest.fixture
def simulator(settled_simulator: SimulatorClient) -> SimulatorClient:
    """The simulated provider, with an empty log."""
    return settled_simulator


@pytest.fixture
def postgres_url(settled_postgres_url: str) -> str:
    """The URL of a fresh PostgreSQL database, dropped after the test."""
    return settled_postgres_url


@pytest.fixture
def sqlite_url(settled_sqlite_url: str) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return settled_sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh database: the test runs once on each of the two."""
    url: str = request.getfixturevalue(f"settled_{request.param}_url")
    return url


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))
