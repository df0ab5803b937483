"""Claiming: which lanes are walked in which order, and the one statement that takes the rows."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from settled.domain.journal.judge import PRIORITIES
from settled.domain.journal.port import AgendaRow
from settled.domain.route import serves
from settled.infrastructure.journal.postgres.address import Connection, Row, Texts
from settled.infrastructure.journal.postgres.group import columns, lock_order
from settled.infrastructure.journal.postgres.rows import AGENDA

TAKES = 5
"""How often a row is taken without progress; the next take parks it."""

SHARES = 8
"""A lane gets one of so many shares of a claim, as long as others have something due."""

_LANES_SECONDS = 0.2
"""How old the list of lanes may be: so long the first operation of a new tenant may wait."""

_FLOORS_SECONDS = 1.0
_NEVER = datetime(1, 1, 1, tzinfo=UTC)
_SLACK = timedelta(seconds=1)

# Rows of lapsed owners first, whatever their due time; then free ones, lane by lane in the given
# order, each from the floor below which it last had nothing; LIMIT ends the walk, and lanes behind
# it are not touched. Nothing here scans the rows that live workers own: under an old snapshot that
# index keeps an entry for each past claim. The rows are locked, so the upsert finds them as they
# were read; it is an upsert because that has one way to a row, the primary key.
CLAIM = f"""
WITH me AS MATERIALIZED (
    SELECT w.epoch FROM {{schema}}.worker w
     WHERE w.epoch = %(epoch)b::int8 AND w.lease_until > clock_timestamp()
), lapsed AS MATERIALIZED (
    SELECT w.epoch FROM {{schema}}.worker w WHERE w.lease_until <= clock_timestamp()
), due AS MATERIALIZED (
    SELECT r.* FROM me CROSS JOIN LATERAL (
        SELECT o.* FROM lapsed CROSS JOIN LATERAL (
               SELECT a.* FROM {{schema}}.agenda a
                WHERE a.owner = lapsed.epoch AND a.parked_at IS NULL
                  AND a.min_reader <= %(reader)b::int4 AND a.lane = ANY (%(lane)b::text[])
                  AND a.stream <> ALL (%(leave)b::uuid[])
                  AND a.lane <> ALL (ARRAY(SELECT l.lane FROM {{schema}}.lane l WHERE l.paused))
                LIMIT %(want)b::int8 FOR UPDATE SKIP LOCKED) o
        UNION ALL
        SELECT f.*
          FROM unnest(%(lane)b::text[], %(floor_0)b::timestamptz[], %(floor_1)b::timestamptz[],
                      %(floor_2)b::timestamptz[]) AS c(lane, floor_0, floor_1, floor_2)
         CROSS JOIN LATERAL (
               SELECT l.lane FROM {{schema}}.lane l
                WHERE l.lane = c.lane AND NOT l.paused LIMIT 1) l
         CROSS JOIN LATERAL (
               SELECT f.*
                 FROM (VALUES (0, c.floor_0), (1, c.floor_1), (2, c.floor_2)) AS p(priority, floor)
                CROSS JOIN LATERAL (
                      SELECT a.* FROM {{schema}}.agenda a
                       WHERE a.lane = l.lane AND a.priority = p.priority AND a.owner IS NULL
                         AND a.parked_at IS NULL AND a.min_reader <= %(reader)b::int4
                         AND a.stream <> ALL (%(leave)b::uuid[])
                         AND a.due_at >= p.floor AND a.due_at <= statement_timestamp()
                       ORDER BY a.due_at LIMIT %(cap)b::int8 FOR UPDATE SKIP LOCKED) f
                LIMIT %(cap)b::int8) f
        LIMIT %(want)b::int8) r
)
INSERT INTO {{schema}}.agenda ({AGENDA}, shard)
SELECT d.tenant, d.stream, d.kind, d.identity, d.version, d.state, d.due_at, d.lane, d.priority,
       d.min_reader, CASE WHEN d.takes < %(takes)b::int4 THEN %(epoch)b::int8 END, d.takes + 1,
       CASE WHEN d.takes >= %(takes)b::int4 THEN statement_timestamp() END, d.shard
  FROM due d
    ON CONFLICT (tenant, shard, stream) DO UPDATE
   SET owner = excluded.owner, takes = excluded.takes, parked_at = excluded.parked_at
