"""Building a projection anew beside the one that is read, comparing the two, and changing over.

Every step leaves in the store of views what the next one needs, so a rebuild that is killed goes on
where it was. Nothing here can act: it reads the log and writes rows, and imports nothing that knows
of a provider.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from settled.domain.errors import NotPossible
from settled.projections import register
from settled.projections.projection import (
    Forgetting,
    PageProjection,
    Parted,
    Projecting,
    Rebuildable,
    Rows,
    indexes_of,
    table_names,
)
from settled.projections.projector import Projector, known
from settled.projections.reading import LeanEvent, Log, Sought, settled_position

PAGE = 5000
"""How many events one transaction of a builder considers."""

SHOWN = 5
"""How many of the rows that differ are shown."""

_TRIES = 100

P = TypeVar("P", bound=Projecting)


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two versions: rows of only one of them, counted, and some of each."""

    what: str
    only_before: int
    only_after: int
    before: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did. `compared` is empty where there was nothing to compare with."""

    name: str
    version: int
    replaced: int | None
    position: int
    parked: int
    compared: tuple[str, ...]
    differences: tuple[Difference, ...]


def rebuild(projector: Projector, declared: P, parts: int, build: Callable[[P], None]) -> Rebuilt:
    """Build the next version of a projection, compare it with the live one, and change over.

    `build` has every part of the version that it is given built, on however many processes. The
    live version is folded on meanwhile by whoever runs it; it stands still only while the two are
    compared. Raises DeclarationError where the projection cannot be built beside itself.
    """
    _drop_retired(projector, declared)
    new = _begin(projector, declared, parts)
    if _parts(projector, new):
        build(new)
        _join(projector, new)
    rebuilt = _change_over(projector, declared, new)
    _drop_retired(projector, declared)
    return rebuilt


def build_part(
    projector: Projector,
    log: Log,
    projection: Projecting,
    part: int,
    go_on: Callable[[], bool] = lambda: True,
    page: int = PAGE,
) -> None:
    """Build one part of a version to its end, or until `go_on` says no. Raises StoreTooNew."""
    folding = projection.in_part(part) if isinstance(projection, Parted) else projection
    while go_on():
        mine = [mark for mark in _parts(projector, projection) if mark.part == part]
        if not mine or mine[0].position >= mine[0].upto:
            return
        (mark,) = mine
        with ThreadPoolExecutor(1, "settled-ahead") as ahead:
            _build(projector, log, folding, mark, go_on, page, ahead)


def _build(
    projector: Projector,
    log: Log,
    folding: Projecting,
    mark: register.Part,
    go_on: Callable[[], bool],
    page: int,
    ahead: Executor,
) -> None:
    """Fold page after page; the next one is read while this one is folded."""
    sought = Sought.by(folding)

    def read(after: int) -> Future[list[LeanEvent]]:
        return ahead.submit(
            log.page,
            sought,
            after=after,
            upto=mark.upto,
            limit=page,
            part=mark.part,
            parts=mark.parts,
        )

    after, coming = mark.position, read(mark.position)
    while after < mark.upto and go_on():
        events = coming.result()
        upto = events[-1].position if len(events) == page else mark.upto
        coming = read(upto)
        considered, newer = known(folding, events)
        if newer is not None:
            raise newer[1]
        with _uncollected():
            reached = projector.advance(folding, mark, considered, after=after, upto=upto)
        if reached != upto:
            return  # another builder works on this part: the caller begins from where it is
        after = reached


def progress(projector: Projector, projection: Projecting) -> tuple[int, int]:
    """Return how much of the log is built, and how much there is to build, in positions."""
    marks = _parts(projector, projection)
    return (
        sum(mark.position for mark in marks) // (len(marks) or 1),
        sum(mark.upto for mark in marks) // (len(marks) or 1),
    )


@contextmanager
def _uncollected() -> Generator[None]:
    """Let Python look for cycles between pages only: a page makes many objects and no cycle."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _begin(projector: Projector, declared: P, parts: int) -> P:
    """Return the version to build: one that was begun before, or the next."""
    dialect = projector.views.dialect
    with projector.store(declared).changing() as rows:
        begun = register.in_role(rows, declared.name, "building")
        if begun is not None and begun.fold == declared.version:
            return projector.in_version(declared, begun.version)
        if begun is not None:  # by other code, which folds otherwise
            _drop(rows, projector.in_version(declared, begun.version), dialect)
        live = register.in_role(rows, declared.name, "live")
        last = register.last_version(rows, declared.name)
        new = projector.in_version(declared, max(last + 1, declared.version))
        register.enter(rows, new, fold=declared.version, role="building")
        for sql in new.tables(dialect):
            rows.execute(sql)
        if isinstance(new, PageProjection):
            upto = live.position if live else settled_position(projector.journal)
            many = parts if isinstance(new, Parted) else 1
            register.split(rows, new, parts=many, upto=upto)
        else:
            for sql in indexes_of(new, dialect):
                rows.execute(sql)
    return new


