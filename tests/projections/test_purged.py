"""A purge and the views: the live row is the row that a rebuild makes, and no word outlives it.

Live, a row is there already when its stream is purged; a rebuild sees the one event that is left.
Both have to come to the same, or nobody could trust a rebuild any more.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from settled import App
from settled.domain.clock import Stamp
from settled.domain.contract import ProviderContract
from settled.domain.errors import NotFound
from settled.domain.journal.unit import Committed
from settled.domain.operation.operation import Operation
from settled.domain.operation.purge import purge
from settled.infrastructure.journal.opening import is_sqlite
from settled.infrastructure.seeding import seed
from settled.processes.purging import unit_of
from settled.projections.operations import OperationsProjection
from settled.projections.parking import retry
from settled.projections.past import as_of, moment_of
from tests.projections.histories import history
from tests.projections.test_operation_row import folded
from tests.projections.test_rebuild import content, rebuilt

FORGETFUL = ProviderContract(provider="psp", operation="refund", max_in_flight=timedelta())


def purge_some(app: App, share: float = 0.5, number: int = 7) -> list[Operation]:
    """Purge a share of the settled operations of a store, in one unit a tenant."""
    drawn, found = random.Random(number), dict[str, list[Operation]]()
    for row in app.journal.heads(limit=1000):
        if row.due_at is None and drawn.random() < share:
            records = app.journal.events(row.tenant, row.stream)
            operation = app.ledger.mapper.fold(records)
            if isinstance(operation, Operation):
                stamp = Stamp(app.journal.time() + timedelta(days=1), "ada")
                purge(operation, records, FORGETFUL, stamp, "old enough")
                found.setdefault(row.tenant, []).append(operation)
    for operations in found.values():
        stamp = Stamp(app.journal.time(), "ada")
        answer = app.ledger.append(unit_of(app.ledger, operations, stamp, "old enough"))
        assert isinstance(answer, Committed)
    return [operation for operations in found.values() for operation in operations]


@pytest.mark.parametrize("before", [True, False])
def test_live_and_rebuilt_are_equal_row_for_row(app: App, store_url: str, before: bool) -> None:
    """Whether the view had come to the purge already, or reads it when the rest is gone."""
    seed(app.journal, 60)
    declared = OperationsProjection()
    app.projector().catch_up(declared, page=17, upto=None if before else 40)
    assert len(purge_some(app)) > 10
    app.projector().catch_up(declared, page=17)
    live = content(app, 1)
    assert len(live["operations"]) == 60
    done = rebuilt(app, store_url, declared, workers=2)
    assert (done.compared, done.differences) == (("operations", "counts"), ())
    assert content(app, 2) == live
    purge_some(app, number=8)
    app.projector().catch_up(OperationsProjection(version=2))
    assert rebuilt(app, store_url, declared).differences == ()


def test_what_was_purged_is_found_by_its_names_alone(app: App, store_url: str) -> None:
    """Words of labels and receipts are personal data too; ids and references answer questions."""
    seed(app.journal, 40)
    app.projector().catch_up(OperationsProjection())
    view = app.views.operations
    before = {line.operation_id: line for line in view.find("refund", None)}
    purged = {operation.operation_id: operation for operation in purge_some(app, 1.0)}
    app.projector().catch_up(OperationsProjection())
    for name, operation in purged.items():
        words = before[name].label.rsplit(" ", 1)[-1]
        assert name not in {line.operation_id for line in view.find(words, operation.tenant)}
        (line,) = [one for one in view.find(name, operation.tenant) if one.operation_id == name]
        assert (line.state, line.since) == (before[name].state, before[name].since)
        assert (line.reference, line.reason) == (operation.reference, None)
        if operation.reference:
            assert name in {one.operation_id for one in view.find(operation.reference, None)}
    if is_sqlite(store_url):
        orders = "SELECT count(*) AS n FROM operations_1_words WHERE word LIKE 'order%'"
        (left,) = app.projector().fetch(orders)
        labels = "SELECT count(*) AS n FROM operations_1 WHERE label LIKE '%order%'"
        (open_ones,) = app.projector().fetch(labels)
        assert left["n"] <= 2 * open_ones["n"]


@pytest.mark.parametrize("number", range(60))
def test_any_history_comes_to_one_row(number: int) -> None:
    """A row that had everything, one that had a part, one that had nothing: all are the same."""
    drawn = random.Random(number)
    while True:
        _, records = history(drawn, drawn.randrange(40))
        purges = [n for n, one in enumerate(records) if one.topic.endswith(".Purged")]
        if purges and purges[-1] > 1:
            break
    rest, cut = records[purges[-1] :], drawn.randrange(1, purges[-1])
    whole, alone = folded(records), folded(rest)
    part = folded([*records[:cut], *rest], cut)
    assert whole.rows == alone.rows == part.rows
    counts = [{key: n for key, n in one.counted.items() if n} for one in (whole, alone, part)]
    assert counts[0] == counts[1] == counts[2]


def test_a_moment_before_the_purge_is_told_as_purged(app: App) -> None:
    """ "There was nothing yet" would be a lie about what was there."""
    seed(app.journal, 20)
    operation = purge_some(app)[0]
    records = app.journal.events(operation.tenant, operation.id)
    for asked in ("1", "2020-01-01T00:00:00Z"):
        with pytest.raises(NotFound, match="were purged at .* by ada") as caught:
            as_of(records, moment_of(asked))
        assert f"Version {operation.version} says" in caught.value.hint
    assert as_of(records, operation.version) == records
    with pytest.raises(NotFound, match="There is no version"):
        as_of(records, operation.version + 1)


def test_what_was_set_aside_is_resolved_by_its_purge(app: App) -> None:
    """The event on which the fold failed is gone; what stands for it is folded instead."""
    seed(app.journal, 30)
    broken = next(row for row in app.journal.heads(limit=100) if row.due_at is None)
    declared: Any = _Failing(broken.stream.int)
    app.projector().catch_up(declared)
    purged = {operation.id for operation in purge_some(app, 1.0)}
    assert broken.stream in purged
    app.projector().catch_up(declared)
    done = retry(
        app.projector(), OperationsProjection(), broken.stream, actor="ada", reason="purged"
    )
    assert done.error is None
    events = app.journal.events(broken.tenant, broken.stream)
    (row,) = app.projector().fetch(
        "SELECT version, state FROM operations_1 WHERE stream = :stream", stream=broken.stream
    )
    assert row == {"version": events[-1].originator_version, "state": broken.state}


class _Failing(OperationsProjection):
    """The view, as code that cannot fold one stream."""

    def __init__(self, stream: int) -> None:
        super().__init__()
        object.__setattr__(self, "stream", stream)

    def fold(self, events: Any, rows: Any) -> None:
        if any(event.stream.int == vars(self)["stream"] for event in events):
            raise ValueError("this code cannot read it")
        super().fold(events, rows)
