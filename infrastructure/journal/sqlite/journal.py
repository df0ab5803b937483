"""The journal on SQLite: every method of the port, over one file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from settled.domain.errors import InvalidInput
from settled.domain.journal.port import (
    AgendaRow,
    Diagnosis,
    GuardRow,
    Installation,
    Page,
    Watch,
    WorkerRow,
)
from settled.domain.journal.unit import SHARD, Answer, RecordedEvent, Unit
from settled.infrastructure.journal.migrate import check
from settled.infrastructure.journal.sqlite import committer, installation, membership, reading
from settled.infrastructure.journal.sqlite.database import PATIENCE_SECONDS, Database
from settled.infrastructure.journal.sqlite.migrating import SqliteTarget


class SqliteJournal:
    """The store in one SQLite file. Safe to use from several threads.

    `patience_seconds` is how long a writer waits for the others: then a commit is answered Busy,
    and everything else raises StoreUnavailable. Raises StoreNotMigrated when tables are
    missing, StoreUnsafe on a network file system.
    """

    def __init__(self, path: Path | str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._database = Database(Path(path), patience_seconds=patience_seconds)
        with SqliteTarget(self._database.path) as target:
            check(target)
        installation.bind(self._database)

    @property
    def dialect(self) -> str:
        """Return "sqlite"."""
        return "sqlite"

    @property
    def path(self) -> Path:
        """The database file."""
        return self._database.path

    def committer(self) -> committer.SqliteCommitter:
        """Open a committer."""
        return committer.SqliteCommitter(self._database)

    def join(self, connection: Any, unit: Unit) -> Answer:
        """Append inside the caller's own open transaction on the same file.

        The transaction has to have begun IMMEDIATE, or to have written already. Raises
        InvalidInput when the connection is no such thing, StoreUnsafe when it does not wait for
        the disk.
        """
        if not isinstance(connection, sqlite3.Connection):
            raise InvalidInput(
                f"A {type(connection).__name__} cannot join; the journal is on SQLite.",
                hint="Pass the sqlite3 connection on which your transaction is open.",
            )
        return committer.join(self._database, connection, unit)

    def events(
        self, tenant: str, stream: UUID, after: int = 0, upto: int | None = None
    ) -> list[RecordedEvent]:
        """Return a stream's events with versions in (after, upto], in order."""
        with self._database.reading() as connection:
            return reading.events(connection, tenant, stream, after, upto)

    def streams(self, keys: Sequence[tuple[str, UUID]]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return the whole of several streams."""
        with self._database.reading() as connection:
            return reading.streams(connection, keys)

    def read(self, after: int, limit: int) -> Page:
        """Return settled events above a position, in the order in which all readers see them."""
        with self._database.reading() as connection:
            return reading.page(connection, after, limit)

    def head(self, tenant: str, stream: UUID) -> AgendaRow | None:
        """Return one agenda row."""
        with self._database.reading() as connection:
            return reading.head(connection, tenant, stream)

    def heads(
        self,
        tenant: str | None = None,
        *,
        kind: str | None = None,
        lane: str | None = None,
        states: Sequence[str] = (),
        overdue_at: datetime | None = None,
        parked: bool | None = None,
        after: tuple[str, UUID] | None = None,
        limit: int = 100,
    ) -> list[AgendaRow]:
        """Return agenda rows that meet every given filter, ordered by (tenant, stream)."""
        with self._database.reading() as connection:
            return reading.heads(
                connection,
                tenant=tenant,
                kind=kind,
                lane=lane,
                states=states,
                overdue_at=overdue_at,
                parked=parked,
                after=after,
                limit=limit,
            )

    def referenced(self, tenant: str, provider: str, reference: str) -> UUID | None:
        """Return the stream that a provider's reference belongs to."""
        with self._database.reading() as connection:
            return reading.referenced(connection, tenant, provider, reference)

    def unpark(self, tenant: str, stream: UUID) -> bool:
        """Let a parked row be claimed again, with its takes counted afresh; was it parked?"""
        with self._database.writing() as connection:
            parked = connection.execute(
                "UPDATE agenda SET parked_at = NULL, takes = 0, owner = NULL"
                " WHERE tenant = ? AND shard = ? AND stream = ? AND parked_at IS NOT NULL",
                (tenant, SHARD, stream.bytes),
            )
            return parked.rowcount > 0

    def guard(self, tenant: str, key: str) -> GuardRow | None:
        """Return one guard row; None where no ceiling was ever set."""
        with self._database.reading() as connection:
            return reading.guard(connection, tenant, key)

    def set_ceiling(self, tenant: str, key: str, ceiling: int) -> None:
        """Set what a guard allows, and make the row where it is new."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO guard (tenant, shard, key, ceiling) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (tenant, shard, key) DO UPDATE SET ceiling = excluded.ceiling",
                (tenant, SHARD, key, ceiling),
            )

    def lanes(self) -> Mapping[str, bool]:
        """Return every lane and whether it is paused."""
        with self._database.reading() as connection:
            return reading.lanes(connection)

    def open_lanes(self) -> list[str]:
        """Return the lanes in which something is open, in order: due now or later, or parked."""
        with self._database.reading() as connection:
            return reading.open_lanes(connection)

    def pause(self, lane: str, paused: bool) -> None:
        """Stop or resume claims on a lane, over all workers."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO lane (lane, paused) VALUES (?, ?)"
                " ON CONFLICT (lane) DO UPDATE SET paused = excluded.paused",
                (lane, paused),
            )

    def enrol(
        self, name: str, lease_seconds: float, serves: Sequence[str] = ()
    ) -> membership.SqliteMembership:
        """Register a worker, with the routes that it serves."""
        return membership.enrol(self._database, name, lease_seconds, serves)

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Call `changed` soon after somebody has written, from a thread of its own."""
        from settled.infrastructure.journal.sqlite.wakeups import Watcher  # only workers do this

        return Watcher(self._database, changed)

    def workers(self) -> list[WorkerRow]:
        """Return the registered workers, also those that lapsed and still own rows."""
        with self._database.reading() as connection:
            return membership.workers(connection)

    def time(self) -> datetime:
        """Return the host's time, never before the last recorded event."""
        with self._database.reading() as connection:
            return reading.store_time(connection, self._database.clock)

    def installation(self) -> Installation:
        """Return what this database is bound to."""
        return installation.read(self._database)

    def adopt(self) -> None:
        """Bind the database to where it is now. The caller first treats what is ready as sent."""
        installation.adopt(self._database)

    def anchor(self) -> None:
        """Note beside the file how far the log has come, so that a restore is noticed."""
        installation.anchor(self._database)

    def examine(self) -> list[Diagnosis]:
        """Look for settings and states under which commits can be lost or nothing moves."""
        return list(self._diagnoses())

    def close(self) -> None:
        """Close every connection, also those of its committers and workers."""
        self._database.close()

    def _diagnoses(self) -> Iterator[Diagnosis]:
        bound = self.installation()
        if bound.changed is not None:
            told = bound.changed if bound.copy_of else f"{bound.changed} Run `settled adopt`."
            yield Diagnosis("fail", "installation", told)
        with self._database.reading() as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
            (parked,) = connection.execute(
                "SELECT count(*) FROM agenda WHERE parked_at IS NOT NULL"
            ).fetchone()
        if mode != "wal":
            yield Diagnosis("fail", "journal_mode", f"The journal mode is {mode}, not wal.")
        if synchronous < 2:
            yield Diagnosis("fail", "synchronous", "A commit does not wait for the disk.")
        if all(worker.lapsed for worker in self.workers()):
            yield Diagnosis("warn", "workers", "No worker runs; what is due stays where it is.")
        if parked:
            yield Diagnosis(
                "warn", "parked", f"{parked} rows were taken too often without any progress."
            )
