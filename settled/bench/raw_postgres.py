"""The floor on PostgreSQL: the same rows in the same tables, written by psycopg alone.

`python -m settled.bench.raw_postgres client URL TEMPLATE COUNT BATCH` intends, one transaction a
batch: COUNT agenda rows and as many first events. `… worker URL TEMPLATE BATCH LATENCY` takes what
is due, a batch at a time: Claimed and Dispatching in one transaction, the outcome and the settled
agenda row in the next. `… listener URL` says when it is notified. Nothing is locked, read, judged,
hashed or checked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg

from settled.bench.meter import percentile
from settled.bench.processes import mind, say, serve
from settled.bench.template import Column, Template
from settled.infrastructure.clock import elapsed_seconds

Connection = psycopg.Connection[tuple[Any, ...]]

CHANNEL = "settled_bench"

_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.05

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = ''
 ORDER BY attnum"""

TAKE = """
UPDATE settled.agenda SET owner = 1, takes = 1
 WHERE (tenant, shard, stream) IN (
       SELECT tenant, shard, stream FROM settled.agenda
        WHERE lane = (SELECT lane FROM settled.lane WHERE lane = %s AND NOT paused)
          AND priority = 1 AND due_at <= now()
          AND due_at IS NOT NULL AND owner IS NULL AND parked_at IS NULL
        ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING stream"""

_SETTLE = """
UPDATE settled.agenda
   SET version = %s, state = 'succeeded', due_at = NULL, owner = NULL, takes = 0
 WHERE tenant = %s AND shard = 0 AND stream = ANY (%s::uuid[])"""


class Tables:
    """Writes rows as the template has them, under other ids."""

    def __init__(self, connection: Connection, template: Template) -> None:
        self._connection = connection
        self._template = template
        self._events = _insert(connection, "settled.events")
        self._agenda = _insert(connection, "settled.agenda")

    def intend(self, streams: Sequence[UUID]) -> None:
        """Write the agenda rows and first events of new streams."""
        self._write(self._agenda, self._template.agenda, streams)
        self._write(self._events, self._template.events[0], streams)

    def append(self, streams: Sequence[UUID], *indices: int) -> None:
        """Write the events that the template has at these indices."""
        for index in indices:
            self._write(self._events, self._template.events[index], streams)

    def _write(self, text: str, row: Column, streams: Sequence[UUID]) -> None:
        size = len(streams)
        values: dict[str, list[Any]] = {name: [value] * size for name, value in row.items()}
        values |= {
            "stream": list(streams),
            "event_id": [uuid4() for _ in streams],
            "identity": [f"refund-{stream.hex}" for stream in streams],
        }
        self._connection.execute(text.encode(), values, prepare=True)


def connect(url: str) -> Connection:
    """Connect, so that updates take the primary key: a table that was just made has no numbers."""
    settings = ("seqscan", "hashjoin", "mergejoin")
    options = " ".join(f"-c enable_{name}=off" for name in settings)
    return psycopg.connect(url, options=options)


def client(url: str, template: str, count: str, batch: str) -> None:
    """Intend so many operations in batches."""
    with connect(url) as connection:
        tables = Tables(connection, Template.read(template))
        connection.commit()
        serve()
        begun, took, size = elapsed_seconds(), list[float](), int(batch)
        for start in range(0, int(count), size):
            before = elapsed_seconds()
            tables.intend([uuid4() for _ in range(min(size, int(count) - start))])
            connection.commit()
            took.append(elapsed_seconds() - before)
        seconds = elapsed_seconds() - begun
        say({"seconds": seconds, "p50": percentile(took, 0.5), "p95": percentile(took, 0.95)})


def worker(url: str, template: str, batch: str, latency_seconds: str) -> None:
    """Take what is due, and settle it."""
    found = Template.read(template)
    mind()
    with connect(url) as connection:
        tables = Tables(connection, found)
        connection.commit()
        say({"ready": True})
        pause_seconds = _PAUSE_SECONDS
        while True:
            taken = connection.execute(TAKE, (found.agenda["lane"], int(batch))).fetchall()
            streams = [stream for (stream,) in taken]
            if streams:
                tables.append(streams, 1, 2)
            connection.commit()
            if not streams:
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
                continue
            pause_seconds = _PAUSE_SECONDS
            time.sleep(float(latency_seconds))
            tables.append(streams, 3)
            settled = (len(found.events), found.agenda["tenant"], streams)
            connection.execute(_SETTLE, settled)
            connection.commit()


def listener(url: str) -> None:
    """Say when each notification came."""
    mind()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"LISTEN {CHANNEL}".encode())
        say({"ready": True})
        for _ in connection.notifies():
            say({"at": elapsed_seconds()})


def _insert(connection: Connection, table: str) -> str:
    columns = connection.execute(_COLUMNS, (table,)).fetchall()
    names = ", ".join(name for name, _ in columns)
    arrays = ", ".join(f"%({name})b::{kind}[]" for name, kind in columns)
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})"


ROLES: dict[str, Callable[..., None]] = {
    "client": client,
    "worker": worker,
    "listener": listener,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
