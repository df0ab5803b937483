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
from pathlib import Path
from typing import Any

import settled
from settled.domain.errors import InvalidInput
from settled.domain.identity import Identity
from settled.domain.operation.events import Dispatching
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.client import SimulatorClient
from settled.verify.catalogue import PROMISES
from settled.verify.check import Check
from settled.verify.ground import Ground
from settled.verify.stage import Stage, staged

_PAGE = 1_000
_SHOWN_STREAMS = 20
_REGISTER = "verify/check.py"


class Verdict(enum.StrEnum):
    """What is said of one check."""

    HOLDS = "holds"
    FALLS_SHORT = "falls short"
    NOT_BUILT = "not built"
    NEEDS_OWN_SERVER = "needs own server"
    DOES_NOT_APPLY = "does not apply"


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

    seed: int
    versions: dict[str, str]
    results: tuple[Result, ...]
    kept: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole: the worst that was found of what was asked for."""
        found = {result.verdict for result in self.results}
        worst = (Verdict.FALLS_SHORT, Verdict.NOT_BUILT)
        return next((verdict for verdict in worst if verdict in found), Verdict.HOLDS)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"verdict": self.verdict, **asdict(self)}


def run(
    ground: Ground,
    simulator: SimulatorClient,
    checks: Sequence[Check],
    *,
    only: Sequence[str] = (),
    seed: int,
    begin: Callable[[Check], None] = lambda check: None,
    tell: Callable[[Result], None] = lambda result: None,
) -> Report:
    """Run those checks whose ids are named, or all; `begin` and `tell` hear of it meanwhile.

    A promise without a check is reported as not built. Raises InvalidInput for an id that there is
    not, and StoreError where the database does not let a check begin.
    """
    if not __debug__:
        raise InvalidInput(
            "Python runs without assertions here, so no check would ever fail.",
            hint="Run it without -O and without PYTHONOPTIMIZE.",
        )
    wanted = _wanted(only)
    versions = _versions(ground)
    results: list[Result] = []
    for promise in wanted:
        ours = [check for check in checks if check.id == promise]
        if not ours:
            results.append(Result(promise, PROMISES[promise], Verdict.NOT_BUILT))
        for number, check in enumerate(ours, 1):
            begin(check)
            result = _run_one(ground, simulator, check, number, seed)
            tell(result)
            results.append(result)
    return Report(seed, versions, tuple(results), tuple(ground.kept))


def _wanted(only: Sequence[str]) -> list[str]:
    unknown = [name for name in only if name not in PROMISES]
    if unknown:
        raise InvalidInput(
            f"There is no check {', '.join(unknown)}.", hint="They are called A1 to A40."
        )
    return [promise for promise in PROMISES if not only or promise in only]


def _run_one(
    ground: Ground, simulator: SimulatorClient, check: Check, number: int, seed: int
) -> Result:
    if ground.dialect not in check.databases:
        return Result(check.id, check.title, Verdict.DOES_NOT_APPLY)
    if check.own_server:
        return Result(check.id, check.title, Verdict.NEEDS_OWN_SERVER)
    simulator.reset()
    began_at = elapsed_seconds()
    with (
        ground.store(f"{check.id}-{number}") as (url, folder),
        staged(url, simulator, folder, seed=f"{seed} {check.id} {number}") as stage,
    ):
        why = _why_not(check, stage)
        seconds = round(elapsed_seconds() - began_at, 2)
        stage.end_workers()  # or what is counted first would be less than what is counted last
        evidence = _evidence(stage)
        if why is None:
            return Result(check.id, check.title, Verdict.HOLDS, "", evidence, seconds)
        shown = _streams(stage)
        return Result(check.id, check.title, Verdict.FALLS_SHORT, why, evidence, seconds, shown)


def _why_not(check: Check, stage: Stage) -> str | None:
    """Run a check; return what it found wrong, and the place in it, or None."""
    try:
        check.run(stage)
    except Exception as error:  # whatever keeps a check from its end, it does not hold
        frames = traceback.extract_tb(error.__traceback__)
        # The first frame is ours, and a second one may be that of a registered value.
        where = next((f for f in frames[1:] if not f.filename.endswith(_REGISTER)), frames[-1])
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
    return Evidence(attempts, stage.requests(), stage.effects(), shown)


def _receipts(stage: Stage) -> list[str]:
    """Return the references of what succeeded."""
    rows = stage.app.journal.heads(states=["succeeded"], limit=_PAGE)
    views = [stage.get(Identity(row.tenant, row.kind, row.identity)) for row in rows]
    return [view.reference for view in views if view.reference is not None]


def _streams(stage: Stage) -> dict[str, list[str]]:
    """Return the names of the events of a check's first operations."""
    kinds = stage.app.kinds.by_name
    rows = [row for row in stage.app.journal.heads(limit=_PAGE) if row.kind in kinds]
    views = [stage.get(Identity(r.tenant, r.kind, r.identity)) for r in rows[:_SHOWN_STREAMS]]
    return {f"{view.kind} {view.operation_id}": stage.names(view) for view in views}


def _versions(ground: Ground) -> dict[str, str]:
    return {
        "settled": settled.__version__,
        "python": platform.python_version(),
        **{name: installed(name) for name in ("eventsourcing", "psycopg", "pydantic")},
        "database": ground.database(),
    }
