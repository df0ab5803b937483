"""A clock that only its owner moves: tests of deadlines, windows and waits take no time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

START = datetime(2026, 11, 30, 14, 3, 9, tzinfo=UTC)


class ManualClock:
    """The clock port (`settled.Clock`) with time that stands until it is moved.

    `at` is its time in UTC, to be read and set; chance comes from `seed`, so that a run repeats
    exactly. Its monotonic seconds move with `at`.
    """

    def __init__(self, seed: int = 0, at: datetime = START) -> None:
        self.at = at
        self._began = at
        self._random = random.Random(seed)

    def advance(self, by: timedelta) -> None:
        """Let that much time pass."""
        self.at += by

    def now(self) -> datetime:
        """Return the time that it was set to."""
        return self.at

    def refresh(self, older_than_seconds: float = 0.0) -> None:
        """Do nothing: there is no store to ask."""

    def monotonic(self) -> float:
        """Return the seconds since it was made, by its own time."""
        return (self.at - self._began).total_seconds()

    def new_ids(self, count: int) -> list[UUID]:
        """Return the next identifiers of this seed."""
        return [UUID(int=self._random.getrandbits(128), version=4) for _ in range(count)]

    def uniform(self) -> float:
        """Return the next number in [0, 1) of this seed."""
        return self._random.random()
