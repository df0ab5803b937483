"""What a person decides about a stream that a projection could not fold: again, or without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from settled.domain.errors import DeclarationError, NotFound, NotPossible, StoreError
from settled.projections import register
from settled.projections.projection import Projecting, Rows
from settled.projections.projector import Projector, told
from settled.projections.reading import too_new


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of a stream that was set aside.

    `applied` and `skipped` count its events; one that was purged meanwhile counts as applied, as
    the event that stands for it is. `error` is the failure of the next event, which is
    set aside with those behind it; None when nothing of the stream is any more.
    """

    stream: UUID
    applied: int
    skipped: int
    error: str | None


def retry(
    projector: Projector, projection: Projecting, stream: UUID, *, actor: str, reason: str
) -> Resolved:
    """Fold what is set aside of a stream again, after its fold or its rows were corrected.

    The decision is recorded with its actor, also where the fold fails as before. Raises NotFound
    when nothing of the stream is set aside.
    """
    return _resolve(projector, projection, stream, "retry", actor, reason)


def skip(
    projector: Projector, projection: Projecting, stream: UUID, *, actor: str, reason: str
) -> Resolved:
    """Pass by the one event that fails, for good, and fold those that wait behind it.

    Raises NotFound when nothing of the stream is set aside.
    """
    return _resolve(projector, projection, stream, "skip", actor, reason)


def _resolve(
    projector: Projector,
    projection: Projecting,
    stream: UUID,
    act: Literal["retry", "skip"],
    actor: str,
    reason: str,
) -> Resolved:
    now = projector.now()
    with projector.store(projection).changing() as rows:
        standing = register.hold(rows, projection)
        if standing is None:
            raise NotFound(
                f"There is no projection {projection.name} {projection.version} here.",
                hint="`settled projections status` shows what there is.",
            )
        parked = register.parked(rows, projection, stream)
        if not parked:
            return _let_go(projector, projection, standing, stream, act, actor, reason, rows)
        register.decide(
            rows,
            projection,
            stream,
            position=parked[0].position,
            act=act,
            actor=actor,
            reason=reason,
            at=now,
        )
        if act == "skip":
            register.unpark(rows, projection, stream, parked[0].position)
    applied, error = 0, None
    # Asked each time: what the stream has gone on with meanwhile was set aside, too.
    while error is None and (event := _first(projector, projection, stream)) is not None:
        error = _apply_parked(projector, projection, stream, event)
        applied += error is None
    return Resolved(stream, applied, int(act == "skip"), error)


def _first(projector: Projector, projection: Projecting, stream: UUID) -> register.Parked | None:
    with projector.store(projection).reading() as rows:
        return next(iter(register.parked(rows, projection, stream)), None)


def _apply_parked(
    projector: Projector, projection: Projecting, stream: UUID, event: register.Parked
) -> str | None:
    """Fold one event that was set aside, in a transaction of its own; return its error."""
    found = projector.journal.events(
        event.tenant, stream, after=event.number - 1, upto=event.number
    )
    if not found:  # it was purged: the event that stands for it is set aside behind it
        with projector.store(projection).changing() as rows:
            register.hold(rows, projection)
            register.unpark(rows, projection, stream, event.position)
        return None
    record = found[0]
    newer = too_new(record)
    if newer is not None:
        raise newer
    try:
        with projector.store(projection).changing() as rows:
            register.hold(rows, projection)
            if event in register.parked(rows, projection, stream):  # nobody else was faster
                projector.fold(projection, [record], rows)
                register.unpark(rows, projection, stream, event.position)
        return None
    except (StoreError, DeclarationError):
        raise
    except Exception as failure:
        error = told(failure)
    with projector.store(projection).changing() as rows:
        register.park(rows, projection, record, error, projector.now())
    return error


def _let_go(
    projector: Projector,
    projection: Projecting,
    standing: register.Standing,
    stream: UUID,
    act: Literal["retry", "skip"],
    actor: str,
    reason: str,
    rows: Rows,
) -> Resolved:
    """Let a projection go on that stands still in front of an event of this stream."""
    position = standing.error_position
    found = projector.journal.read(position - 1, 1).events if position else ()
    if standing.halted != "stopped" or not found or found[0].stream != stream:
        raise NotFound(
            f"{projection.name} has set nothing aside of stream {stream}.",
            hint="`settled projections status` shows what it has.",
        )
    assert position is not None
    register.decide(
        rows,
        projection,
        stream,
        position=position,
        act=act,
        actor=actor,
        reason=reason,
        at=projector.now(),
    )
    # A retry leaves the position where it is: the next page begins with the event again.
    upto = position if act == "skip" else standing.position
    if not register.move(rows, projection, after=standing.position, upto=upto):
        raise NotPossible(f"{projection.name} moves on already.")
    return Resolved(stream, 0, int(act == "skip"), None)