RETURNING {AGENDA}, statement_timestamp()"""

# In the order in which all who wait take heads.
RELEASE = f"""
WITH mine AS MATERIALIZED (
    SELECT a.*
      FROM unnest(%(tenant)b::text[], %(stream)b::uuid[], %(version)b::int8[])
           WITH ORDINALITY AS c(tenant, stream, version, n)
     CROSS JOIN LATERAL (
           SELECT a.* FROM {{schema}}.agenda a
            WHERE a.tenant = c.tenant AND a.shard = %(shard)b::int2 AND a.stream = c.stream
              AND a.owner = %(epoch)b::int8 AND a.version = c.version
              FOR UPDATE) a
)
INSERT INTO {{schema}}.agenda ({AGENDA}, shard)
SELECT {AGENDA}, m.shard FROM mine m
    ON CONFLICT (tenant, shard, stream) DO UPDATE
   SET owner = NULL, takes = greatest(excluded.takes - %(uncounted)b::int2, 0)"""

_LANES = "SELECT lane FROM {schema}.lane ORDER BY lane"

_HELD = f"""
SELECT a.*
  FROM unnest(%(tenant)b::text[], %(stream)b::uuid[], %(takes)b::int4[]) AS c(tenant, stream, takes)
 CROSS JOIN LATERAL (
       SELECT {AGENDA} FROM {{schema}}.agenda a
        WHERE a.tenant = c.tenant AND a.shard = %(shard)b::int2 AND a.stream = c.stream
          AND a.owner = %(epoch)b::int8 AND a.takes = c.takes
        LIMIT 1) a"""


class Claims:
    """What one committer knows of the lanes: their turn, and where in each it last looked.

    The index keeps what was claimed for as long as somebody's old snapshot might read it. A floor
    spares a claim the walk over that. It stays a second behind the last row, because rows do not
    become visible in the order of their due times, and is forgotten every second, because rows may
    become due in the past.
    """

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._lanes: list[str] = []
        self._floors: dict[tuple[str, int], datetime] = {}
        self._lanes_at = 0.0
        self._floors_at = 0.0
        self._served = ""

    def forget(self) -> None:
        """Read the lanes again before the next claim."""
        self._lanes_at = 0.0

    def refresh(self, connection: Connection) -> None:
        """Read the lanes, and drop the floors, when that was last done too long ago."""
        if time.monotonic() >= self._lanes_at:
            self._lanes = [lane for (lane,) in connection.execute(self._texts[_LANES])]
            self._lanes_at = time.monotonic() + _LANES_SECONDS
        if time.monotonic() >= self._floors_at:
            self._floors.clear()
            self._floors_at = time.monotonic() + _FLOORS_SECONDS

    def take(
        self,
        connection: Connection,
        *,
        epoch: int,
        kinds: Sequence[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take rows inside the open transaction, each lane its share; then fill up what is left."""
        lanes = self._in_turn(frozenset(kinds))
        share = max(1, want // SHARES)
        arguments: dict[str, Any] = {"epoch": epoch, "reader": reader, "leave": list(leave)}
        rows = self._run(connection, lanes, want=want, cap=share, **arguments)
        got = Counter(row.lane for row in rows)
        if 0 < len(rows) < want and (more := [lane for lane in lanes if got[lane] >= share]):
            rest = want - len(rows)
            rows += self._run(connection, more, want=rest, cap=-(-rest // len(more)), **arguments)
        served = [lane for lane in lanes if got[lane]]
        self._served = served[-1] if served else self._served
        return rows

    def held(
        self, connection: Connection, epoch: int, rows: Sequence[AgendaRow]
    ) -> list[AgendaRow]:
        """Return those rows that are the worker's, taken as often as they say."""
        names = ("tenant", "stream", "takes")
        values = columns(names, [(row.tenant, row.stream, row.takes) for row in rows])
        found = connection.execute(self._texts[_HELD], values | {"epoch": epoch})
        return [AgendaRow(*row) for row in found]

    def release(
        self, connection: Connection, epoch: int, rows: Sequence[AgendaRow], uncounted: int
    ) -> None:
        """Free the rows that the worker still owns as it took them."""
        waiting = sorted(rows, key=lambda row: lock_order(row.stream))
        values = [(row.tenant, row.stream, row.version) for row in waiting]
        arguments = columns(("tenant", "stream", "version"), values)
        arguments |= {"epoch": epoch, "uncounted": uncounted}
        connection.execute(self._texts[RELEASE], arguments, prepare=True)

    def _in_turn(self, kinds: frozenset[str]) -> list[str]:
        """Return the lanes of these kinds, beginning behind the one that was served last."""
        start = bisect_right(self._lanes, self._served)
        lanes = self._lanes[start:] + self._lanes[:start]
        return [lane for lane in lanes if serves(lane, kinds)]

    def _run(
        self, connection: Connection, lanes: list[str], *, want: int, cap: int, **more: Any
    ) -> list[AgendaRow]:
        if not lanes or want < 1:
            return []
        arguments = {
            f"floor_{priority}": [self._floors.get((lane, priority), _NEVER) for lane in lanes]
            for priority in PRIORITIES
        }
        rows = connection.execute(
            self._texts[CLAIM],
            {"lane": lanes, "want": want, "cap": cap, "takes": TAKES, **arguments, **more},
            prepare=True,
        ).fetchall()
        return [self._taken(row) for row in rows]

    def _taken(self, row: Row) -> AgendaRow:
        *values, now = row
        taken = AgendaRow(*values)
        if taken.due_at is not None:
            floor = min(taken.due_at, now) - _SLACK
            key = taken.lane, taken.priority
            self._floors[key] = max(floor, self._floors.get(key, _NEVER))
        return taken
