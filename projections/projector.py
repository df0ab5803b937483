"""Folds the log into projections: a page of events, its rows and the position in one transaction.

The position's row is written first in it, from exactly the value that was read before: of two
runners on one projection the second finds another value there, and applies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from settled.domain.errors import DeclarationError, StoreError, StoreNotMigrated, StoreTooNew
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import RecordedEvent
from settled.projections import register
from settled.projections.projection import (
    Forgetting,
    LoggedEvent,
    PageProjection,
    Projecting,
    Projection,
    Rebuildable,
    Rows,
    indexes_of,
    policy_of,
    schema_of,
)
from settled.projections.reading import text_of, too_new

PAGE = 500
"""How many events one transaction considers."""

E = TypeVar("E", bound=LoggedEvent)
P = TypeVar("P", bound=Projecting)


class Lead(Protocol):
    """The right to run one projection, which no other process has meanwhile."""

    def held(self) -> bool:
        """Say whether it is still ours: it is lost with the connection that holds it."""
        ...

    def close(self) -> None:
        """Give it up."""
        ...


class ViewStore(Protocol):
    """The tables of the projections of one schema, and their positions, which commit together."""

    def changing(self, *, durable: bool = True) -> AbstractContextManager[Rows]:
        """Open a transaction that commits at the end of the block, and else leaves nothing.

        One that is not durable may be gone after a crash of the server, with all that came after
        it: enough for what is folded from the log, whose position goes with it.
        """
        ...

    def reading(self) -> AbstractContextManager[Rows]:
        """Open a transaction in which nothing can be changed, on one state of the store."""
        ...

    def lead(self, name: str) -> Lead | None:
        """Become the one that runs a projection; None while another process is."""
        ...

    def let_read(self, role: str) -> None:
        """Let a role of the database read these tables, and those of rebuilds to come.

        Raises InvalidInput where there is no such role, NotPossible where there are no roles.
        """
        ...


class Views(Protocol):
    """The port to the stores of views, one for each schema. Safe to use from several threads."""

    @property
    def dialect(self) -> str:
        """Return "sqlite" or "postgresql"."""
        ...

    def of(self, schema: str = "") -> ViewStore:
        """Return the store of a schema, and make it where it is new.

        Opened when it is first asked for, so whoever runs one view needs no right to another.
        Raises StoreUnavailable.
        """
        ...

    def schemas(self) -> list[str]:
        """Return the schemas that there are beside this journal, in order."""
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

    def run_once(self, projection: Projecting, page: int = PAGE, upto: int | None = None) -> int:
        """Apply the next page of settled events, at most up to a position; return what is reached.

        The position moves to the last event considered, also when none of the page concerns the
        projection. An event that is newer than this code raises StoreTooNew, once everything
        before it is applied: it is neither passed by nor set aside. Where the fold fails on an
        event, the projection's `on_poison` counts: with "stop" everything before it is applied
        and the fold's own error raised, with a note of the event; with "park" the events of its
        stream are set aside, and all others applied.
        """
        after = self.begin(projection)
        events = self.journal.read(after, page).events
        if upto is not None:
            events = tuple(event for event in events if (event.position or 0) <= upto)
        considered, newer = known(projection, events)
        reached = after
        if considered:
            upto = considered[-1].position or after
            whole = register.Whole(projection)
            reached = self.advance(projection, whole, considered, after=after, upto=upto)
        if newer is not None:
            event, error = newer
            self._halt(projection, "yielded", error, event)
            raise error
        return reached

    def catch_up(self, projection: Projecting, page: int = PAGE, upto: int | None = None) -> int:
        """Run until nothing more is settled, and return the position that is reached."""
        before = -1
        reached = self.run_once(projection, page, upto)
        while reached > before:
            before, reached = reached, self.run_once(projection, page, upto)
        return reached

    def live(self, declared: P) -> P:
        """Return a projection with the tables that are read now: a rebuild gives them a version.

        Raises StoreNotMigrated where these were folded by code that declares another version.
        """
        with self.store(declared).reading() as rows:
            found = register.in_role(rows, declared.name, "live")
        if found is None or found.version == declared.version == found.fold:
            return declared
        if found.fold != declared.version:
            raise StoreNotMigrated(
                f"{declared.name} is kept by version {found.fold} of its fold, and this code has "
                f"version {declared.version}.",
                hint=f"Run `settled projections rebuild {declared.name}`.",
            )
        return self.in_version(declared, found.version)

    def in_version(self, declared: P, version: int) -> P:
        """Return a projection with tables of another version. Raises DeclarationError."""
        if version == declared.version:
            return declared
        if not isinstance(declared, Rebuildable):
            raise DeclarationError(
                f"{declared.name} cannot be built beside itself.",
                hint="Give it in_version(version) and contents(), and put the version into the"
                " names of its tables.",
            )
        return declared.in_version(version)

    def store(self, projection: Projecting) -> ViewStore:
        """Return where a projection's tables are. Raises DeclarationError for a wrong schema."""
        register.check_name(projection)
        return self.views.of(schema_of(projection))

    def position(self, projection: Projecting) -> int:
        """Return the last position that a projection has considered; 0 before it began."""
        with self.store(projection).reading() as rows:
            found = register.standing(rows, projection)
        return found.position if found else 0

    def fetch(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Query the tables of projections that declare no schema. See `Rows.fetch`.

        Those of others are read in `store(projection).reading()`.
        """
        with self.views.of().reading() as rows:
            return rows.fetch(sql, **values)

    def begin(self, projection: Projecting) -> int:
        """Return the position; whoever is the first makes the tables.

        The first version of a name is live from its start; later ones are built beside it.
        """
        with self.store(projection).reading() as rows:
            found = register.standing(rows, projection)
        if found is not None:
            return found.position
        with self.store(projection).changing() as rows:
            live = register.in_role(rows, projection.name, "live")
            if live is not None and live.version > projection.version:
                raise StoreNotMigrated(
                    f"Version {projection.version} of {projection.name} was replaced by version"
                    f" {live.version}.",
                    hint="Read and run what Projector.live returns.",
                )
            role: register.Role = "building" if live else "live"
            if register.enter(rows, projection, fold=projection.version, role=role):
                dialect = self.views.dialect
                for sql in (*projection.tables(dialect), *indexes_of(projection, dialect)):
                    rows.execute(sql)
            found = register.standing(rows, projection)
        return found.position if found else 0

    def forget(self, projection: Projecting) -> int:
        """Remove the rows that a projection keeps no longer, as of now; return how many.

        Up to when they are forgotten is kept with them, so that a rebuild does not bring them back.
        """
        if not isinstance(projection, Forgetting):
            return 0
        before = self.journal.time() - projection.keep
        with self.store(projection).changing() as rows:
            if register.hold(rows, projection) is None:
                return 0
            register.keep_from(rows, projection, text_of(before))
            return projection.forget(before, rows)

    def fold(self, projection: Projecting, events: Sequence[LoggedEvent], rows: Rows) -> None:
        """Fold events that are known and concern the projection, whichever its form is."""
        if not events:
            return
        if isinstance(projection, PageProjection):
            projection.fold(events, rows)
            return
        assert isinstance(projection, Projection), "a projection has apply, or it has fold"
        for record in events:
            assert isinstance(record, RecordedEvent), "what is decoded is read in full"
            try:
                projection.apply(self.mapper.to_domain_event(record), record, rows)
            except Exception as error:
                _note(error, projection, record)
                raise

    def now(self) -> str:
        """Return the store's time as text."""
        return text_of(self.journal.time())

    def advance(
        self,
        projection: Projecting,
        mark: register.Mark,
        events: Sequence[LoggedEvent],
        *,
        after: int,
        upto: int,
    ) -> int:
        """Apply known events in one transaction, or in ever smaller ones until a fault is found.

        `mark` moves from `after` to `upto`; returns where it stands then, which is somewhere else
        where another runner was faster.
        """
        try:
            return self._apply(projection, mark, events, after=after, upto=upto)
        except (StoreError, DeclarationError):
            raise  # nothing that an event could be blamed for
        except Exception as error:
            if len(events) == 1:
                return self._poisoned(projection, mark, events[0], error, after=after, upto=upto)
        first, second = events[: len(events) // 2], events[len(events) // 2 :]
        between = first[-1].position or after
        reached = self.advance(projection, mark, first, after=after, upto=between)
        if reached != between:
            return reached
        return self.advance(projection, mark, second, after=between, upto=upto)

    def _apply(
        self,
        projection: Projecting,
        mark: register.Mark,
        events: Sequence[LoggedEvent],
        *,
        after: int,
        upto: int,
    ) -> int:
        mine = [event for event in events if event.topic.startswith(projection.topics)]
        with self.store(projection).changing(durable=False) as rows:
            if not mark.move(rows, after=after, upto=upto):
                return mark.reached(rows)
            held = self._hold_back(projection, mine, rows)
            if held:
                mine = [event for event in mine if event.stream not in held]
            self.fold(projection, mine, rows)
        return upto

    def _hold_back(
        self, projection: Projecting, events: Sequence[LoggedEvent], rows: Rows
    ) -> frozenset[UUID]:
        """Set aside what belongs to streams that are: their events wait for their turn."""
        streams = register.parked_streams(rows, projection)
        late = [event for event in events if event.stream in streams] if streams else []
        if late:
            at = self.now()
            for event in late:
                register.park(rows, projection, event, None, at)
        return streams

    def _poisoned(
        self,
        projection: Projecting,
        mark: register.Mark,
        event: LoggedEvent,
        error: Exception,
        *,
        after: int,
        upto: int,
    ) -> int:
        if policy_of(projection) == "stop":
            self._halt(projection, "stopped", error, event)
            raise error
        with self.store(projection).changing() as rows:
            if not mark.move(rows, after=after, upto=upto):
                return mark.reached(rows)
            register.park(rows, projection, event, told(error), self.now())
        return upto

    def _halt(
        self, projection: Projecting, how: register.Halt, error: Exception, event: LoggedEvent
    ) -> None:
        with self.store(projection).changing() as rows:
            register.halt(rows, projection, how, told(error), event.position, self.now())


def told(error: Exception) -> str:
    """Return what an error says, in one line, for the list of what was set aside."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def known(
    projection: Projecting, events: Sequence[E]
) -> tuple[Sequence[E], tuple[E, StoreTooNew] | None]:
    """Return the events up to the first of the projection's that is too new, and that one."""
    # A page has few forms of event, so it is enough to look at one of each.
    forms = {(event.topic, event.min_reader, event.schema_version): event for event in events}
    mine = [event for event in forms.values() if event.topic.startswith(projection.topics)]
    if all(too_new(event) is None for event in mine):
        return events, None
    for index, event in enumerate(events):
        if event.topic.startswith(projection.topics):
            error = too_new(event)
            if error is not None:
                return events[:index], (event, error)
    return events, None


def _note(error: Exception, projection: Projecting, record: RecordedEvent) -> None:
    error.add_note(
        f"In {projection.name} {projection.version}, at position {record.position}: "
        f"{record.topic}, event {record.originator_version} of stream {record.stream}."
    )
