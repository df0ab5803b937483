"""The projections' own tables: where each stands, what it has set aside, and who decided what.

They lie in the store of views, beside the tables that they speak of, so that a position moves in
the transaction that writes the rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from settled.domain.errors import DeclarationError
from settled.projections.projection import LoggedEvent, Rows, Versioned, schema_of

Role = Literal["live", "building", "retired"]
Halt = Literal["stopped", "yielded"]

TABLES = {
    "projection": """\
CREATE TABLE IF NOT EXISTS projection (
    name text NOT NULL,
    version integer NOT NULL,
    fold integer NOT NULL,
    role text NOT NULL,
    position bigint NOT NULL,
    halted text,
    error text,
    error_position bigint,
    error_at text,
    PRIMARY KEY (name, version)
);
""",
    "projection_parked": """\
CREATE TABLE IF NOT EXISTS projection_parked (
    name text NOT NULL,
    version integer NOT NULL,
    tenant text NOT NULL,
    stream text NOT NULL,
    position bigint NOT NULL,
    number bigint NOT NULL,
    error text,
    parked_at text NOT NULL,
    PRIMARY KEY (name, version, stream, position)
);
""",
    "projection_part": """\
CREATE TABLE IF NOT EXISTS projection_part (
    name text NOT NULL,
    version integer NOT NULL,
    part integer NOT NULL,
    parts integer NOT NULL,
    upto bigint NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (name, version, part)
);
""",
    "projection_decision": """\
CREATE TABLE IF NOT EXISTS projection_decision (
    name text NOT NULL,
    version integer NOT NULL,
    stream text NOT NULL,
    position bigint NOT NULL,
    act text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    decided_at text NOT NULL
);
""",
    "projection_kept": """\
CREATE TABLE IF NOT EXISTS projection_kept (
    name text NOT NULL,
    version integer NOT NULL,
    kept_from text NOT NULL,
    PRIMARY KEY (name, version)
);
""",
}
"""What a store of views has from the start, on both databases: statements by names of tables.

`fold` is the version that the code declared when the tables were begun: a rebuild gives the tables
another version, and the fold stays. `error` of a parked row is None where the event is fine and
only waits behind one that failed; `number` is its number within its stream. Rows older than
`kept_from` were removed by the projection's own rule.
"""

_KEY = "name = :name AND version = :version"
_COLUMNS = "name, version, fold, role, position, halted, error, error_position, error_at"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SCHEMA = re.compile(r"([a-z][a-z0-9_]{0,29})?")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one version of a projection stands.

    `halted` says that nothing is folded: "stopped" in front of an event on which the fold failed,
    "yielded" in front of one that is newer than the code.
    """

    name: str
    version: int
    fold: int
    role: Role
    position: int
    halted: Halt | None
    error: str | None
    error_position: int | None
    error_at: str | None


@dataclass(frozen=True, slots=True)
class Parked:
    """An event that was set aside: with its error, or behind one of its stream that has one."""

    tenant: str
    stream: UUID
    position: int
    number: int
    error: str | None
    parked_at: str


@dataclass(frozen=True, slots=True)
class Whole:
    """The one position of a projection."""

    projection: Versioned

    def reached(self, rows: Rows) -> int:
        """Return the position."""
        found = standing(rows, self.projection)
        return found.position if found else 0

    def move(self, rows: Rows, *, after: int, upto: int) -> bool:
        """Move it from exactly where it was; False where somebody else moved it."""
        return move(rows, self.projection, after=after, upto=upto)


@dataclass(frozen=True, slots=True)
class Part:
    """The position of one of several builders. `upto` is where it is done."""

    projection: Versioned
    part: int
    parts: int
    upto: int
    position: int

    def reached(self, rows: Rows) -> int:
        """Return the position, as it is now."""
        found = [p for p in parts(rows, self.projection) if p.part == self.part]
        return found[0].position if found else self.upto

    def move(self, rows: Rows, *, after: int, upto: int) -> bool:
        """Move it from exactly where it was; False where somebody else moved it."""
        moved = rows.execute(
            f"UPDATE projection_part SET position = :upto WHERE {_KEY} AND part = :part"
            " AND position = :after",
            **_key(self.projection),
            part=self.part,
            after=after,
            upto=upto,
        )
        return moved == 1


