"""Units for tests of a journal: refunds of a tenant `acme`, as small as they can be."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

from settled.domain.journal.judge import next_group
from settled.domain.journal.port import Committer, Journal
from settled.domain.journal.unit import (
    FIRST_HASH,
    PURGED,
    Answer,
    Busy,
    Change,
    Committed,
    GuardChange,
    Head,
    RecordedEvent,
    Reference,
    Unit,
)

TENANT = "acme"
KIND = "refund"
LANE = f"{TENANT}/{KIND}/stripe"
DUE = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
"""A moment that has passed: what is due then is claimable now."""
LATER = datetime(2999, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS = 30.0

Found = TypeVar("Found")


def an_event(stream: UUID, version: int, **columns: Any) -> RecordedEvent:
    """Return an event with columns that a real one could have."""
    event_id = uuid4()
    values: dict[str, Any] = {
        "topic": "Intended",
        "state": b'{"order":"order-72"}',
        "tenant": TENANT,
        "event_id": event_id,
        "schema_version": 1,
        "min_reader": 1,
        "recorded_at": DUE,
        "actor": "support-agent",
        "key_id": "key-1",
        "previous_hash": FIRST_HASH,
        "hash": hashlib.sha256(event_id.bytes).digest(),
    }
    return RecordedEvent(stream, version, **values | columns)


def a_head(**columns: Any) -> Head:
    """Return a head that is due, in the lane `acme/refund/stripe`."""
    values: dict[str, Any] = {
        "kind": KIND,
        "identity": "refund-request-9",
        "state": "ready",
        "due_at": DUE,
        "lane": LANE,
    }
    return Head(**values | columns)


def a_change(
    stream: UUID | None = None,
    expected: int = 0,
    events: int = 1,
    *,
    head: Head | None = None,
    fence: int | None = None,
    **columns: Any,
) -> Change:
    """Return a change that writes events to a stream; by default it creates a new one."""
    stream = stream or uuid4()
    versions = range(expected + 1, expected + 1 + events)
    records = tuple(an_event(stream, version, **columns) for version in versions)
    return Change(stream, expected, records, head or a_head(), fence)


def a_unit(
    *changes: Change, guards: Sequence[GuardChange] = (), tenant: str = TENANT, **more: Any
) -> Unit:
    """Return a unit of these changes; by default of one that creates a stream."""
    return Unit(tenant, changes or (a_change(tenant=tenant),), tuple(guards), **more)


def naming(unit: Unit, *references: str) -> Unit:
    """Return a unit whose first stream takes these references of the provider `stripe`."""
    named = tuple(Reference("stripe", reference, stream_of(unit)) for reference in references)
    return replace(unit, references=named)


def after(unit: Unit, events: int = 1, **more: Any) -> Unit:
    """Return a unit that advances the first stream of an earlier one."""
    change = unit.changes[0]
    return a_unit(a_change(change.stream, change.last, events, **more))


def purging(unit: Unit) -> Unit:
    """Return a unit whose first event stands for the older ones, which are dropped with it."""
    (change,) = unit.changes
    first = replace(change.events[0], topic=f"refund.{PURGED}")
    events = (first, *change.events[1:])
    return replace(unit, changes=(replace(change, events=events, drops_older=True),))


def stream_of(unit: Unit) -> UUID:
    """Return the first stream of a unit."""
    return unit.changes[0].stream


def commit_all(committer: Committer, units: Sequence[Unit]) -> list[Answer]:
    """Commit units in groups until each has an answer other than Busy; in their order."""
    answers: dict[int, Answer] = {}
    numbers = {id(unit): number for number, unit in enumerate(units)}
    waiting = list(units)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} units are still busy"
        group, rest = next_group(waiting, 50)
        busy: list[Unit] = []
        for unit, answer in zip(group, committer.commit(group), strict=True):
            if isinstance(answer, Busy):
                busy.append(unit)
            else:
                answers[numbers[id(unit)]] = answer
        waiting = busy + rest
    return [answers[number] for number in range(len(units))]


def commit(committer: Committer, *units: Unit) -> list[Committed]:
    """Commit units that nothing stands in the way of."""
    answers = commit_all(committer, units)
    committed = [answer for answer in answers if isinstance(answer, Committed)]
    assert len(committed) == len(units), answers
    return committed


def everything(journal: Journal, after_position: int = 0) -> list[RecordedEvent]:
    """Read the log to its settled end."""
    events: list[RecordedEvent] = []
    while True:
        page = journal.read(after_position, 100)
        events += page.events
        if not page.more:
            return events
        after_position = events[-1].position or 0


def eventually(question: Callable[[], Found], seconds: float = PATIENCE_SECONDS) -> Found:
    """Ask until the answer is true; fail when it has not become so within the time."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {question}"
        time.sleep(0.01)
    return answer
