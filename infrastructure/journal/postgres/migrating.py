"""The tables of a PostgreSQL schema, as migrating sees them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.journal.postgres.errors import translating

_TURN = 0x5E771EE
"""The first key of the advisory lock on migrations; the second is made of the schema's name."""


class PostgresTarget:
    """The target of a migration: the schema that a URL names. Open inside a `with` block."""

    def __init__(self, url: str) -> None:
        self._address = Address.of(url)
        self._schema = self._address.schema

    def __enter__(self) -> Self:
        self._connection = self._address.connect({})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    @property
    def dialect(self) -> str:
        """Return "postgresql"."""
        return "postgresql"

    @property
    def preamble(self) -> str:
        """The SQL that makes the schema, and the names after it mean its tables."""
        return (
            f'CREATE SCHEMA IF NOT EXISTS "{self._schema}";\n'
            f'SET LOCAL search_path = "{self._schema}"'
        )

    @contextmanager
    def exclusively(self) -> Generator[None]:
        """Open a transaction that no other migration of this schema is in."""
        with translating(), self._connection.transaction():
            turn = "SELECT pg_advisory_xact_lock(%s::int4, hashtext(%s))"
            self._connection.execute(turn, (_TURN, self._schema))
            # Asked first, because IF NOT EXISTS takes the right to make schemas even where it
            # makes none.
            if self.rows(f"SELECT to_regnamespace('\"{self._schema}\"')") == [(None,)]:
                self.run(f'CREATE SCHEMA "{self._schema}"')
            yield

    def has_table(self, name: str) -> bool:
        """Say whether a table exists in the schema."""
        return self.rows(f"SELECT to_regclass('\"{self._schema}\".{name}')") != [(None,)]

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Run one query and return its rows."""
        with translating():
            return self._connection.execute(sql.encode()).fetchall()

    def run(self, sql: str) -> None:
        """Run several statements inside the open transaction."""
        with translating():
            self._connection.execute(sql.encode())