Mark = Whole | Part
"""A position that moves in the transaction that writes the rows."""


def standings(rows: Rows) -> list[Standing]:
    """Return where every version of every projection stands."""
    found = rows.fetch(f"SELECT {_COLUMNS} FROM projection ORDER BY name, version")
    return [Standing(**row) for row in found]


def standing(rows: Rows, projection: Versioned) -> Standing | None:
    """Return where a projection stands; None before it began."""
    found = rows.fetch(f"SELECT {_COLUMNS} FROM projection WHERE {_KEY}", **_key(projection))
    return Standing(**found[0]) if found else None


def in_role(rows: Rows, name: str, role: Role) -> Standing | None:
    """Return the last version of a projection that has this role."""
    found = rows.fetch(
        f"SELECT {_COLUMNS} FROM projection WHERE name = :name AND role = :role"
        " ORDER BY version DESC LIMIT 1",
        name=name,
        role=role,
    )
    return Standing(**found[0]) if found else None


def last_version(rows: Rows, name: str) -> int:
    """Return the highest version that a projection ever had; 0 before the first."""
    (row,) = rows.fetch("SELECT max(version) AS v FROM projection WHERE name = :name", name=name)
    return int(row["v"] or 0)


def check_name(projection: Versioned) -> None:
    """Raise DeclarationError for what cannot be a projection's name, version and schema."""
    if not _NAME.fullmatch(projection.name) or projection.version < 1:
        raise DeclarationError(
            f"{projection.name!r} in version {projection.version} is no projection's name.",
            hint="Use a to z, 0 to 9 and underscore, begin with a letter; count from 1.",
        )
    if not _SCHEMA.fullmatch(schema_of(projection)):
        raise DeclarationError(
            f"{schema_of(projection)!r} is no schema of {projection.name}.",
            hint="Use up to 30 of a to z, 0 to 9 and underscore, and begin with a letter.",
        )


def enter(rows: Rows, projection: Versioned, *, fold: int, role: Role) -> bool:
    """Give a projection its first position; False where somebody else was faster."""
    check_name(projection)
    entered = rows.execute(
        "INSERT INTO projection (name, version, fold, role, position)"
        " VALUES (:name, :version, :fold, :role, 0) ON CONFLICT (name, version) DO NOTHING",
        **_key(projection),
        fold=fold,
        role=role,
    )
    return entered == 1


def move(rows: Rows, projection: Versioned, *, after: int, upto: int) -> bool:
    """Move the position from exactly where it was; False where somebody else moved it.

    Written first in its transaction, it is the fence: of two runners on one projection the second
    finds another value there, and applies nothing.
    """
    moved = rows.execute(
        "UPDATE projection SET position = :upto, halted = NULL, error = NULL,"
        f" error_position = NULL, error_at = NULL WHERE {_KEY} AND position = :after",
        **_key(projection),
        after=after,
        upto=upto,
    )
    return moved == 1


def hold(rows: Rows, projection: Versioned) -> Standing | None:
    """Keep a projection where it stands until the end of the transaction."""
    rows.execute(f"UPDATE projection SET position = position WHERE {_KEY}", **_key(projection))
    return standing(rows, projection)


def halt(
    rows: Rows, projection: Versioned, halted: Halt, error: str, position: int | None, at: str
) -> None:
    """Write down why nothing is folded any more."""
    rows.execute(
        "UPDATE projection SET halted = :halted, error = :error, error_position = :position,"
        f" error_at = :at WHERE {_KEY}",
        **_key(projection),
        halted=halted,
        error=error,
        position=position,
        at=at,
    )


def kept_from(rows: Rows, projection: Versioned) -> str | None:
    """Return up to when a projection has removed rows; None where it never did."""
    found = rows.fetch(f"SELECT kept_from FROM projection_kept WHERE {_KEY}", **_key(projection))
    return str(found[0]["kept_from"]) if found else None


def keep_from(rows: Rows, projection: Versioned, at: str) -> None:
    """Write down up to when rows are removed. It never moves back, whatever a clock says."""
    rows.execute(
        "INSERT INTO projection_kept AS k (name, version, kept_from)"
        " VALUES (:name, :version, :at) ON CONFLICT (name, version)"
        " DO UPDATE SET kept_from = excluded.kept_from WHERE excluded.kept_from > k.kept_from",
        **_key(projection),
        at=at,
    )


