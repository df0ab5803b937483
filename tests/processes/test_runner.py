"""The runner, with a machine of its own on both databases: no stream stays with a worker for good.

A row that is held belongs to its worker while that lives. Whatever comes in between, the runner has
to conclude what it began, or give the row back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

import settled
from settled import (
    ABSENT,
    App,
    Arrow,
    Decision,
    Event,
    Lifecycle,
    Perform,
    Position,
    Record,
    Rest,
    ShutDown,
    Stamp,
    State,
    StateMachine,
    Work,
    WorkerSettings,
    stream_id,
)
from settled.processes.runner import Runner

KIND = "errand"
STREAM = stream_id("acme", KIND, KIND, "errand-1")
PATIENCE_SECONDS = 30.0


class Asked(Event):
    """Somebody asked for it."""

    TOPIC: ClassVar[str] = "errand.Asked"
    tenant: str
    identity: str


class Left(Event):
    """A worker is on its way."""

    TOPIC: ClassVar[str] = "errand.Left"


class Noted(Event):
    """Somebody added a word."""

    TOPIC: ClassVar[str] = "errand.Noted"


class Done(Event):
    """It is done."""

    TOPIC: ClassVar[str] = "errand.Done"
    result: str


class Errand(StateMachine):
    """Something that takes its time."""

    TOPIC = "errand"
    EVENTS = (Asked, Left, Noted, Done)
    LIFECYCLE = Lifecycle(
        KIND,
        states=[
            State("asked", "Waits."),
            State("away", "A worker is on its way.", held=True),
            State("done", "Over.", settled=True),
        ],
        arrows=[
            Arrow((ABSENT,), "Asked", "asked"),
            Arrow(("asked",), "Left", "away"),
            Arrow(("asked", "away"), "Noted", None),
            Arrow(("away",), "Done", "done"),
        ],
    )

    def next_due(self) -> datetime | None:
        return None if self.settled else self.modified_on


@dataclass
class Runs:
    """Decides for errands; what is done on the way is the test's."""

    act: Callable[[], Any]
    decided: list[str] = field(default_factory=list[str])
    name: str = "runs"

    def interested(self, machine: StateMachine) -> bool:
        return isinstance(machine, Errand)

    def decide(self, machine: Errand, stamp: Stamp, position: Position) -> Decision:
        self.decided.append(machine.state)
        if position.draining:
            return Rest()
        if machine.state == "asked":
            machine.record(Left, stamp)
            return Record()
        return Perform(Work.CALL, KIND, self._go, self._conclude)

    async def _go(self) -> str:
        return str(await self.act())

    def _conclude(self, machine: Errand, result: Any, stamp: Stamp) -> None:
        if not isinstance(result, ShutDown):
            machine.record(Done, stamp, result=str(result))


