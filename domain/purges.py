"""The record of purges: one stream for each tenant, which says what went, when, why and by whom.

It is a stream like any other, chained and anchored, and written in the unit that purges. So who
drops events and makes a tombstone for them, without a word here, is found by the audit.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from settled.domain.clock import Stamp
from settled.domain.identity import stream_id
from settled.domain.machine import ABSENT, Arrow, Event, Lifecycle, State, StateMachine

KIND = "purges"
"""The kind of the record of purges, and its name."""

LIFECYCLE = Lifecycle(
    KIND,
    states=(State("recorded", "Only ever added to. Nothing of it falls due.", settled=True),),
    arrows=(
        Arrow((ABSENT,), "Recorded", "recorded"),
        Arrow(("recorded",), "Recorded", None),
    ),
)


class Entry(BaseModel):
    """One stream that was purged.

    `version` and `hash` (hexadecimal) are those of the event that stands for the `events` that
    went with it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    identity: str
    stream: UUID
    version: int
    events: int
    hash: str


class Recorded(Event):
    """Somebody (`actor`) purged these streams. `streams` counts all purges of the tenant so far.

    It is WHOLE, so that a purge need not read all those before it.
    """

    TOPIC: ClassVar[str] = "settled.purges.Recorded"
    WHOLE: ClassVar[bool] = True
    tenant: str
    identity: str
    reason: str
    purged: tuple[Entry, ...]
    streams: int

    def apply(self, machine: Purges) -> None:
        """Fold."""
        machine.streams = self.streams


class Purges(StateMachine):
    """What was purged of one tenant."""

    TOPIC = "settled.purges"
    LIFECYCLE = LIFECYCLE
    EVENTS = (Recorded,)

    @staticmethod
    def stream(tenant: str) -> UUID:
        """Return the stream of a tenant's record."""
        return stream_id(tenant, KIND, KIND, KIND)

    def prepare(self) -> None:
        """Give every attribute its first value."""
        super().prepare()
        self.streams = 0

    def next_due(self) -> datetime | None:
        """Return None: nothing has to be done about it."""
        return None


def record(
    purges: Purges | None, tenant: str, entries: tuple[Entry, ...], stamp: Stamp, reason: str
) -> Purges:
    """Record purges in the tenant's record as it is now; None where there is none yet."""
    before = purges.streams if purges is not None else 0
    said = {
        "tenant": tenant,
        "identity": KIND,
        "reason": reason,
        "purged": entries,
        "streams": before + len(entries),
    }
    if purges is None:
        return Purges.begin(Recorded, Purges.stream(tenant), stamp, **said)
    purges.record(Recorded, stamp, **said)
    return purges