def _parts(projector: Projector, projection: Projecting) -> list[register.Part]:
    with projector.store(projection).reading() as rows:
        return register.parts(rows, projection)


def _join(projector: Projector, new: Projecting) -> None:
    dialect = projector.views.dialect
    marks = _parts(projector, new)
    late = [mark for mark in marks if mark.position < mark.upto]
    if late:
        raise NotPossible(
            f"Part {late[0].part + 1} of {late[0].parts} of {new.name} was not built to its end.",
            hint="The same rebuild again goes on where it was.",
        )
    with projector.store(new).changing() as rows:
        register.hold(rows, new)
        if register.parts(rows, new) and register.join(rows, new, marks[0].upto):
            for sql in indexes_of(new, dialect):
                rows.execute(sql)


def _change_over(projector: Projector, declared: P, new: P) -> Rebuilt:
    for _ in range(_TRIES):
        with projector.store(declared).reading() as rows:
            live = register.in_role(rows, declared.name, "live")
        if live is None or live.version == new.version:
            projector.catch_up(new, PAGE)
        else:
            projector.catch_up(new, PAGE, upto=live.position)
        rebuilt = _try_to_change_over(projector, declared, new)
        if rebuilt is not None:
            return rebuilt
    raise NotPossible(
        f"{declared.name} {new.version} did not meet the live version within {_TRIES} tries.",
        hint="The same rebuild again goes on where it was; do it while less happens.",
    )


def _try_to_change_over(projector: Projector, declared: P, new: P) -> Rebuilt | None:
    """Compare and change over in one transaction; None where the live version moved meanwhile."""
    with projector.store(declared).changing() as rows:
        live = register.in_role(rows, declared.name, "live")
        compared: dict[str, Difference | None] = {}
        if live is not None and live.version != new.version:
            old = projector.in_version(declared, live.version)
            held = register.hold(rows, old)
            mine = register.hold(rows, new)
            if held is None or mine is None or held.position != mine.position:
                return None
            forgotten = register.kept_from(rows, old)
            if forgotten is not None:
                register.keep_from(rows, new, forgotten)
                _forget(rows, new, forgotten)
            if live.fold == declared.version:
                if forgotten is not None:
                    _forget(rows, old, forgotten)  # what was older when it was folded
                compared = _compare(rows, old, new)
            register.give_role(rows, old, "retired")
        register.give_role(rows, new, "live")
        standing = register.standing(rows, new)
        assert standing is not None, "it was begun"
        return Rebuilt(
            name=new.name,
            version=new.version,
            replaced=live.version if live else None,
            position=standing.position,
            parked=len(register.parked_streams(rows, new)),
            compared=tuple(compared),
            differences=tuple(one for one in compared.values() if one is not None),
        )


def _forget(rows: Rows, projection: Projecting, before: str) -> None:
    """Remove from a version what was removed from the live one already."""
    if isinstance(projection, Forgetting):
        projection.forget(datetime.fromisoformat(before), rows)


def _compare(rows: Rows, old: Projecting, new: Projecting) -> dict[str, Difference | None]:
    """Return what was compared, each with its difference or None."""
    assert isinstance(old, Rebuildable) and isinstance(new, Rebuildable)
    found: dict[str, Difference | None] = {}
    before, after = old.contents(), new.contents()
    for what, query in after.items():
        gone, added = _only(rows, before[what], query), _only(rows, query, before[what])
        found[what] = None
        if gone[0] or added[0]:
            found[what] = Difference(what, gone[0], added[0], gone[1], added[1])
    return found


def _only(rows: Rows, here: str, there: str) -> tuple[int, tuple[dict[str, Any], ...]]:
    only = f"SELECT * FROM ({here}) AS here EXCEPT SELECT * FROM ({there}) AS there"
    (count,) = rows.fetch(f"SELECT count(*) AS n FROM ({only}) AS only_here")
    if not count["n"]:
        return 0, ()
    return count["n"], tuple(rows.fetch(f"SELECT * FROM ({only}) AS only_here LIMIT {SHOWN}"))


def _drop_retired(projector: Projector, declared: Projecting) -> None:
    """Drop the tables of versions that are not read any more."""
    while True:
        with projector.store(declared).changing() as rows:
            retired = register.in_role(rows, declared.name, "retired")
            if retired is None:
                return
            _drop(rows, projector.in_version(declared, retired.version), projector.views.dialect)


def _drop(rows: Rows, projection: Projecting, dialect: str) -> None:
    for table in table_names(projection, dialect):
        rows.execute(f"DROP TABLE IF EXISTS {table}")
    register.forget(rows, projection)
