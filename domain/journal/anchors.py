"""Anchors: what the log had come to, signed, and kept where whoever writes the store cannot write.

A file of anchors is lines of JSON, only ever added to. An anchor is a first line, one line for each
head (the last event of a stream in some part of the log), a line with the end of the log, and a
seal. Each names the hash of the one before it, so none can be taken out of the middle.

The seal is an HMAC-SHA-256: whoever can check it could also have made it. So the key belongs to the
auditor, and neither into the database nor onto the machines that write it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from settled.domain.journal.audit import Placed, StoredRow

FIRST_ANCHOR = "0" * 64
"""What the first anchor of a file has for its predecessor."""

FORMAT = 1


@dataclass(frozen=True, slots=True)
class AuditKey:
    """The auditor's key: 32 bytes."""

    secret: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """What tells keys apart without telling the key."""
        return hashlib.sha256(b"settled/audit-key/" + self.secret).hexdigest()[:16]

    def sign(self, digest: str) -> str:
        """Return the signature of an anchor's hash."""
        return hmac.digest(self.secret, b"settled/anchor/" + digest.encode(), "sha256").hex()


@dataclass(frozen=True, slots=True)
class Anchor:
    """One sealed anchor: the log in (after, position], with `count` events.

    `log` is the digest of the positions and hashes in that part. `first_line` to `last_line` are
    its lines in the file, counted from 0; `bytes_until` is where it ends there.
    """

    number: int
    at: str
    installation: str
    after: int
    position: int
    count: int
    log: str
    hash: str
    first_line: int
    last_line: int
    bytes_until: int


@dataclass(frozen=True, slots=True)
class AnchoredHead:
    """An event that an anchor vouches for."""

    tenant: str
    stream: UUID
    version: int
    hash: bytes


class BrokenAnchors(ValueError):
    """The lines of the file are not what was signed."""


class LogDigest:
    """The digest of a part of the log: where each event stands, and its hash."""

    def __init__(self) -> None:
        self.count = 0
        self._digest = hashlib.sha256()

    def add(self, position: int, event_hash: bytes) -> None:
        """Take the next event, in the order of positions."""
        self.count += 1
        self._digest.update(position.to_bytes(8, "big", signed=True) + event_hash)

    def hex(self) -> str:
        """Return the digest of what was taken so far."""
        return self._digest.hexdigest()


class AnchorWriter:
    """Makes the lines of one anchor: `begin`, then `heads` a page, then `end`."""

    def __init__(self, key: AuditKey, previous: Anchor | None, installation: UUID) -> None:
        self._key = key
        self._number = previous.number + 1 if previous else 1
        self._previous = previous.hash if previous else FIRST_ANCHOR
        self._after = previous.position if previous else 0
        self._installation = installation
        self._digest = hashlib.sha256()
        self._log = LogDigest()
        self.heads_written = 0

    @property
    def events(self) -> int:
        """How many events were taken."""
        return self._log.count

    def begin(self, at: datetime) -> bytes:
        """Return the first line."""
        return self._line(
            {
                "anchor": self._number,
                "format": FORMAT,
                "at": at.isoformat(),
                "installation": str(self._installation),
                "key": self._key.name,
                "previous": self._previous,
                "after": self._after,
            }
        )

    def heads(self, page: Iterable[Placed]) -> Iterator[bytes]:
        """Take settled events in the order of the log; yield a line for each stream in them.

        What is gone by a purge counts as part of the log, and is the head of nothing.
        """
        last: dict[tuple[str, int, bytes], StoredRow] = {}
        for event in page:
            self._log.add(event.position, event.hash)
            if isinstance(event, StoredRow):
                last[event.key] = event
        for event in last.values():
            self.heads_written += 1
            yield self._line(
                {
                    "tenant": event.tenant,
                    "stream": event.name,
                    "version": event.version,
                    "hash": event.hash.hex(),
                }
            )

    def end(self, position: int) -> Iterator[bytes]:
        """Yield the last two lines: where the log ended, and the seal."""
        yield self._line(
            {"position": position, "count": self._log.count, "log": self._log.hex()},
        )
        digest = self._digest.hexdigest()
        yield _line({"hash": digest, "hmac": self._key.sign(digest)})

    def _line(self, document: Mapping[str, Any]) -> bytes:
        line = _line(document)
        self._digest.update(line)
        return line


def read_anchors(lines: Iterable[bytes], key: AuditKey) -> Iterator[Anchor]:
    """Yield the sealed anchors in a file's lines; what a crash left at its end is passed over.

    Raises BrokenAnchors at the first that is not what was signed under this key.
    """
    previous, after, number = FIRST_ANCHOR, 0, 1
    header: dict[str, Any] | None = None
    end: dict[str, Any] = {}
    digest, first_line, offset = hashlib.sha256(), 0, 0
    for at_line, line in enumerate(lines):
        offset += len(line)
        if not line.endswith(b"\n"):
            return  # the last line was torn, so its anchor was never sealed
        document = _document(line, number)
        if "anchor" in document:
            if header is not None:
                raise BrokenAnchors(f"anchor {number} has no seal, and another one follows it")
            expected = (number, FORMAT, previous, after, key.name)
            given = tuple(document.get(n) for n in ("anchor", "format", "previous", "after", "key"))
            if given != expected:
                raise BrokenAnchors(
                    f"anchor {number} does not continue the one before it under the key {key.name}"
                )
            header, digest, first_line = document, hashlib.sha256(), at_line
        elif header is None:
            raise BrokenAnchors(f"line {at_line + 1} belongs to no anchor")
        if "hmac" not in document:
            digest.update(line)
            end = document
            continue
        found = digest.hexdigest()
        if not hmac.compare_digest(str(document["hmac"]), key.sign(found)):
            raise BrokenAnchors(f"anchor {number} is not what was signed")
        try:
            anchor = Anchor(
                number=number,
                at=str(header["at"]),
                installation=str(header["installation"]),
                after=after,
                position=int(end["position"]),
                count=int(end["count"]),
                log=str(end["log"]),
                hash=found,
                first_line=first_line,
                last_line=at_line,
                bytes_until=offset,
            )
        except (KeyError, ValueError) as error:
            raise BrokenAnchors(f"anchor {number} lacks a field: {error}") from error
        yield anchor
        previous, after, number, header = found, anchor.position, number + 1, None


def read_heads(lines: Iterable[bytes], anchors: Iterable[Anchor]) -> Iterator[AnchoredHead]:
    """Yield the heads of sealed anchors from the lines of the file that holds them."""
    numbered = enumerate(lines)
    for anchor in anchors:
        for at_line, line in numbered:
            # The first line opens the anchor; the last two are its end and its seal.
            if anchor.first_line < at_line < anchor.last_line - 1:
                fields = _document(line, anchor.number)
                yield AnchoredHead(
                    fields["tenant"],
                    UUID(fields["stream"]),
                    fields["version"],
                    bytes.fromhex(fields["hash"]),
                )
            if at_line >= anchor.last_line:
                break


def key_named(lines: Iterable[bytes]) -> str | None:
    """Return the name of the key under which a file was begun; None for one without anchors."""
    for line in lines:
        try:
            named = _document(line, 1).get("key")
        except BrokenAnchors:
            return None
        return str(named) if named is not None else None
    return None


def _document(line: bytes, number: int) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise BrokenAnchors(f"anchor {number} has a line that is not JSON") from error
    if not isinstance(document, dict):
        raise BrokenAnchors(f"anchor {number} has a line that is no object")
    return cast("dict[str, Any]", document)


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
