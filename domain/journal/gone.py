"""What is kept of events that a purge dropped: where each stood in the log, and its hash.

So a purge takes the words away and leaves the proof: an anchor of the log from before it can still
be compared, event by event, with what the store has now.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import orjson

from settled.domain.journal.unit import RecordedEvent, is_purged

_PLACE = struct.Struct(">q32s")


class Gone(NamedTuple):
    """One event that was dropped: its number in its stream, its position, its hash."""

    version: int
    position: int
    hash: bytes


def gone_with(records: Sequence[RecordedEvent]) -> list[Gone]:
    """Return all that is gone of a stream once these events are, which are all that it has.

    What an earlier purge took is among it. Raises ValueError where the events do not follow each
    other from the first one, or from one that stands for those before it.
    """
    earlier = gone_before(records[0]) if is_purged(records[0].topic) else []
    gone = [*earlier, *(_place_of(record) for record in records)]
    if [one.version for one in gone] != list(range(1, len(gone) + 1)):
        raise ValueError("events are missing that nothing stands for")
    return gone


def gone_before(record: RecordedEvent) -> list[Gone]:
    """Return what an event stands for. Raises ValueError for one that does not say it soundly."""
    state: object = orjson.loads(record.state)
    said = cast("dict[str, object]", state) if isinstance(state, dict) else {}
    text = said.get("gone")
    if not isinstance(text, str):
        raise ValueError("it does not say what is gone")
    gone = unpack(text)
    if not gone or len(gone) != record.originator_version - 1:
        raise ValueError("it does not stand for all events before it")
    if gone[-1].hash != record.previous_hash:
        raise ValueError("it does not follow the last event that it stands for")
    return gone


def pack(gone: Iterable[Gone]) -> str:
    """Return the places and hashes of events 1, 2, 3 … of a stream as text: 40 bytes each."""
    return base64.b64encode(b"".join(_PLACE.pack(one.position, one.hash) for one in gone)).decode()


def unpack(text: str) -> list[Gone]:
    """Return what was packed. Raises ValueError for a text that nothing was packed into."""
    try:
        places = _PLACE.iter_unpack(base64.b64decode(text, validate=True))
        return [Gone(version, *place) for version, place in enumerate(places, 1)]
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"no places of events: {error}") from error


def _place_of(record: RecordedEvent) -> Gone:
    assert record.position is not None, "an event that was read has a position"
    return Gone(record.originator_version, record.position, record.hash)
