"""The port to time, identifiers and chance, and the stamp that goes with every command.

The domain reads no clock and draws no random number. What it needs of either is passed in and
recorded, so that a history folds to the same state on any day and on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Stamp:
    """When, by whom and because of what a command was given. Recorded with each of its events.

    `at` is the store's time (UTC), `correlation` groups what belongs to one request or run, and
    `causation` is the id of the event that led to this command.
    """

    at: datetime
    actor: str
    correlation: str | None = None
    causation: UUID | None = None

    def later(self, at: datetime) -> Stamp:
        """Return the same stamp at another moment."""
        return replace(self, at=at)


class Clock(Protocol):
    """Time as the store tells it, and the other things that differ from call to call."""

    def now(self) -> datetime:
        """Return the store's time in UTC. It never runs backwards within a process."""
        ...

    def refresh(self, older_than_seconds: float = 0.0) -> None:
        """Ask the store for its time, unless the last sample is young enough."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that nobody can set; only differences mean something."""
        ...

    def new_ids(self, count: int) -> list[UUID]:
        """Return so many identifiers that nobody else has been given."""
        ...

    def uniform(self) -> float:
        """Return a number in [0, 1), for jitter."""
        ...
