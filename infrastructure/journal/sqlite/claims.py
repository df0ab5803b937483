"""Taking due rows: what a lapsed owner left first, then what is free, in turn over the lanes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from settled.domain.journal.judge import PRIORITIES
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import SHARD
from settled.infrastructure.journal.sqlite import host
from settled.infrastructure.journal.sqlite.reading import store_time
from settled.infrastructure.journal.sqlite.rows import AGENDA, agenda_of, optional_text, to_text

TAKES_LIMIT = 5
"""A row taken so often without progress is parked at the next take, for somebody to look at."""

_LANE_CAP = 8
"""How many rows one lane gives in a round, so that a long lane does not starve the others."""

_FREE = (
    f"SELECT {AGENDA} FROM agenda WHERE lane = ? AND priority = ? AND owner IS NULL"
    " AND parked_at IS NULL AND due_at IS NOT NULL AND due_at <= ? AND min_reader <= ?"
    " ORDER BY due_at LIMIT ? OFFSET ?"
)
_OWNED = (
    f"SELECT {AGENDA} FROM agenda WHERE owner = ? AND lane = ? AND due_at IS NOT NULL"
    " AND min_reader <= ? LIMIT ?"
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
        for row in _left_behind(connection, lapsed, lanes, want, reader):
            found.append(row)
        served = ""
        for row in _free(connection, lanes, now, want - len(found), reader):
            found.append(row)
            served = row.lane
        if served:
            self._next_lane = served + "\0"
        return [_taken(connection, row, epoch, now) for row in found]

    def _lanes(self, connection: sqlite3.Connection, kinds: frozenset[str]) -> list[str]:
        """Return the open lanes of these kinds, from the one behind the last served on."""
        rows = connection.execute("SELECT lane FROM lane WHERE paused = 0 ORDER BY lane")
        lanes = [lane for (lane,) in rows if kind_of(lane) in kinds]
        behind = [lane for lane in lanes if lane >= self._next_lane]
        return behind + lanes[: len(lanes) - len(behind)]


def release(connection: sqlite3.Connection, epoch: int, rows: Sequence[AgendaRow]) -> None:
    """Free the rows that the worker still owns as it took them; their takes stay counted."""
    connection.executemany(
        "UPDATE agenda SET owner = NULL"
        " WHERE tenant = ? AND shard = ? AND stream = ? AND owner = ? AND version = ?",
        [(row.tenant, SHARD, row.stream.bytes, epoch, row.version) for row in rows],
    )


def kind_of(lane: str) -> str:
    """Return the kind of a lane 'tenant/kind/provider', or "" when it has none."""
    parts = lane.split("/", 2)
    return parts[1] if len(parts) > 1 else ""


def _left_behind(
    connection: sqlite3.Connection, lapsed: list[int], lanes: list[str], want: int, reader: int
) -> Iterator[AgendaRow]:
    for epoch in lapsed:
        for lane in lanes:
            if want <= 0:
                return
            rows = connection.execute(_OWNED, (epoch, lane, reader, want)).fetchall()
            want -= len(rows)
            yield from map(agenda_of, rows)


def _free(
    connection: sqlite3.Connection, lanes: list[str], now: datetime, want: int, reader: int
) -> Iterator[AgendaRow]:
    """Give rounds over the lanes until nothing is left or enough was found."""
    due = optional_text(now)
    given = {lane: dict.fromkeys(PRIORITIES, 0) for lane in lanes}
    while lanes and want > 0:
        fruitful: list[str] = []
        for lane in lanes:
            room = min(_LANE_CAP, want)
            for priority in PRIORITIES:
                offset = given[lane][priority]
                values = (lane, priority, due, reader, room, offset)
                rows = connection.execute(_FREE, values).fetchall() if room else []
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
