"""Views on SQLite: a second file, so that folding holds up nobody who writes to the journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from settled.domain.errors import DeclarationError
from settled.infrastructure.journal.sqlite.database import Database
from settled.infrastructure.journal.sqlite.migrating import SqliteTarget
from settled.infrastructure.journal.sqlite.rows import to_text
from settled.projections.projector import POSITIONS


class SqliteViews:
    """The store of views in one SQLite file. Safe to use from several threads."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        with SqliteTarget(path) as target, target.exclusively():
            target.run(POSITIONS)
        self._database = Database(path)

    @contextmanager
    def changing(self) -> Generator[SqliteRows]:
        """Open a transaction that commits at the end of the block, and else leaves nothing."""
        with self._database.writing() as connection:
            yield SqliteRows(connection)

    @contextmanager
    def reading(self) -> Generator[SqliteRows]:
        """Open a transaction in which nothing can be changed."""
        with self._database.reading() as connection:
            yield SqliteRows(connection)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()


class SqliteRows:
    """Statements on one connection, inside its transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, **values: Any) -> int:
        """Run one statement and return how many rows it changed."""
        return max(self._run(sql, values).rowcount, 0)

    def fetch(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Run one query and return its rows by their columns' names."""
        cursor = self._run(sql, values)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def _run(self, sql: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, {name: _plain(values[name]) for name in values})
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            # An error that the driver itself raises has no code, and is about the statement.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if code != sqlite3.SQLITE_ERROR:
                raise
            raise DeclarationError(f"{error}: {sql}", hint="Correct the statement.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_text(value)
    return str(value) if isinstance(value, UUID) else value
