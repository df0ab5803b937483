"""What a process manager is: it looks at one stream that is due and returns a decision.

A manager never performs anything inside `decide`, and never nests handlers around a call: the
runner performs what was decided, and what went wrong comes back as a value to conclude from.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from settled.domain.clock import Stamp
from settled.domain.machine.machine import StateMachine


class Work(enum.StrEnum):
    """What is performed outside the journal; names the fault points around it."""

    CALL = "call"
    LOOKUP = "lookup"
    NOTIFY = "notify"


@dataclass(frozen=True, slots=True)
class Record:
    """The machine recorded events: commit them, and look again while it is still held."""


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do for this manager; the row is given back."""


@dataclass(frozen=True, slots=True)
class Perform:
    """Do something that takes time, and record what came of it.

    What the machine recorded so far is committed before `act` begins: that is what makes a
    Dispatching durable before its request. `act` returns its result; an exception it raises is its
    result too. `conclude(machine, result, stamp)` records what follows. When the stream has gone on
    without us meanwhile, `late` gets the newer machine and the same result: evidence is not lost.
    """

    work: Work
    detail: str
    act: Callable[[], Awaitable[Any]]
    conclude: Callable[[Any, Any, Stamp], None]
    late: Callable[[Any, Any, Stamp], None] | None = None


Decision = Record | Perform | Rest


@dataclass(frozen=True, slots=True)
class Position:
    """Who decides: the worker's name and epoch, and whether it is about to stop."""

    worker: str
    epoch: int
    draining: bool


class ProcessManager(Protocol):
    """Decides the next step of the streams that it is interested in."""

    @property
    def name(self) -> str:
        """The manager's name; events that it records carry it as their actor."""
        ...

    def interested(self, machine: StateMachine) -> bool:
        """Tell whether this manager decides for the machine in its present state."""
        ...

    def decide(self, machine: Any, stamp: Stamp, position: Position) -> Decision:
        """Return the next step of a machine that is due. Must not block."""
        ...
