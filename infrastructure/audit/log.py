"""The log as it lies in its table, in pages: read past every check that the journal makes.

Whatever stands in a column has to come out as a finding and must not end the reading, so values
are turned into an event here, one row at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from settled.domain.journal.anchors import AnchoredHead
from settled.domain.journal.audit import StoredRow, stream_name
from settled.domain.journal.unit import PURGED, SHARD, RecordedEvent
from settled.domain.purges import Recorded
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path

PAGE = 1_000

_KEY = "tenant, shard, stream, version"
_REST = (
    "event_id, topic, schema_version, min_reader, actor, correlation, causation, key_id,"
    " previous_hash, hash, state, body, body_digest, position"
)

_OF_PURGES = f"(topic LIKE '%.{PURGED}' OR topic = '{Recorded.TOPIC}')"

Row = tuple[Any, ...]


class RawLog(Protocol):
    """A connection to the table of events. Used by one thread."""

    def rows(self) -> Iterator[StoredRow]:
        """Yield every row, by tenant, shard, stream and version; each stream as at one moment."""
        ...

    def between(self, after: int, upto: int) -> Iterator[StoredRow]:
        """Yield the rows with positions in (after, upto], in order."""
        ...

    def purges(self, after: int) -> Iterator[StoredRow]:
        """Yield what is said of purges above a position: what stands for others, and the record."""
        ...

    def end(self) -> int:
        """Return the highest position there is; 0 where there is none."""
        ...

    def hashes_at(self, heads: Sequence[AnchoredHead]) -> list[bytes | None]:
        """Return the hashes that stand where anchored ones stood; None where nothing is."""
        ...

    def last_version(self, head: AnchoredHead) -> int:
        """Return the last version of an anchored stream; 0 where it is gone."""
        ...

    def elsewhere(self, row: StoredRow) -> str | None:
        """Return where else the hash of a row stands. Reads the whole table: nothing indexes it."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def open_raw_log(url: str) -> RawLog:
    """Open the log of the journal that a URL names. Raises InvalidStoreUrl, StoreUnavailable."""
    return SqliteRawLog(sqlite_path(url)) if is_sqlite(url) else PostgresRawLog(url)


class SqliteRawLog:
    """The log in an SQLite file."""

    _select = f"SELECT {_KEY}, recorded_at, {_REST} FROM events"

    def __init__(self, path: Path) -> None:
        from settled.infrastructure.journal.sqlite.database import Database

        self._database = Database(path)
        self._connection = self._database.connect()
        # Text that is no UTF-8 was put there by somebody: it must be seen, not raise.
        self._connection.text_factory = _decoded

    def rows(self) -> Iterator[StoredRow]:
        """Yield every row, by tenant, shard, stream and version; each stream as at one moment."""

        def page(after: Row | None, limit: int) -> list[Row]:
            where = f"WHERE ({_KEY}) > (?, ?, ?, ?)" if after else ""
            order = f"ORDER BY {_KEY} LIMIT {limit}"
            return self._fetch(f"{self._select} {where} {order}", *(after or ()))

        return _by_streams(page)

    def between(self, after: int, upto: int) -> Iterator[StoredRow]:
        """Yield the rows with positions in (after, upto], in order."""
        where = "WHERE position > ? AND position <= ?"
        return self._by_position(where, after, upto)

    def purges(self, after: int) -> Iterator[StoredRow]:
        """Yield what is said of purges above a position."""
        return self._by_position(f"WHERE position > ? AND {_OF_PURGES}", after)

    def _by_position(self, where: str, after: int, *values: int) -> Iterator[StoredRow]:
        sql = f"{self._select} {where} ORDER BY position LIMIT {PAGE}"
        while page := self._fetch(sql, after, *values):
            yield from (_stored(row) for row in page)
            after = page[-1][-1]

    def end(self) -> int:
        """Return the highest position there is."""
        return int(self._fetch("SELECT coalesce(max(position), 0) FROM events")[0][0])

    def hashes_at(self, heads: Sequence[AnchoredHead]) -> list[bytes | None]:
        """Return the hashes that stand where anchored ones stood."""
        sql = "SELECT hash FROM events WHERE tenant = ? AND shard = ? AND stream = ?"
        found = [self._fetch(f"{sql} AND version = ?", *_key(one), one.version) for one in heads]
        return [bytes(rows[0][0]) if rows else None for rows in found]

    def last_version(self, head: AnchoredHead) -> int:
        """Return the last version of an anchored stream; 0 where it is gone."""
        sql = "SELECT coalesce(max(version), 0) FROM events"
        where = "WHERE tenant = ? AND shard = ? AND stream = ?"
        return int(self._fetch(f"{sql} {where}", *_key(head))[0][0])

    def elsewhere(self, row: StoredRow) -> str | None:
        """Return where else the hash of a row stands."""
        found = self._fetch(
            "SELECT tenant, stream, version FROM events"
            " WHERE hash = ? AND (tenant <> ? OR stream <> ?) LIMIT 1",
            *(row.hash, row.tenant, row.stream),
        )
        return _place(found)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._database.close()

    def _fetch(self, sql: str, *values: Any) -> list[Row]:
        from settled.infrastructure.journal.sqlite.database import translating

        with translating(self._database.path):
            return self._connection.execute(sql, values).fetchall()


