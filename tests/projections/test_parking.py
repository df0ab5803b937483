"""Events that a projection cannot fold: set aside with their stream, listed, and decided on.

One event that nobody can fold must neither stop a view of a million others nor vanish from it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from settled import App, Event, NotFound, RecordedEvent, Rows, StoreTooNew
from settled.projections import parking, register
from settled.projections.status import ProjectionStatus, statuses
from tests.projections.parcels import Counted, Scanned, begin, scan
from tests.projections.test_projector import commit_as, counts, log


class Picky(Counted):
    """Cannot fold a scan at the places that it is told, and sets their parcels aside."""

    on_poison: ClassVar[str] = "park"
    refused: ClassVar[set[str]] = {"Metz"}

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        super().apply(event, record, rows)
        if isinstance(event, Scanned) and event.place in self.refused:
            raise ValueError(f"{event.place} has no rows")


def only(app: App) -> ProjectionStatus:
    (found,) = statuses(app.projector())
    return found


def decisions(app: App) -> list[tuple[Any, ...]]:
    sql = "SELECT act, actor, reason, position FROM projection_decision ORDER BY decided_at"
    return [tuple(row.values()) for row in app.projector().fetch(sql)]


def parked(app: App, projection: Picky) -> list[register.Parked]:
    with app.projector().views.of().reading() as rows:
        return register.parked(rows, projection)


def folded(app: App) -> list[int]:
    return [position for position, times in counts(app) if times == 1]


@pytest.mark.parametrize("page", [1, 3, 500])
def test_only_the_stream_of_a_poison_event_is_set_aside(app: App, page: int) -> None:
    """Its later events wait in their order; everybody else's are folded, exactly once."""
    bad, good = begin(app, "parcel-1"), begin(app, "parcel-2")
    scan(app, bad, "Lyon", "Metz")
    scan(app, good, "Lyon")
    scan(app, bad, "Nice")
    scan(app, good, "Nice")
    app.projector().catch_up(Picky(), page)
    aside = [e.position for e in log(app) if e.stream == bad.id and e.originator_version >= 3]
    assert [event.position for event in parked(app, Picky())] == aside
    assert [event.error for event in parked(app, Picky())] == ["ValueError: Metz has no rows", None]
    assert folded(app) == [e.position for e in log(app) if e.position not in aside]
    status = only(app)
    assert (status.state, status.parked, status.behind) == ("parked", 1, 0)
    assert (status.error, status.error_position) == ("ValueError: Metz has no rows", aside[0])


def test_retry_folds_what_waited(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its fold is corrected the stream is whole again; every try is recorded with its why."""
    bad = begin(app, "parcel-1")
    scan(app, bad, "Metz", "Nice")
    projector, projection = app.projector(), Picky()
    projector.catch_up(projection)
    vain = parking.retry(projector, projection, bad.id, actor="ada", reason="try again")
    assert (vain.applied, vain.error) == (0, "ValueError: Metz has no rows")
    assert len(parked(app, projection)) == 2
    monkeypatch.setattr(Picky, "refused", set[str]())
    done = parking.retry(projector, projection, bad.id, actor="ada", reason="Metz has rows now")
    assert (done.applied, done.skipped, done.error) == (2, 0, None)
    assert folded(app) == [e.position for e in log(app)]
    assert parked(app, projection) == []
    assert only(app).state == "live" and only(app).error is None
    first = log(app)[1].position
    assert decisions(app) == [
        ("retry", "ada", "try again", first),
        ("retry", "ada", "Metz has rows now", first),
    ]
    with pytest.raises(NotFound, match="nothing aside"):
        parking.retry(projector, projection, bad.id, actor="ada", reason="again")
    scan(app, bad, "Brest")
    projector.catch_up(projection)
    assert folded(app) == [e.position for e in log(app)]


def test_skip_passes_by_one_event(app: App) -> None:
    """The one that fails is never folded; those behind it are, up to the next that fails."""
    bad = begin(app, "parcel-1")
    scan(app, bad, "Metz", "Nice", "Metz", "Lyon")
    projector, projection = app.projector(), Picky()
    projector.catch_up(projection)
    positions = [e.position for e in log(app)]
    skipped = parking.skip(projector, projection, bad.id, actor="ada", reason="no such place")
    assert (skipped.applied, skipped.skipped) == (1, 1)
    assert skipped.error == "ValueError: Metz has no rows"
    assert [event.position for event in parked(app, projection)] == positions[3:]
    parking.skip(projector, projection, bad.id, actor="ada", reason="nor that one")
    assert folded(app) == [positions[0], positions[2], positions[4]]
    assert [act for act, *_ in decisions(app)] == ["skip", "skip"]


def test_what_comes_meanwhile_is_folded_too(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that goes on while it is tried again must not stay aside without an error."""
    bad = begin(app, "parcel-1")
    scan(app, bad, "Metz", "Nice")
    projector, projection = app.projector(), Picky()
    projector.catch_up(projection)
    monkeypatch.setattr(Picky, "refused", set[str]())
    later = iter(["Brest"])
    events = app.journal.events

    def and_goes_on(*where: Any, **which: Any) -> Any:
        for place in later:
            monkeypatch.undo()
            monkeypatch.setattr(Picky, "refused", set[str]())
            scan(app, bad, place)
            projector.catch_up(projection)
        return events(*where, **which)

    monkeypatch.setattr(app.journal, "events", and_goes_on)
    done = parking.retry(projector, projection, bad.id, actor="ada", reason="Metz has rows now")
    assert (done.applied, done.error) == (3, None)
    assert folded(app) == [e.position for e in log(app)]
    assert only(app).state == "live"


class Stopping(Picky):
    """Stands still in front of what it cannot fold."""

    on_poison: ClassVar[str] = "stop"


def test_a_projection_that_stopped_is_let_go(app: App) -> None:
    """Where the policy is to stop, a decision is what moves it on, and nothing else does."""
    bad = begin(app, "parcel-1")
    scan(app, bad, "Metz", "Nice")
    projector, projection = app.projector(), Stopping()
    for _ in range(2):
        with pytest.raises(ValueError, match="Metz"):
            projector.catch_up(projection)
    positions = [e.position for e in log(app)]
    status = only(app)
    assert (status.state, status.error_position) == ("stopped", positions[1])
    assert status.behind > 0 and status.lag_seconds > 0 and status.parked == 0
    parking.skip(projector, projection, bad.id, actor="ada", reason="no such place")
    assert only(app).state == "live"
    projector.catch_up(projection)
    assert folded(app) == [positions[0], positions[2]]


def test_what_is_newer_is_never_set_aside(app: App) -> None:
    """LOG 6, 11: old code parks nothing and appends nothing, whatever its policy; it says so."""
    parcel = begin(app, "parcel-1")
    commit_as(app, parcel, schema_version=2)
    for _ in range(2):
        with pytest.raises(StoreTooNew):
            app.projector().catch_up(Picky())
    assert parked(app, Picky()) == []
    status = only(app)
    assert (status.state, status.position) == ("yielded", log(app)[0].position)
    assert status.error_position == log(app)[1].position
    assert status.error is not None and status.error.startswith("StoreTooNew")


def test_the_position_passes_what_is_set_aside_once(app: App) -> None:
    """LOG 6, 6: after a restart the cursor is behind the last event considered, not before it."""
    bad = begin(app, "parcel-1")
    scan(app, bad, "Metz", "Nice")
    app.projector().catch_up(Picky(), 1)
    assert app.projector().position(Picky()) == log(app)[-1].position
    app.projector().catch_up(Picky(), 1)
    assert len(parked(app, Picky())) == 2
