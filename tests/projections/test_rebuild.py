"""Rebuilding: the same rows again, beside the live ones, from any kill on, and without a provider.

A rebuild is what one does when something is wrong already; it must not be the next thing that is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from settled import App, DeclarationError, Event, RecordedEvent, Rows, StoreNotMigrated, StoreTooNew
from settled.infrastructure.seeding import seed
from settled.infrastructure.views.building import build
from settled.projections.operations import OperationsProjection
from settled.projections.projection import Projecting
from settled.projections.rebuild import Rebuilt, rebuild
from settled.projections.status import statuses
from tests.projections.parcels import Counted, ParcelsNow, begin, scan
from tests.projections.test_projector import commit_as, log

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120.0


def rebuilt(app: App, url: str, projection: Projecting, workers: int = 1) -> Rebuilt:
    projector = app.projector()

    def with_builders(new: Projecting) -> None:
        build(url, projector, new, workers, lambda built, of: None)

    return rebuild(projector, projection, workers, with_builders)


def content(app: App, version: int) -> dict[str, list[str]]:
    queries = OperationsProjection(version=version).contents()
    return {what: sorted(map(repr, app.projector().fetch(sql))) for what, sql in queries.items()}


def standing(app: App) -> list[tuple[str, int, str]]:
    return [(one.name, one.version, one.state) for one in statuses(app.projector())]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_next_version_is_the_same(app: App, store_url: str, workers: int) -> None:
    """LOG 6, 7: the rows again, nothing appended; the old version is gone, the view goes on."""
    seed(app.journal, 60)
    projector, declared = app.projector(), OperationsProjection()
    projector.catch_up(declared)
    before, events = content(app, 1), log(app)
    done = rebuilt(app, store_url, declared, workers)
    assert (done.version, done.replaced, done.differences) == (2, 1, ())
    assert done.compared == ("operations", "counts")
    assert content(app, 2) == before
    assert log(app) == events
    assert standing(app) == [("operations", 2, "live")]
    assert projector.live(declared).version == 2
    with pytest.raises(DeclarationError, match="operations_1"):
        projector.fetch("SELECT * FROM operations_1")
    assert len(app.views.operations.find("refund", None)) == 60
    begin(app, "parcel-1")
    assert projector.catch_up(projector.live(declared)) == log(app)[-1].position


def test_a_difference_is_shown_and_repaired(app: App, store_url: str) -> None:
    """Rows that somebody changed by hand are what a rebuild is for: it says which they were."""
    seed(app.journal, 20)
    app.projector().catch_up(OperationsProjection())
    with app.projector().views.of().changing() as rows:
        rows.execute("UPDATE operations_1 SET owner = 'nobody' WHERE operation_id LIKE '%-7'")
        rows.execute("DELETE FROM operations_1 WHERE operation_id LIKE '%-8'")
    done = rebuilt(app, store_url, OperationsProjection())
    (difference,) = done.differences
    assert (difference.what, difference.only_before, difference.only_after) == ("operations", 1, 2)
    assert [row["owner"] for row in difference.before] == ["nobody"]
    assert len(content(app, 2)["operations"]) == 20


def test_the_first_version_may_be_built_by_a_rebuild(app: App, store_url: str) -> None:
    """A store that never had the view gets it at a rebuild's speed."""
    seed(app.journal, 20)
    done = rebuilt(app, store_url, OperationsProjection())
    assert (done.version, done.replaced, done.compared) == (1, None, ())
    assert standing(app) == [("operations", 1, "live")]
    assert len(app.views.operations.find("refund", None)) == 20


def test_a_projection_of_ones_own_is_rebuilt_too(app: App, store_url: str) -> None:
    """What is folded event by event needs no more than a version in its tables' names."""
    scan(app, begin(app, "parcel-1"), "Lyon", "Metz")
    app.projector().catch_up(ParcelsNow())
    before = app.projector().fetch("SELECT * FROM parcels_now_1")
    done = rebuilt(app, store_url, ParcelsNow())
    assert (done.version, done.differences, done.compared) == (2, (), ("parcels",))
    assert app.projector().fetch("SELECT * FROM parcels_now_2") == before != []
    app.projector().catch_up(Counted())
    with pytest.raises(DeclarationError, match="built beside itself"):
        rebuilt(app, store_url, Counted())


@dataclass(frozen=True)
class NewFold(ParcelsNow):
    """The same view under another fold."""

    version: int = 7

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        super().apply(event, record, rows)
        rows.execute(f"UPDATE parcels_now_{self.version} SET place = upper(place)")


def test_another_fold_gets_its_own_version(app: App, store_url: str) -> None:
    """New code never folds on into the tables of the old; old code reads on until the change."""
    scan(app, begin(app, "parcel-1"), "Lyon")
    app.projector().catch_up(ParcelsNow())
    with pytest.raises(Exception, match="settled projections rebuild parcels_now"):
        app.projector().live(NewFold())
    assert app.projector().live(ParcelsNow()) == ParcelsNow()
    done = rebuilt(app, store_url, NewFold())
    assert (done.version, done.replaced, done.compared) == (7, 1, ())
    assert app.projector().live(NewFold()) == NewFold()
    (row,) = app.projector().fetch("SELECT place FROM parcels_now_7")
    assert row["place"] == "LYON"


