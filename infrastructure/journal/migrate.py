"""Bringing a store's tables up to the code: numbered SQL files, each of them run once.

Both databases use this; a `Target` is how it talks to one. All of it happens in one transaction
that nobody else can be in, so any number of processes may migrate at once: the first one does the
work and the others find it done.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from settled.domain.errors import StoreNotMigrated, StoreTooNew

TABLE = "migration"

_CREATE_TABLE = """\
CREATE TABLE IF NOT EXISTS migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at text NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""

_FOLDER = Path(__file__).with_name("migrations")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. `name` is its file's name without the ending, such as `0001_spine`."""

    number: int
    name: str
    sql: str


class Target(Protocol):
    """The database whose tables are brought up, as far as migrating has to know it."""

    @property
    def dialect(self) -> str:
        """Return the name of the folder with its SQL files."""
        ...

    @property
    def preamble(self) -> str:
        """Return the SQL that a printed script begins its transaction with."""
        ...

    def exclusively(self) -> AbstractContextManager[None]:
        """Open a transaction that no other migration is in; commit it at the end of the block."""
        ...

    def has_table(self, name: str) -> bool:
        """Say whether a table exists."""
        ...

    def rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Run one query and return its rows."""
        ...

    def run(self, sql: str) -> None:
        """Run several statements inside the open transaction."""
        ...


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return every migration that this code knows, in order."""
    return tuple(
        Migration(int(path.stem.partition("_")[0]), path.stem, path.read_text(encoding="utf-8"))
        for path in sorted((_FOLDER / dialect).glob("*.sql"))
    )


def pending(target: Target) -> list[Migration]:
    """Return what has still to be run; raises StoreTooNew where more was run than is known."""
    applied = (
        {number for (number,) in target.rows(f"SELECT number FROM {TABLE}")}
        if target.has_table(TABLE)
        else set[int]()
    )
    known = migrations(target.dialect)
    if beyond := applied - {migration.number for migration in known}:
        raise StoreTooNew(
            f"The store has migration {max(beyond)}; this version of settled knows"
            f" {known[-1].number} of them.",
            hint="Install the version of settled that migrated it, or a newer one.",
        )
    return [migration for migration in known if migration.number not in applied]


def migrate(target: Target) -> list[Migration]:
    """Run what is pending and return it. Either all of it is run or nothing."""
    with target.exclusively():
        steps = pending(target)
        if steps:
            target.run(_CREATE_TABLE)
        for step in steps:
            target.run(step.sql)
            target.run(_record(step))
    return steps


def check(target: Target) -> None:
    """Raise StoreNotMigrated when something is pending, StoreTooNew when the store is ahead."""
    if missing := pending(target):
        raise StoreNotMigrated(
            f"The store lacks {', '.join(step.name for step in missing)}.",
            hint="Run `settled migrate` first; `settled migrate --print` prints what it would run.",
        )


def script(target: Target) -> str:
    """Return what `migrate` would run, as one SQL text for a person to read and to execute."""
    parts = ["BEGIN", *filter(None, [target.preamble]), _CREATE_TABLE]
    text = ";\n\n".join(parts) + ";\n\n"
    for step in pending(target):
        text += f"-- {step.name}\n\n{step.sql.rstrip()}\n\n{_record(step)};\n\n"
    return text + "COMMIT;\n"


def _record(step: Migration) -> str:
    return f"INSERT INTO {TABLE} (number, name) VALUES ({step.number}, '{step.name}')"
