"""Runs experiments round by round, and puts together what was measured."""

from __future__ import annotations

import enum
import os
import platform
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from settled import __version__
from settled.bench.figure import OURS, RAW, Experiment, Figure, Sample
from settled.bench.lab import Lab
from settled.domain.errors import InvalidInput
from settled.infrastructure.clock import elapsed_seconds

_PACKAGES = (
    *("eventsourcing", "psycopg", "pydantic"),
    *("dbos", "langgraph", "langgraph-checkpoint-postgres", "langgraph-checkpoint-sqlite"),
    "procrastinate",
)

Round = dict[str, Sample]


class Verdict(enum.StrEnum):
    """How a figure compares with its bar."""

    MET = "met"
    MISSED = "missed"
    FAILED = "failed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, with the least and the greatest of them."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Return the spread of some values; None where there are none."""
        return cls(median(values), min(values), max(values)) if values else None

    def document(self) -> dict[str, float]:
        """Return this as JSON has it."""
        return {"median": self.median, "min": self.least, "max": self.greatest}


@dataclass(frozen=True)
class Measured:
    """What an experiment has measured: its rounds, and why a contender gave up in them."""

    experiment: Experiment
    rounds: Sequence[Round]
    errors: dict[str, str]
    seconds: float

    def spread(self, contender: str, metric: str) -> Spread | None:
        """Return the spread of one metric of one contender."""
        found = [one.get(contender, {}).get(metric) for one in self.rounds]
        return Spread.of([value for value in found if value is not None])

    def document(self) -> dict[str, Any]:
        """Return this as JSON has it: each contender's metrics, round by round."""
        contenders: dict[str, dict[str, list[float]]] = {}
        for one in self.rounds:
            for name, sample in one.items():
                for metric, value in sample.items():
                    contenders.setdefault(name, {}).setdefault(metric, []).append(value)
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "rounds": len(self.rounds),
            "contenders": contenders,
            "errors": self.errors,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Result:
    """A figure, its spread, the floor beside it, and how it compares with its bar."""

    figure: Figure
    verdict: Verdict
    spread: Spread | None
    floor: Spread | None
    to_floor: float | None
    why: str = ""

    def document(self) -> dict[str, Any]:
        """Return this as JSON has it."""
        figure = self.figure
        return {
            "name": figure.name,
            "title": figure.title,
            "unit": figure.unit,
            "bar": figure.bar,
            "better": str(figure.better),
            "verdict": str(self.verdict),
            "value": self.spread and self.spread.document(),
            "floor": self.floor and self.floor.document(),
            "to_floor": self.to_floor,
            "why": self.why,
        }


@dataclass
class Report:
    """Everything that a run has measured."""

    quick: bool
    about: dict[str, str]
    results: list[Result] = field(default_factory=list[Result])
    measured: list[Measured] = field(default_factory=list[Measured])

    @property
    def met(self) -> bool:
        """Whether no bar was missed, and nothing of ours or of the floors failed."""
        return not {Verdict.MISSED, Verdict.FAILED} & {result.verdict for result in self.results}

    def document(self) -> dict[str, Any]:
        """Return this as JSON has it."""
        return {
            "met": self.met,
            "quick": self.quick,
            "about": self.about,
            "figures": [result.document() for result in self.results],
            "experiments": [measured.document() for measured in self.measured],
        }


def choose(experiments: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """Return the experiments with the figures that are named. Raises InvalidInput for another."""
    names = [figure.name for one in experiments for figure in one.figures]
    if unknown := set(only) - set(names):
        raise InvalidInput(
            f"There is no figure {', '.join(sorted(unknown))}.",
            hint=f"There are {', '.join(names)}.",
        )
    wanted = (
        replace(one, figures=[figure for figure in one.figures if figure.name in only])
        for one in experiments
    )
    return [one for one in wanted if one.figures] if only else list(experiments)


def run(
    lab: Lab,
    experiments: Sequence[Experiment],
    *,
    quick: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure each experiment, one after the other. Raises StoreUnsafe on a careless server."""
    report = Report(quick, about(lab))
    for one in experiments:
        measured = _measure(lab, one, tell)
        report.measured.append(measured)
        report.results += [result_of(figure, measured) for figure in one.figures]
    return report


def about(lab: Lab) -> dict[str, str]:
    """Return versions, the machine, and the settings under which commits are kept."""
    told = lab.about()
    found = {
        "settled": __version__,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "postgresql": told.pop("server_version"),
        "sqlite": f"{sqlite3.sqlite_version} (synchronous = FULL)",
        **told,
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _measure(lab: Lab, one: Experiment, tell: Callable[[str], None]) -> Measured:
    """Run the rounds. Contenders take turns within each, and every other round begins at the end.

    A contender that fails is not tried again.
    """
    begun = elapsed_seconds()
    rounds: list[Round] = []
    errors: dict[str, str] = {}
    with ExitStack() as lab.cleaning:
        contenders = list(one.prepare(lab).items())
        for number in range(min(one.rounds or lab.sizes.rounds, lab.sizes.rounds)):
            found: Round = {}
            for name, measure in contenders if number % 2 == 0 else reversed(contenders):
                if name in errors:
                    continue
                tell(f"{one.title}, round {number + 1}: {name}")
                try:
                    found[name] = measure()
                except Exception as error:  # whatever it is, the others are measured
                    errors[name] = f"{type(error).__name__}: {error}"
                    tell(f"{one.title}, round {number + 1}: {name} failed: {error}")
            rounds.append(found)
    return Measured(one, rounds, errors, elapsed_seconds() - begun)


def result_of(figure: Figure, measured: Measured) -> Result:
    """Return a figure as it was measured."""
    values = [figure.value(one) for one in measured.rounds]
    spread = Spread.of([value for value in values if value is not None])
    floor = to_floor = None
    if figure.over is None and figure.beside is not None:
        floor = measured.spread(figure.beside, figure.metric)
        if spread is not None and floor is not None and floor.median:
            to_floor = spread.median / floor.median
    needed = [name for name in (figure.of, figure.over, figure.beside) if name is not None]
    failed = [f"{name}: {measured.errors[name]}" for name in needed if name in measured.errors]
    why = "; ".join(failed)
    if failed and (OURS in measured.errors or RAW in measured.errors or spread is not None):
        return Result(figure, Verdict.FAILED, spread, floor, to_floor, why)
    if spread is None:
        told = why or _why_not(figure, measured)
        return Result(figure, Verdict.NOT_MEASURED, None, floor, None, told)
    verdict = Verdict.MET if figure.meets(spread.median) else Verdict.MISSED
    return Result(figure, verdict, spread, floor, to_floor)


def _why_not(figure: Figure, measured: Measured) -> str:
    for name in (figure.of, figure.over):
        if name is not None and all(name not in one for one in measured.rounds):
            return f"{name} is not installed (extra `bench`)"
    return "too little was measured to tell"