def test_what_was_replaced_is_not_begun_again(app: App, store_url: str) -> None:
    """A runner that was about to fold on must not bring the old tables back, empty."""
    seed(app.journal, 5)
    app.projector().catch_up(OperationsProjection())
    rebuilt(app, store_url, OperationsProjection())
    with pytest.raises(StoreNotMigrated, match="was replaced by version 2"):
        app.projector().run_once(OperationsProjection())
    assert standing(app) == [("operations", 2, "live")]


def test_a_reader_follows_a_change_over(app: App, store_url: str) -> None:
    """Whoever asks while the tables change gets an answer, from the new ones."""
    seed(app.journal, 5)
    app.projector().catch_up(OperationsProjection())
    view = app.views.operations
    live = view._live  # pyright: ignore[reportPrivateUsage] -- the moment between two statements
    asked: list[OperationsProjection] = []

    def live_and_rebuild() -> OperationsProjection:
        asked.append(live())
        if len(asked) == 1:
            rebuilt(app, store_url, OperationsProjection())
        return asked[-1]

    view._live = live_and_rebuild  # type: ignore[method-assign]  # pyright: ignore
    assert len(view.find("refund", None)) == 5
    assert [one.version for one in asked] == [1, 2, 2]


def test_others_are_left_alone(app: App, store_url: str) -> None:
    """LOG 6, 12: one projection rebuilt while another is live on the same events."""
    seed(app.journal, 10)
    scan(app, begin(app, "parcel-1"), "Lyon")
    app.projector().catch_up(ParcelsNow())
    app.projector().catch_up(OperationsProjection())
    before = app.projector().fetch("SELECT * FROM parcels_now_1")
    rebuilt(app, store_url, OperationsProjection())
    assert app.projector().fetch("SELECT * FROM parcels_now_1") == before
    assert ("parcels_now", 1, "live") in standing(app)


def test_a_rebuild_stops_in_front_of_what_is_newer(app: App, store_url: str) -> None:
    """Old code cannot build a view of events that it does not know; the live one stays."""
    parcel = begin(app, "parcel-1")
    app.projector().catch_up(ParcelsNow())
    commit_as(app, parcel, min_reader=99)
    app.projector().position(ParcelsNow())
    done = rebuilt(app, store_url, ParcelsNow())  # as far as the live one has come
    assert done.position == log(app)[0].position
    with pytest.raises(StoreTooNew):
        app.projector().catch_up(ParcelsNow(version=done.version))


class Refusing(OperationsProjection):
    """Cannot fold one operation."""

    refused: ClassVar[str] = "refund-request-5"

    def fold(self, events: Any, rows: Rows) -> None:
        super().fold(events, rows)
        if any(self.refused.encode() + b'"' in event.state for event in events):
            raise ValueError(f"{self.refused} cannot be folded")


def test_a_builder_sets_aside_what_it_cannot_fold(app: App, store_url: str) -> None:
    """One stream must not keep a million others from being read again."""
    seed(app.journal, 20)
    done = rebuilt(app, store_url, Refusing())
    assert done.parked == 1
    found = {line.operation_id for line in app.views.operations.find("refund", None)}
    assert len(found) == 19 and Refusing.refused not in found
    (status,) = statuses(app.projector())
    assert (status.state, status.parked) == ("parked", 1)
    assert status.error is not None and "cannot be folded" in status.error


# In processes of their own.


@contextmanager
def process(url: str, what: str, *words: str) -> Generator[subprocess.Popen[str]]:
    """A rebuild in a process of its own; see `rebuilder.py`."""
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.projections.rebuilder", url, what, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("kill_at", [1, 2, 3, 5, 8, 9, 10, 11])
def test_killed_at_any_transaction_it_goes_on(app: App, store_url: str, kill_at: int) -> None:
    """SIGKILL before and after each commit of a rebuild: the same call again ends it, once."""
    seed(app.journal, 30)
    app.projector().catch_up(OperationsProjection())
    before = content(app, 1)
    for moment in ("before", "after"):
        with process(store_url, moment, str(kill_at)) as killed:
            _, said = killed.communicate(timeout=PATIENCE_SECONDS)
            assert killed.returncode in (-signal.SIGKILL, 0), said
    done = rebuilt(app, store_url, OperationsProjection())
    assert done.differences == ()
    assert content(app, done.version) == before
    assert standing(app) == [("operations", done.version, "live")]


def test_what_rebuilds_has_no_provider(app: App, store_url: str) -> None:
    """Zero calls, because there is nothing to call with: importing any of it raises there."""
    seed(app.journal, 30)
    app.projector().catch_up(OperationsProjection())
    before = content(app, 1)
    with process(store_url, "without-providers") as alone:
        out, said = alone.communicate(timeout=PATIENCE_SECONDS)
        assert (alone.returncode, out) == (0, "2 rebuilt\nnone can be imported\n"), said
    assert content(app, 2) == before
