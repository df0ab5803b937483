"""Reading the log for a rebuild: few columns of many events, straight from the journal's table."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.projections.reading import LeanEvent, Log, Sought

_UNTIL = "\U0010ffff"
"""Behind every character that a topic has: what begins with a text is between it and this."""


def open_log(url: str) -> Log:
    """Open the log of the journal that a URL names. Raises InvalidStoreUrl, StoreUnavailable."""
    if is_sqlite(url):
        return SqliteLog(sqlite_path(url))
    return PostgresLog(url)


class PostgresLog:
    """The log on PostgreSQL, on a connection of its own. Used by one thread."""

    def __init__(self, url: str) -> None:
        # A driver that is not used need not be installed, so it is imported where it is needed.
        from settled.infrastructure.journal.postgres.address import Address

        address = Address.of(url)
        self._events = f'"{address.schema}".events'
        self._connection = address.connect({"default_transaction_read_only": "on"})

    def page(
        self, sought: Sought, *, after: int, upto: int, limit: int, part: int, parts: int
    ) -> list[LeanEvent]:
        """Return events in (after, upto] that a projection folds, of one part's streams."""
        from settled.infrastructure.journal.postgres.errors import translating

        places = " OR ".join(f"topic ^@ %(topic{n})s" for n in range(len(sought.topics)))
        body = (
            "body" if sought.bodies is None else "CASE WHEN topic = ANY(%(bodies)s) THEN body END"
        )
        mine = "AND get_byte(uuid_send(stream), 15) %% %(parts)s = %(part)s" if parts > 1 else ""
        sql = (
            "SELECT position, tenant, stream, version, topic, schema_version, min_reader,"
            f" recorded_at, state, {body} FROM {self._events}"
            " WHERE position > %(after)s AND position <= %(upto)s"
            f" AND ({places}) {mine} ORDER BY position LIMIT %(limit)s"
        )
        values: dict[str, Any] = {"after": after, "upto": upto, "limit": limit}
        values |= {"part": part, "parts": parts, "bodies": sorted(sought.bodies or ())}
        values |= {f"topic{number}": topic for number, topic in enumerate(sought.topics)}
        with translating(), self._connection.cursor(binary=True) as cursor:
            cursor.execute(sql.encode(), values)
            return [LeanEvent._make(row) for row in cursor.fetchall()]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class SqliteLog:
    """The log on SQLite, on a connection of its own. Used by one thread."""

    def __init__(self, path: Path) -> None:
        from settled.infrastructure.journal.sqlite.database import Database

        self._database = Database(path)

    def page(
        self, sought: Sought, *, after: int, upto: int, limit: int, part: int, parts: int
    ) -> list[LeanEvent]:
        """Return events in (after, upto] that a projection folds, of one part's streams."""
        places = " OR ".join(["topic >= ? AND topic < ?"] * len(sought.topics))
        bodies = sorted(sought.bodies or ())
        body = "body"
        if sought.bodies is not None:
            body = f"CASE WHEN topic IN ({', '.join('?' * len(bodies))}) THEN body END"
        sql = (
            "SELECT position, tenant, stream, version, topic, schema_version, min_reader,"
            f" recorded_at, state, {body} FROM events WHERE position > ? AND position <= ?"
            f" AND ({places}) AND instr('0123456789ABCDEF', substr(hex(stream), -1)) % ? = ?"
            " ORDER BY position LIMIT ?"
        )
        bounds = [bound for topic in sought.topics for bound in (topic, topic + _UNTIL)]
        values = (*bodies, after, upto, *bounds, parts, part, limit)
        with self._database.reading() as connection:
            return [_lean(row) for row in connection.execute(sql, values)]

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _lean(row: tuple[Any, ...]) -> LeanEvent:
    position, tenant, stream, version, topic, schema, reader, at, state, body = row
    return LeanEvent(
        position,
        tenant,
        UUID(bytes=stream),
        version,
        topic,
        schema,
        reader,
        datetime.fromisoformat(at),
        state,
        body,
    )
