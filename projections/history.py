"""The history of one stream: every event, as it is stored, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from settled.domain.journal.unit import RecordedEvent


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One event: its name and version, when and by whom, and its fields.

    `erased` says that the event had a body and that it is gone; the chain of hashes holds all the
    same. `hash` is in hexadecimal.
    """

    version: int
    name: str
    topic: str
    at: datetime
    actor: str
    correlation: str | None
    causation: UUID | None
    position: int | None
    fields: Mapping[str, Any]
    erased: bool
    hash: str


def history_of(records: Sequence[RecordedEvent]) -> list[HistoryEntry]:
    """Return a stream's events for reading; none is interpreted, so that none can be refused."""
    return [
        HistoryEntry(
            version=record.originator_version,
            name=record.topic.rpartition(".")[2],
            topic=record.topic,
            at=record.recorded_at,
            actor=record.actor,
            correlation=record.correlation,
            causation=record.causation,
            position=record.position,
            fields=from_json(record.state) | from_json(record.body or b"{}"),
            erased=record.body is None and record.body_digest is not None,
            hash=record.hash.hex(),
        )
        for record in records
    ]
