"""What is read: events in order, agenda rows, guards, references. One short snapshot each."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from settled.domain.journal.port import AgendaRow, GuardRow, Page
from settled.domain.journal.unit import SHARD, RecordedEvent
from settled.infrastructure.journal.sqlite.host import SteadyClock
from settled.infrastructure.journal.sqlite.rows import AGENDA, EVENT, agenda_of, event_of, to_text

_KEYS_A_QUERY = 5000
_END = (1 << 63) - 1


def store_time(connection: sqlite3.Connection, clock: SteadyClock) -> datetime:
    """Return the host's time, but never a time before the last recorded event.

    A clock that was set back would otherwise let a stream's later events seem to be its earlier.
    """
    row = connection.execute(
        "SELECT recorded_at FROM events ORDER BY position DESC LIMIT 1"
    ).fetchone()
    return clock.now(None if row is None else datetime.fromisoformat(row[0]))


def last_position(connection: sqlite3.Connection) -> int:
    """Return the highest position ever given; 0 before the first."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return row[0] if row else 0


def events(
    connection: sqlite3.Connection, tenant: str, stream: UUID, after: int, upto: int | None
) -> list[RecordedEvent]:
    """Return a stream's events with versions in (after, upto], in order."""
    rows = connection.execute(
        f"SELECT {EVENT} FROM events WHERE tenant = ? AND shard = ? AND stream = ?"
        " AND version > ? AND version <= ? ORDER BY version",
        (tenant, SHARD, stream.bytes, after, _END if upto is None else upto),
    )
    return [event_of(row) for row in rows]


def streams(
    connection: sqlite3.Connection, keys: Sequence[tuple[str, UUID]]
) -> Mapping[UUID, list[RecordedEvent]]:
    """Return the whole of several streams; an empty list for one that does not exist."""
    found: dict[UUID, list[RecordedEvent]] = {stream: [] for _, stream in keys}
    columns = ", ".join(f"e.{column.strip()}" for column in EVENT.split(","))
    for start in range(0, len(keys), _KEYS_A_QUERY):
        some = keys[start : start + _KEYS_A_QUERY]
        rows = connection.execute(
            f"WITH k (tenant, stream) AS (VALUES {', '.join(['(?, ?)'] * len(some))})"
            f" SELECT {columns} FROM k CROSS JOIN events e ON e.tenant = k.tenant AND e.shard = ?"
            " AND e.stream = k.stream ORDER BY e.stream, e.version",
            [value for tenant, stream in some for value in (tenant, stream.bytes)] + [SHARD],
        )
        for row in rows:
            event = event_of(row)
            found[event.stream].append(event)
    return found


def page(connection: sqlite3.Connection, after: int, limit: int) -> Page:
    """Return events above a position. Commits are in position order, so all of them are settled."""
    rows = connection.execute(
        f"SELECT {EVENT} FROM events WHERE position > ? ORDER BY position LIMIT ?", (after, limit)
    ).fetchall()
    return Page(tuple(map(event_of, rows)), last_position(connection), more=len(rows) == limit)


def head(connection: sqlite3.Connection, tenant: str, stream: UUID) -> AgendaRow | None:
    """Return one agenda row."""
    row = connection.execute(
        f"SELECT {AGENDA} FROM agenda WHERE tenant = ? AND shard = ? AND stream = ?",
        (tenant, SHARD, stream.bytes),
    ).fetchone()
    return None if row is None else agenda_of(row)


def heads(
    connection: sqlite3.Connection,
    *,
    tenant: str | None,
    kind: str | None,
    lane: str | None,
    states: Sequence[str],
    overdue_at: datetime | None,
    parked: bool | None,
    after: tuple[str, UUID] | None,
    limit: int,
) -> list[AgendaRow]:
    """Return the agenda rows that meet every given filter, ordered by (tenant, stream)."""
    conditions: list[str] = ["shard = ?"]
    values: list[Any] = [SHARD]

    def add(condition: str, *some: Any) -> None:
        conditions.append(condition)
        values.extend(some)

    if tenant is not None:
        add("tenant = ?", tenant)
    if kind is not None:
        add("kind = ?", kind)
    if lane is not None:
        add("lane = ?", lane)
    if states:
        add(f"state IN ({', '.join('?' * len(states))})", *states)
    if overdue_at is not None:
        add("due_at <= ?", to_text(overdue_at))
    if parked is not None:
        add("parked_at IS NOT NULL" if parked else "parked_at IS NULL")
    if after is not None:
        add("(tenant, stream) > (?, ?)", after[0], after[1].bytes)
    rows = connection.execute(
        f"SELECT {AGENDA} FROM agenda WHERE {' AND '.join(conditions)}"
        " ORDER BY tenant, stream LIMIT ?",
        [*values, limit],
    )
    return [agenda_of(row) for row in rows]


def guard(connection: sqlite3.Connection, tenant: str, key: str) -> GuardRow | None:
    """Return one guard row."""
    row = connection.execute(
        "SELECT ceiling, reserved, consumed FROM guard WHERE tenant = ? AND shard = ? AND key = ?",
        (tenant, SHARD, key),
    ).fetchone()
    return None if row is None else GuardRow(tenant, key, *row)


def referenced(
    connection: sqlite3.Connection, tenant: str, provider: str, reference: str
) -> UUID | None:
    """Return the stream that a provider's reference belongs to."""
    row = connection.execute(
        "SELECT stream FROM reference"
        " WHERE tenant = ? AND shard = ? AND provider = ? AND reference = ?",
        (tenant, SHARD, provider, reference),
    ).fetchone()
    return None if row is None else UUID(bytes=row[0])


def lanes(connection: sqlite3.Connection) -> Mapping[str, bool]:
    """Return every lane and whether it is paused."""
    rows = connection.execute("SELECT lane, paused FROM lane ORDER BY lane")
    return {lane: bool(paused) for lane, paused in rows}


def open_lanes(connection: sqlite3.Connection) -> list[str]:
    """Return the lanes in which something is open. Each part has an index."""
    rows = connection.execute(
        "SELECT lane FROM lane WHERE EXISTS (SELECT 1 FROM agenda a WHERE a.lane = lane.lane"
        " AND a.due_at IS NOT NULL AND a.owner IS NULL AND a.parked_at IS NULL)"
        " UNION SELECT lane FROM agenda WHERE owner IS NOT NULL"
        " UNION SELECT lane FROM agenda WHERE parked_at IS NOT NULL AND due_at IS NOT NULL"
        " ORDER BY lane"
    )
    return [lane for (lane,) in rows]