class PostgresRawLog:
    """The log in a PostgreSQL schema."""

    def __init__(self, url: str) -> None:
        from settled.infrastructure.journal.postgres.address import Address

        address = Address.of(url)
        self._events = f'"{address.schema}".events'
        # As text, because the column can hold moments that Python has none for.
        self._select = f"SELECT {_KEY}, recorded_at::text, {_REST} FROM {self._events}"
        self._connection = address.connect({"default_transaction_read_only": "on"})

    def rows(self) -> Iterator[StoredRow]:
        """Yield every row, by tenant, shard, stream and version; each stream as at one moment."""

        def page(after: Row | None, limit: int) -> list[Row]:
            where = f"WHERE ({_KEY}) > (%s, %s, %s, %s)" if after else ""
            order = f"ORDER BY {_KEY} LIMIT {limit}"
            return self._fetch(f"{self._select} {where} {order}", *(after or ()))

        return _by_streams(page)

    def between(self, after: int, upto: int) -> Iterator[StoredRow]:
        """Yield the rows with positions in (after, upto], in order."""
        where = "WHERE position > %s AND position <= %s"
        return self._by_position(where, after, upto)

    def purges(self, after: int) -> Iterator[StoredRow]:
        """Yield what is said of purges above a position."""
        like = _OF_PURGES.replace("%", "%%")
        return self._by_position(f"WHERE position > %s AND {like}", after)

    def _by_position(self, where: str, after: int, *values: int) -> Iterator[StoredRow]:
        sql = f"{self._select} {where} ORDER BY position LIMIT {PAGE}"
        while page := self._fetch(sql, after, *values):
            yield from (_stored(row) for row in page)
            after = page[-1][-1]

    def end(self) -> int:
        """Return the highest position there is."""
        return int(self._fetch(f"SELECT coalesce(max(position), 0) FROM {self._events}")[0][0])

    def hashes_at(self, heads: Sequence[AnchoredHead]) -> list[bytes | None]:
        """Return the hashes that stand where anchored ones stood, in one query."""
        sql = (
            "SELECT e.hash FROM unnest(%s::text[], %s::uuid[], %s::int8[]) WITH ORDINALITY"
            f" AS h(tenant, stream, version, n) LEFT JOIN LATERAL (SELECT hash FROM {self._events}"
            " WHERE tenant = h.tenant AND shard = %s AND stream = h.stream AND version = h.version"
            " LIMIT 1) e ON true ORDER BY h.n"
        )
        tenants = [head.tenant for head in heads]
        streams, versions = [head.stream for head in heads], [head.version for head in heads]
        found = self._fetch(sql, tenants, streams, versions, SHARD)
        return [None if digest is None else bytes(digest) for (digest,) in found]

    def last_version(self, head: AnchoredHead) -> int:
        """Return the last version of an anchored stream; 0 where it is gone."""
        sql = f"SELECT coalesce(max(version), 0) FROM {self._events}"
        where = "WHERE tenant = %s AND shard = %s AND stream = %s"
        return int(self._fetch(f"{sql} {where}", head.tenant, SHARD, head.stream)[0][0])

    def elsewhere(self, row: StoredRow) -> str | None:
        """Return where else the hash of a row stands."""
        found = self._fetch(
            f"SELECT tenant, stream, version FROM {self._events}"
            " WHERE hash = %s AND (tenant <> %s OR stream <> %s) LIMIT 1",
            *(row.hash, row.tenant, UUID(bytes=row.stream)),
        )
        return _place(found)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _fetch(self, sql: str, *values: Any) -> list[Row]:
        from settled.infrastructure.journal.postgres.errors import translating

        with translating(), self._connection.cursor(binary=True) as cursor:
            return cursor.execute(sql.encode(), values).fetchall()


def _by_streams(page: Callable[[Row | None, int], list[Row]]) -> Iterator[StoredRow]:
    """Yield rows a page at a time, no stream over two: one may be purged between two queries."""
    after: Row | None = None
    limit = PAGE
    while found := page(after, limit):
        full = len(found) == limit
        last = found[-1][:3]
        whole = [row for row in found if row[:3] != last] if full else found
        if not whole:
            limit *= 2  # a stream that is longer than a page
            continue
        yield from (_stored(row) for row in whole)
        if not full:
            return
        after, limit = whole[-1][:4], PAGE


def _decoded(text: bytes) -> str:
    return text.decode(errors="surrogateescape")


def _key(head: AnchoredHead) -> tuple[str, int, bytes]:
    return head.tenant, SHARD, head.stream.bytes


def _place(found: Sequence[Row]) -> str | None:
    if not found:
        return None
    tenant, stream, version = found[0]
    return f"stream {stream_name(_raw(stream))} of {tenant}, version {version},"


def _raw(identifier: Any) -> bytes:
    return identifier.bytes if isinstance(identifier, UUID) else bytes(identifier)


def _stored(row: Row) -> StoredRow:
    tenant, shard, stream, version, recorded_at, *rest = row
    event_id, topic, schema, reader, actor, correlation, causation, key_id, *last = rest
    previous, digest, state, body, body_digest, position = last
    record, problem = None, ""
    try:
        record = RecordedEvent(
            UUID(bytes=_raw(stream)),
            version,
            topic,
            state,
            tenant,
            UUID(bytes=_raw(event_id)),
            schema,
            reader,
            datetime.fromisoformat(recorded_at),
            actor,
            key_id,
            bytes(previous),
            bytes(digest),
            correlation,
            None if causation is None else UUID(bytes=_raw(causation)),
            body,
            body_digest,
            position,
        )
        record.recorded_at.utctimetuple()  # raises for a moment that has no zone to be told in
        if record.recorded_at.tzinfo is None:
            raise ValueError(f"recorded_at is {recorded_at!r}, without a zone")
    except (ValueError, OverflowError) as error:
        record, problem = None, str(error)
    place = (tenant, shard, _raw(stream), version)
    return StoredRow(*place, bytes(digest), position, record, problem)