@pytest.fixture
def opened(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Runs], App]]:
    """A function that opens an application with this manager, and an errand in it."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    apps: list[App] = []

    def open_with(manager: Runs) -> App:
        app = settled.open(store_url, migrate=True, machines=[KIND], managers=lambda _: [manager])
        apps.append(app)
        stamp = app.ledger.stamp("ada")
        new = Errand.begin(Asked, STREAM, stamp, tenant="acme", identity="errand-1")
        app.ledger.begin(new)
        return app

    yield open_with
    for app in apps:
        app.close()


def state_of(app: App) -> str:
    errand = app.ledger.load("acme", STREAM)
    assert errand is not None
    return errand.state


def names(app: App) -> list[str]:
    return [e.topic.rpartition(".")[2] for e in app.journal.events("acme", STREAM)]


async def until(question: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(question):
            await asyncio.sleep(0.01)


def run(app: App, during: Callable[[], Any], **settings: Any) -> None:
    """Run a worker until `during` has ended."""

    async def both() -> None:
        worker = app.worker(WorkerSettings(name="runner", **settings))
        working = asyncio.create_task(worker.run())
        try:
            await during()
        finally:
            worker.stop()
            await working

    asyncio.run(both())


def test_a_word_that_comes_in_between_does_not_strand_the_stream(
    opened: Callable[[Runs], App],
) -> None:
    """Anybody may note something while a worker is away: what it brings back is recorded on top."""

    async def act() -> str:
        stamp = app.ledger.stamp("ada")
        command = app.ledger.execute
        await asyncio.to_thread(command, "acme", STREAM, lambda e: e.record(Noted, stamp))
        return "bread"

    app = opened(Runs(act))
    run(app, lambda: until(lambda: state_of(app) == "done"))
    assert names(app) == ["Asked", "Left", "Noted", "Done"]
    assert app.journal.events("acme", STREAM)[-1].state == b'{"result":"bread"}'


def test_what_is_cut_short_and_recorded_nothing_is_given_back(
    opened: Callable[[Runs], App],
) -> None:
    """A worker that stops does not decide again and again; the next one gets the row at once."""
    going = asyncio.Event()

    async def act() -> str:
        going.set()
        await asyncio.Event().wait()
        return "never"

    manager = Runs(act)
    app = opened(manager)
    run(app, going.wait, drain_seconds=0.05)
    assert state_of(app) == "away"
    assert manager.decided == ["asked", "away"]
    assert names(app) == ["Asked", "Left"]

    async def again() -> str:
        return "bread"

    manager.act = again
    run(app, lambda: until(lambda: state_of(app) == "done"))
    assert names(app) == ["Asked", "Left", "Done"]


def test_an_exception_is_a_result(opened: Callable[[Runs], App]) -> None:
    """What went wrong on the way is concluded like anything else."""

    async def act() -> str:
        raise OSError("the shop is closed")

    app = opened(Runs(act))
    run(app, lambda: until(lambda: state_of(app) == "done"))
    assert app.journal.events("acme", STREAM)[-1].state == b'{"result":"the shop is closed"}'


class GoneAway(BaseException):
    """What a library may raise that is no Exception."""


async def cancels_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


async def raises_anything() -> str:
    raise GoneAway("for good")


@pytest.mark.parametrize("act", [cancels_itself, raises_anything])
def test_whatever_ends_it_is_a_result(opened: Callable[[Runs], App], act: Any) -> None:
    """An adapter that cancels its own task, or worse, must not leave the row with its worker."""
    app = opened(Runs(act))
    run(app, lambda: until(lambda: state_of(app) == "done"))
    assert names(app) == ["Asked", "Left", "Done"]


def test_an_answer_that_is_there_is_not_thrown_away_by_a_cut() -> None:
    """It may have come in the very turn in which the worker is told to cut things short."""

    async def scenario() -> Any:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def act() -> str:
            return await answer

        def conclude(*_: object) -> None: ...

        nothing: Any = None
        runner = Runner(nothing, (), lambda: Position("worker", 1, draining=True))
        perform = Perform(Work.CALL, KIND, act, conclude)
        result: Callable[[Perform], Any] = getattr(runner, "_result")  # noqa: B009
        waiting = asyncio.ensure_future(result(perform))
        await asyncio.sleep(0.01)
        answer.set_result("bread")
        await asyncio.sleep(0)  # the act has its answer now, and nobody has taken it yet
        runner.cut_short()
        return await waiting

    assert asyncio.run(scenario()) == "bread"


def test_beginning_the_same_again_returns_it_as_it_stands(opened: Callable[[Runs], App]) -> None:
    """Two that begin one stream meet there, in a transaction of their own or not."""

    async def act() -> str:
        return "bread"

    app = opened(Runs(act))
    run(app, lambda: until(lambda: state_of(app) == "done"))
    stamp = app.ledger.stamp("bo")
    other = Errand.begin(Asked, STREAM, stamp, tenant="acme", identity="errand-1")
    existing = app.ledger.begin(other)
    assert existing is not other
    assert (existing.state, existing.version) == ("done", 3)
    with pytest.raises(settled.NotFound, match="no stream"):
        app.ledger.execute("globex", STREAM, lambda e: e.record(Noted, stamp))
