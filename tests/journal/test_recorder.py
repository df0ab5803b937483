"""An application of the eventsourcing library can keep its events here, beside the operations."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import (
    DataError,
    IntegrityError,
    Notification,
    ProgrammingError,
    RecordConflictError,
    StoredEvent,
    Tracking,
)

from settled.domain.journal.mapper import hash_of
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import FIRST_HASH, RecordedEvent
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.recorder import JournalRecorder, RecordedNotification
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_unit,
    an_event,
    commit,
    eventually,
    stream_of,
)


class Basket(Aggregate):
    """An aggregate of an application that has nothing to do with operations."""

    def __init__(self) -> None:
        self.items: list[str] = []

    @event("ItemAdded")
    def add(self, item: str) -> None:
        self.items.append(item)


@pytest.fixture
def journal(store_url: str) -> Generator[Journal]:
    """Give a journal on each of the databases."""
    with closing(open_journal(store_url, migrate=True, require_fsync=False)) as journal:
        yield journal


@pytest.fixture
def recorder(journal: Journal) -> Generator[JournalRecorder]:
    """Give the recorder of the tenant `acme`."""
    with closing(JournalRecorder(journal, TENANT)) as recorder:
        yield recorder


def plain(stream: UUID, version: int, topic: str = "Added", state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(stream, version, topic, state)


def test_an_application_saves_and_loads_its_aggregates(
    journal: Journal, recorder: JournalRecorder
) -> None:
    """Through the library's own mapper and repository, with its conflicts where there are some."""
    application: Application[UUID] = Application()
    application.events.recorder = recorder
    basket = Basket()
    basket.add("boots")
    application.save(basket)
    first: Basket = application.repository.get(basket.id)
    second: Basket = application.repository.get(basket.id)
    first.add("socks")
    second.add("laces")
    application.save(first)
    with pytest.raises(RecordConflictError):
        application.save(second)
    loaded: Basket = application.repository.get(basket.id)
    assert loaded.items == ["boots", "socks"]
    row = journal.head(TENANT, basket.id)
    assert row is not None
    assert (row.version, row.due_at) == (3, None)


def test_a_plain_event_gets_what_the_journal_needs(
    journal: Journal, recorder: JournalRecorder
) -> None:
    """Above all its place in the chain, so that the audit of the whole log has no holes."""
    stream = uuid4()
    recorder.insert_events([plain(stream, 1), plain(stream, 2)])
    recorder.insert_events([plain(stream, 3)])
    events = journal.events(TENANT, stream)
    assert [e.previous_hash for e in events] == [FIRST_HASH, events[0].hash, events[1].hash]
    assert [e.hash for e in events] == [hash_of(e) for e in events]
    assert len({e.event_id for e in events}) == 3
    assert {e.actor for e in events} == {"application"}


def test_a_recorded_event_keeps_its_columns(recorder: JournalRecorder) -> None:
    """A mapper that knows of them relies on getting back what it gave."""
    given = an_event(uuid4(), 1, body=b"erasable", correlation="run-7")
    recorder.insert_events([given])
    (read,) = recorder.select_events(given.stream)
    assert isinstance(read, RecordedEvent)
    assert (read.event_id, read.body, read.correlation) == (given.event_id, b"erasable", "run-7")
    assert recorder.insert_events([given]) == [read.position]
    (told,) = recorder.select_notifications(1, 10)
    assert isinstance(told, RecordedNotification)
    assert (told.id, told.body, told.hash) == (read.position, b"erasable", given.hash)


def test_events_are_selected_as_the_library_asks(recorder: JournalRecorder) -> None:
    """Excluded below, included above, and from the end where the newest is wanted."""
    stream = uuid4()
    recorder.insert_events([plain(stream, version) for version in range(1, 6)])

    def versions(**bounds: Any) -> list[int]:
        return [e.originator_version for e in recorder.select_events(stream, **bounds)]

    assert versions() == [1, 2, 3, 4, 5]
    assert versions(gt=1, lte=4) == [2, 3, 4]
    assert versions(desc=True, limit=2) == [5, 4]
    assert versions(gt=2, limit=1) == [3]


