"""What a figure is, what its bar is, and how an experiment that measures figures is registered."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from settled.bench.lab import Lab

OURS = "settled"
"""The contender whose figures have bars."""

RAW = "raw"
"""The contender that is the floor: the same rows, written by the driver alone."""

_MODULES = (
    *("settling", "intends", "pickup", "takeover", "appends", "pair", "agenda", "memory"),
    *("rebuilds", "starts"),
)

Sample = Mapping[str, float]
"""What one contender measured in one round, by the name of the metric."""

Contenders = Mapping[str, Callable[[], Sample]]
"""Who is measured, in this order: the contender's name -> one measurement."""


class Better(enum.StrEnum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Figure:
    """A number with a bar.

    It is `metric` of `of`; with `over`, the ratio to the same metric of that contender in the same
    round. `beside` names the floor that is shown with it where it is no ratio by itself.
    """

    name: str
    title: str
    metric: str
    unit: str
    bar: float
    better: Better
    of: str = OURS
    over: str | None = None
    beside: str | None = RAW

    def value(self, samples: Mapping[str, Sample]) -> float | None:
        """Return the figure of one round; None where a contender of it has not measured it."""
        found = samples.get(self.of, {}).get(self.metric)
        if found is None or self.over is None:
            return found
        against = samples.get(self.over, {}).get(self.metric)
        return found / against if against else None

    def meets(self, value: float) -> bool:
        """Tell whether a value is as good as the bar."""
        return value >= self.bar if self.better is Better.HIGHER else value <= self.bar


Prepare = Callable[["Lab"], Contenders]


@dataclass(frozen=True)
class Experiment:
    """What measures some figures together.

    `prepare` makes what all rounds share and returns the contenders. `rounds` is how often each is
    measured at most, where that is less often than elsewhere.
    """

    name: str
    title: str
    figures: Sequence[Figure]
    prepare: Prepare
    rounds: int | None = None


_registered: list[Experiment] = []


def experiment(
    name: str, title: str, *figures: Figure, rounds: int | None = None
) -> Callable[[Prepare], Prepare]:
    """Register a function as an experiment that measures these figures."""

    def register(prepare: Prepare) -> Prepare:
        _registered.append(Experiment(name, title, figures, prepare, rounds))
        return prepare

    return register


def registered() -> tuple[Experiment, ...]:
    """Return every experiment, in the order in which they are run."""
    for name in _MODULES:
        import_module(f"settled.bench.{name}")
    return tuple(_registered)
