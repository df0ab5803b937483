"""The journal in memory, for the simulation: it means what the databases mean; it survives nothing.

It is no store for anybody's operations: it ends with its process, and no other process sees it.
The conformance suite runs on it, so that what the simulation finds out holds for the databases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from settled.domain.errors import InvalidInput, StoreUnavailable
from settled.domain.journal.judge import commit_group, invalid
from settled.domain.journal.port import (
    AgendaRow,
    Diagnosis,
    GuardRow,
    Installation,
    Page,
    WorkerRow,
)
from settled.domain.journal.unit import Answer, Busy, Invalid, RecordedEvent, Unit
from settled.infrastructure.journal.sqlite.membership import GRACE_SECONDS
from settled.infrastructure.testing.memory_tables import (
    PATIENCE_SECONDS,
    Claims,
    Conflict,
    MemoryStore,
    Tables,
    Transaction,
    WorkerPlace,
    append,
    release,
)

_POISON = (Conflict,)
_ALL = "the store in memory"


class MemoryJournal:
    """A journal on tables in memory. Several may be open on one `MemoryStore`.

    `installation` is what the store says it is; by default something new.
    """

    def __init__(self, store: MemoryStore, *, installation: Installation | None = None) -> None:
        self._store = store
        self.memberships: list[MemoryMembership] = []
        self._closed = False
        tables = store.tables
        if installation is not None or tables.installation is None:
            tables.installation = installation or Installation(
                uuid4(), uuid4().bytes + uuid4().bytes, store.clock.now(), None
            )

    def check(self) -> None:
        """Raise StoreUnavailable where the store cannot be reached. Asked before everything."""
        if self._closed:
            raise StoreUnavailable("The journal was closed.", hint="Open it again.")

    @contextmanager
    def reading(self) -> Generator[Tables]:
        """Give the tables to read."""
        self.check()
        with self._store.reading() as tables:
            yield tables

    @contextmanager
    def writing(self) -> Generator[Tables]:
        """Give the tables to write; StoreUnavailable where another writer does not end."""
        self.check()
        with self._store.writing() as tables:
            if tables is None:
                raise StoreUnavailable(f"Another transaction held {_ALL} for too long.")
            yield tables

    @property
    def dialect(self) -> str:
        """Return "memory"."""
        return "memory"

    def committer(self) -> MemoryCommitter:
        """Open a committer."""
        return MemoryCommitter(self, self._store)

    def join(self, connection: Any, unit: Unit) -> Answer:
        """Append inside a `Transaction` of the store. Raises InvalidInput for anything else."""
        self.check()
        if not isinstance(connection, Transaction) or connection.store is not self._store:
            raise InvalidInput(
                f"A {type(connection).__name__} cannot join; the journal is in memory.",
                hint="Pass a transaction of the same MemoryStore.",
            )
        if not connection.open:
            raise InvalidInput("The transaction is over.", hint="Join before it commits.")
        if reason := invalid(unit):
            return Invalid(reason)
        try:
            (answer,) = append(connection.tables, [unit])
        except Conflict as error:
            return Invalid(f"{type(error).__name__}: {error}")
        return answer

    def events(
        self, tenant: str, stream: UUID, after: int = 0, upto: int | None = None
    ) -> list[RecordedEvent]:
        """Return a stream's events with versions in (after, upto], in order."""
        with self.reading() as tables:
            return [
                event
                for event in tables.streams.get((tenant, stream), ())
                if after < event.originator_version
                and (upto is None or event.originator_version <= upto)
            ]

    def streams(self, keys: Sequence[tuple[str, UUID]]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return the whole of several streams; an empty list for one that does not exist."""
        with self.reading() as tables:
            return {stream: list(tables.streams.get((t, stream), ())) for t, stream in keys}

    def read(self, after: int, limit: int) -> Page:
        """Return events above a position. They are written in order, so all of them are settled."""
        with self.reading() as tables:
            above = range(after + 1, tables.last_position + 1)
            found = (tables.events[position] for position in above if position in tables.events)
            events = tuple(islice(found, limit))
            return Page(events, tables.last_position, more=len(events) == limit)

    def head(self, tenant: str, stream: UUID) -> AgendaRow | None:
        """Return one agenda row."""
        with self.reading() as tables:
            return tables.heads.get((tenant, stream))

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
        with self.reading() as tables:
            found = [
                row
                for row in tables.heads.values()
                if (tenant is None or row.tenant == tenant)
                and (kind is None or row.kind == kind)
                and (lane is None or row.lane == lane)
                and (not states or row.state in states)
                and (overdue_at is None or (row.due_at is not None and row.due_at <= overdue_at))
                and (parked is None or (row.parked_at is not None) == parked)
                and (after is None or (row.tenant, row.stream) > after)
            ]
        return sorted(found, key=lambda row: (row.tenant, row.stream))[:limit]

    def referenced(self, tenant: str, provider: str, reference: str) -> UUID | None:
        """Return the stream that a provider's reference belongs to."""
        with self.reading() as tables:
            return tables.references.get((tenant, provider, reference))

    def unpark(self, tenant: str, stream: UUID) -> bool:
        """Let a parked row be claimed again, with its takes counted afresh; was it parked?"""
        with self.writing() as tables:
            row = tables.heads.get((tenant, stream))
            if row is None or row.parked_at is None:
                return False
            tables.heads[tenant, stream] = replace(row, parked_at=None, takes=0, owner=None)
            return True

    def guard(self, tenant: str, key: str) -> GuardRow | None:
        """Return one guard row; None where no ceiling was ever set."""
        with self.reading() as tables:
            return tables.guards.get((tenant, key))

    def set_ceiling(self, tenant: str, key: str, ceiling: int) -> None:
        """Set what a guard allows, and make the row where it is new."""
        with self.writing() as tables:
            row = tables.guards.get((tenant, key)) or GuardRow(tenant, key, ceiling, 0, 0)
            tables.guards[tenant, key] = replace(row, ceiling=ceiling)

    def lanes(self) -> Mapping[str, bool]:
        """Return every lane and whether it is paused."""
        with self.reading() as tables:
            return dict(sorted(tables.lanes.items()))

    def open_lanes(self) -> list[str]:
        """Return the lanes in which something is open, in order: due now or later, or parked."""
        with self.reading() as tables:
            return sorted({row.lane for row in tables.heads.values() if row.due_at is not None})

    def pause(self, lane: str, paused: bool) -> None:
        """Stop or resume claims on a lane, over all workers."""
        with self.writing() as tables:
            tables.lanes[lane] = paused

    def enrol(
        self, name: str, lease_seconds: float, serves: Sequence[str] = ()
    ) -> MemoryMembership:
        """Register a worker, with the routes that it serves."""
        if not lease_seconds > 0:
            raise InvalidInput(f"A lease of {lease_seconds} s ends before it begins.")
        with self.writing() as tables:
            self._store.forget(tables)
            tables.last_epoch += 1
            place = WorkerPlace(
                tables.last_epoch,
                name,
                self._store.now(tables),
                lease_seconds,
                self._store.clock.monotonic() + lease_seconds,
                tuple(serves),
            )
            tables.workers[place.epoch] = place
        membership = MemoryMembership(self, self._store, place)
        self.memberships.append(membership)
        return membership

    def watch(self, changed: Callable[[], None]) -> MemoryWatch:
        """Call `changed` after each commit."""
        self.check()
        return MemoryWatch(self._store, changed)

    def workers(self) -> list[WorkerRow]:
        """Return the registered workers, also those that lapsed and still own rows."""
        with self.reading() as tables:
            now, since = self._store.clock.now(), self._store.clock.monotonic()
            owners = {row.owner for row in tables.heads.values()}
            return [
                WorkerRow(
                    place.epoch,
                    place.name,
                    place.started_at,
                    now + timedelta(seconds=place.lease_until - since),
                    self._store.lapsed(place),
                    place.serves,
                )
                for place in tables.workers.values()
                if place.lease_until > 0 or place.epoch in owners
            ]

    def time(self) -> datetime:
        """Return the clock's time, never before the last recorded event."""
        with self.reading() as tables:
            return self._store.now(tables)

    def installation(self) -> Installation:
        """Return what the store is bound to; it never changes, as there is no copy of it."""
        with self.reading() as tables:
            assert tables.installation is not None, "a store is bound when it is first opened"
            return tables.installation

    def adopt(self) -> None:
        """Do nothing: the store is where it always was."""
        self.check()

    def anchor(self) -> None:
        """Do nothing: a store that survives nothing cannot be restored."""
        self.check()

    def examine(self) -> list[Diagnosis]:
        """Look for states under which nothing moves."""
        found: list[Diagnosis] = []
        if all(worker.lapsed for worker in self.workers()):
            message = "No worker runs; what is due stays where it is."
            found.append(Diagnosis("warn", "workers", message))
        if parked := len(self.heads(parked=True)):
            message = f"{parked} rows were taken too often without any progress."
            found.append(Diagnosis("warn", "parked", message))
        return found

    def close(self) -> None:
        """Close the journal and the places of its workers; the store stays with its owner."""
        for membership in self.memberships:
            membership.close()
        self._closed = True


class MemoryCommitter:
    """Judges and writes group by group; used by one thread."""

    def __init__(self, journal: MemoryJournal, store: MemoryStore) -> None:
        self._journal = journal
        self._store = store
        self._claims = Claims(store)

    def commit(self, units: Sequence[Unit]) -> list[Answer]:
        """Commit a group; one answer a unit, in order."""
        self._journal.check()
        return commit_group(self._attempt, units, _POISON)

    def claim(
        self,
        *,
        epoch: int,
        kinds: Sequence[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take due rows for a worker, fair over lanes."""
        with self._journal.writing() as tables:
            return self._claims.take(
                tables,
                epoch=epoch,
                kinds=frozenset(kinds),
                want=want,
                reader=reader,
                leave=leave,
            )

    def release(self, *, epoch: int, rows: Sequence[AgendaRow], counted: bool = True) -> None:
        """Free rows that were taken and on which nothing was appended."""
        with self._journal.writing() as tables:
            release(tables, epoch, rows, counted)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _attempt(self, units: Sequence[Unit]) -> list[Answer]:
        with self._store.writing(PATIENCE_SECONDS) as tables:
            if tables is None:
                return [Busy(_ALL)] * len(units)
            answers = append(tables, units)
        for changed in list(self._store.watchers.values()):
            changed()
        return answers


class MemoryWatch:
    """Calls a function after each commit, on the thread that commits."""

    def __init__(self, store: MemoryStore, changed: Callable[[], None]) -> None:
        self._store = store
        store.watchers[self] = changed

    def close(self) -> None:
        """Stop calling."""
        self._store.watchers.pop(self, None)


class MemoryMembership:
    """One worker's place among the others."""

    def __init__(self, journal: MemoryJournal, store: MemoryStore, place: WorkerPlace) -> None:
        self._journal = journal
        self._store = store
        self._place = place
        self._missing_since: dict[int, float] = {}

    @property
    def epoch(self) -> int:
        """The number under which this worker owns rows. Never given twice."""
        return self._place.epoch

    def renew(self) -> bool:
        """Extend the lease; False when it was ended or ran out, and others may have the rows."""
        with self._journal.writing() as tables:
            place = tables.workers.get(self.epoch)
            if place is None or self._store.lapsed(place):
                return False
            place.lease_until = self._store.clock.monotonic() + place.lease_seconds
            return True

    def sweep(self) -> Sequence[int]:
        """End the leases of workers whose locks are missing for the grace; return their epochs."""
        now = self._store.clock.monotonic()
        with self._journal.writing() as tables:
            missing = {
                place.epoch: self._missing_since.get(place.epoch, now)
                for place in tables.workers.values()
                if not place.locked and not self._store.lapsed(place)
            }
            self._missing_since = missing
            gone = sorted(e for e, since in missing.items() if now - since >= GRACE_SECONDS)
            for epoch in gone:
                tables.workers[epoch].lease_until = 0.0
            self._store.forget(tables)
        return gone

    def leave(self) -> None:
        """Give the place up: what this worker still owns is claimable at once."""
        with self._journal.writing() as tables:
            self._place.lease_until = 0.0
            self._store.forget(tables)
        self._place.locked = False

    def close(self) -> None:
        """Let go of the place without a leave, as a process does that dies."""
        self._place.locked = False
