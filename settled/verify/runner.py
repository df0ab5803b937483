"""Runs checks on a database, and says of each promise whether it holds there.

A check is given a store in which nothing is, workers that are processes of their own, and a
provider that writes down what it sees. What is reported beside the verdict is counted afterwards,
from the stream and from the provider's own log.
"""

from __future__ import annotations

import enum
import platform
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import settled
from settled.domain.errors import InvalidInput
from settled.domain.identity import Identity
from settled.domain.operation.events import Dispatching
from settled.domain.operation.operation import Operation
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.client import SimulatorClient
from settled.verify.catalogue import PROMISES
from settled.verify.check import Check, Run
from settled.verify.ground import Ground
from settled.verify.soak import soak
from settled.verify.stage import CREW_SIZE, Stage, staged

_PAGE = 1_000
_SHOWN_STREAMS = 20
_SHOWN_OPERATIONS = 100
_CALLERS = ("verify/check.py", "verify/runner.py")


class Verdict(enum.StrEnum):
    """What is said of one check."""

    HOLDS = "holds"
    FALLS_SHORT = "falls short"
    NOT_BUILT = "not built"
    NEEDS_OWN_SERVER = "needs own server"
    NEEDS_PACKAGE = "needs package"
    DOES_NOT_APPLY = "does not apply"


_WEIGHED = (
    *(Verdict.FALLS_SHORT, Verdict.NOT_BUILT, Verdict.HOLDS),
    *(Verdict.NEEDS_OWN_SERVER, Verdict.NEEDS_PACKAGE, Verdict.DOES_NOT_APPLY),
)
"""The verdicts, with what says most of a whole run first."""


@dataclass(frozen=True)
class Evidence:
    """What was counted after a check: in the streams, and at the provider."""

    attempts: int
    """Dispatching events."""
    requests: int
    """Requests that can have an effect."""
    effects: int
    receipt: str
    """The provider's reference in the first receipt that was recorded, and how many follow it."""
    boundaries: tuple[str, ...]
    """Where something was killed, frozen or lost, in the order in which it was planned."""
    operations: tuple[str, ...]
    """The operations, each as tenant/kind/id: the first hundred."""


@dataclass(frozen=True)
class Result:
    """The verdict on one check; `streams` are the events of a check that falls short."""

    id: str
    title: str
    verdict: Verdict
    why: str = ""
    evidence: Evidence | None = None
    seconds: float = 0.0
    streams: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