def give_role(rows: Rows, projection: Versioned, role: Role) -> None:
    """Say what a version is from now on."""
    rows.execute(f"UPDATE projection SET role = :role WHERE {_KEY}", **_key(projection), role=role)


def parts(rows: Rows, projection: Versioned) -> list[Part]:
    """Return the parts in which a version is being built; none once they are joined."""
    found = rows.fetch(
        f"SELECT part, parts, upto, position FROM projection_part WHERE {_KEY} ORDER BY part",
        **_key(projection),
    )
    return [Part(projection, **row) for row in found]


def split(rows: Rows, projection: Versioned, *, parts: int, upto: int) -> None:
    """Share the streams out among builders, each with a position of its own."""
    for part in range(parts):
        rows.execute(
            "INSERT INTO projection_part (name, version, part, parts, upto, position)"
            " VALUES (:name, :version, :part, :parts, :upto, 0)",
            **_key(projection),
            part=part,
            parts=parts,
            upto=upto,
        )


def join(rows: Rows, projection: Versioned, upto: int) -> bool:
    """Let the parts be one again, at the position that all of them have reached."""
    rows.execute(f"DELETE FROM projection_part WHERE {_KEY}", **_key(projection))
    return move(rows, projection, after=0, upto=upto)


def forget(rows: Rows, projection: Versioned) -> None:
    """Remove everything about a version but the decisions on it."""
    for table in ("projection", "projection_parked", "projection_part", "projection_kept"):
        rows.execute(f"DELETE FROM {table} WHERE {_KEY}", **_key(projection))


def parked_streams(rows: Rows, projection: Versioned) -> frozenset[UUID]:
    """Return the streams that are set aside."""
    found = rows.fetch(
        f"SELECT DISTINCT stream FROM projection_parked WHERE {_KEY}", **_key(projection)
    )
    return frozenset(UUID(row["stream"]) for row in found)


def parked(rows: Rows, projection: Versioned, stream: UUID | None = None) -> list[Parked]:
    """Return the events that are set aside, of one stream or of all, in the order of the log."""
    where = f"{_KEY}{' AND stream = :stream' if stream else ''}"
    values = _key(projection) | ({"stream": str(stream)} if stream else {})
    found = rows.fetch(
        "SELECT tenant, stream, position, number, error, parked_at FROM projection_parked"
        f" WHERE {where} ORDER BY position",
        **values,
    )
    read: list[dict[str, Any]] = [row | {"stream": UUID(row["stream"])} for row in found]
    return [Parked(**row) for row in read]


def park(rows: Rows, projection: Versioned, event: LoggedEvent, error: str | None, at: str) -> None:
    """Set an event aside, or write a new error to one that is."""
    rows.execute(
        "INSERT INTO projection_parked"
        " (name, version, tenant, stream, position, number, error, parked_at)"
        " VALUES (:name, :version, :tenant, :stream, :position, :number, :error, :at)"
        " ON CONFLICT (name, version, stream, position)"
        " DO UPDATE SET error = excluded.error, parked_at = excluded.parked_at",
        **_key(projection),
        tenant=event.tenant,
        stream=str(event.stream),
        position=event.position,
        number=event.originator_version,
        error=error,
        at=at,
    )


def unpark(rows: Rows, projection: Versioned, stream: UUID, position: int) -> None:
    """Take an event of a stream off the list."""
    rows.execute(
        f"DELETE FROM projection_parked WHERE {_KEY} AND stream = :stream AND position = :position",
        **_key(projection),
        stream=str(stream),
        position=position,
    )


def decide(
    rows: Rows,
    projection: Versioned,
    stream: UUID,
    *,
    position: int,
    act: Literal["retry", "skip"],
    actor: str,
    reason: str,
    at: str,
) -> None:
    """Write down who decided what about an event that was set aside, and why."""
    rows.execute(
        "INSERT INTO projection_decision"
        " (name, version, stream, position, act, actor, reason, decided_at)"
        " VALUES (:name, :version, :stream, :position, :act, :actor, :reason, :at)",
        **_key(projection),
        stream=str(stream),
        position=position,
        act=act,
        actor=actor,
        reason=reason,
        at=at,
    )


def _key(projection: Versioned) -> dict[str, Any]:
    return {"name": projection.name, "version": projection.version}
