"""What the tests of the journals share: a migrated PostgreSQL database and a place for anchors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from settled.infrastructure.journal.migrate import migrate
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.journal.postgres.migrating import PostgresTarget


@pytest.fixture(autouse=True)
def state_directory(settled_state_directory: Path) -> Path:
    """A folder of its own for each test's anchors, also where the test makes its own store."""
    return settled_state_directory


@pytest.fixture
def migrated_url(postgres_url: str) -> str:
    """The URL of a fresh PostgreSQL database with our tables."""
    with PostgresTarget(postgres_url) as target:
        migrate(target)
    return postgres_url


@pytest.fixture
def postgres(migrated_url: str) -> Generator[PostgresJournal]:
    """A journal in a fresh PostgreSQL database."""
    with closing(PostgresJournal(migrated_url, require_fsync=False)) as journal:
        yield journal
