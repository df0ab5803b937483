"""What every projection has to keep, as functions for the tests of those who write one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from settled.domain.journal.unit import RecordedEvent
from settled.projections.projection import (
    Forgetting,
    Parted,
    Projecting,
    Rebuildable,
    Rows,
    table_names,
)
from settled.projections.projector import PAGE, Projector

TIMES = 3
"""How often an event is applied where once has to be enough."""


class _Undo(Exception):
    """Ends the transaction of a check without a trace."""


def assert_idempotent(projector: Projector, projection: Projecting) -> None:
    """Apply each event of the log, apply it again and again, and compare all rows each time.

    Write a log first in which every kind of event happens. The projection's tables are caught up,
    then emptied and filled inside one transaction that is undone. Raises AssertionError that names
    the event; also when the log holds none that the projection folds.
    """
    projector.catch_up(projection)
    tables = table_names(projection, projector.views.dialect)
    assert tables, f"{projection.name} makes no table"
    applied = 0
    try:
        with projector.store(projection).changing() as rows:
            _empty(rows, tables)
            for record in _log(projector, projection):
                projector.fold(projection, [record], rows)
                once = _content(rows, tables)
                for _ in range(TIMES - 1):
                    projector.fold(projection, [record], rows)
                    assert _content(rows, tables) == once, (
                        f"{projection.name} counts {record.topic} twice"
                        f" (position {record.position})"
                    )
                applied += 1
            raise _Undo
    except _Undo:
        assert applied, f"the log holds no event of {projection.topics}"


def assert_pages_do_not_matter(projector: Projector, projection: Projecting) -> None:
    """Fold the log event by event, then as one page, and compare all rows.

    However the events are cut into pages, the rows have to be the same: a page is as long as what
    had happened just then. The tables are emptied and filled in a transaction that is undone.
    Raises AssertionError; also when the log holds nothing that the projection folds.
    """
    projector.catch_up(projection)
    tables = table_names(projection, projector.views.dialect)
    events = list(_log(projector, projection))
    assert events, f"the log holds no event of {projection.topics}"
    queries = [f"SELECT * FROM {table}" for table in tables]
    if isinstance(projection, Rebuildable):  # it says itself what its rows mean
        queries = list(projection.contents().values())
    try:
        with projector.store(projection).changing() as rows:
            _empty(rows, tables)
            for event in events:
                projector.fold(projection, [event], rows)
            one_by_one = [_answer(rows, query) for query in queries]
            _empty(rows, tables)
            projector.fold(projection, events, rows)
            assert [_answer(rows, query) for query in queries] == one_by_one, (
                f"{projection.name} folds one page otherwise than the same events one by one"
            )
            raise _Undo
    except _Undo:
        return


def assert_parts_make_the_whole(
    projector: Projector, projection: Projecting, parts: int = 3
) -> None:
    """Fold the streams in several parts, one part after the other, and compare with the whole.

    For projections that several builders may build. Raises AssertionError; also for one that is
    not both Parted and Rebuildable.
    """
    assert isinstance(projection, Parted) and isinstance(projection, Rebuildable)
    projector.catch_up(projection)
    tables = table_names(projection, projector.views.dialect)
    queries = projection.contents().values()
    events = list(_log(projector, projection))
    try:
        with projector.store(projection).changing() as rows:
            _empty(rows, tables)
            projector.fold(projection, events, rows)
            whole = [_answer(rows, query) for query in queries]
            _empty(rows, tables)
            for part in range(parts):
                mine = [event for event in events if event.stream.int % parts == part]
                projector.fold(projection.in_part(part), mine, rows)
            assert [_answer(rows, query) for query in queries] == whole, (
                f"{projection.name} in {parts} parts is not what it is as a whole"
            )
            raise _Undo
    except _Undo:
        assert events, f"the log holds no event of {projection.topics}"


def assert_forgets_alike(projector: Projector, projection: Projecting) -> None:
    """Remove what is old after each event, and once after the last, and compare all rows.

    For projections that keep rows for some time only, each event's time being taken for the end of
    that time in turn. The tables are filled in a transaction that is undone. Raises AssertionError;
    also where no row was ever removed.
    """
    assert isinstance(projection, Forgetting) and isinstance(projection, Rebuildable)
    projector.catch_up(projection)
    tables = table_names(projection, projector.views.dialect)
    queries = projection.contents().values()
    events = list(_log(projector, projection))
    removed = 0
    try:
        with projector.store(projection).changing() as rows:
            for before in sorted({event.recorded_at for event in events}):
                _empty(rows, tables)
                for event in events:
                    projector.fold(projection, [event], rows)
                    removed += projection.forget(min(before, event.recorded_at), rows)
                projection.forget(before, rows)
                early = [_answer(rows, query) for query in queries]
                _empty(rows, tables)
                projector.fold(projection, events, rows)
                projection.forget(before, rows)
                assert [_answer(rows, query) for query in queries] == early, (
                    f"{projection.name} has other rows when it forgets early ({before})"
                )
            raise _Undo
    except _Undo:
        assert removed, f"{projection.name} forgets nothing of this log"


def _log(projector: Projector, projection: Projecting) -> Iterator[RecordedEvent]:
    after, more = 0, True
    while more:
        page = projector.journal.read(after, PAGE)
        yield from (event for event in page.events if event.topic.startswith(projection.topics))
        more = page.more
        if page.events:
            after = page.events[-1].position or 0


def _empty(rows: Rows, tables: Sequence[str]) -> None:
    for table in tables:
        rows.execute(f"DELETE FROM {table}")


def _content(rows: Rows, tables: Sequence[str]) -> list[list[str]]:
    return [_answer(rows, f"SELECT * FROM {table}") for table in tables]


def _answer(rows: Rows, query: str) -> list[str]:
    return sorted(map(repr, rows.fetch(query)))
