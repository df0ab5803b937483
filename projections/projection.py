"""What a projection is: a name, a version, its tables, and a fold from events to rows.

A projection reads the log and writes rows, and nothing else: it never acts, and nothing that acts
reads it. Whatever is in its tables can be made again from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from settled.domain.journal.unit import RecordedEvent


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


class Projection(Protocol):
    """Folds events into tables of its own.

    `name` is up to 63 characters of a to z, 0 to 9 and underscore, the first a letter; `version`
    counts from 1. A projection whose tables or fold change gets the next version: it starts from
    the beginning of the log, in tables of its own, so the names of tables carry the version too.
    """

    @property
    def name(self) -> str:
        """What the projection is called, for good."""
        ...

    @property
    def version(self) -> int:
        """Which form of its tables and its fold this is."""
        ...

    @property
    def topics(self) -> tuple[str, ...]:
        """How the topics begin that it folds, such as "deployment."; others are passed by."""
        ...

    def tables(self, dialect: str) -> Sequence[str]:
        """Return the statements that make its tables, for "sqlite" or "postgresql".

        They run once, in the transaction that gives the projection its first position.
        """
        ...

    def apply(self, event: Any, record: RecordedEvent, rows: Rows) -> None:
        """Fold one event into the rows. The result is a function of the rows and the event alone.

        Applied several times in a row, an event has to leave the same rows: write what is so, as
        in `SET state = :state`, not what has changed, as in `SET count = count + 1`. The tenant
        is part of every primary key.
        """
        ...
