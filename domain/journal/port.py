"""The port to the journal: reading, claiming, membership, and the committer that writes.

Two databases stand behind it with the same meaning; `settled.testing` ships the suite that proves
it. Every method may raise StoreUnavailable; none of them retries a write by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from settled.domain.journal.unit import Answer, RecordedEvent, Unit


@dataclass(frozen=True, slots=True)
class AgendaRow:
    """A stream's head as it stands: the answer to "what is open, when is it due, who has it"."""

    tenant: str
    stream: UUID
    kind: str
    identity: str
    version: int
    state: str
    due_at: datetime | None
    lane: str
    priority: int
    min_reader: int
    owner: int | None
    takes: int
    parked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Page:
    """Settled events in order. `upto` is the position up to which nothing can appear any more.

    `more` says that the page was full; a short page is never a sign of the end by itself.
    """

    events: tuple[RecordedEvent, ...]
    upto: int
    more: bool


@dataclass(frozen=True, slots=True)
class GuardRow:
    """A guard as it stands, in its own unit: never more reserved and consumed than its ceiling.

    Except by evidence: an effect that happened is counted whatever the ceiling says.
    """

    tenant: str
    key: str
    ceiling: int
    reserved: int
    consumed: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as the others see it. `lapsed` by the database's clock, never by the reader's.

    `serves` are the routes that it said it serves: see `settled.domain.route`.
    """

    epoch: int
    name: str
    started_at: datetime
    lease_until: datetime
    lapsed: bool
    serves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installation:
    """What this database is bound to. `changed` names what differs since it was bound, if any.

    `copy_of` is the installation that a copy for debugging was taken from: it never dispatches.
    """

    id: UUID
    secret: bytes
    created_at: datetime
    changed: str | None
    copy_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What doctor found: a setting or a state of the database that needs somebody's attention.

    `severity` is "fail" where committed intents can be lost or effects doubled, else "warn".
    """

    severity: str
    subject: str
    message: str


class Watch(Protocol):
    """Somebody who is told when work may have come."""

    def close(self) -> None:
        """Stop telling."""
        ...


class Membership(Protocol):
    """One worker's place among the others. Used by its heartbeat thread alone."""

    @property
    def epoch(self) -> int:
        """The number under which this worker owns rows. Never given twice."""
        ...

    def renew(self) -> bool:
        """Extend the lease by its length; False when it was taken away: stop dispatching."""
        ...

    def sweep(self) -> Sequence[int]:
        """End the leases of workers that are gone; return their epochs.

        A worker counts as gone when its liveness lock has been missing for a grace period and the
        server has not restarted since; after a restart only leases count.
        """
        ...

    def leave(self) -> None:
        """Give the place up: what this worker still owns is claimable at once."""
        ...


class Committer(Protocol):
    """The one that writes: a connection of its own, used by one thread."""

    def commit(self, units: Sequence[Unit]) -> list[Answer]:
        """Commit a group in one transaction; one answer a unit, in order.

        A unit that the database itself refuses is found by halving, and fails alone. When the
        answer to COMMIT is lost, the same units are run again with the same event ids.
        """
        ...

    def claim(
        self,
        *,
        epoch: int,
        kinds: Sequence[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take due rows for a worker, fair over lanes, in one statement.

        `kinds` are the routes that it serves (`settled.domain.route`), `leave` streams that it
        cannot read and leaves to others. Rows of lapsed owners come first, whatever their due time;
        a row taken too often without progress is parked instead and returned with `parked_at`.
        """
        ...

    def release(self, *, epoch: int, rows: Sequence[AgendaRow], counted: bool = True) -> None:
        """Free rows that were taken and on which nothing was appended; their takes stay counted.

        Without `counted` the last take is taken back: who cannot read a stream says nothing about
        whether others make progress on it. Only rows that `epoch` still owns at the version it took
        them at are touched.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Journal(Protocol):
    """The store: events, heads, guards, workers. Safe to use from several threads."""

    @property
    def dialect(self) -> str:
        """Return "sqlite" or "postgresql"."""
        ...

    def committer(self) -> Committer:
        """Open a committer."""
        ...

    def join(self, connection: Any, unit: Unit) -> Answer:
        """Append inside the caller's own open transaction; it commits or rolls back with it."""
        ...

    def events(
        self, tenant: str, stream: UUID, after: int = 0, upto: int | None = None
    ) -> list[RecordedEvent]:
        """Return a stream's events with versions in (after, upto], in order."""
        ...

    def streams(self, keys: Sequence[tuple[str, UUID]]) -> Mapping[UUID, list[RecordedEvent]]:
        """Return the whole of several streams, in one query."""
        ...

    def read(self, after: int, limit: int) -> Page:
        """Return settled events above a position, in the order in which all readers see them."""
        ...

    def head(self, tenant: str, stream: UUID) -> AgendaRow | None:
        """Return one agenda row."""
        ...

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
        ...

    def referenced(self, tenant: str, provider: str, reference: str) -> UUID | None:
        """Return the stream that a provider's reference belongs to."""
        ...

    def unpark(self, tenant: str, stream: UUID) -> bool:
        """Let a parked row be claimed again, with its takes counted afresh; was it parked?"""
        ...

    def guard(self, tenant: str, key: str) -> GuardRow | None:
        """Return one guard row; None where no ceiling was ever set."""
        ...

    def set_ceiling(self, tenant: str, key: str, ceiling: int) -> None:
        """Set what a guard allows, and make the row where it is new. Units never make one."""
        ...

    def lanes(self) -> Mapping[str, bool]:
        """Return every lane and whether it is paused."""
        ...

    def open_lanes(self) -> list[str]:
        """Return the lanes in which something is open, in order: due now or later, or parked."""
        ...

    def pause(self, lane: str, paused: bool) -> None:
        """Stop or resume claims on a lane, over all workers."""
        ...

    def enrol(self, name: str, lease_seconds: float, serves: Sequence[str] = ()) -> Membership:
        """Register a worker, with the routes that it serves."""
        ...

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Call `changed` soon after something may have become due, from a thread of its own.

        It makes workers look sooner, and that is all: calls come for nothing and can be missed.
        """
        ...

    def workers(self) -> list[WorkerRow]:
        """Return the registered workers, also those that lapsed and still own rows."""
        ...

    def time(self) -> datetime:
        """Return the store's own time: the database server's, or the host's under SQLite."""
        ...

    def installation(self) -> Installation:
        """Return what this database is bound to."""
        ...

    def adopt(self) -> None:
        """Bind the database to where it is now. The caller first treats what is ready as sent."""
        ...

    def anchor(self) -> None:
        """Record outside the database how far the log had come, so that a restore is noticed."""
        ...

    def examine(self) -> list[Diagnosis]:
        """Look for settings and states under which commits can be lost or nothing moves."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
