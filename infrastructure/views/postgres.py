"""Views on PostgreSQL: a schema of their own, so that nothing of the journal is ever in reach."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from settled.domain.errors import DeclarationError
from settled.infrastructure.journal.postgres.address import NEVER_BY_ITSELF, Address, Connection
from settled.infrastructure.journal.postgres.errors import translating
from settled.infrastructure.journal.postgres.migrating import PostgresTarget
from settled.projections.projector import POSITIONS

PATIENCE_SECONDS = 10.0
"""How long a server that went away is waited for before that is reported."""

_CONNECTIONS = 4
_SETTINGS = {
    "lock_timeout": "30s",
    "statement_timeout": "30s",
    # A runner that stopped in the middle of a page holds up the others for no longer than this.
    "idle_in_transaction_session_timeout": "30s",
}

_PARTS = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | --[^\n]* | :: | :(?P<name>[A-Za-z_][A-Za-z0-9_]*) | %""",
    re.VERBOSE,
)


class PostgresViews:
    """The store of views in one schema of a database. Safe to use from several threads."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        schema = f"{Address.of(url).schema}_views"
        # Of several schemas the last one counts.
        beside = f"{url}{'&' if '?' in url else '?'}schema={schema}"
        with PostgresTarget(beside) as target, target.exclusively():
            if not target.has_table("projection_position"):
                target.run(POSITIONS)
        address = Address.of(beside)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            address.conninfo,
            min_size=0,
            max_size=_CONNECTIONS,
            kwargs={
                "autocommit": True,
                "options": address.options(_SETTINGS),
                "prepare_threshold": NEVER_BY_ITSELF,
            },
            check=ConnectionPool.check_connection,  # one may have been cut while it was idle
            timeout=PATIENCE_SECONDS,
            name="settled-views",
            open=True,
        )

    @contextmanager
    def changing(self) -> Generator[PostgresRows]:
        """Open a transaction that commits at the end of the block, and else leaves nothing."""
        with self._transaction(b"BEGIN") as rows:
            yield rows

    @contextmanager
    def reading(self) -> Generator[PostgresRows]:
        """Open a transaction in which nothing can be changed."""
        with self._transaction(b"BEGIN READ ONLY") as rows:
            yield rows

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    @contextmanager
    def _transaction(self, begin: bytes) -> Generator[PostgresRows]:
        with translating(), self._pool.connection() as connection:
            connection.execute(begin)
            try:
                yield PostgresRows(connection)
            except BaseException:
                if not connection.closed:
                    connection.execute(b"ROLLBACK")
                raise
            connection.execute(b"COMMIT")


class PostgresRows:
    """Statements on one connection, inside its transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, **values: Any) -> int:
        """Run one statement and return how many rows it changed."""
        return max(self._run(sql, values).rowcount, 0)

    def fetch(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Run one query and return its rows by their columns' names."""
        cursor = self._run(sql, values)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def _run(self, sql: str, values: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        try:
            if not values:
                return self._connection.execute(sql.encode())
            return self._connection.execute(placed(sql), values)
        except psycopg.ProgrammingError as error:
            raise DeclarationError(f"{error}: {sql}", hint="Correct the statement.") from error


def placed(sql: str) -> bytes:
    """Return a statement with psycopg's placeholders for `:name`.

    What stands in quotes, behind `--` and a cast such as `::text` is left as it is.
    """

    def part(found: re.Match[str]) -> str:
        if found["name"]:
            return f"%({found['name']})s"
        return found[0].replace("%", "%%")

    return _PARTS.sub(part, sql).encode()
