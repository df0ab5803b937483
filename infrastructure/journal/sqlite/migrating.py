"""How migrating talks to an SQLite file; the only place that makes one."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.journal.sqlite.database import (
    PATIENCE_SECONDS,
    check_place,
    occupied,
    translating,
)
from settled.infrastructure.journal.sqlite.turn import Turn


class SqliteTarget:
    """The target of a migration: a file, which need not exist before."""

    dialect = "sqlite"
    preamble = ""

    def __init__(self, path: Path) -> None:
        check_place(path)
        self._path = path
        # What only looks at a file that does not exist sees an empty database, and makes nothing.
        self._connection = self._connect() if path.exists() else sqlite3.connect(":memory:")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    @contextmanager
    def exclusively(self) -> Generator[None]:
        """Open a transaction that no other migration is in; commit it at the end of the block."""
        turn = Turn(self._path.with_name(self._path.name + ".turn"))
        try:
            if not turn.take(PATIENCE_SECONDS):
                raise occupied(self._path)
            self._connection.close()
            self._connection = self._connect()
            with translating(self._path):
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    self._connection.execute("COMMIT")
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
        finally:
            turn.close()

    def has_table(self, name: str) -> bool:
        """Say whether a table exists."""
        with translating(self._path):
            query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            return self._connection.execute(query, (name,)).fetchone() is not None

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Run one query and return its rows."""
        with translating(self._path):
            return self._connection.execute(sql).fetchall()

    def run(self, sql: str) -> None:
        """Run several statements inside the open transaction.

        One by one, because the driver's own way of running a script commits first.
        """
        statement = ""
        for line in sql.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                self._connection.execute(statement)
                statement = ""
        if statement.strip():
            self._connection.execute(statement)

    def _connect(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(self._path, isolation_level=None, timeout=PATIENCE_SECONDS)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(
                f"{self._path} cannot be opened: {error}.",
                hint="Its folder has to be writable for this user.",
            ) from error
