"""The pytest plugin `settled`: the parts that tests run against, as fixtures.

pytest loads this at each start wherever settled is installed, whatever is tested there. So it
imports nothing before a fixture is used.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from settled.infrastructure.simulator.client import SimulatorClient
    from settled.infrastructure.testing.manual_clock import ManualClock

SERVER_VARIABLE = "SETTLED_TEST_DATABASE_URL"
"""The environment variable that names a PostgreSQL server to test on."""


@pytest.fixture
def settled_clock() -> ManualClock:
    """A clock that only the test moves."""
    from settled.infrastructure.testing.manual_clock import ManualClock

    return ManualClock()


@pytest.fixture(scope="session")
def settled_simulator_process() -> Generator[SimulatorClient]:
    """One simulated provider for the whole run, as a process of its own."""
    from settled.infrastructure.simulator.client import running_simulator

    with running_simulator() as client:
        yield client


@pytest.fixture
def settled_simulator(settled_simulator_process: SimulatorClient) -> SimulatorClient:
    """The simulated provider, with nothing left of the test before."""
    settled_simulator_process.reset()
    return settled_simulator_process


@pytest.fixture
def settled_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's anchors, so that none is left in that of the user."""
    folder = tmp_path / "state"
    monkeypatch.setenv("SETTLED_STATE_DIR", str(folder))
    return folder


@pytest.fixture
def settled_sqlite_url(tmp_path: Path, settled_state_directory: Path) -> str:
    """The URL of an SQLite file, `settled.db` in `tmp_path`, that does not exist yet."""
    return f"sqlite:///{tmp_path / 'settled.db'}"


@pytest.fixture(scope="session")
def settled_postgres_server() -> Generator[Callable[[str], str]]:
    """A PostgreSQL server: a function from the name of a database to its URL.

    It is the one that SETTLED_TEST_DATABASE_URL names, as a role that may create databases, or
    else one that is started for this run, from the extra `pg-local`.
    """
    if given := os.environ.get(SERVER_VARIABLE):
        named = urlsplit(given)
        yield lambda database: named._replace(path=f"/{database}").geturl()
        return
    from settled.infrastructure.testing.postgres_server import PostgresServer

    # Writing through, as a server has to that settled trusts without being told to.
    with PostgresServer(fsync=True) as server:
        yield server.url


@pytest.fixture
def settled_postgres_url(
    settled_postgres_server: Callable[[str], str], settled_state_directory: Path
) -> Generator[str]:
    """The URL of a fresh, empty PostgreSQL database, dropped after the test."""
    import psycopg
    from psycopg import sql

    name = f"settled_test_{uuid.uuid4().hex}"
    database = sql.Identifier(name)
    with psycopg.connect(settled_postgres_server("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(database))
        try:
            yield settled_postgres_server(name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))
