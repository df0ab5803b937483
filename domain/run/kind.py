"""A run kind: the function that runs, how long it may take, how much it may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from settled.domain.errors import InvalidKind
from settled.domain.identity import Identity
from settled.domain.retry import FullJitter
from settled.domain.run.records import RunBudget

Migration = Callable[[Any, int], Any]
"""Brings the state of a checkpoint from an older version to today's; also told which one it has."""


@dataclass(frozen=True)
class RunKind:
    """One sort of run.

    `resume` is an `async` function of one argument, a `settled.ActiveRun`. It is called from its
    first line whenever a worker takes the run: what was recorded is given back instead of being
    made again, each call by its own name. What it returns is the run's result.

    `session`, `turn` and `call` bound the run, each turn, and each call; an inner deadline never
    outlives an outer one. `budget` counts over all that replaces the run. `retry` says how often,
    and how soon, the function is called again after it raised. `agent_build` names the code that
    starts a run. A run of another `state_version` is left alone, unless `migrate` brings the state
    of its last checkpoint to this one.
    """

    name: str
    resume: Callable[[Any], Awaitable[Any]]
    agent_build: str = ""
    state_version: int = 1
    migrate: Migration | None = None
    session: timedelta = timedelta(days=7)
    turn: timedelta = timedelta(hours=1)
    call: timedelta = timedelta(minutes=5)
    budget: RunBudget = field(default_factory=RunBudget)
    retry: FullJitter = field(default_factory=lambda: FullJitter(1, 60, 5))

    def __post_init__(self) -> None:
        Identity("tenant", self.name, "run")  # raises for a name that cannot be used
        for name in ("session", "turn", "call"):
            if getattr(self, name) <= timedelta():
                raise InvalidKind(f"{self.name}: {name} must be longer than nothing.")
        if isinstance(self.state_version, bool) or self.state_version < 1:
            raise InvalidKind(f"{self.name}: state_version counts from 1.")
        if not callable(self.resume):
            raise InvalidKind(
                f"{self.name}: resume is no function.",
                hint="async def support(run: settled.ActiveRun) -> …: …",
            )
