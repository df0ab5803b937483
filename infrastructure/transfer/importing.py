"""Putting an export into an empty store: a copy to look at, from which nothing is dispatched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

import orjson

from settled.domain.errors import InvalidInput, NotPossible, SettledError
from settled.domain.inbox import Evidence as Evidence  # imported, it declares its events
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import RecordedEvent, Reference
from settled.domain.keys import DerivedKeys
from settled.domain.machine.machine import StateMachine
from settled.domain.operation.operation import Operation as Operation  # as above
from settled.domain.purges import Purges as Purges  # as above
from settled.domain.run.run import Run as Run  # as above
from settled.infrastructure.transfer.lines import FORMAT, event_of
from settled.infrastructure.transfer.targets import FoldedHead, StreamKey, Target, open_target
from settled.processes.ledger import head_of

_PAGE = 500
_SHOWN_UNREAD = 20


@dataclass(frozen=True, slots=True)
class Imported:
    """What was imported. `unread` are streams that this code cannot fold: they have no head."""

    original: UUID
    events: int
    streams: int
    unread_count: int
    unread: tuple[str, ...]


def import_copy(journal: Journal, url: str, path: Path) -> Imported:
    """Put an export into the empty store of a URL, all of it or nothing, and mark it as a copy.

    Raises NotPossible where something is recorded there, InvalidInput for a file that is not
    whole. Whether the history in it is sound is not asked here: `settled audit verify` says it.
    """
    mapper = EventMapper(DerivedKeys(journal.installation().secret))
    try:
        with path.open("rb") as file:
            reading = _Reading(file, path)
            original = reading.original
            with open_target(url) as target:
                if not target.is_empty():
                    raise NotPossible(
                        "Something is recorded in this store already.",
                        hint="A copy is made in a new store: `settled migrate` makes an empty one.",
                    )
                events = reading.events()
                while page := list(islice(events, _PAGE)):
                    target.put_events(page)
                streams, unread = _put_heads(target, mapper)
                target.mark(original)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from error
    shown = tuple(unread[:_SHOWN_UNREAD])
    return Imported(original, reading.count, streams, len(unread), shown)


class _Reading:
    """The lines of an export, checked to be whole by its last one."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._digest = hashlib.sha256()
        self._number = 0
        self.count = 0
        header = self._next()
        if header is None or header.get("settled_export") != FORMAT:
            raise InvalidInput(
                f"{path} is no export that this version of settled reads.",
                hint="`settled export --to FILE` writes one.",
            )
        try:
            self.original = UUID(header["installation"])
        except (KeyError, ValueError, TypeError) as error:
            raise self._unreadable(error) from error

    def events(self) -> Iterator[RecordedEvent]:
        """Yield the events; raises InvalidInput at the end where something is missing."""
        expected = self._digest.hexdigest()
        while (document := self._next()) is not None:
            if document.get("end") is True:
                if (document.get("events"), document.get("sha256")) != (self.count, expected):
                    raise InvalidInput(
                        f"{self._path} was changed since it was written.",
                        hint="Nothing was imported. Export again.",
                    )
                return
            try:
                event = event_of(document)
            except (KeyError, ValueError, TypeError) as error:
                raise self._unreadable(error) from error
            self.count += 1
            expected = self._digest.hexdigest()
            yield event
        raise InvalidInput(
            f"{self._path} ends in the middle.", hint="Nothing was imported. Export again."
        )

    def _next(self) -> dict[str, Any] | None:
        line = self._file.readline()
        if not line:
            return None
        self._number += 1
        self._digest.update(line)
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise self._unreadable(error) from error
        if not isinstance(document, dict):
            raise self._unreadable(TypeError("it is no object"))
        return cast("dict[str, Any]", document)

    def _unreadable(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"Line {self._number} of {self._path} cannot be read: {error!r}.",
            hint="Nothing was imported. `settled export --to FILE` writes what can be read.",
        )


def _put_heads(target: Target, mapper: EventMapper) -> tuple[int, list[str]]:
    """Derive the agenda from what was written; return how many streams, and those not read."""
    after: StreamKey | None = None
    streams, unread = 0, list[str]()
    while keys := target.keys(after, _PAGE):
        histories = target.streams(keys)
        heads: list[FoldedHead] = []
        for key in keys:
            try:
                heads.append(_fold(mapper, key, histories[key[1]]))
            except Exception as error:
                why = error.message if isinstance(error, SettledError) else repr(error)
                unread.append(f"{key[0]} {key[1]}: {why:.200}")
        target.put_heads(heads)
        streams += len(keys)
        after = keys[-1]
    return streams, unread


def _fold(mapper: EventMapper, key: StreamKey, records: list[RecordedEvent]) -> FoldedHead:
    machine: StateMachine | None = None
    for record in records:
        machine = mapper.to_domain_event(record).mutate(machine)
    assert machine is not None, "the stream was just written"
    references = dict.fromkeys(machine.new_references)
    named = tuple(Reference(provider, name, machine.id) for provider, name in references)
    return FoldedHead(key, machine.version, head_of(machine), named)
