"""Where every projection stands, and how far behind the log it is."""

from __future__ import annotations

from dataclasses import dataclass

from settled.projections import register
from settled.projections.projection import Rows
from settled.projections.projector import Projector
from settled.projections.reading import settled_position


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """One version of a projection.

    `schema` is "" for one that lies with the operations view. `state` is "live", "building",
    "stopped" (in front of an event on which its fold failed), "yielded" (in front of one that is
    newer than the code that ran it), "parked" (live, with streams set aside) or "retired". `behind`
    counts positions up to `settled`, up to which the log cannot change any more; `lag_seconds` is
    how long ago the first event was recorded that is not considered yet. `parked` counts streams.
    The error is that of the projection, or else that of the first event that is set aside.
    """

    name: str
    schema: str
    version: int
    fold: int
    state: str
    position: int
    settled: int
    behind: int
    lag_seconds: float
    parked: int
    error: str | None
    error_position: int | None
    error_at: str | None


def statuses(projector: Projector) -> list[ProjectionStatus]:
    """Return where every version of every projection stands that was begun in this store."""
    found: list[tuple[str, register.Standing, int, register.Parked | None, int]] = []
    for schema in projector.views.schemas():
        with projector.views.of(schema).reading() as rows:
            for one in register.standings(rows):
                found.append((schema, one, *_aside(rows, one), _built(rows, one)))
    settled = settled_position(projector.journal)
    return [_status(projector, settled, *one) for one in found]


def set_aside(projector: Projector, name: str) -> list[register.Parked]:
    """Return the events that the live version of a projection has set aside, in order."""
    for schema in projector.views.schemas():
        with projector.views.of(schema).reading() as rows:
            live = register.in_role(rows, name, "live")
            if live is not None:
                return register.parked(rows, live)
    return []


def _status(
    projector: Projector,
    settled: int,
    schema: str,
    standing: register.Standing,
    parked: int,
    first: register.Parked | None,
    position: int,
) -> ProjectionStatus:
    ahead = projector.journal.read(position, 1).events if position < settled else ()
    lag = (projector.journal.time() - ahead[0].recorded_at).total_seconds() if ahead else 0.0
    error, at, where = standing.error, standing.error_at, standing.error_position
    if error is None and first is not None:
        error, at, where = first.error, first.parked_at, first.position
    state = standing.halted or ("parked" if parked and standing.role == "live" else standing.role)
    return ProjectionStatus(
        name=standing.name,
        schema=schema,
        version=standing.version,
        fold=standing.fold,
        state=state,
        position=position,
        settled=settled,
        behind=settled - position if ahead else 0,
        lag_seconds=max(lag, 0.0),
        parked=parked,
        error=error,
        error_position=where,
        error_at=at,
    )


def _aside(rows: Rows, standing: register.Standing) -> tuple[int, register.Parked | None]:
    """Return how many streams are set aside, and the first event of them that has an error."""
    (count,) = rows.fetch(
        "SELECT count(DISTINCT stream) AS n FROM projection_parked"
        " WHERE name = :name AND version = :version",
        name=standing.name,
        version=standing.version,
    )
    if not count["n"]:
        return 0, None
    failed = [event for event in register.parked(rows, standing) if event.error is not None]
    return count["n"], failed[0] if failed else None


def _built(rows: Rows, standing: register.Standing) -> int:
    """Return the position; of a version in parts, the one that is furthest behind."""
    marks = register.parts(rows, standing)
    return min((mark.position for mark in marks), default=standing.position)
