"""The eventsourcing library's recorder interface over a journal, for applications built on it."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, islice
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.persistence import (
    ApplicationRecorder,
    DataError,
    IntegrityError,
    Notification,
    OperationalError,
    ProgrammingError,
    StoredEvent,
    Subscription,
)

from settled.domain.journal.mapper import hash_of
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import (
    FIRST_HASH,
    Busy,
    Change,
    Committed,
    Head,
    Invalid,
    RecordedEvent,
    Unit,
)

KIND = "aggregate"
"""The kind of streams that are written here. They are settled: nothing of theirs falls due."""

_PAGE = 500
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class RecordedNotification(RecordedEvent, Notification):
    """A recorded event as the library passes it on: `id` is its position."""


class JournalRecorder(ApplicationRecorder):
    """Stores the events of an `eventsourcing` application in a journal, for one tenant.

    An application that brings RecordedEvents keeps their columns; a plain StoredEvent gets an event
    id, the store's time, `actor`, and its place in the chain of hashes. Streams that the operations
    own are read here, never written: only they know when such a stream is due again.
    """

    def __init__(self, journal: Journal, tenant: str, *, actor: str = "application") -> None:
        self._journal = journal
        self._tenant = tenant
        self._actor = actor
        self._committer = journal.committer()
        self._turn = threading.Lock()
        self._listeners: weakref.WeakSet[threading.Event] = weakref.WeakSet()

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Append events of one or several streams, all or nothing; return their positions.

        Raises the library's IntegrityError when somebody else wrote one of the versions,
        OperationalError when the store was busy, DataError for what no store takes.
        """
        if extra := [name for name, value in kwargs.items() if value is not None]:
            raise ProgrammingError(f"A journal records events alone, not {', '.join(extra)}.")
        if not stored_events:
            return None
        grouped = _by_stream(stored_events)
        unit = Unit(self._tenant, tuple(self._change(*item) for item in grouped.items()))
        with self._turn:
            (answer,) = self._committer.commit([unit])
        if isinstance(answer, Committed):
            for listener in self._listeners:
                listener.set()
            positions = {
                (change.stream, change.expected + n): position
                for change, given in zip(unit.changes, answer.positions, strict=True)
                for n, position in enumerate(given, 1)
            }
            return [positions[_uuid(e.originator_id), e.originator_version] for e in stored_events]
        if isinstance(answer, Busy):
            raise OperationalError(f"The journal is busy: {answer.what}.")
        if isinstance(answer, Invalid):
            raise DataError(answer.reason)
        raise IntegrityError(f"The events conflict with what is recorded: {answer}.")

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return a stream's events with versions in (gt, lte], as RecordedEvents."""
        events = self._journal.events(self._tenant, _uuid(originator_id), gt or 0, lte)
        ordered = reversed(events) if desc else iter(events)
        return list(islice(ordered, limit))

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return the tenant's settled events from a position on, as RecordedNotifications."""
        after = start or 0
        if start is not None and inclusive_of_start:
            after -= 1
        return self.page(after, limit, stop, topics)[0]

    def max_notification_id(self) -> int | None:
        """Return the position up to which everything is settled, or None before the first."""
        return self._journal.read(0, 1).upto or None

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Return an iterator over the tenant's events above a position, also those to come."""
        woken = threading.Event()
        self._listeners.add(woken)
        return JournalSubscription(self, gt, topics, woken)

    def page(
        self, after: int, limit: int, stop: int | None = None, topics: Sequence[str] = ()
    ) -> tuple[list[Notification], int]:
        """Return events above a position, and the position up to which all were considered.

        The second is how far a reader has come that filters: the events it skipped are behind it.
        """
        found: list[Notification] = []
        while len(found) < limit:
            page = self._journal.read(after, _PAGE)
            for event in page.events:
                position = _position(event)
                if stop is not None and position > stop:
                    return found, after
                after = position
                if event.tenant == self._tenant and (not topics or event.topic in topics):
                    found.append(_notification(event))
                    if len(found) == limit:
                        return found, after
            if not page.more:
                break
        return found, after

    def close(self) -> None:
        """Close the recorder's connection; the journal stays open."""
        self._committer.close()

    def _change(self, stream: UUID, events: Sequence[StoredEvent]) -> Change:
        expected = events[0].originator_version - 1
        if expected < 0 or [e.originator_version - expected for e in events] != list(
            range(1, len(events) + 1)
        ):
            raise IntegrityError(f"The versions of stream {stream} do not follow each other.")
        previous = FIRST_HASH
        if expected:
            row = self._journal.head(self._tenant, stream)
            if row is not None and row.kind != KIND:
                raise ProgrammingError(
                    f"Stream {stream} is a {row.kind}; it is written by its own commands alone."
                )
            last = self._journal.events(self._tenant, stream, expected - 1, expected)
            previous = last[0].hash if last else FIRST_HASH
        records: list[RecordedEvent] = []
        for event in events:
            record = event if isinstance(event, RecordedEvent) else self._record(event, previous)
            previous = record.hash
            records.append(record)
        return Change(stream, expected, tuple(records), _settled(stream))

    def _record(self, event: StoredEvent, previous: bytes) -> RecordedEvent:
        record = RecordedEvent(
            event.originator_id,
            event.originator_version,
            event.topic,
            event.state,
            tenant=self._tenant,
            event_id=uuid4(),
            schema_version=1,
            min_reader=1,
            recorded_at=self._journal.time(),
            actor=self._actor,
            key_id="",
            previous_hash=previous,
            hash=b"",
        )
        return replace(record, hash=hash_of(record))


class JournalSubscription(Subscription[JournalRecorder]):
    """Looks for new events every 0.1 s; a wake-up only makes it look earlier."""

    def __init__(
        self,
        recorder: JournalRecorder,
        gt: int | None,
        topics: Sequence[str],
        woken: threading.Event,
    ) -> None:
        super().__init__(recorder, gt, topics)
        self._woken = woken
        self._found: deque[Notification] = deque()

    def stop(self) -> None:
        """End the iteration, also where it waits in another thread."""
        super().stop()
        self._woken.set()

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            if self._found:
                return self._found.popleft()
            self._woken.clear()
            after = self._last_notification_id or 0
            found, self._last_notification_id = self._recorder.page(
                after, _PAGE, topics=self._topics
            )
            self._found.extend(found)
            if not found and not self._has_been_stopped:
                self._woken.wait(_POLL_SECONDS)
        raise StopIteration


def _by_stream(events: Sequence[StoredEvent]) -> Mapping[UUID, Sequence[StoredEvent]]:
    def stream(event: StoredEvent) -> UUID:
        return _uuid(event.originator_id)

    ordered = sorted(events, key=lambda event: (stream(event), event.originator_version))
    return {key: list(some) for key, some in groupby(ordered, key=stream)}


def _uuid(originator_id: UUID | str) -> UUID:
    if isinstance(originator_id, UUID):
        return originator_id
    raise ProgrammingError(f"Streams have UUIDs for names, not {originator_id!r}.")


def _settled(stream: UUID) -> Head:
    return Head(kind=KIND, identity=str(stream), state="recorded", due_at=None, lane="")


def _position(event: RecordedEvent) -> int:
    assert event.position is not None, "an event that was read has a position"
    return event.position


def _notification(event: RecordedEvent) -> RecordedNotification:
    values = {field.name: getattr(event, field.name) for field in fields(RecordedEvent)}
    return RecordedNotification(id=_position(event), **values)
