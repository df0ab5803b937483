"""What is drawn for a history before it begins: how large it is, what goes wrong, and how often.

Every history draws another mixture, and leaves most faults out: those that hide each other when all
of them happen at once meet alone in some history.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from tests.simulation.contracts import CONDUCTS

LARGEST = 50
"""Operations in the largest histories."""

_PLANS = (
    ("refused connection", 2),
    ("connects slowly", 2),
    ("lost on the way", 3),
    ("reply lost", 4),
    ("performed late", 4),
    ("server error", 2),
    ("error after", 2),
    ("error, performed late", 2),
    ("declined", 2),
    ("rejected", 1),
    ("rate limited", 2),
    ("unauthorised", 1),
)
_LOOKUPS = (("lost", 2), ("server error", 1), ("rate limited", 1), ("slow", 2))
_FAULTS = (
    ("kill a worker", 4),
    ("freeze a worker", 2),
    ("freeze a loop", 2),
    ("stop a worker", 1),
    ("cut a process off", 2),
    ("store away", 1),
    ("kill a service", 1),
    ("kill every worker for long", 1),
)


class Draw:
    """Draws one of several words, each with its weight."""

    def __init__(self, chance: Random, weighted: Sequence[tuple[str, float]]) -> None:
        self._chance = chance
        self._words = [word for word, _ in weighted]
        self._sums = list(accumulate(weight for _, weight in weighted))

    def __call__(self) -> str:
        return self._words[bisect(self._sums, self._chance.random() * self._sums[-1])]


@dataclass
class Chances:
    """One history's mixture."""

    operations: int
    kinds: list[str]
    workers: int
    services: int
    lease_seconds: float
    concurrency: int
    span_seconds: float
    """How long operations come in and faults happen."""
    longest_down_seconds: float
    """How long a process stays away, a connection cut, or a loop frozen."""
    steps_between_faults: float
    dies_at_point: float
    freezes_at_point: float
    commit: Draw
    plan: Draw
    lookup_plan: Draw
    fault: Draw
    twice: float
    """How often an intent is given a second time."""
    acts: float
    """How many things a person does, for each operation."""
    lies: float
    """How often a person says what is not so."""
    resolves: bool
    """Whether what is handed over is settled by hand in the end."""


def draw(chance: Random) -> Chances:
    """Return the mixture of a history."""
    operations = min(1 + int(chance.expovariate(1 / 6)), LARGEST)
    if chance.random() < 0.01:
        operations = LARGEST

    def some(
        weighted: Sequence[tuple[str, float]], none: str, calm: float
    ) -> list[tuple[str, float]]:
        kept = [(word, weight) for word, weight in weighted if chance.random() < 0.5]
        return [(none, calm * sum(weight for _, weight in kept) + 0.1), *kept]

    commits: Sequence[tuple[str, float]] = (("lost", 1), ("away", 1), ("busy", 1))
    faults = [(word, weight) for word, weight in _FAULTS if chance.random() < 0.6]
    return Chances(
        operations=operations,
        kinds=chance.sample(sorted(CONDUCTS), chance.choice([1, 1, 2, 3, 5])),
        workers=chance.choice([1, 2, 2, 3]),
        services=chance.choice([1, 1, 2]),
        lease_seconds=chance.choice([1.0, 3.0, 10.0]),
        concurrency=chance.choice([1, 3, 100]),
        span_seconds=chance.choice([2.0, 30.0, 300.0, 4000.0]),
        longest_down_seconds=chance.choice([20.0, 60.0, 60.0, 1500.0, 6000.0]),
        steps_between_faults=chance.choice([60.0, 200.0, 800.0, 4000.0]),
        dies_at_point=chance.choice([0.0, 0.002, 0.01, 0.05]),
        freezes_at_point=chance.choice([0.0, 0.0, 0.002, 0.01]),
        commit=Draw(chance, some(commits, "done", chance.choice([3.0, 10.0, 40.0]))),
        plan=Draw(chance, some(_PLANS, "performed", chance.choice([0.5, 1.0, 4.0]))),
        lookup_plan=Draw(chance, some(_LOOKUPS, "found", chance.choice([0.5, 2.0]))),
        fault=Draw(chance, faults or [_FAULTS[0]]),
        twice=chance.choice([0.0, 0.3]),
        acts=chance.choice([0.0, 0.3, 1.0]),
        lies=chance.choice([0.0, 0.0, 0.1]),
        resolves=chance.random() < 0.5,
    )
