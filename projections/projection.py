"""What a projection is: a name, a version, its tables, and a fold from events to rows.

A projection reads the log and writes rows, and nothing else: it never acts, and nothing that acts
reads it. Whatever is in its tables can be made again from the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, Self, runtime_checkable
from uuid import UUID

from settled.domain.errors import DeclarationError
from settled.domain.journal.unit import RecordedEvent

Row = tuple[Any, ...]
Policy = Literal["stop", "park"]

_CREATED = re.compile(r'CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?"?(\w+)"?', re.IGNORECASE)

_TYPES = {
    "sqlite": {"text": "text", "number": "integer", "uuid": "text"},
    # In the collation "C" the order is that of Python and of SQLite, on every host.
    "postgresql": {"text": 'text COLLATE "C"', "number": "bigint", "uuid": "uuid"},
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table that whole pages are written to: its columns by name, each with its type.

    A type is "text", "number" or "uuid", and a question mark behind it allows None. `key` names
    the columns of the primary key; a table without one only grows.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order in which rows have them."""
        return tuple(self.columns)

    def create(self, dialect: str) -> str:
        """Return the statement that makes the table."""
        types = _TYPES[dialect]
        columns = [
            f"{name} {types[kind.rstrip('?')]}{'' if kind.endswith('?') else ' NOT NULL'}"
            for name, kind in self.columns.items()
        ]
        key = [f"PRIMARY KEY ({', '.join(self.key)})"] if self.key else []
        return f"CREATE TABLE {self.name} ({', '.join([*columns, *key])})"