@dataclass(frozen=True)
class Report:
    """What a run found."""

    run: str
    seed: int
    versions: dict[str, str]
    results: tuple[Result, ...]
    kept: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole: what weighs most of what was found.

        It holds only if something was run and held. What cannot be run here weighs less than that,
        so that it does not hide what held, and is the verdict where nothing was run.
        """
        found = {result.verdict for result in self.results}
        return next(verdict for verdict in _WEIGHED if verdict in found)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"verdict": self.verdict, **asdict(self)}


@dataclass(frozen=True)
class SoakReport:
    """What a soak found; `figures` are those of `soak.Figures`, as far as it came."""

    run: str
    seed: int
    versions: dict[str, str]
    verdict: Verdict
    why: str
    figures: dict[str, float]
    kept: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def run(
    ground: Ground,
    simulator: SimulatorClient,
    checks: Sequence[Check],
    *,
    only: Sequence[str] = (),
    seed: int,
    workers: int = CREW_SIZE,
    begin: Callable[[Check], None] = lambda check: None,
    tell: Callable[[Result], None] = lambda result: None,
) -> Report:
    """Run those checks whose ids are named, or all; `begin` and `tell` hear of it meanwhile.

    A promise without a check is reported as not built. Raises InvalidInput for an id that there is
    not, and StoreError where the database does not let a check begin.
    """
    must_assert()
    wanted = _wanted(only)
    found = versions(ground)
    results: list[Result] = []
    for promise in wanted:
        ours = [check for check in checks if check.id == promise]
        if not ours:
            results.append(Result(promise, PROMISES[promise], Verdict.NOT_BUILT))
        for number, check in enumerate(ours, 1):
            begin(check)
            result = _run_one(ground, simulator, check, number, seed, workers)
            tell(result)
            results.append(result)
    return Report(ground.run, seed, found, tuple(results), tuple(ground.kept))


def run_soak(
    ground: Ground,
    simulator: SimulatorClient,
    *,
    operations: int,
    seed: int,
    workers: int = CREW_SIZE,
    tell: Callable[[str], None] = lambda line: None,
) -> SoakReport:
    """Run a soak; `tell` hears of it meanwhile. A server of the run's own crashes as well.

    Raises StoreError where the database does not let it begin.
    """
    must_assert()
    found = versions(ground)
    server = ground.server
    figures: dict[str, float] = {}

    def run_through(stage: Stage) -> None:
        counted = soak(stage, operations, restarts=server is not None, tell=tell)
        figures.update(asdict(counted))
        counted.expect_nothing_wrong()

    with (
        ground.store("soak", own_server=server is not None) as (url, folder),
        staged(
            url, simulator, folder, seed=f"{seed} soak", server=server, crew_size=workers
        ) as stage,
    ):
        why = why_not(run_through, stage)
        stage.end_workers()
    verdict = Verdict.HOLDS if why is None else Verdict.FALLS_SHORT
    kept = tuple(ground.kept)
    return SoakReport(ground.run, seed, found, verdict, why or "", figures, kept)


def _wanted(only: Sequence[str]) -> list[str]:
    unknown = [name for name in only if name not in PROMISES]
    if unknown:
        raise InvalidInput(
            f"There is no check {', '.join(unknown)}.", hint="They are called A1 to A40."
        )
    return [promise for promise in PROMISES if not only or promise in only]


def must_assert() -> None:
    """Raise InvalidInput where Python leaves assertions out."""
    if not __debug__:
        raise InvalidInput(
            "Python runs without assertions here, so no check would ever fail.",
            hint="Run it without -O and without PYTHONOPTIMIZE.",
        )


def _not_here(ground: Ground, check: Check) -> Verdict | None:
    """Return why a check cannot be run here, if it cannot."""
    if ground.dialect not in check.databases:
        return Verdict.DOES_NOT_APPLY
    if check.own_server and ground.server is None:
        return Verdict.NEEDS_OWN_SERVER
    if check.package and find_spec(check.package) is None:
        return Verdict.NEEDS_PACKAGE
    return None


def _run_one(
    ground: Ground, simulator: SimulatorClient, check: Check, number: int, seed: int, workers: int
) -> Result:
    if (verdict := _not_here(ground, check)) is not None:
        needed = f"pip install {check.package}" if verdict is Verdict.NEEDS_PACKAGE else ""
        return Result(check.id, check.title, verdict, needed)
    server = ground.server if check.own_server else None
    drawn = f"{seed} {check.id} {number}"
    simulator.reset()
    began_at = elapsed_seconds()
    with (
        ground.store(f"{check.id}-{number}", own_server=check.own_server) as (url, folder),
        staged(url, simulator, folder, seed=drawn, server=server, crew_size=workers) as stage,
    ):
        why = why_not(check.run, stage)
        seconds = round(elapsed_seconds() - began_at, 2)
        stage.end_workers()  # or what is counted first would be less than what is counted last
        if server is not None:
            server.start()  # a check that broke off may have stopped it
        evidence = _evidence(stage)
        if why is None:
            return Result(check.id, check.title, Verdict.HOLDS, "", evidence, seconds)
        shown = _streams(stage)
        return Result(check.id, check.title, Verdict.FALLS_SHORT, why, evidence, seconds, shown)


def why_not(run: Run, stage: Stage) -> str | None:
    """Run a check; return what it found wrong, and the place in it, or None."""
    try:
        run(stage)
    except Exception as error:  # whatever keeps a check from its end, it does not hold
        frames = traceback.extract_tb(error.__traceback__)
        # The first frames are ours: the call of a check, and that of a registered value.
        where = next((f for f in frames if not f.filename.endswith(_CALLERS)), frames[-1])
        said = str(error) or where.line or ""
        name = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        return f"{name}{said} ({Path(where.filename).name}, line {where.lineno})"
    return None


def _evidence(stage: Stage) -> Evidence:
    attempts, after = 0, 0
    while events := stage.app.journal.read(after, _PAGE).events:
        attempts += sum(event.topic == Dispatching.TOPIC for event in events)
        after = events[-1].position or 0
    receipts = _receipts(stage)
    more = f" and {len(receipts) - 1} more" if len(receipts) > 1 else ""
    shown = f"{receipts[0]}{more}" if receipts else ""
    operations = tuple(str(identity) for identity in _named(stage)[:_SHOWN_OPERATIONS])
    counted = (attempts, stage.requests(), stage.effects())
    return Evidence(*counted, shown, tuple(stage.boundaries), operations)


def _receipts(stage: Stage) -> list[str]:
    """Return the references of what succeeded."""
    views = [stage.get(identity) for identity in _named(stage, states=["succeeded"])]
    return [view.reference for view in views if view.reference is not None]


def _named(stage: Stage, states: Sequence[str] = ()) -> list[Identity]:
    """Return a check's first operations; what it wrote by itself into the journal is none."""
    rows = stage.app.journal.heads(states=states, limit=_PAGE)
    known = [row for row in rows if row.kind in stage.app.kinds.by_name]
    named = [(Identity(row.tenant, row.kind, row.identity), row.stream) for row in known]
    return [identity for identity, stream in named if Operation.stream(identity) == stream]


def _streams(stage: Stage) -> dict[str, list[str]]:
    """Return the names of the events of a check's first operations."""
    views = [stage.get(identity) for identity in _named(stage)[:_SHOWN_STREAMS]]
    return {f"{view.kind} {view.operation_id}": stage.names(view) for view in views}


def versions(ground: Ground) -> dict[str, str]:
    """Return the versions of everything that a verdict depends on. Raises StoreUnavailable."""
    return {
        "settled": settled.__version__,
        "python": platform.python_version(),
        **{name: installed(name) for name in ("eventsourcing", "psycopg", "pydantic")},
        "database": ground.database(),
    }
