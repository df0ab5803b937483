"""The runner: one leader a projection, soon another one, and nothing hidden when it stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from settled import App, DeclarationError
from settled.domain.errors import StoreUnavailable
from settled.infrastructure.clock import elapsed_seconds
from settled.projections import parking
from settled.projections.projection import Projecting
from settled.projections.projector import ViewStore
from settled.projections.runner import Runner
from settled.projections.status import statuses
from tests.projections.parcels import Counted, ParcelsNow, begin, scan
from tests.projections.test_parking import Stopping
from tests.projections.test_projector import Odd, commit_as, counts, last_position, once_each

PATIENCE_SECONDS = 30.0


class Heard:
    """Keeps what the runner says."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def info(self, event: str, **about: Any) -> None:
        self.said.append((event, about["projection"]))

    error = info

    def __contains__(self, event: object) -> bool:
        return any(said == event for said, _ in self.said)


def until(met: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    give_up_at = elapsed_seconds() + PATIENCE_SECONDS
    while not met():
        assert elapsed_seconds() < give_up_at
        time.sleep(0.01)


@contextmanager
def running(app: App, *projections: Projecting) -> Generator[Heard]:
    """A runner on threads of this process."""
    heard = Heard()
    runner = Runner(app.projector(), projections, heard)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            runner.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield heard
    finally:
        runner.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        if failed:
            raise failed[0]


def is_free(views: ViewStore, name: str) -> bool:
    """Say whether one could lead: a server hears a moment later that its session has ended."""
    lead = views.lead(name)
    if lead is not None:
        lead.close()
    return lead is not None


def state(app: App, name: str) -> str:
    return next((one.state for one in statuses(app.projector()) if one.name == name), "none")


def test_several_are_kept_up_in_one_process(app: App) -> None:
    """What is appended while they run is folded soon, by each of them, exactly once."""
    parcel = begin(app, "parcel-1")
    with running(app, Counted(), ParcelsNow()):
        scan(app, parcel, "Lyon")
        end = last_position(app)
        for projection in (Counted(), ParcelsNow()):
            until(lambda p=projection: app.projector().position(p) == end)  # type: ignore[misc]
        scan(app, parcel, "Metz")
        until(lambda: app.projector().position(Counted()) == last_position(app))
    assert counts(app) == once_each(app)


def test_only_one_leads(app: App) -> None:
    """Two that run the same projection would do all work twice, to throw half of it away."""
    views = app.projector().views.of()
    lead = views.lead("counted")
    assert lead is not None and lead.held()
    assert views.lead("counted") is None
    other = views.lead("parcels_now")
    assert other is not None
    other.close()
    with running(app, Counted()) as heard:
        begin(app, "parcel-1")
        assert "projection_led" not in heard
        lead.close()
        until(lambda: app.projector().position(Counted()) == last_position(app))
        assert "projection_led" in heard
    until(lambda: is_free(views, "counted"))


def test_it_yields_to_newer_code(app: App) -> None:
    """LOG 6, 11: whoever knows the event can take the lead at once; it is said aloud."""
    parcel = begin(app, "parcel-1")
    commit_as(app, parcel, min_reader=99)
    with running(app, Counted()) as heard:
        until(lambda: "projection_yielded" in heard)
        until(lambda: state(app, "counted") == "yielded")
        until(lambda: is_free(app.projector().views.of(), "counted"))
    assert counts(app) == once_each(app)[:1]


def test_it_stands_still_until_somebody_decides(app: App) -> None:
    """A fold that fails is tried once, not a thousand times a second, and goes on when let go."""
    bad = begin(app, "parcel-1")
    scan(app, bad, "Metz", "Nice")
    with running(app, Stopping()) as heard:
        until(lambda: "projection_stopped" in heard)
        until(lambda: state(app, "counted") == "stopped")
        parking.skip(app.projector(), Stopping(), bad.id, actor="ada", reason="no such place")
        until(lambda: app.projector().position(Stopping()) == last_position(app))
    assert heard.said.count(("projection_stopped", "counted")) == 1


def test_a_wrong_declaration_ends_it(app: App) -> None:
    """What no decision can mend must not be tried for ever behind a line in a log."""
    begin(app, "parcel-1")
    for projection in (Counted(name=""), Odd()):
        runner = Runner(app.projector(), [ParcelsNow(), projection], Heard())
        with pytest.raises(DeclarationError):
            runner.run()


def test_it_outlives_a_store_that_is_away(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that restarts must not end every view until somebody notices."""
    journal, away = app.journal, threading.Event()
    read = journal.read

    def reading(after: int, limit: int) -> Any:
        if away.is_set():
            raise StoreUnavailable("The server restarts.")
        return read(after, limit)

    away.set()
    monkeypatch.setattr(journal, "read", reading)
    with running(app, Counted()) as heard:
        until(lambda: "projection_interrupted" in heard)
        away.clear()
        begin(app, "parcel-1")
        until(lambda: app.projector().position(Counted()) == last_position(app))
