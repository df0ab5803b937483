"""What a reader needs to know of stored events: whether it understands them, and their fields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson
from pydantic_core import from_json

from settled.domain.errors import StoreTooNew
from settled.domain.journal.mapper import READER
from settled.domain.journal.port import Journal
from settled.domain.machine.event import TOPICS
from settled.projections.projection import LoggedEvent, Projecting

WIDTH = len("2026-11-30T15:03:09.000000+00:00")
"""How long every moment is as text."""

_BEYOND_ALL = (1 << 62) - 1


class LeanEvent(NamedTuple):
    """A LoggedEvent, and nothing else: what a rebuild reads of each of millions of events."""

    position: int
    tenant: str
    stream: UUID
    originator_version: int
    topic: str
    schema_version: int
    min_reader: int
    recorded_at: datetime
    state: bytes
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Sought:
    """What a projection reads: events whose topics begin so, and the bodies of some of them.

    `bodies` are whole topics; None stands for all. Of other events the body reads as erased.
    """

    topics: tuple[str, ...]
    bodies: frozenset[str] | None

    @classmethod
    def by(cls, projection: Projecting) -> Sought:
        """Return what a projection reads: bodies are spared where its attribute `bodies` says."""
        bodies: frozenset[str] | None = getattr(projection, "bodies", None)
        return cls(projection.topics, bodies)


class Log(Protocol):
    """The port to the log for a rebuild: only some topics, only some columns, only some streams."""

    def page(
        self, sought: Sought, *, after: int, upto: int, limit: int, part: int, parts: int
    ) -> list[LeanEvent]:
        """Return events in (after, upto] that a projection folds, in order, of one part's streams.

        Streams are shared out among the `parts` by their ids. Fewer than `limit` events mean that
        there are no more of them up to `upto`. Nothing above what is settled may be asked for.
        """
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


def too_new(event: LoggedEvent) -> StoreTooNew | None:
    """Return the error for an event that newer code wrote, or a module that is not loaded here.

    Such an event is neither passed by nor guessed at.
    """
    kind = TOPICS.get(event.topic)
    if (
        kind is not None
        and event.min_reader <= READER
        and event.schema_version <= kind.SCHEMA_VERSION
    ):
        return None
    return StoreTooNew(
        f"Event {event.originator_version} of stream {event.stream} "
        f"({event.topic}, schema {event.schema_version}) is not known to this code.",
        hint="Run the version of settled, and the module of kinds, that wrote it.",
    )


def fields_of(event: LoggedEvent, bodies: frozenset[str]) -> dict[str, Any]:
    """Return the fields of a known event under today's schema, without what is in columns.

    Of topics that are not among `bodies` without what is erasable, too. They are not validated:
    what wrote them did that, and a reader of millions cannot.
    """
    fields: dict[str, Any] = orjson.loads(event.state)
    if event.body is not None and event.topic in bodies:
        fields |= from_json(event.body)  # a receipt may hold numbers of more than 64 bits
    kind = TOPICS[event.topic]
    if event.schema_version < kind.SCHEMA_VERSION:
        fields = kind.upcast(fields, event.schema_version)
    return fields


def settled_position(journal: Journal) -> int:
    """Return the position up to which nothing can appear any more, as of now."""
    return journal.read(_BEYOND_ALL, 1).upto


def text_of(at: datetime) -> str:
    """Return a moment as UTC text of one width, so that text order is time order."""
    text = orjson.dumps(at).decode()[1:-1]  # five times as fast as isoformat, but not of one width
    if len(text) == WIDTH and text.endswith("+00:00"):
        return text
    return at.astimezone(UTC).isoformat(timespec="microseconds")
