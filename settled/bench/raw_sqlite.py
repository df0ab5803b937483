"""The floor on SQLite: the same rows in the same tables, written by sqlite3 alone.

`python -m settled.bench.raw_sqlite PATH TEMPLATE COUNT BATCH [intend]` does in one process what two
do in ours, because two writers only wait for each other: each batch is intended, taken, settled, in
three transactions. With `intend` it stops after the first of them.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from uuid import uuid4

from settled.bench.meter import percentile
from settled.bench.processes import say, serve
from settled.bench.template import Column, Template
from settled.infrastructure.clock import elapsed_seconds

_TAKE = """
UPDATE agenda SET owner = 1, takes = 1 WHERE (tenant, shard, stream) IN (
       SELECT tenant, shard, stream FROM agenda
        WHERE lane = ? AND priority = 1 AND due_at IS NOT NULL AND owner IS NULL
          AND parked_at IS NULL
        ORDER BY due_at LIMIT ?)
RETURNING stream"""
_SETTLE = """
UPDATE agenda SET version = ?, state = 'succeeded', due_at = NULL, owner = NULL, takes = 0
 WHERE tenant = ? AND shard = 0 AND stream = ?"""


class Tables:
    """Writes rows as the template has them, under other ids."""

    def __init__(self, connection: sqlite3.Connection, template: Template) -> None:
        self._connection = connection
        self._template = template

    def intend(self, streams: Sequence[bytes]) -> None:
        """Intend new streams in one transaction."""
        with _transaction(self._connection):
            self._write("agenda", self._template.agenda, streams)
            self._write("events", self._template.events[0], streams)

    def take(self, want: int) -> list[bytes]:
        """Take what is due in one transaction."""
        with _transaction(self._connection):
            found = self._connection.execute(_TAKE, (self._template.agenda["lane"], want))
            streams = [stream for (stream,) in found.fetchall()]
            self._write("events", self._template.events[1], streams)
            self._write("events", self._template.events[2], streams)
        return streams

    def settle(self, streams: Sequence[bytes]) -> None:
        """Settle what was taken in one transaction."""
        with _transaction(self._connection):
            self._write("events", self._template.events[3], streams)
            tenant, version = self._template.agenda["tenant"], len(self._template.events)
            self._connection.executemany(_SETTLE, [(version, tenant, s) for s in streams])

    def _write(self, table: str, row: Column, streams: Sequence[bytes]) -> None:
        names = [name for name in row if name != "position"]
        text = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        self._connection.executemany(text, [self._values(row, names, s) for s in streams])

    def _values(self, row: Column, names: Sequence[str], stream: bytes) -> tuple[object, ...]:
        ours = {**row, "stream": stream, "identity": f"refund-{stream.hex()}"}
        if "event_id" in row:
            ours["event_id"] = uuid4().bytes
        return tuple(ours[name] for name in names)


class _transaction:
    """BEGIN IMMEDIATE … COMMIT."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *error: object) -> None:
        self._connection.execute("ROLLBACK" if error[0] else "COMMIT")


def main(path: str, template: str, count: str, batch: str, only: str = "") -> None:
    """Do the whole job, or intend alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    tables, size = Tables(connection, Template.read(template)), int(batch)
    serve()
    begun, took = elapsed_seconds(), list[float]()
    for _ in range(0, int(count), size):
        before = elapsed_seconds()
        tables.intend([uuid4().bytes for _ in range(size)])
        took.append(elapsed_seconds() - before)
        if not only:
            tables.settle(tables.take(size))
    seconds = elapsed_seconds() - begun
    say({"seconds": seconds, "p50": percentile(took, 0.5), "p95": percentile(took, 0.95)})
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
