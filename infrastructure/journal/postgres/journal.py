"""The Journal port over PostgreSQL."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import psycopg

from settled.domain.errors import StoreUnavailable, StoreUnsafe
from settled.domain.journal.port import (
    AgendaRow,
    Diagnosis,
    GuardRow,
    Installation,
    Page,
    WorkerRow,
)
from settled.domain.journal.unit import SHARD, Answer, RecordedEvent, Unit
from settled.infrastructure.journal import migrate
from settled.infrastructure.journal.postgres import examination, installation, joining, reading
from settled.infrastructure.journal.postgres.address import (
    NEVER_BY_ITSELF,
    Address,
    Connection,
    Row,
    Texts,
)
from settled.infrastructure.journal.postgres.committer import PostgresCommitter, due_lanes
from settled.infrastructure.journal.postgres.errors import translating
from settled.infrastructure.journal.postgres.group import columns
from settled.infrastructure.journal.postgres.high_water import HighWater
from settled.infrastructure.journal.postgres.membership import PostgresMembership
from settled.infrastructure.journal.postgres.migrating import PostgresTarget
from settled.infrastructure.journal.postgres.pool import AGAIN_SECONDS, Pool
from settled.infrastructure.journal.postgres.rows import event_of
from settled.infrastructure.journal.postgres.session import Session
from settled.infrastructure.journal.postgres.statements import WRITE_LANES

PATIENCE_SECONDS = 10.0
"""How long a server that went away is waited for before that is reported."""

_READER = {"statement_timeout": "30s", "lock_timeout": "5s"}
_READERS = 4
_LAST_VERSION = (1 << 63) - 1

if TYPE_CHECKING:
    from settled.infrastructure.journal.postgres.wakeups import Listener, Notifier

T = TypeVar("T")


class PostgresJournal:
    """A journal in one schema of a PostgreSQL database. Safe to use from several threads.

    `url` is a libpq URL, in which `schema` names the schema (`settled` by default). `settings` are
    server parameters for the committers. Raises InvalidStoreUrl, StoreUnavailable,
    StoreNotMigrated, StoreTooNew, and StoreUnsafe where the server may lose commits; only a server
    that is thrown away after a test is opened with `require_fsync=False`.
    """

    def __init__(
        self,
        url: str,
        *,
        require_fsync: bool = True,
        patience_seconds: float = PATIENCE_SECONDS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._address = Address.of(url)
        self._texts = Texts(self._address.schema)
        self._patience_seconds = patience_seconds
        self._settings = dict(settings or {})
        with PostgresTarget(url) as target:
            migrate.check(target)
        self._check(require_fsync)
        self._water = HighWater(self._texts)
        self._known_lanes: set[str] = set()
        self._mutex = threading.Lock()
        self._opened: list[PostgresCommitter | PostgresMembership | Listener] = []
        self._notifier: Notifier | None = None
        self._closed = False
        self._pool = Pool(
            self._address.conninfo,
            min_size=1,
            max_size=_READERS,
            kwargs={
                "autocommit": True,
                "options": self._address.options(_READER),
                "prepare_threshold": NEVER_BY_ITSELF,
            },
            timeout=patience_seconds,
            reconnect_timeout=AGAIN_SECONDS / 2,
            name="settled-journal",
            open=True,
        )

    @property
    def dialect(self) -> str:
        """Return "postgresql"."""
        return "postgresql"

    def committer(self) -> PostgresCommitter:
        """Open a committer."""
        session = Session(
            self._address, settings=self._settings, patience_seconds=self._patience_seconds
        )
        return self._track(PostgresCommitter(session, self._texts, self._notify))

    def join(self, connection: Any, unit: Unit) -> Answer:
        """Append inside the caller's own open transaction; it commits or rolls back with it.

        Do it last before the COMMIT, once a transaction: until then readers of the log stop in
        front of these events. Raises InvalidInput where the connection cannot be joined.
        """
        joined = joining.check_caller(connection)
        lanes = due_lanes([unit]) - self._known_lanes
        if lanes:
            # In a transaction of its own, so that the caller's does not hold a new lane back.
            self._rows(WRITE_LANES, {"lane": sorted(lanes)})
            self._known_lanes |= lanes
        return joining.join(joined, self._texts, unit)

    def events(
        self, tenant: str, stream: UUID, after: int = 0, upto: int | None = None
    ) -> list[RecordedEvent]:
        """Return a stream's events with versions in (after, upto], in order."""
        last = _LAST_VERSION if upto is None else upto
        values = _key(tenant, stream) | {"after": after, "upto": last}
        return [event_of(row) for row in self._rows(reading.EVENTS, values)]

    def streams(self, keys: Sequence[tuple[str, UUID]]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return the whole of several streams, in one query; an unknown one is empty."""
        found: dict[UUID, list[RecordedEvent]] = {stream: [] for _, stream in keys}
        for row in self._rows(reading.STREAMS, columns(("tenant", "stream"), keys)) if keys else ():
            event = event_of(row)
            found[event.stream].append(event)
        return found

    def read(self, after: int, limit: int) -> Page:
        """Return settled events above a position, in the order in which all readers see them."""

        def page(connection: Connection) -> Page:
            upto = self._water.mark
            rows: list[Row] = []
            if after + limit <= upto:
                rows = _page(connection, self._texts, after, upto, limit)
            if len(rows) < limit:
                upto = self._water.advance(connection)
                rows = _page(connection, self._texts, after, upto, limit)
            return Page(tuple(event_of(row) for row in rows), upto, len(rows) == limit)

        return self._reading(page)

    def head(self, tenant: str, stream: UUID) -> AgendaRow | None:
        """Return one agenda row."""
        rows = self._rows(reading.HEAD, _key(tenant, stream))
        return AgendaRow(*rows[0]) if rows else None

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
        text, values = reading.heads(
            tenant,
            kind=kind,
            lane=lane,
            states=states,
            overdue_at=overdue_at,
            parked=parked,
            after=after,
            limit=limit,
        )
        return [AgendaRow(*row) for row in self._rows(text, values)]

    def referenced(self, tenant: str, provider: str, reference: str) -> UUID | None:
        """Return the stream that a provider's reference belongs to."""
        values = {"tenant": tenant, "shard": SHARD, "provider": provider, "reference": reference}
        rows = self._rows(reading.REFERENCED, values)
        return rows[0][0] if rows else None

    def unpark(self, tenant: str, stream: UUID) -> bool:
        """Let a parked row be claimed again, with its takes counted afresh; was it parked?

        False too where the connection broke with the answer: the row is free then all the same.
        """
        return bool(self._rows(reading.UNPARK, _key(tenant, stream)))

    def guard(self, tenant: str, key: str) -> GuardRow | None:
        """Return one guard row; None where no ceiling was ever set."""
        rows = self._rows(reading.GUARD, {"tenant": tenant, "shard": SHARD, "key": key})
        return GuardRow(*rows[0]) if rows else None

    def set_ceiling(self, tenant: str, key: str, ceiling: int) -> None:
        """Set what a guard allows, and make the row where it is new. Units never make one."""
        values = {"tenant": tenant, "shard": SHARD, "key": key, "ceiling": ceiling}
        self._rows(reading.SET_CEILING, values)

    def lanes(self) -> Mapping[str, bool]:
        """Return every lane and whether it is paused."""
        return dict(self._rows(reading.LANES))

    def open_lanes(self) -> list[str]:
        """Return the lanes in which something is open, in order: due now or later, or parked."""
        return [lane for (lane,) in self._rows(reading.OPEN_LANES)]

    def pause(self, lane: str, paused: bool) -> None:
        """Stop or resume claims on a lane, over all workers."""
        self._rows(reading.PAUSE, {"lane": lane, "paused": paused})

    def enrol(
        self, name: str, lease_seconds: float, serves: Sequence[str] = ()
    ) -> PostgresMembership:
        """Register a worker, with the routes that it serves."""
        return self._track(
            PostgresMembership(self._address, self._texts, name, lease_seconds, serves)
        )

    def watch(self, changed: Callable[[], None]) -> Listener:
        """Call `changed` soon after something may have become due, from a thread of its own."""
        from settled.infrastructure.journal.postgres.wakeups import Listener  # as in _notify

        return self._track(Listener(self._address, changed))

    def workers(self) -> list[WorkerRow]:
        """Return the registered workers, also those that lapsed and still own rows."""
        found = self._rows(reading.WORKERS)
        return [
            WorkerRow(epoch, name, started_at, until, lapsed, tuple(serves))
            for epoch, name, started_at, until, lapsed, serves in found
        ]

    def time(self) -> datetime:
        """Return the database server's time."""
        ((now,),) = self._rows("SELECT clock_timestamp()")
        at: datetime = now
        return at

    def installation(self) -> Installation:
        """Return what this database is bound to."""
        return self._reading(lambda connection: installation.read(connection, self._texts))

    def adopt(self) -> None:
        """Bind the database to where it is now. The caller first treats what is ready as sent.

        Raises StoreUnavailable where the anchor on this host still says that something is missing.
        """
        problem: OSError | None = None
        try:
            self._reading(lambda connection: installation.adopt(connection, self._texts))
        except OSError as error:
            problem = error
        if changed := self.installation().changed:
            raise StoreUnavailable(
                f"The database could not be bound anew: {changed} ({problem}).",
                hint="Let SETTLED_STATE_DIR name a folder that can be written.",
            ) from problem

    def anchor(self) -> None:
        """Record outside the database how far the log had come, so that a restore is noticed.

        A folder that cannot be written costs only that: `examine` reports it.
        """

        def record(connection: Connection) -> None:
            upto = self._water.advance(connection)
            installation.anchor(connection, self._texts).advance(upto)

        with suppress(OSError):
            self._reading(record)

    def examine(self) -> list[Diagnosis]:
        """Look for settings and states under which commits can be lost or nothing moves."""
        return self._reading(lambda connection: list(examination.examine(connection, self._texts)))

    def close(self) -> None:
        """Close every connection, also those of its committers and memberships."""
        with self._mutex:
            self._closed = True
            opened, self._opened = self._opened, []
        for one in opened:
            one.close()
        if self._notifier is not None:
            self._notifier.close()
        self._pool.close()

    def _notify(self) -> None:
        """Wake workers, if that can be done: the commit is in, and must not fail for this."""
        try:
            # Imported here, because who only asks has no use for it, and starts sooner without.
            from settled.infrastructure.journal.postgres.wakeups import Notifier

            with self._mutex:
                if self._closed:
                    return
                if self._notifier is None:
                    self._notifier = Notifier(self._address)
            self._notifier.tell()
        except Exception as error:  # no more threads, or the interpreter ends: workers poll
            logging.getLogger("settled.wakeups").warning("nobody was woken: %r", error)

    def _check(self, require_fsync: bool) -> None:
        connection = self._address.connect(_READER)
        try:
            with translating():
                unsafe = set(examination.unsafe_settings(connection))
                if not require_fsync:
                    unsafe -= {"fsync"}
                for name in sorted(unsafe):
                    raise StoreUnsafe(
                        f"{name} is off: {examination.UNSAFE[name]}.",
                        hint="Switch it on in postgresql.conf, or for the database or the role.",
                    )
                installation.bind(connection, self._texts)
        finally:
            connection.close()

    def _track(self, one: Opened) -> Opened:
        with self._mutex:
            self._opened.append(one)
        return one

    def _rows(self, text: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        def query(connection: Connection) -> list[Row]:
            return _fetch(connection, self._texts[text], values)

        return self._reading(query)

    def _reading(self, work: Callable[[Connection], T]) -> T:
        """Do what may be done twice: a pooled connection may have been cut while it was idle."""
        with translating():
            used: Connection | None = None
            try:
                with self._pool.connection() as used:
                    return work(used)
            except psycopg.OperationalError:
                if used is None or not used.closed:
                    raise
            self._pool.check()
            with self._pool.connection() as connection:
                return work(connection)


Opened = TypeVar("Opened", PostgresCommitter, PostgresMembership, "Listener")


def _page(connection: Connection, texts: Texts, after: int, upto: int, limit: int) -> list[Row]:
    if after >= upto:
        return []
    values = {"after": after, "upto": upto, "limit": limit}
    return _fetch(connection, texts[reading.PAGE], values)


def _fetch(connection: Connection, text: bytes, values: Mapping[str, Any] | None) -> list[Row]:
    cursor = connection.execute(text, values, binary=True)
    return cursor.fetchall() if cursor.description else []


def _key(tenant: str, stream: UUID) -> dict[str, Any]:
    return {"tenant": tenant, "shard": SHARD, "stream": stream}
