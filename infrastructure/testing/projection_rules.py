"""What every projection has to keep, as functions for the tests of those who write one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from settled.domain.journal.unit import RecordedEvent
from settled.projections.projection import Projection, Rows
from settled.projections.projector import PAGE, Projector

_TABLE = re.compile(r'CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?"?(\w+)"?', re.IGNORECASE)


class _Undo(Exception):
    """Ends the transaction of a check without a trace."""


def assert_idempotent(projector: Projector, projection: Projection) -> None:
    """Apply each event of the log, apply it again, and compare all rows before and after.

    Write a log first in which every kind of event happens. The projection's tables are caught up,
    then emptied and filled inside one transaction that is undone. Raises AssertionError that names
    the event; also when the log holds none that the projection folds.
    """
    projector.catch_up(projection)
    found = [_TABLE.search(sql) for sql in projection.tables(projector.views.dialect)]
    tables = [table[1] for table in found if table]
    assert tables, f"{projection.name} makes no table"
    applied = 0
    try:
        with projector.views.changing() as rows:
            for table in tables:
                rows.execute(f"DELETE FROM {table}")
            for record in _log(projector):
                if not record.topic.startswith(projection.topics):
                    continue
                event = projector.mapper.to_domain_event(record)
                projection.apply(event, record, rows)
                once = _content(rows, tables)
                projection.apply(event, record, rows)
                assert _content(rows, tables) == once, (
                    f"{projection.name} counts {record.topic} twice (position {record.position})"
                )
                applied += 1
            raise _Undo
    except _Undo:
        assert applied, f"the log holds no event of {projection.topics}"


def _log(projector: Projector) -> Iterator[RecordedEvent]:
    after, more = 0, True
    while more:
        page = projector.journal.read(after, PAGE)
        yield from page.events
        more = page.more
        if page.events:
            after = page.events[-1].position or 0


def _content(rows: Rows, tables: list[str]) -> list[list[str]]:
    return [sorted(map(repr, rows.fetch(f"SELECT * FROM {table}"))) for table in tables]
