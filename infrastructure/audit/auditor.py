"""Anchoring a log, and verifying it: by its own chain, and against what was anchored."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from settled.domain.errors import InvalidInput, NotPossible
from settled.domain.journal.anchors import (
    Anchor,
    AnchoredHead,
    AnchorWriter,
    AuditKey,
    BrokenAnchors,
    LogDigest,
    key_named,
    read_anchors,
    read_heads,
)
from settled.domain.journal.audit import (
    Breach,
    Chains,
    Placed,
    StoredRow,
    Wrong,
    is_as_written,
)
from settled.domain.journal.port import Journal
from settled.domain.keys import DerivedKeys
from settled.infrastructure.audit.log import PAGE, RawLog, open_raw_log
from settled.infrastructure.audit.purged import Purged
from settled.infrastructure.audit.settled_end import settled_end

SHOWN_BREACHES = 1_000
"""How many breaches a report holds; all are counted."""


@dataclass(frozen=True, slots=True)
class Anchored:
    """What was anchored: the log up to `position`. `heads` is 0 where nothing was new."""

    number: int
    position: int
    events: int
    heads: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found. `breaches` are the first thousand of `breach_count`.

    `purged` counts events that are gone by right: something stands for each of them.
    """

    events: int
    streams: int
    erased: int
    purged: int
    bodies_unchecked: int
    anchors: int
    position: int
    breach_count: int
    breaches: tuple[Breach, ...]


def anchor(journal: Journal, url: str, path: Path, key: AuditKey) -> Anchored:
    """Add an anchor for what is new in the log to a file, which is made where it is missing.

    What a crash left of an unfinished anchor is cut off. Raises NotPossible where the file or the
    log is not what was anchored before, or an event is not what was hashed: that is not signed.
    """
    with _opened(path) as file, closing(open_raw_log(url)) as log:
        last = _last(file, path, key)
        installation = journal.installation()
        if last is not None:
            _check_installation([last], path, str(installation.id))
        after = last.position if last else 0
        if (end := log.end()) < after:
            raise NotPossible(
                f"The log ends at {end}, and was anchored up to {after}.",
                hint="`settled audit verify --against` tells what is gone.",
            )
        upto = max(after, settled_end(journal, url))
        sealed_until = last.bytes_until if last else 0

        def begin() -> AnchorWriter:
            file.seek(sealed_until)
            file.truncate()
            writer = AnchorWriter(key, last, installation.id)
            file.write(writer.begin(journal.time()))
            return writer

        try:
            writer = _write(log, after, upto, begin, file)
        except NotPossible:
            file.flush()
            file.truncate(sealed_until)
            raise
        file.writelines(writer.end(upto))
        file.flush()
        os.fsync(file.fileno())
        number = last.number + 1 if last else 1
        return Anchored(number, upto, writer.events, writer.heads_written)


def _write(
    log: RawLog, after: int, upto: int, begin: Callable[[], AnchorWriter], file: IO[bytes]
) -> AnchorWriter:
    """Write the heads of (after, upto]; once more where a purge took events of it meanwhile."""
    with closing(Purged(log)) as purged:
        while True:
            purged.read(after)
            gone = purged.count(after, upto)
            writer = begin()
            rows = purged.log(log.between(after, upto), after, upto)
            while page := list(islice(rows, PAGE)):
                _check_hashes(page)
                file.writelines(writer.heads(page))
            purged.read(after)
            if purged.count(after, upto) == gone:
                return writer


def _check_hashes(page: Sequence[Placed]) -> None:
    for row in page:
        if not isinstance(row, StoredRow):
            continue
        if row.record is None or not is_as_written(row.record):
            raise NotPossible(
                f"Version {row.version} of stream {row.name} of {row.tenant} is not what was"
                " written; nothing was anchored.",
                hint="`settled audit verify` tells what else is not.",
            )


def verify(
    journal: Journal, url: str, *, against: Path | None = None, key: AuditKey | None = None
) -> AuditReport:
    """Read the whole log and report what is wrong with it.

    Raises InvalidInput for a file that holds no anchors of this store, or another key's.
    """
    installation = journal.installation()
    keys = None if installation.copy_of else DerivedKeys(installation.secret)
    anchors: list[Anchor] = []
    found: list[Breach] = []
    count = 0

    def note(breaches: Iterator[Breach]) -> None:
        nonlocal count
        for breach in breaches:
            count += 1
            if len(found) < SHOWN_BREACHES:
                found.append(breach)

    with closing(open_raw_log(url)) as log, closing(Purged(log)) as purged:
        chains = Chains(keys, log.elsewhere)
        for row in log.rows():
            note(chains.see(row))
        end = log.end()
        purged.read()
        note(_purges(purged))
        if against is not None:
            assert key is not None, "anchors are read with their key"
            note(_read(against, key, anchors))
            _check_installation(anchors, against, str(installation.copy_of or installation.id))
            note(_against(log, purged, against, anchors, end))
    return AuditReport(
        events=chains.events,
        streams=chains.streams,
        erased=chains.erased,
        purged=chains.purged,
        bodies_unchecked=chains.bodies_unchecked,
        anchors=len(anchors),
        position=end,
        breach_count=count,
        breaches=tuple(found),
    )