def test_positions_come_back_in_the_order_of_the_events(recorder: JournalRecorder) -> None:
    """Several streams at once, and their events interleaved: still all or nothing."""
    one, two = sorted([uuid4(), uuid4()])
    events = [plain(two, 1), plain(one, 1), plain(two, 2)]
    positions = recorder.insert_events(events)
    assert positions is not None
    told = {n.id: (n.originator_id, n.originator_version) for n in notifications(recorder)}
    assert [told[p] for p in positions] == [(two, 1), (one, 1), (two, 2)]
    with pytest.raises(IntegrityError):
        recorder.insert_events([plain(uuid4(), 1), plain(one, 1)])
    assert len(notifications(recorder)) == 3
    assert recorder.insert_events([]) is None


def notifications(recorder: JournalRecorder, **bounds: Any) -> list[Notification]:
    return list(recorder.select_notifications(None, 100, **bounds))


@pytest.mark.parametrize("versions", [[2], [1, 3], [1, 1], [0]], ids=str)
def test_versions_that_do_not_follow_are_conflicts(
    recorder: JournalRecorder, versions: list[int]
) -> None:
    """What the library's callers catch when they lost a race, or would leave a hole."""
    stream = uuid4()
    with pytest.raises(IntegrityError):
        recorder.insert_events([plain(stream, version) for version in versions])
    assert recorder.select_events(stream) == []


def test_what_no_store_takes_is_an_error_of_its_own(recorder: JournalRecorder) -> None:
    """It is no conflict, so nobody should load the aggregate again and retry."""
    with pytest.raises(DataError, match="NUL"):
        recorder.insert_events([plain(uuid4(), 1, topic="a\0b")])
    with pytest.raises(ProgrammingError, match="UUID"):
        recorder.select_events("basket-1")
    with pytest.raises(ProgrammingError, match="tracking"):
        recorder.insert_events([plain(uuid4(), 1)], tracking=Tracking("shop", 1))


def test_a_stream_of_an_operation_is_not_written(
    journal: Journal, recorder: JournalRecorder
) -> None:
    """The recorder does not know when an operation is due, and would settle what is open."""
    unit = a_unit()
    with closing(journal.committer()) as committer:
        commit(committer, unit)
    with pytest.raises(ProgrammingError, match="refund"):
        recorder.insert_events([plain(stream_of(unit), 2)])
    row = journal.head(TENANT, stream_of(unit))
    assert row is not None
    assert (row.version, row.state) == (1, "ready")


def test_notifications_are_the_tenants_own(journal: Journal, recorder: JournalRecorder) -> None:
    """By position and topic; another tenant's events are passed over, also many of them."""
    with closing(JournalRecorder(journal, "globex")) as other:
        for topic in ("Added", "Removed", "Added"):
            recorder.insert_events([plain(uuid4(), 1, topic)])
            other.insert_events([plain(uuid4(), 1, topic)])
    first, second, third = (n.id for n in notifications(recorder))

    def ids(start: int | None, limit: int = 10, **more: Any) -> list[int]:
        return [n.id for n in recorder.select_notifications(start, limit, **more)]

    assert ids(first) == ids(None) == [first, second, third]
    assert ids(first, inclusive_of_start=False) == [second, third]
    assert ids(first, stop=second) == [first, second]
    assert ids(first, limit=2) == [first, second]
    assert ids(None, topics=["Added"]) == [first, third]
    assert ids(None, limit=1, topics=["Removed"]) == [second]
    assert recorder.max_notification_id() == journal.read(0, 1).upto >= third


def test_an_empty_log_has_no_last_position(recorder: JournalRecorder) -> None:
    """None, and not zero: the library tells "nothing yet" by it."""
    assert recorder.max_notification_id() is None
    assert notifications(recorder) == []


def test_a_subscription_goes_on_with_what_is_recorded_later(
    journal: Journal, recorder: JournalRecorder
) -> None:
    """By this recorder, which wakes it, and by others, which it finds by looking."""
    recorder.insert_events([plain(uuid4(), 1, "Added"), plain(uuid4(), 1, "Removed")])
    seen: list[str] = []
    with recorder.subscribe(topics=["Added"]) as subscription:

        def follow() -> None:
            for notification in subscription:
                seen.append(notification.topic)

        thread = threading.Thread(target=follow)
        thread.start()
        eventually(lambda: len(seen) == 1)
        recorder.insert_events([plain(uuid4(), 1, "Added")])
        eventually(lambda: len(seen) == 2)
        with closing(JournalRecorder(journal, TENANT)) as elsewhere:
            elsewhere.insert_events([plain(uuid4(), 1, "Removed"), plain(uuid4(), 1, "Added")])
        eventually(lambda: len(seen) == 3)
        subscription.stop()
        thread.join(5)
        assert not thread.is_alive()
    assert seen == ["Added"] * 3
