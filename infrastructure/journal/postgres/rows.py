"""How events and agenda rows come out of their columns."""

from __future__ import annotations

from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.journal.postgres.address import Row

EVENT = (
    "stream, version, topic, state, tenant, event_id, schema_version, min_reader, recorded_at,"
    " actor, key_id, previous_hash, hash, correlation, causation, body, body_digest, position"
)
"""The columns of an event, in the order of RecordedEvent's fields."""

AGENDA = (
    "tenant, stream, kind, identity, version, state, due_at, lane, priority, min_reader, owner,"
    " takes, parked_at"
)
"""The columns of an agenda row, in the order of AgendaRow's fields."""


def event_of(row: Row) -> RecordedEvent:
    """Return the event of a row selected with the columns of EVENT."""
    return RecordedEvent(*row)
