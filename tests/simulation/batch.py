"""Some histories in one process, and the sum of what they have met."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.history import History
from tests.simulation.liveness import ends


@dataclass
class Sum:
    """What some histories have met."""

    histories: int = 0
    operations: Counter[int] = field(default_factory=Counter[int])
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    recorded: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    failed: list[tuple[int, list[str]]] = field(default_factory=list[tuple[int, list[str]]])

    def add(self, history: History) -> None:
        """Count one history."""
        self.histories += 1
        self.operations[history.chances.operations] += 1
        self.steps += history.scheduler.steps
        self.faults.update(history.tally)
        self.recorded.update(history.watch.tally)
        self.ends.update(ends(history))
        if history.violations:
            self.failed.append((history.seed, history.violations))

    def take(self, other: Sum) -> None:
        """Add what other histories have met."""
        self.histories += other.histories
        self.operations += other.operations
        self.steps += other.steps
        self.faults += other.faults
        self.recorded += other.recorded
        self.ends += other.ends
        self.failed += other.failed


def run(seeds: range) -> Sum:
    """Run some histories in this process."""
    gc.set_threshold(20_000, 20, 20)  # a history makes many objects, and lets go of all at once
    found = Sum()
    for seed in seeds:
        found.add(History(seed).run())
    return found
