"""The base of the event that stands for all events before it, which are dropped with it."""

from __future__ import annotations

from typing import Any, ClassVar

from settled.domain.errors import DeclarationError
from settled.domain.journal.unit import PURGED
from settled.domain.machine.event import Event


class Tombstone(Event):
    """What is left of a settled stream: its state, and the proof of what was there.

    The transaction that appends it drops the older events, so a stream begins with it from then
    on, and goes on behind it. A subclass is called `Purged` in its lifecycle and sets in `apply`,
    beside everything else, the `state` and `since` of its machine. `gone` has the place and the
    hash of each event that is gone, from the first one on (`settled.domain.journal.gone`);
    `events` counts those that went with this purge, and `reason` is why.
    """

    WHOLE: ClassVar[bool] = True
    gone: str
    events: int
    reason: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse another name: stores and audits know such an event by its topic alone."""
        super().__pydantic_init_subclass__(**kwargs)
        if cls.TOPIC and cls.NAME != PURGED:
            raise DeclarationError(
                f"{cls.TOPIC} stands for older events.", hint=f"End its topic in .{PURGED}."
            )
