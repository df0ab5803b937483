"""From events to what is stored and back: envelope, erasable body, and the chain of hashes."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import cache
from typing import Any, cast
from uuid import UUID

from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import JSONTranscoder, Mapper, StoredEvent
from pydantic_core import from_json

from settled.domain.errors import StoreTooNew
from settled.domain.journal.unit import SHARD, RecordedEvent
from settled.domain.keys import Keys
from settled.domain.machine.event import TOPICS, Event
from settled.domain.machine.machine import StateMachine

READER = 1
"""The highest `min_reader` that this code understands."""

_SHARD = str(SHARD).encode()
_lengths = struct.Struct(">16I").pack

IN_COLUMNS = frozenset(
    {"originator_id", "originator_version", "timestamp", "actor", "correlation", "causation"}
)


class EventMapper(Mapper[UUID]):
    """Maps pydantic events: ids and times come from the columns, never from the JSON.

    Hashes cover what is stored, before any upcasting.
    """

    def __init__(self, keys: Keys) -> None:
        super().__init__(JSONTranscoder())
        self._keys = keys

    def seal(
        self, machine: StateMachine, new_ids: Callable[[int], Sequence[UUID]]
    ) -> tuple[RecordedEvent, ...]:
        """Turn a machine's pending events into records and carry its chain on.

        `new_ids` gives each event an identifier that nobody else has been given: by it a writer
        recognises its own unit after the answer to its commit was lost.
        """
        events = cast("Sequence[Event]", machine.collect_events())
        records: list[RecordedEvent] = []
        for event, event_id in zip(events, new_ids(len(events)), strict=True):
            record = self._record(machine.tenant, event, event_id, machine.chain)
            machine.chain = record.hash
            records.append(record)
        return tuple(records)

    def _record(self, tenant: str, event: Event, event_id: UUID, previous: bytes) -> RecordedEvent:
        kind = type(event)
        to_json = kind.__pydantic_serializer__.to_json
        key_id = self._keys.current(tenant)
        body = body_digest = None
        if kind.BODY:
            body = to_json(event, include=_body_of(kind))
            body_digest = hmac.digest(self._keys.key(tenant, key_id), body, "sha256")
        record = RecordedEvent.of(
            {
                "originator_id": event.originator_id,
                "originator_version": event.originator_version,
                "topic": kind.TOPIC,
                "state": to_json(event, exclude=_beside_envelope(kind)),
                "tenant": tenant,
                "event_id": event_id,
                "schema_version": kind.SCHEMA_VERSION,
                "min_reader": kind.MIN_READER,
                "recorded_at": event.timestamp,
                "actor": event.actor,
                "key_id": key_id,
                "previous_hash": previous,
                "correlation": event.correlation,
                "causation": event.causation,
                "body": body,
                "body_digest": body_digest,
                "position": None,
            }
        )
        vars(record)["hash"] = hash_of(record)
        return record

    def to_stored_event(self, domain_event: DomainEventProtocol[UUID]) -> StoredEvent:
        """Return the library's form: envelope and body in one, without tenant and chain."""
        event = cast("Event", domain_event)
        state = type(event).__pydantic_serializer__.to_json(event, exclude=set(IN_COLUMNS))
        return StoredEvent(event.originator_id, event.originator_version, event.TOPIC, state)

    def to_domain_event(self, stored_event: StoredEvent) -> Event:
        """Return the event, upcast to today's schema.

        Raises StoreTooNew when it was written by newer code or by a kind that is not known here:
        such an event is neither skipped nor guessed at.
        """
        record = cast("RecordedEvent", stored_event)
        kind = TOPICS.get(record.topic)
        if (
            kind is None
            or record.min_reader > READER
            or record.schema_version > kind.SCHEMA_VERSION
        ):
            raise StoreTooNew(
                f"Event {record.originator_version} of stream {record.originator_id} "
                f"({record.topic}, schema {record.schema_version}) is not known to this code.",
                hint="Run the version of settled, and the module of kinds, that wrote it.",
            )
        fields: dict[str, Any] = from_json(record.state)  # exact, also beyond 64 bits
        if record.body is not None:
            fields.update(from_json(record.body))
        if record.schema_version < kind.SCHEMA_VERSION:
            fields = kind.upcast(fields, record.schema_version)
        fields.update(
            originator_id=record.originator_id,
            originator_version=record.originator_version,
            timestamp=record.recorded_at,
            actor=record.actor,
            correlation=record.correlation,
            causation=record.causation,
        )
        event: Event = kind.__pydantic_validator__.validate_python(fields)
        return event

    def fold(self, records: Sequence[RecordedEvent]) -> StateMachine | None:
        """Fold a stream's records into its machine; None when there are none."""
        machine: StateMachine | None = None
        for record in records:
            machine = self.to_domain_event(record).mutate(machine)
        if machine is not None:
            machine.chain = records[-1].hash
            machine.new_references.clear()
            machine.new_guards.clear()
        return machine


def hash_of(record: RecordedEvent) -> bytes:
    """Return the SHA-256 over everything in a record but its position, its body and its hash.

    The lengths of all parts come first, 32 bits each, so that no two records share an encoding.
    """
    at = record.recorded_at
    parts = (
        record.previous_hash,
        record.tenant.encode(),
        _SHARD,
        record.stream.bytes,
        b"%d" % record.originator_version,
        record.event_id.bytes,
        record.topic.encode(),
        b"%d" % record.schema_version,
        b"%d" % record.min_reader,
        (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat().encode(),
        record.actor.encode(),
        _optional(None if record.correlation is None else record.correlation.encode()),
        _optional(None if record.causation is None else record.causation.bytes),
        record.key_id.encode(),
        record.state,
        _optional(record.body_digest),
    )
    return hashlib.sha256(_lengths(*map(len, parts)) + b"".join(parts)).digest()


@cache
def _body_of(kind: type[Event]) -> set[str]:
    return set(kind.BODY)


@cache
def _beside_envelope(kind: type[Event]) -> set[str]:
    return set(IN_COLUMNS | kind.BODY)


def _optional(part: bytes | None) -> bytes:
    """Return a part that may be missing, so that missing and empty are told apart."""
    return b"" if part is None else b"+" + part
