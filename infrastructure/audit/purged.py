"""What was purged of a log: what is gone, and whether the record of purges tells it truly.

There may be millions of events that are gone, so they are kept in a file of SQLite's own that has
no name and ends with its connection, never in memory.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator

import orjson

from settled.domain.journal.anchors import AnchoredHead
from settled.domain.journal.audit import (
    Breach,
    Placed,
    StoredRow,
    Wrong,
    is_as_written,
    stream_name,
)
from settled.domain.journal.gone import Gone, gone_before
from settled.domain.journal.unit import is_purged
from settled.domain.purges import Entry, Recorded
from settled.infrastructure.audit.log import RawLog

_TABLES = """
CREATE TABLE gone (
    tenant TEXT, stream BLOB, version INTEGER, position INTEGER, hash BLOB,
    PRIMARY KEY (tenant, stream, version)
) WITHOUT ROWID;
CREATE INDEX gone_position ON gone (position);
CREATE TABLE purge (
    tenant TEXT, stream BLOB, version INTEGER, hash BLOB, PRIMARY KEY (tenant, stream, version)
) WITHOUT ROWID;
CREATE TABLE told (
    tenant TEXT, stream BLOB, version INTEGER, hash BLOB, PRIMARY KEY (tenant, stream, version)
) WITHOUT ROWID;
"""

_UNTOLD = """
SELECT p.tenant, p.stream, p.version, t.hash IS NOT NULL
  FROM purge p LEFT JOIN told t USING (tenant, stream, version)
 WHERE t.hash IS NOT p.hash"""

# What stands at the beginning of a stream stands for what was told of it before, too.
_GONE_WITHOUT_TRACE = """
SELECT t.tenant, t.stream, max(t.version) AS last FROM told t
 WHERE NOT EXISTS (SELECT 1 FROM purge p
                    WHERE p.tenant = t.tenant AND p.stream = t.stream AND p.version >= t.version)
 GROUP BY t.tenant, t.stream"""


class Purged:
    """What the log says of its purges, as far as `read` has read it."""

    def __init__(self, log: RawLog) -> None:
        self._log = log
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.executescript(_TABLES)

    def read(self, after: int = 0) -> None:
        """Read what the log says above a position; again, because a purge may have come since.

        What is not as it was written counts for nothing: the chain shows it.
        """
        self._file.execute("BEGIN")
        for row in self._log.purges(after):
            if row.record is None or not is_as_written(row.record):
                continue
            if is_purged(row.record.topic):
                self._take_tombstone(row)
            elif row.record.topic == Recorded.TOPIC:
                self._take_record(row)
        self._file.execute("COMMIT")

    def count(self, after: int, upto: int) -> int:
        """Return how many events of (after, upto] are gone."""
        sql = "SELECT count(*) FROM gone WHERE position > ? AND position <= ?"
        return int(self._file.execute(sql, (after, upto)).fetchone()[0])

    def log(self, rows: Iterable[Placed], after: int, upto: int) -> Iterator[Placed]:
        """Yield the events of (after, upto] in order: those of `rows`, and those that are gone."""
        last = (0, b"")
        gone: Iterable[Placed] = self._gone(after, upto)
        for event in heapq.merge(rows, gone, key=lambda one: one.position):
            # What stands there in spite of its purge is one event, not two.
            if (event.position, event.hash) != last:
                yield event
            last = (event.position, event.hash)

    def hash_of(self, head: AnchoredHead) -> bytes | None:
        """Return the hash of an event that is gone; None where no purge took it."""
        sql = "SELECT hash FROM gone WHERE tenant = ? AND stream = ? AND version = ?"
        found = self._file.execute(sql, (head.tenant, head.stream.bytes, head.version)).fetchone()
        return found[0] if found else None

    def breaches(self) -> list[Breach]:
        """Return purges that the record does not tell as they are, and those that it alone has."""
        found: list[Breach] = []
        for tenant, stream, version, told in self._file.execute(_UNTOLD):
            how = "says something else of it" if told else "does not have it"
            message = f"older events were purged here, and the record of purges {how}"
            place = tenant, stream_name(stream), version
            found.append(Breach(Wrong.PURGE_HIDDEN, message, *place))
        for tenant, stream, version in self._file.execute(_GONE_WITHOUT_TRACE):
            message = "the record of purges has it, and it is gone"
            found.append(Breach(Wrong.DROPPED, message, tenant, stream_name(stream), version))
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _gone(self, after: int, upto: int) -> Iterator[Gone]:
        rows = self._file.execute(
            "SELECT version, position, hash FROM gone WHERE position > ? AND position <= ?"
            " ORDER BY position",
            (after, upto),
        )
        return (Gone(*row) for row in rows)

    def _take_tombstone(self, row: StoredRow) -> None:
        assert row.record is not None, "it was asked before"
        try:
            gone = gone_before(row.record)
        except ValueError:
            return
        stream = (row.tenant, row.stream)
        put = "INSERT OR IGNORE INTO gone VALUES (?, ?, ?, ?, ?)"
        self._file.executemany(put, ((*stream, *one) for one in gone))
        values = (*stream, row.version, row.hash)
        self._file.execute("INSERT OR IGNORE INTO purge VALUES (?, ?, ?, ?)", values)

    def _take_record(self, row: StoredRow) -> None:
        assert row.record is not None, "it was asked before"
        try:
            told = [Entry.model_validate(one) for one in orjson.loads(row.record.state)["purged"]]
            entries = [
                (row.tenant, one.stream.bytes, one.version, bytes.fromhex(one.hash)) for one in told
            ]
        except (ValueError, KeyError, TypeError):
            return
        self._file.executemany("INSERT OR IGNORE INTO told VALUES (?, ?, ?, ?)", entries)