def _read(path: Path, key: AuditKey, anchors: list[Anchor]) -> Iterator[Breach]:
    """Read the anchors that can be believed into a list; yield what is wrong with the file."""
    try:
        with path.open("rb") as file:
            _check_key(file, path, key)
            for one in read_anchors(file, key):
                anchors.append(one)
    except OSError as error:
        raise InvalidInput(f"No anchors can be read from {path}: {error}.") from error
    except BrokenAnchors as error:
        yield Breach(Wrong.ANCHOR_EDITED, f"{path.name}: {error}; it is not used from there on")
        return
    if not anchors:
        raise InvalidInput(
            f"{path} holds no anchor.", hint="`settled audit anchor --to FILE` writes one."
        )


def _check_installation(anchors: list[Anchor], path: Path, installation: str) -> None:
    for one in anchors:
        if one.installation != installation:
            raise InvalidInput(
                f"{path} holds the anchors of installation {one.installation};"
                f" this is {installation}.",
                hint="Name the file in which this store was anchored.",
            )


def _purges(purged: Purged) -> Iterator[Breach]:
    """Yield what is wrong with purges; one that came while they were read is right in the end."""
    before, found = list[Breach](), purged.breaches()
    while found != before:
        purged.read()
        before, found = found, purged.breaches()
    yield from found


def _against(
    log: RawLog, purged: Purged, path: Path, anchors: list[Anchor], end: int
) -> Iterator[Breach]:
    if anchors and end < anchors[-1].position:
        yield Breach(
            Wrong.ROLLED_BACK,
            f"the log ends at position {end}; it had come to {anchors[-1].position}"
            f" at {anchors[-1].at}",
        )
    with path.open("rb") as file:
        missing = [head for head, _ in _missing(log, purged, read_heads(file, anchors))]
    if missing:  # or purged since
        purged.read()
    for head, stands in _missing(log, purged, iter(missing)):
        yield _not_as_anchored(log, head, stands)
    for one in anchors:
        digest = _digest(log, purged, one)
        if digest.hex() != one.log:
            yield Breach(
                Wrong.LOG_CHANGED,
                f"between the positions {one.after} and {one.position} the log had {one.count}"
                f" events; now there are {digest.count}, or others, or in another order",
            )


def _missing(
    log: RawLog, purged: Purged, heads: Iterator[AnchoredHead]
) -> Iterator[tuple[AnchoredHead, bytes | None]]:
    """Yield heads that neither stand where they were anchored nor were purged from there."""
    while page := list(islice(heads, PAGE)):
        for head, found in zip(page, log.hashes_at(page), strict=True):
            stands = purged.hash_of(head) if found is None else found
            if stands != head.hash:
                yield head, stands


def _digest(log: RawLog, purged: Purged, one: Anchor) -> LogDigest:
    """Return the digest of what was anchored; once more where a purge took events meanwhile."""
    while True:
        gone, digest = purged.count(one.after, one.position), LogDigest()
        rows = log.between(one.after, one.position)
        for event in purged.log(rows, one.after, one.position):
            digest.add(event.position, event.hash)
        if digest.hex() == one.log:
            return digest
        purged.read()
        if purged.count(one.after, one.position) == gone:
            return digest


def _not_as_anchored(log: RawLog, head: AnchoredHead, stands: bytes | None) -> Breach:
    place = (head.tenant, str(head.stream), head.version)
    if stands is not None:
        return Breach(Wrong.REWRITTEN, "it is not the event that was anchored", *place)
    last = log.last_version(head)
    if not last:
        return Breach(Wrong.DROPPED, "it was anchored, and the whole stream is gone", *place)
    wrong = Wrong.TRUNCATED if last < head.version else Wrong.DROPPED
    told = f"it was anchored, and is gone; the stream ends at version {last}"
    return Breach(wrong, told, *place)


@contextmanager
def _opened(path: Path) -> Generator[IO[bytes]]:
    """Open a file to read and to add to, which nobody else does meanwhile."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error}.") from error
    with os.fdopen(handle, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _last(file: IO[bytes], path: Path, key: AuditKey) -> Anchor | None:
    """Return the last sealed anchor of a file. Raises NotPossible, InvalidInput."""
    _check_key(file, path, key)
    last = None
    try:
        for last in read_anchors(file, key):  # noqa: B007 -- only the last one is wanted
            pass
    except BrokenAnchors as error:
        raise NotPossible(
            f"{path} is not what was signed: {error}.",
            hint="Keep it, find out who changed it, and go on in a new file.",
        ) from error
    return last


def _check_key(file: IO[bytes], path: Path, key: AuditKey) -> None:
    named = key_named(file)
    file.seek(0)
    if named is not None and named != key.name:
        raise InvalidInput(
            f"{path} was signed with the key {named}, and this one is {key.name}.",
            hint="Name the file of that key with --key.",
        )
