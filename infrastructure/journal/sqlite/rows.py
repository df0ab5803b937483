"""How times, events and agenda rows lie in SQLite's columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import RecordedEvent

EVENT = (
    "stream, version, topic, state, tenant, event_id, schema_version, min_reader, recorded_at,"
    " actor, key_id, previous_hash, hash, correlation, causation, body, body_digest, position"
)
"""The columns of an event in the order in which `event_of` reads them."""

AGENDA = (
    "tenant, stream, kind, identity, version, state, due_at, lane, priority, min_reader, owner,"
    " takes, parked_at"
)
"""The columns of an agenda row in the order in which `agenda_of` reads them."""

Row = tuple[Any, ...]


def to_text(at: datetime) -> str:
    """Return a time as UTC text of one width, so that text order is time order."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def optional_text(at: datetime | None) -> str | None:
    """Return a time as text, or None."""
    return None if at is None else to_text(at)


def from_text(text: str | None) -> datetime | None:
    """Return the time of a text column."""
    return None if text is None else datetime.fromisoformat(text)


def event_of(row: Row) -> RecordedEvent:
    """Return the event of a row selected with the columns of EVENT."""
    stream, version, topic, state, tenant, event_id, schema, reader, recorded_at, *more = row
    actor, key_id, previous_hash, digest, correlation, causation, body, body_digest, position = more
    return RecordedEvent(
        UUID(bytes=stream),
        version,
        topic,
        state,
        tenant,
        UUID(bytes=event_id),
        schema,
        reader,
        datetime.fromisoformat(recorded_at),
        actor,
        key_id,
        previous_hash,
        digest,
        correlation,
        None if causation is None else UUID(bytes=causation),
        body,
        body_digest,
        position,
    )


def agenda_of(row: Row) -> AgendaRow:
    """Return the agenda row of a row selected with the columns of AGENDA."""
    tenant, stream, kind, identity, version, state, due_at, *more = row
    lane, priority, min_reader, owner, takes, parked_at = more
    return AgendaRow(
        tenant,
        UUID(bytes=stream),
        kind,
        identity,
        version,
        state,
        from_text(due_at),
        lane,
        priority,
        min_reader,
        owner,
        takes,
        from_text(parked_at),
    )