class Rows(Protocol):
    """The tables of projections, inside one transaction. One SQL for both databases.

    `:name` in a statement stands for the value of that name: text, a number, a truth value, bytes,
    a datetime, a UUID or None. SQLite keeps the last two as text, and gives them back so.
    """

    def execute(self, sql: str, **values: Any) -> int:
        """Run one statement and return how many rows it changed.

        Raises DeclarationError where the statement itself is wrong.
        """
        ...

    def fetch(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Run one query and return its rows, each by its columns' names. Raises as `execute`."""
        ...

    def get(self, table: Table, keys: Sequence[Row]) -> list[Row]:
        """Return the rows that have one of these keys, in no order, each as its columns are."""
        ...

    def put(self, table: Table, new: Sequence[Row], changed: Sequence[Row] = ()) -> None:
        """Write whole rows: `new` ones, whose keys are not there yet, and `changed` ones."""
        ...


class LoggedEvent(Protocol):
    """What a fold of pages reads of an event. A RecordedEvent has all of it, and more."""

    @property
    def position(self) -> int | None:
        """Where it stands in the log; None only before it is there."""
        ...

    @property
    def tenant(self) -> str:
        """Whose it is."""
        ...

    @property
    def stream(self) -> UUID:
        """The stream's id."""
        ...

    @property
    def originator_version(self) -> int:
        """The event's number within its stream, from 1."""
        ...

    @property
    def topic(self) -> str:
        """What it is called, for good."""
        ...

    @property
    def schema_version(self) -> int:
        """The shape of its fields."""
        ...

    @property
    def min_reader(self) -> int:
        """The lowest reader that understands it."""
        ...

    @property
    def recorded_at(self) -> datetime:
        """When it was recorded, by the store's clock."""
        ...

    @property
    def state(self) -> bytes:
        """The envelope, as JSON."""
        ...

    @property
    def body(self) -> bytes | None:
        """What may be erased, as JSON; None where there is none, or none is left."""
        ...


class Versioned(Protocol):
    """The name of one version of a projection."""

    @property
    def name(self) -> str:
        """What the projection is called, for good."""
        ...

    @property
    def version(self) -> int:
        """Which form of its tables and its fold this is."""
        ...


@runtime_checkable
class Projecting(Versioned, Protocol):
    """What every projection has, however it folds.

    `name` is up to 63 characters of a to z, 0 to 9 and underscore, the first a letter; `version`
    counts from 1. A projection whose tables or fold change gets the next version: it starts from
    the beginning of the log, in tables of its own, so the names of tables carry the version too.

    Four attributes may be left out. `on_poison` says what becomes of an event on which the fold
    fails: with "stop" (which counts where nothing is said) the projection stands still in front
    of it, with "park" its stream is set aside and the others go on. `indexes(dialect)` returns
    statements that run once the tables are filled, which is sooner than before. `bodies` names
    the topics whose erasable part a rebuild has to read, where that is not all of them. `schema`
    names the schema (on SQLite the file) of tables and position, where they are not to lie with
    those of the operations view: whoever may read one schema sees nothing of another.
    """

    @property
    def topics(self) -> tuple[str, ...]:
        """How the topics begin that it folds, such as "deployment."; others are passed by."""
        ...

    def tables(self, dialect: str) -> Sequence[str]:
        """Return the statements that make its tables, for "sqlite" or "postgresql".

        They run once, in the transaction that gives the projection its first position.
        """
        ...


@runtime_checkable
class Projection(Projecting, Protocol):
    """Folds events into tables of its own, one by one."""

    def apply(self, event: Any, record: RecordedEvent, rows: Rows) -> None:
        """Fold one event into the rows. The result is a function of the rows and the event alone.

        Applied several times in a row, an event has to leave the same rows: write what is so, as
        in `SET state = :state`, not what has changed, as in `SET count = count + 1`. The tenant
        is part of every primary key.
        """
        ...


@runtime_checkable
class PageProjection(Projecting, Protocol):
    """Folds whole pages, for views that have to keep up with everything that happens."""

    def fold(self, events: Sequence[LoggedEvent], rows: Rows) -> None:
        """Fold events, in their order, into the rows. Folded again, they change nothing.

        All of them are under the projection's topics and known to this code. What is raised is
        taken for the fault of one of the events: the page is halved until it is found.
        """
        ...


@runtime_checkable
class Rebuildable(Projecting, Protocol):
    """Can be built beside itself, from the start of the log, in tables of another version."""

    def in_version(self, version: int) -> Self:
        """Return the same projection with tables of this version."""
        ...

    def contents(self) -> Mapping[str, str]:
        """Return queries by what they show; two versions are equal where all answers are."""
        ...


@runtime_checkable
class Forgetting(Projecting, Protocol):
    """Keeps its rows for some time only. The log stays whole, and so does every other view."""

    @property
    def keep(self) -> timedelta:
        """For how long a row stays."""
        ...

    def forget(self, before: datetime, rows: Rows) -> int:
        """Remove the rows whose time is before this one, and return how many there were.

        A row has its time from the event that made it, and no later event moves it or brings a
        removed row back. So it makes no difference whether rows are removed between two pages or
        after the last, and a rebuild ends with the same ones.
        """
        ...


@runtime_checkable
class Parted(Projecting, Protocol):
    """Each stream is folded by itself, so several builders may share the streams among them."""

    def in_part(self, part: int) -> Self:
        """Return the same projection for the builder of this number, from 0."""
        ...


def policy_of(projection: Projecting) -> Policy:
    """Return what becomes of an event on which the fold fails."""
    policy: Policy = getattr(projection, "on_poison", "stop")
    if policy not in ("stop", "park"):
        raise DeclarationError(
            f"{projection.name}: on_poison is {policy!r}.", hint='It is "stop" or "park".'
        )
    return policy


def schema_of(projection: Versioned) -> str:
    """Return the schema that a projection declares; "" is that of the operations view."""
    schema: str = getattr(projection, "schema", "")
    return schema


def indexes_of(projection: Projecting, dialect: str) -> Sequence[str]:
    """Return the statements that run once the tables are filled."""
    indexes: Any = getattr(projection, "indexes", None)
    found: Sequence[str] = indexes(dialect) if indexes is not None else ()
    return found


def table_names(projection: Projecting, dialect: str) -> list[str]:
    """Return the names of the tables that a projection makes."""
    made = (*projection.tables(dialect), *indexes_of(projection, dialect))
    found = [_CREATED.match(sql) for sql in made]
    return [table[1] for table in found if table]
