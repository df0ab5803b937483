"""Folds the log into projections: a page of events, its rows and the position in one transaction.

The position's row is written first in it, from exactly the value that was read before: of two
runners on one projection the second finds another value there, and applies nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from settled.domain.errors import DeclarationError, StoreTooNew
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import RecordedEvent
from settled.domain.machine.event import Event
from settled.projections.projection import Projection, Rows

PAGE = 500
"""How many events one transaction considers."""

POSITIONS = """\
CREATE TABLE IF NOT EXISTS projection_position (
    name text NOT NULL,
    version integer NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (name, version)
)"""
"""The table that a store of views has from the start, on both databases."""

_KEY = "name = :name AND version = :version"
_READ = f"SELECT position FROM projection_position WHERE {_KEY}"
_FIRST = (
    "INSERT INTO projection_position (name, version, position) VALUES (:name, :version, 0)"
    " ON CONFLICT (name, version) DO NOTHING"
)
_MOVE = f"UPDATE projection_position SET position = :upto WHERE {_KEY} AND position = :after"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Views(Protocol):
    """The port to the store of views. Safe to use from several threads."""

    @property
    def dialect(self) -> str:
        """Return "sqlite" or "postgresql"."""
        ...

    def changing(self) -> AbstractContextManager[Rows]:
        """Open a transaction that commits at the end of the block, and else leaves nothing."""
        ...

    def reading(self) -> AbstractContextManager[Rows]:
        """Open a transaction in which nothing can be changed."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True)
class Projector:
    """Runs projections over a journal. Several may run at once, in any number of processes."""

    journal: Journal
    mapper: EventMapper
    views: Views

    def run_once(self, projection: Projection, page: int = PAGE) -> int:
        """Apply the next page of settled events and return the position that is reached.

        The position moves to the last event considered, also when none of the page concerns the
        projection. What a fold raises is raised here, with a note of the event, and then nothing
        of the page is applied. An event that is newer than this code raises StoreTooNew, once
        everything before it is applied: it is neither passed by nor set aside.
        """
        after = self._begin(projection)
        considered, newer = self._understood(projection, self.journal.read(after, page).events)
        reached = after
        if considered:
            reached = self._apply(projection, after, considered)
        if newer is not None:
            raise newer
        return reached

    def catch_up(self, projection: Projection, page: int = PAGE) -> int:
        """Run until nothing more is settled, and return the position that is reached."""
        before = -1
        reached = self.run_once(projection, page)
        while reached > before:
            before, reached = reached, self.run_once(projection, page)
        return reached

    def position(self, projection: Projection) -> int:
        """Return the last position that a projection has considered; 0 before it began."""
        with self.views.reading() as rows:
            return _position(rows, projection) or 0

    def fetch(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Query the tables of projections. See `Rows.fetch`."""
        with self.views.reading() as rows:
            return rows.fetch(sql, **values)

    def _begin(self, projection: Projection) -> int:
        """Return the position; the first runner of all makes the tables."""
        with self.views.reading() as rows:
            position = _position(rows, projection)
        if position is not None:
            return position
        if not _NAME.fullmatch(projection.name) or projection.version < 1:
            raise DeclarationError(
                f"{projection.name!r} in version {projection.version} is no projection's name.",
                hint="Use a to z, 0 to 9 and underscore, begin with a letter; count from 1.",
            )
        with self.views.changing() as rows:
            if rows.execute(_FIRST, **_key(projection)):
                for statement in projection.tables(self.views.dialect):
                    rows.execute(statement)
            return _position(rows, projection) or 0

    def _understood(
        self, projection: Projection, records: Sequence[RecordedEvent]
    ) -> tuple[list[tuple[RecordedEvent, Event | None]], StoreTooNew | None]:
        """Return the records up to the first that is too new, with the events to be folded."""
        considered: list[tuple[RecordedEvent, Event | None]] = []
        for record in records:
            event = None
            if record.topic.startswith(projection.topics):
                try:
                    event = self.mapper.to_domain_event(record)
                except StoreTooNew as error:
                    return considered, error
            considered.append((record, event))
        return considered, None

    def _apply(
        self,
        projection: Projection,
        after: int,
        considered: Sequence[tuple[RecordedEvent, Event | None]],
    ) -> int:
        upto = considered[-1][0].position
        assert upto is not None, "what was read from the log has its position"
        with self.views.changing() as rows:
            if not rows.execute(_MOVE, **_key(projection), after=after, upto=upto):
                return _position(rows, projection) or 0  # another runner was faster
            for record, event in considered:
                if event is not None:
                    _fold(projection, event, record, rows)
        return upto


def _fold(projection: Projection, event: Event, record: RecordedEvent, rows: Rows) -> None:
    try:
        projection.apply(event, record, rows)
    except Exception as error:
        error.add_note(
            f"In {projection.name} {projection.version}, at position {record.position}: "
            f"{record.topic}, event {record.originator_version} of stream {record.stream}."
        )
        raise


def _key(projection: Projection) -> dict[str, Any]:
    return {"name": projection.name, "version": projection.version}


def _position(rows: Rows, projection: Projection) -> int | None:
    found = rows.fetch(_READ, **_key(projection))
    return int(found[0]["position"]) if found else None
