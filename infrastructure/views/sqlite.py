"""Views on SQLite: files of their own, so that folding holds up no writer of the journal."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from settled.domain.errors import DeclarationError, NotPossible
from settled.infrastructure.journal.sqlite.database import Database
from settled.infrastructure.journal.sqlite.migrating import SqliteTarget
from settled.infrastructure.journal.sqlite.rows import to_text
from settled.infrastructure.views.stores import Stores, behind, schemas_in
from settled.projections.projection import Row, Table
from settled.projections.register import TABLES

_KEYS_A_QUERY = 5000


class SqliteViews:
    """The stores of views beside a journal's file. Safe to use from several threads."""

    dialect = "sqlite"

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(f"{journal.name}.views")
        self._stores = Stores(
            lambda schema: SqliteStore(self._path.with_name(self._path.name + behind(schema)))
        )

    def of(self, schema: str = "") -> SqliteStore:
        """Return the file of a schema, made where it is new."""
        return self._stores.of(schema)

    def schemas(self) -> list[str]:
        """Return the schemas of which there are files."""
        return schemas_in(self._path.name, (file.name for file in self._path.parent.iterdir()))

    def close(self) -> None:
        """Close every connection."""
        self._stores.close()


class SqliteStore:
    """The projections of one schema in one SQLite file. Safe to use from several threads.

    Not attached to another file: of several files, a commit that a power failure cuts off is in
    some and not in others. So the positions lie in it, beside the rows.
    """

    def __init__(self, path: Path) -> None:
        with SqliteTarget(path) as target, target.exclusively():
            for sql in TABLES.values():
                target.run(sql)
        self._database = Database(path)

    @contextmanager
    def changing(self, *, durable: bool = True) -> Generator[SqliteRows]:
        """Open a transaction that commits at the end of the block, and else leaves nothing.

        Here each is durable: what is safe by less is not worth a second kind of connection.
        """
        with self._database.writing() as connection:
            yield SqliteRows(connection)

    @contextmanager
    def reading(self) -> Generator[SqliteRows]:
        """Open a transaction in which nothing can be changed, on one state of the store."""
        with self._database.reading() as connection:
            yield SqliteRows(connection)

    def lead(self, name: str) -> SqliteLead | None:
        """Become the one that runs a projection; None while another process is."""
        folder = self._database.beside(".leaders")
        folder.mkdir(exist_ok=True)
        file = (folder / name).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return SqliteLead(file)

    def let_read(self, role: str) -> None:
        """Raise NotPossible: who may read a file is decided by its permissions."""
        raise NotPossible(
            "SQLite has no roles.",
            hint=f"Let the reader's user read {self._database.path}, and no other file.",
        )

    def close(self) -> None:
        """Close every connection."""
        self._database.close()


class SqliteLead:
    """A locked file: the operating system frees it when its holder dies."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def held(self) -> bool:
        """Say whether it is still ours; nobody can take it away."""
        return not self._file.closed

    def close(self) -> None:
        """Give it up. The file stays: another process may wait for it under its name."""
        self._file.close()


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

    def get(self, table: Table, keys: Sequence[Row]) -> list[Row]:
        """Return the rows that have one of these keys, by one walk of the index for each."""
        uuids = [i for i, name in enumerate(table.names) if table.columns[name] == "uuid"]
        names = ", ".join(f"t.{name}" for name in table.names)
        same = " AND ".join(f"t.{name} = k.{name}" for name in table.key)
        one = f"({', '.join('?' * len(table.key))})"
        found: list[Row] = []
        for start in range(0, len(keys), _KEYS_A_QUERY):
            some = keys[start : start + _KEYS_A_QUERY]
            rows = self._connection.execute(
                f"WITH k ({', '.join(table.key)}) AS (VALUES {', '.join([one] * len(some))})"
                f" SELECT {names} FROM k CROSS JOIN {table.name} t ON {same}",
                [_plain(value) for key in some for value in key],
            )
            for row in rows:
                values = list(row)
                for index in uuids:
                    values[index] = UUID(values[index])
                found.append(tuple(values))
        return found

    def put(self, table: Table, new: Sequence[Row], changed: Sequence[Row] = ()) -> None:
        """Write whole rows: `new` ones, whose keys are not there yet, and `changed` ones."""
        places = ", ".join("?" * len(table.names))
        for verb, rows in (("INSERT", new), ("REPLACE", changed)):
            self._connection.executemany(
                f"{verb} INTO {table.name} ({', '.join(table.names)}) VALUES ({places})",
                ([_plain(value) for value in row] for row in rows),
            )

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
