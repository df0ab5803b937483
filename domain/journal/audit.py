"""What is wrong with a stored history: its chain of hashes checked, one stream after the other.

The chain alone shows what was changed by somebody who did not carry the change on. The hashes have
no key, so whoever can write the store can also make a chain anew from some event on, or cut its
end off: that shows against an anchor alone (`settled.domain.journal.anchors`).
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from settled.domain.journal.gone import gone_before
from settled.domain.journal.mapper import hash_of
from settled.domain.journal.unit import FIRST_HASH, SHARD, RecordedEvent, is_purged
from settled.domain.keys import Keys

_NEIGHBOURS = 50
"""How far from its place an event is looked for that stands in another one of its stream."""


_MOST_SEARCHES = 100
"""How many events are looked for elsewhere: each time the whole log is read."""


class Wrong(enum.StrEnum):
    """What somebody did to the history, as far as it shows."""

    EDITED = "edited"
    """A column of an event is not what was written."""
    BODY_EDITED = "body_edited"
    """The body is not the one that was written, or stands where none was."""
    DROPPED = "dropped"
    """Events, or a whole stream, are gone."""
    BROKEN = "broken"
    """An event does not continue the one before it: one of the two was inserted or rewritten."""
    REORDERED = "reordered"
    """An event stands in the place of another one of its stream, or of the log."""
    TRANSPLANTED = "transplanted"
    """An event of another stream or tenant stands here."""
    REWRITTEN = "rewritten"
    """The chain is whole, and is not the one that was anchored."""
    TRUNCATED = "truncated"
    """The end of a stream is gone."""
    ROLLED_BACK = "rolled_back"
    """The log ends before a position that it had reached."""
    LOG_CHANGED = "log_changed"
    """Events were added to, taken from or moved within a part of the log that was anchored."""
    PURGE_HIDDEN = "purge_hidden"
    """Events were purged, and the record of purges says nothing of it, or something else."""
    ANCHOR_EDITED = "anchor_edited"
    """The anchor file is not what was signed."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One thing that is wrong. `stream` and `version` are None where it is about the whole log."""

    wrong: Wrong
    message: str
    tenant: str | None = None
    stream: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of the log as it was found. Without `record` it could not be read; `problem` is why."""

    tenant: str
    shard: int
    stream: bytes
    version: int
    hash: bytes
    position: int
    record: RecordedEvent | None
    problem: str = ""

    @property
    def key(self) -> tuple[str, int, bytes]:
        """What tells streams apart."""
        return self.tenant, self.shard, self.stream

    @property
    def name(self) -> str:
        """The stream's id, as people write it."""
        return stream_name(self.stream)


class Placed(Protocol):
    """Where an event stands in the log, or stood before it was purged, and its hash."""

    @property
    def position(self) -> int:
        """Its position."""
        ...

    @property
    def hash(self) -> bytes:
        """Its hash."""
        ...


def stream_name(stream: bytes) -> str:
    """Return a stream's id as text; bytes that are no id as hexadecimal digits."""
    digits = stream.hex()
    if len(stream) != 16:
        return digits
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


Elsewhere = Callable[[StoredRow], "str | None"]
"""Says where else in the store the hash of a row stands, if it does."""


