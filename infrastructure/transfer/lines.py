"""How an event is written as a line of JSON, and read again: every column, to the byte.

Envelope and body stand as text within the JSON, because their bytes are what was hashed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from settled.domain.journal.unit import SHARD, RecordedEvent

FORMAT = 1
"""The number of this form of the file."""

_IN_BASE64 = "_base64"


def header_line(installation: UUID, streams: tuple[str, ...]) -> bytes:
    """Return the first line of an export; `streams` names those that it is about, () for all."""
    return _line(
        {"settled_export": FORMAT, "installation": str(installation), "streams": list(streams)}
    )


def end_line(events: int, digest: str) -> bytes:
    """Return the last line: how many events there are, and the SHA-256 of all lines before."""
    return _line({"end": True, "events": events, "sha256": digest})


def event_line(event: RecordedEvent) -> bytes:
    """Return the line of an event."""
    document: dict[str, Any] = {
        "position": event.position,
        "tenant": event.tenant,
        "shard": SHARD,
        "stream": str(event.stream),
        "version": event.originator_version,
        "event_id": str(event.event_id),
        "topic": event.topic,
        "schema_version": event.schema_version,
        "min_reader": event.min_reader,
        "recorded_at": event.recorded_at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": event.actor,
        "correlation": event.correlation,
        "causation": None if event.causation is None else str(event.causation),
        "key_id": event.key_id,
        "previous_hash": event.previous_hash.hex(),
        "hash": event.hash.hex(),
        **_text("state", event.state),
        **_text("body", event.body),
        "body_digest": None if event.body_digest is None else event.body_digest.hex(),
        "erased": event.body is None and event.body_digest is not None,
    }
    return _line(document)


def event_of(document: Mapping[str, Any]) -> RecordedEvent:
    """Return the event of a line. Raises ValueError, KeyError or TypeError for what is none."""
    digest, causation = document["body_digest"], document["causation"]
    if document["shard"] != SHARD:
        raise ValueError(f"the shard is {document['shard']}")
    state = _bytes("state", document)
    if state is None:
        raise ValueError("there is no state")
    recorded_at = datetime.fromisoformat(document["recorded_at"])
    if recorded_at.tzinfo is None:
        raise ValueError("recorded_at has no zone")
    return RecordedEvent(
        UUID(document["stream"]),
        int(document["version"]),
        str(document["topic"]),
        state,
        str(document["tenant"]),
        UUID(document["event_id"]),
        int(document["schema_version"]),
        int(document["min_reader"]),
        recorded_at,
        str(document["actor"]),
        str(document["key_id"]),
        bytes.fromhex(document["previous_hash"]),
        bytes.fromhex(document["hash"]),
        document["correlation"],
        None if causation is None else UUID(causation),
        _bytes("body", document),
        None if digest is None else bytes.fromhex(digest),
        int(document["position"]),
    )


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return bytes as text; what is no text (an encrypted envelope of somebody's) in base64."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        assert value is not None
        return {name + _IN_BASE64: base64.b64encode(value).decode()}


def _bytes(name: str, document: Mapping[str, Any]) -> bytes | None:
    encoded = document.get(name + _IN_BASE64)
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = document[name]
    return None if value is None else str(value).encode()


def _line(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document) + b"\n"
