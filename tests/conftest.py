"""What every test may ask for: a database of its own, on SQLite or on a real PostgreSQL.

The server is started once for each test process, or is the one that SETTLED_TEST_DATABASE_URL
names; then databases are created there and dropped again. A test never sees another test's rows.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from settled.infrastructure.testing.postgres_server import PostgresServer

DatabaseUrl = Callable[[str], str]
"""The name of a database -> its URL on the server of this test process."""


@pytest.fixture(scope="session")
def postgres_database_url() -> Iterator[DatabaseUrl]:
    """The server: a function from the name of a database to its URL."""
    given = os.environ.get("SETTLED_TEST_DATABASE_URL")
    if given:
        parts = urlsplit(given)
        query = f"?{parts.query}" if parts.query else ""
        yield lambda name: f"{parts.scheme}://{parts.netloc}/{name}{query}"
        return
    with PostgresServer(fsync=True) as server:
        yield server.url


@pytest.fixture(scope="session")
def postgres_template(postgres_database_url: DatabaseUrl) -> str:
    """The database that each test's own is copied from.

    PostgreSQL's empty one, as tests of migrating need; to copy a migrated one, make it here, once.
    """
    return "template0"


@pytest.fixture
def postgres_url(postgres_database_url: DatabaseUrl, postgres_template: str) -> Iterator[str]:
    """The URL of a fresh PostgreSQL database, dropped after the test."""
    name = f"settled_test_{uuid.uuid4().hex}"
    quoted = sql.Identifier(name)
    with psycopg.connect(postgres_database_url("postgres"), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                quoted, sql.Identifier(postgres_template)
            )
        )
        try:
            yield postgres_database_url(name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'settled.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh database: the test runs once on each of the two."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
