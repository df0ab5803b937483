"""Taking due rows: what a lapsed owner left first, then what is free, in turn over the lanes."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from settled.domain.journal.judge import PRIORITIES
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import SHARD
from settled.domain.route import serves
from settled.infrastructure.journal.sqlite import host
from settled.infrastructure.journal.sqlite.reading import store_time
from settled.infrastructure.journal.sqlite.rows import AGENDA, agenda_of, optional_text, to_text

TAKES_LIMIT = 5
"""A row taken so often without progress is parked at the next take, for somebody to look at."""

_LANE_CAP = 8
"""How many rows one lane gives in a round, so that a long lane does not starve the others."""

_FREE = (
    f"SELECT {AGENDA} FROM agenda WHERE lane = ? AND priority = ? AND owner IS NULL"
    " AND parked_at IS NULL AND due_at IS NOT NULL AND due_at <= ? AND min_reader <= ?{but}"
    " ORDER BY due_at LIMIT ? OFFSET ?"
)
_OWNED = (
    f"SELECT {AGENDA} FROM agenda WHERE owner = ? AND lane = ? AND due_at IS NOT NULL"
    " AND min_reader <= ?{but} LIMIT ?"
)
_TAKE = (
    "UPDATE agenda SET owner = ?, takes = ?, parked_at = ?"
    " WHERE tenant = ? AND shard = ? AND stream = ?"
)


def lapsed_epochs(connection: sqlite3.Connection) -> list[int]:
    """Return the workers whose leases have ended, oldest first."""
    rows = connection.execute(
        "SELECT epoch, boot, lease_seconds, lease_until FROM worker ORDER BY epoch"
    )
    return [epoch for epoch, *lease in rows if host.lapsed(*lease)]


class Claims:
    """One committer's claims. It remembers only which lane comes next."""

    def __init__(self, clock: host.SteadyClock) -> None:
        self._clock = clock
        self._next_lane = ""

    def take(
        self,
        connection: sqlite3.Connection,
        *,
        epoch: int,
        kinds: frozenset[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take up to `want` rows inside the connection's write transaction.

        Nothing for a worker whose own lease has ended: others may have its rows by now.
        """
        alive = connection.execute("SELECT 1 FROM worker WHERE epoch = ?", (epoch,)).fetchone()
        lapsed = lapsed_epochs(connection)
        if alive is None or epoch in lapsed:
            return []
        lanes = self._lanes(connection, kinds)
        now = store_time(connection, self._clock)
        found: list[AgendaRow] = []
        readable = _Readable(reader, [stream.bytes for stream in leave])
        for row in _left_behind(connection, lapsed, lanes, want, readable):
            found.append(row)
        served = ""
        for row in _free(connection, lanes, now, want - len(found), readable):
            found.append(row)
            served = row.lane
        if served:
            self._next_lane = served + "\0"
        return [_taken(connection, row, epoch, now) for row in found]

    def _lanes(self, connection: sqlite3.Connection, kinds: frozenset[str]) -> list[str]:
        """Return the open lanes of these kinds, from the one behind the last served on."""
        rows = connection.execute("SELECT lane FROM lane WHERE paused = 0 ORDER BY lane")
        lanes = [lane for (lane,) in rows if serves(lane, kinds)]
        behind = [lane for lane in lanes if lane >= self._next_lane]
        return behind + lanes[: len(lanes) - len(behind)]


@dataclass(frozen=True, slots=True)
class _Readable:
    """What a worker can read: events up to a reader's number, and not the streams it leaves."""

    reader: int
    leave: Sequence[bytes]

    def within(self, sql: str) -> str:
        """Return a statement that passes by the streams that are left to others."""
        some = ", ".join("?" * len(self.leave))
        return sql.format(but=f" AND stream NOT IN ({some})" if some else "")


def release(
    connection: sqlite3.Connection, epoch: int, rows: Sequence[AgendaRow], counted: bool
) -> None:
    """Free the rows that the worker still owns as it took them."""
    connection.executemany(
        "UPDATE agenda SET owner = NULL, takes = max(takes - ?, 0)"
        " WHERE tenant = ? AND shard = ? AND stream = ? AND owner = ? AND version = ?",
        [(not counted, row.tenant, SHARD, row.stream.bytes, epoch, row.version) for row in rows],
    )


def _left_behind(
    connection: sqlite3.Connection,
    lapsed: list[int],
    lanes: list[str],
    want: int,
    readable: _Readable,
) -> Iterator[AgendaRow]:
    sql = readable.within(_OWNED)
    for epoch in lapsed:
        for lane in lanes:
            if want <= 0:
                return
            values = (epoch, lane, readable.reader, *readable.leave, want)
            rows = connection.execute(sql, values).fetchall()
            want -= len(rows)
            yield from map(agenda_of, rows)


def _free(
    connection: sqlite3.Connection,
    lanes: list[str],
    now: datetime,
    want: int,
    readable: _Readable,
) -> Iterator[AgendaRow]:
    """Give rounds over the lanes until nothing is left or enough was found."""
    sql = readable.within(_FREE)
    due = optional_text(now)
    given = {lane: dict.fromkeys(PRIORITIES, 0) for lane in lanes}
    while lanes and want > 0:
        fruitful: list[str] = []
        for lane in lanes:
            room = min(_LANE_CAP, want)
            for priority in PRIORITIES:
                offset = given[lane][priority]
                where = (lane, priority, due, readable.reader, *readable.leave)
                rows = connection.execute(sql, (*where, room, offset)).fetchall() if room else []
                given[lane][priority] += len(rows)
                room -= len(rows)
                want -= len(rows)
                yield from map(agenda_of, rows)
            if not room:
                fruitful.append(lane)
            if want <= 0:
                return
        lanes = fruitful


def _taken(connection: sqlite3.Connection, row: AgendaRow, epoch: int, now: datetime) -> AgendaRow:
    parked = row.takes >= TAKES_LIMIT
    taken = replace(
        row,
        owner=None if parked else epoch,
        takes=row.takes + 1,
        parked_at=now if parked else None,
    )
    connection.execute(
        _TAKE,
        (
            taken.owner,
            taken.takes,
            to_text(now) if parked else None,
            row.tenant,
            SHARD,
            row.stream.bytes,
        ),
    )
    return taken