@dataclass
class Chains:
    """Checks rows that come ordered by tenant, shard, stream and version; keeps one stream only.

    A stream may begin with the event that stands for those that were purged: it carries the hash of
    the last of them, so the chain goes on from there. Without `keys` bodies are not checked: a copy
    of a store does not hold them.
    """

    keys: Keys | None
    elsewhere: Elsewhere
    events: int = 0
    streams: int = 0
    erased: int = 0
    purged: int = 0
    bodies_unchecked: int = 0
    _key: tuple[str, int, bytes] | None = None
    _version: int = 0
    _hash: bytes = FIRST_HASH
    _position: int = 0
    _torn: bool = False
    _searches: int = 0

    def see(self, row: StoredRow) -> Iterator[Breach]:
        """Take the next row, and yield what is wrong with it."""
        self.events += 1
        if row.key != self._key:
            self.streams += 1
            self._key = row.key
            self._version, self._hash, self._position, self._torn = 0, FIRST_HASH, 0, False
            if row.record is not None and row.version > 1 and is_purged(row.record.topic):
                self._begin_behind(row.record)
        if row.shard != SHARD:
            yield _breach(row, Wrong.EDITED, f"its shard is {row.shard}; there is only {SHARD}")
        yield from self._see_version(row)
        yield from self._see_position(row)
        if row.record is None:
            yield _breach(row, Wrong.EDITED, f"it cannot be read: {row.problem}")
        else:
            yield from self._see_hash(row, row.record)
            yield from self._see_body(row, row.record)
        # What is stored is carried on, so that one change is told once.
        self._version, self._hash = row.version, row.hash

    def _begin_behind(self, record: RecordedEvent) -> None:
        """Begin behind what an event stands for; where it does not say that soundly, at the gap."""
        try:
            gone = gone_before(record)
        except ValueError:
            return
        self._version, self._hash, self._position = (
            len(gone),
            record.previous_hash,
            gone[-1].position,
        )
        self.purged += len(gone)

    def _see_version(self, row: StoredRow) -> Iterator[Breach]:
        expected = self._version + 1
        self._torn = row.version != expected
        if row.version > expected:
            several = row.version - expected > 1
            gone = f"versions {expected} to {row.version - 1} are" if several else "it is"
            yield replace(
                _breach(row, Wrong.DROPPED, f"{gone} gone; version {row.version} is there"),
                version=expected,
            )
        elif row.version < expected:
            yield _breach(row, Wrong.BROKEN, "versions count from 1")

    def _see_hash(self, row: StoredRow, record: RecordedEvent) -> Iterator[Breach]:
        follows = record.previous_hash == self._hash
        if is_as_written(record):
            if not follows and not self._torn:
                yield _breach(
                    row,
                    Wrong.BROKEN,
                    "it does not continue what stands before it: it was inserted, or the event"
                    " before it was rewritten",
                )
            return
        # What stood somewhere else before names another predecessor: that needs no looking for.
        if follows or is_as_written(replace(record, previous_hash=self._hash)):
            yield _breach(row, Wrong.EDITED, "a column of it is not what was written")
        elif (version := _version_of(record)) is not None:
            yield _breach(
                row, Wrong.REORDERED, f"the event that stands here was written as version {version}"
            )
        elif place := self._elsewhere(row):
            yield _breach(row, Wrong.TRANSPLANTED, f"it is the event that stands in {place} too")
        elif self._torn:
            yield _breach(row, Wrong.EDITED, "a column of it is not what was written")
        else:
            yield _breach(
                row,
                Wrong.TRANSPLANTED,
                "it neither is what was written here nor continues what stands before it",
            )

    def _elsewhere(self, row: StoredRow) -> str | None:
        """Look for the event in the whole log, while there are few that have to be looked for."""
        self._searches += 1
        return self.elsewhere(row) if self._searches <= _MOST_SEARCHES else None

    def _see_position(self, row: StoredRow) -> Iterator[Breach]:
        if row.position <= self._position:
            yield _breach(
                row,
                Wrong.REORDERED,
                f"its position {row.position} is not behind {self._position}, that of the event"
                " before it",
            )
        self._position = row.position

    def _see_body(self, row: StoredRow, record: RecordedEvent) -> Iterator[Breach]:
        if record.body_digest is None:
            if record.body is not None:
                yield _breach(row, Wrong.BODY_EDITED, "a body stands where none was written")
            return
        if record.body is None:
            self.erased += 1
            return
        try:
            key = None if self.keys is None else self.keys.key(record.tenant, record.key_id)
        except KeyError:
            key = None
        if key is None:
            self.bodies_unchecked += 1
        elif not hmac.compare_digest(
            hmac.digest(key, record.body, hashlib.sha256), record.body_digest
        ):
            yield _breach(row, Wrong.BODY_EDITED, "its body is not the one that was written")


def is_as_written(record: RecordedEvent) -> bool:
    """Say whether an event's hash is the one of what stands in its columns."""
    try:
        return hash_of(record) == record.hash
    except (ValueError, OverflowError):  # a value that no event can have had
        return False


def _version_of(record: RecordedEvent) -> int | None:
    """Return the version as which an event was written that stands in another place."""
    here = record.originator_version
    for version in range(max(1, here - _NEIGHBOURS), here + _NEIGHBOURS + 1):
        if version != here and is_as_written(replace(record, originator_version=version)):
            return version
    return None


def _breach(row: StoredRow, wrong: Wrong, message: str) -> Breach:
    return Breach(wrong, message, row.tenant, row.name, row.version)
