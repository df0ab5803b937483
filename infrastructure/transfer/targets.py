"""An empty store that an export is put into, in one transaction that only its end makes visible."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from settled.domain.errors import InvalidInput
from settled.domain.journal.unit import SHARD, Head, RecordedEvent, Reference
from settled.infrastructure.journal.copies import COPY_KEY, COPY_MARK
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path

if TYPE_CHECKING:
    from settled.infrastructure.journal.postgres.address import Connection, Texts

_EVENT = (
    *("stream", "version", "topic", "state", "tenant", "event_id", "schema_version", "min_reader"),
    *("recorded_at", "actor", "key_id", "previous_hash", "hash", "correlation", "causation"),
    *("body", "body_digest", "position", "shard"),
)
_HEAD = (
    *("tenant", "shard", "stream", "version", "kind", "identity", "state", "due_at", "lane"),
    *("priority", "min_reader"),
)
_REFERENCE = ("tenant", "shard", "provider", "reference", "stream")

StreamKey = tuple[str, UUID]
"""A stream's tenant and id."""


@dataclass(frozen=True, slots=True)
class FoldedHead:
    """A stream's agenda row, and the references by which evidence finds it."""

    key: StreamKey
    version: int
    head: Head
    references: tuple[Reference, ...]


class Target(Protocol):
    """The store, within the transaction."""

    def is_empty(self) -> bool:
        """Say whether nothing was ever recorded here."""
        ...

    def put_events(self, events: Sequence[RecordedEvent]) -> None:
        """Write events at their own positions. Raises InvalidInput for what no store takes."""
        ...

    def keys(self, after: StreamKey | None, limit: int) -> list[StreamKey]:
        """Return streams behind one, in order."""
        ...

    def streams(self, keys: Sequence[StreamKey]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return what was written of streams."""
        ...

    def put_heads(self, heads: Sequence[FoldedHead]) -> None:
        """Write agenda rows, their lanes and references."""
        ...

    def mark(self, original: UUID) -> None:
        """Make the store a copy of an installation, which never dispatches."""
        ...


@contextmanager
def open_target(url: str) -> Generator[Target]:
    """Give the store of a URL in one transaction, committed at the end of the block."""
    with _sqlite(sqlite_path(url)) if is_sqlite(url) else _postgres(url) as target:
        yield target


def _not_taken(error: Exception) -> InvalidInput:
    return InvalidInput(
        f"The database does not take these events: {str(error).strip()}",
        hint="Nothing was imported. The file is not what `settled export` wrote.",
    )


def _insert(table: str, names: Sequence[str], mark: str, middle: str = "") -> str:
    marks = ", ".join([mark] * len(names))
    return f"INSERT INTO {table} ({', '.join(names)}) {middle} VALUES ({marks})"


@contextmanager
def _sqlite(path: Path) -> Generator[Target]:
    from settled.infrastructure.journal.sqlite.database import Database

    database = Database(path)
    try:
        with database.writing() as connection:
            yield SqliteCopy(connection)
    finally:
        database.close()


class SqliteCopy:
    """An SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def is_empty(self) -> bool:
        """Say whether nothing was ever recorded here."""
        tables = "SELECT 1 FROM events UNION ALL SELECT 1 FROM agenda LIMIT 1"
        return self._connection.execute(tables).fetchone() is None

    def put_events(self, events: Sequence[RecordedEvent]) -> None:
        """Write events at their own positions."""
        from settled.infrastructure.journal.sqlite.rows import to_text

        rows = [
            (
                *(e.stream.bytes, e.originator_version, e.topic, e.state, e.tenant),
                *(e.event_id.bytes, e.schema_version, e.min_reader, to_text(e.recorded_at)),
                *(e.actor, e.key_id, e.previous_hash, e.hash, e.correlation),
                *(e.causation and e.causation.bytes, e.body, e.body_digest, e.position, SHARD),
            )
            for e in events
        ]
        try:
            self._connection.executemany(_insert("events", _EVENT, "?"), rows)
        except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
            raise _not_taken(error) from error

    def keys(self, after: StreamKey | None, limit: int) -> list[StreamKey]:
        """Return streams behind one, in order."""
        tenant, stream = after or ("", UUID(int=0))
        rows = self._connection.execute(
            "SELECT DISTINCT tenant, stream FROM events WHERE (tenant, stream) > (?, ?)"
            " ORDER BY tenant, stream LIMIT ?",
            (tenant, stream.bytes, limit),
        )
        return [(tenant, UUID(bytes=stream)) for tenant, stream in rows]

    def streams(self, keys: Sequence[StreamKey]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return what was written of streams."""
        from settled.infrastructure.journal.sqlite import reading

        return reading.streams(self._connection, keys)

    def put_heads(self, heads: Sequence[FoldedHead]) -> None:
        """Write agenda rows, their lanes and references."""
        from settled.infrastructure.journal.sqlite.rows import optional_text

        rows = [
            (
                *(one.key[0], SHARD, one.key[1].bytes, one.version, one.head.kind),
                *(one.head.identity, one.head.state, optional_text(one.head.due_at)),
                *(one.head.lane, one.head.priority, one.head.min_reader),
            )
            for one in heads
        ]
        references = [
            (one.key[0], SHARD, named.provider, named.reference, named.stream.bytes)
            for one in heads
            for named in one.references
        ]
        lanes = [(one.head.lane,) for one in heads]
        put = self._connection.executemany
        put(_insert("agenda", _HEAD, "?"), rows)
        # An object that two streams name belongs to one; the other was handed over for it.
        put(_insert("reference", _REFERENCE, "?") + " ON CONFLICT DO NOTHING", references)
        put("INSERT OR IGNORE INTO lane (lane) VALUES (?)", lanes)

    def mark(self, original: UUID) -> None:
        """Make the store a copy of an installation."""
        self._connection.execute("UPDATE installation SET file = ?", (f"{COPY_MARK}{original}",))


@contextmanager
def _postgres(url: str) -> Generator[Target]:
    from settled.infrastructure.journal.postgres.address import Address, Texts
    from settled.infrastructure.journal.postgres.errors import translating

    address = Address.of(url)
    with closing(address.connect({})) as connection, translating(), connection.transaction():
        yield PostgresCopy(connection, Texts(address.schema))


class PostgresCopy:
    """A PostgreSQL schema."""

    def __init__(self, connection: Connection, texts: Texts) -> None:
        self._connection = connection
        self._texts = texts

    def is_empty(self) -> bool:
        """Say whether nothing was ever recorded here; from then on nobody else can."""
        self._connection.execute(self._texts["LOCK TABLE {schema}.events, {schema}.agenda"])
        tables = "SELECT 1 FROM {schema}.events UNION ALL SELECT 1 FROM {schema}.agenda LIMIT 1"
        return self._connection.execute(self._texts[tables]).fetchone() is None

    def put_events(self, events: Sequence[RecordedEvent]) -> None:
        """Write events at their own positions."""
        from settled.infrastructure.journal.postgres.errors import POISON

        rows = [
            (
                *(e.stream, e.originator_version, e.topic, e.state, e.tenant, e.event_id),
                *(e.schema_version, e.min_reader, e.recorded_at, e.actor, e.key_id),
                *(e.previous_hash, e.hash, e.correlation, e.causation, e.body, e.body_digest),
                *(e.position, SHARD),
            )
            for e in events
        ]
        try:
            self._put("events", _EVENT, rows, middle="OVERRIDING SYSTEM VALUE")
        except POISON as error:
            raise _not_taken(error) from error

    def keys(self, after: StreamKey | None, limit: int) -> list[StreamKey]:
        """Return streams behind one, in order."""
        sql = (
            "SELECT DISTINCT tenant, stream FROM {schema}.events"
            " WHERE (tenant, stream) > (%s, %s) ORDER BY tenant, stream LIMIT %s"
        )
        tenant, stream = after or ("", UUID(int=0))
        found = self._connection.execute(self._texts[sql], (tenant, stream, limit)).fetchall()
        return [(tenant, stream) for tenant, stream in found]

    def streams(self, keys: Sequence[StreamKey]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return what was written of streams."""
        from settled.infrastructure.journal.postgres import reading
        from settled.infrastructure.journal.postgres.group import columns
        from settled.infrastructure.journal.postgres.rows import event_of

        found: dict[UUID, list[RecordedEvent]] = {stream: [] for _, stream in keys}
        values = columns(("tenant", "stream"), keys)
        rows = self._connection.execute(self._texts[reading.STREAMS], values, binary=True)
        for event in map(event_of, rows):
            found[event.stream].append(event)
        return found

    def put_heads(self, heads: Sequence[FoldedHead]) -> None:
        """Write agenda rows, their lanes and references."""
        rows = [
            (
                *(one.key[0], SHARD, one.key[1], one.version, one.head.kind, one.head.identity),
                *(one.head.state, one.head.due_at, one.head.lane, one.head.priority),
                one.head.min_reader,
            )
            for one in heads
        ]
        references = [
            (one.key[0], SHARD, named.provider, named.reference, named.stream)
            for one in heads
            for named in one.references
        ]
        self._put("agenda", _HEAD, rows)
        # An object that two streams name belongs to one; the other was handed over for it.
        self._put("reference", _REFERENCE, references, end="ON CONFLICT DO NOTHING")
        lanes = sorted({one.head.lane for one in heads})
        self._put("lane", ("lane",), [(lane,) for lane in lanes], end="ON CONFLICT DO NOTHING")

    def mark(self, original: UUID) -> None:
        """Make the store a copy of an installation, and let positions go on behind the last."""
        sql = "UPDATE {schema}.installation SET fingerprint = %s::jsonb"
        self._connection.execute(self._texts[sql], (json.dumps({COPY_KEY: str(original)}),))
        sequence = (
            "SELECT setval(pg_get_serial_sequence('{schema}.events', 'position'), max(position))"
            " FROM {schema}.events HAVING max(position) IS NOT NULL"
        )
        self._connection.execute(self._texts[sequence])

    def _put(
        self,
        table: str,
        names: Sequence[str],
        rows: Sequence[tuple[object, ...]],
        *,
        middle: str = "",
        end: str = "",
    ) -> None:
        sql = f"{_insert(f'{{schema}}.{table}', names, '%s', middle)} {end}"
        with self._connection.cursor() as cursor:
            cursor.executemany(self._texts[sql], rows)
