"""A state machine that two releases work on: what they have in common.

A crate is weighed a few times and shipped. The releases differ in how a weight is recorded: the
older one in kilos (`crates_old`), the newer one in grams (`crates_new`). A process is one of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import settled
from settled import ABSENT, Arrow, Event, Lifecycle, Position, Record, Rest, Stamp, State

KIND = "crate"
TIMES = 20
"""How often a crate is weighed."""

KILOS = 5
PAUSE = timedelta(milliseconds=150)


class Packed(Event):
    """A crate was packed."""

    TOPIC: ClassVar[str] = "verify.crate.Packed"
    tenant: str
    identity: str


class Shipped(Event):
    """It has left, with what it weighed altogether."""

    TOPIC: ClassVar[str] = "verify.crate.Shipped"
    grams: int


class Crate(settled.StateMachine):
    """What both releases know of a crate. A release names its events."""

    LIFECYCLE = Lifecycle(
        "crate",
        states=[State("packed", "Weighed now and then."), State("shipped", "Gone.", settled=True)],
        arrows=[
            Arrow((ABSENT,), "Packed", "packed"),
            Arrow(("packed",), "Weighed", None),
            Arrow(("packed",), "Shipped", "shipped"),
        ],
    )

    def prepare(self) -> None:
        """Begin with no weights."""
        super().prepare()
        self.grams: tuple[int, ...] = ()

    def next_due(self) -> datetime | None:
        """Weigh it again soon."""
        if self.settled:
            return None
        return self.modified_on + PAUSE if self.grams else self.created_on


class Weigher:
    """Weighs crates under one release's event, and ships them."""

    name = "weigher"

    def __init__(self, weighed: type[Event], weight: dict[str, int]) -> None:
        self._weighed = weighed
        self._weight = weight

    def interested(self, machine: settled.StateMachine) -> bool:
        """Crates that are not shipped."""
        return isinstance(machine, Crate) and not machine.settled

    def decide(self, machine: Crate, stamp: Stamp, position: Position) -> settled.Decision:
        """Weigh, or ship what was weighed often enough."""
        if position.draining:
            return Rest()
        fields: dict[str, Any] = {"by": position.worker, **self._weight}
        if len(machine.grams) < TIMES:
            machine.record(self._weighed, stamp, **fields)
        else:
            machine.record(Shipped, stamp, grams=sum(machine.grams))
        return Record()


def stream_of(name: str) -> UUID:
    """Return the stream of a crate of acme's."""
    return settled.stream_id("acme", KIND, KIND, name)
