"""The suite that is shipped to users, run on both databases: they must mean the same.

And on the journal in memory, because what the simulation shows on it has to hold for them. No rule
is left out there; but no other process sees that store, so threads take the place of processes, and
a worker that is killed is one that lets go of its place without a word.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from settled.infrastructure.clock import StoreClock
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.testing.journal_store import memory_store
from settled.infrastructure.testing.journal_suite import (
    JournalSuite,
    Store,
    postgres_store,
    sqlite_store,
)
from settled.infrastructure.testing.memory_tables import MemoryStore


class TestMemory(JournalSuite):
    """In memory, on the host's clock."""

    @pytest.fixture
    def store(self) -> Store:
        """Return a new store."""
        return memory_store(MemoryStore(StoreClock(partial(datetime.now, UTC))))


class TestSqlite(JournalSuite):
    """On an SQLite file."""

    @pytest.fixture
    def store(self, sqlite_url: str, tmp_path: Path) -> Store:
        """Return a store in a fresh file."""
        open_journal(sqlite_url, migrate=True).close()
        return sqlite_store(tmp_path / "settled.db", partial(open_journal, sqlite_url))


class TestPostgres(JournalSuite):
    """On PostgreSQL."""

    @pytest.fixture
    def store(self, postgres_url: str) -> Store:
        """Return a store in a fresh database."""
        opening = partial(open_journal, postgres_url, require_fsync=False)
        opening(migrate=True).close()
        return postgres_store(postgres_url, opening)


class TestPostgresWithGenericPlans(JournalSuite):
    """A server that plans once for all executions takes other ways to the rows, from the start."""

    @pytest.fixture
    def store(self, postgres_url: str) -> Store:
        """Return a store whose connections never plan for the values at hand."""
        open_journal(postgres_url, migrate=True, require_fsync=False).close()
        settings = {"plan_cache_mode": "force_generic_plan"}
        opening = partial(PostgresJournal, postgres_url, require_fsync=False, settings=settings)
        return postgres_store(postgres_url, opening)
