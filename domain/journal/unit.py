"""What is written to the journal in one piece, and what the journal answers.

A unit is admitted whole or not at all: the events of one or several streams of one tenant, the
heads those streams have afterwards, and the guard rows that change with them. Many units share a
transaction; a unit that loses fails no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from eventsourcing.persistence import StoredEvent

SHARD = 0
"""The shard of every tenant today; keys carry it so that tenants can be distributed later."""

FIRST_HASH = bytes(32)
"""The previous hash of a stream's first event."""

PURGED = "Purged"
"""The last part of the topic of every event that stands for the dropped ones before it."""


def is_purged(topic: str) -> bool:
    """Say whether an event of this topic stands for the events before it in its stream."""
    return topic.rpartition(".")[2] == PURGED


@dataclass(frozen=True)
class RecordedEvent(StoredEvent):
    """An event as it lies in the journal: the library's stored event with the journal's columns.

    `state` is the envelope (JSON). `body` holds what may have to be erased (parameters, evidence,
    text); the hash covers it only through `body_digest`, an HMAC under the tenant's key `key_id`,
    so that an erased body leaves the chain whole. `position` is known once the event is read back.
    """

    tenant: str
    event_id: UUID
    schema_version: int
    min_reader: int
    recorded_at: datetime
    actor: str
    key_id: str
    previous_hash: bytes
    hash: bytes
    correlation: str | None = None
    causation: UUID | None = None
    body: bytes | None = None
    body_digest: bytes | None = None
    position: int | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return the event with these fields, which are all there are.

        As `cls(**fields)`, which sets each of them by itself because the class is frozen: that
        would be a tenth of what recording an event takes.
        """
        event = object.__new__(cls)
        vars(event).update(fields)
        return event

    @property
    def stream(self) -> UUID:
        """The stream's id, as the tables call it."""
        assert isinstance(self.originator_id, UUID)
        return self.originator_id

    @property
    def size(self) -> int:
        """Bytes of envelope and body."""
        return len(self.state) + len(self.body or b"")


@dataclass(frozen=True, slots=True)
class Head:
    """The stream's agenda row once the change is in.

    `due_at` is the one moment at which somebody has to look at the stream again; None when it is
    settled. `held` keeps the row with the worker that claimed it; otherwise it becomes free.
    `progress` starts the count of takes afresh; without it a row taken again and again is parked.
    """

    kind: str
    identity: str
    state: str
    due_at: datetime | None
    lane: str
    priority: int = 1
    min_reader: int = 1
    held: bool = False
    progress: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """The next events of one stream. `expected` is its version before them; 0 creates it.

    `fence` is the epoch of the worker that must still own the row; None where anybody may write.
    With `drops_older` the first of the events stands for all before it, and those are dropped in
    the same transaction: no reader ever sees a part of them.
    """

    stream: UUID
    expected: int
    events: tuple[RecordedEvent, ...]
    head: Head
    fence: int | None = None
    drops_older: bool = False

    @property
    def last(self) -> int:
        """The stream's version after the change."""
        return self.expected + len(self.events)


@dataclass(frozen=True, slots=True)
class GuardChange:
    """A change of a guard row, by an amount in its own unit (minor units, pieces).

    `reserve` counts up to the ceiling and is refused beyond it; `recount` counts past it, because
    evidence of an effect is counted whatever the ceiling says; `release` takes a reservation off;
    `consume` turns it into use.
    """

    key: str
    act: Literal["reserve", "recount", "release", "consume"]
    amount: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A provider's name for the effect of a stream, kept so that evidence finds its operation.

    It belongs to one stream for good: what one object at the provider did is told of one operation.
    """

    provider: str
    reference: str
    stream: UUID


@dataclass(frozen=True, slots=True)
class Unit:
    """What is admitted together, all or nothing. A unit never crosses tenants."""

    tenant: str
    changes: tuple[Change, ...]
    guards: tuple[GuardChange, ...] = ()
    references: tuple[Reference, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all its events."""
        return sum(event.size for change in self.changes for event in change.events)


@dataclass(frozen=True, slots=True)
class Committed:
    """The unit is durable: a tuple of positions a change; `found` when an earlier try wrote it."""

    positions: tuple[tuple[int, ...], ...]
    found: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """A stream that the unit creates is there already, at this version."""

    stream: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A stream is at another version than the unit expected."""

    stream: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The row belongs to another worker by now: whoever lost it may add evidence, not dispatch."""

    stream: UUID
    owner: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A guard has less left than the unit asks for."""

    key: str
    remaining: int


@dataclass(frozen=True, slots=True)
class ReferenceTaken:
    """The provider's object is known under another stream, this one. It stays so."""

    provider: str
    reference: str
    stream: UUID


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else holds it. The only answer that says nothing about the unit: ask again."""

    what: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """The database will never take this unit."""

    reason: str


Answer = Committed | Exists | Stale | Lost | Refused | ReferenceTaken | Busy | Invalid
Answers = Sequence[Answer]
