"""What an operation's events say to the recovery decision, and the step that comes out of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta


class StepKind(enum.StrEnum):
    """The one next thing to do."""

    DISPATCH = "dispatch"
    """Nothing is out: back to ready, and sent under the same key when it is due."""
    RESEND = "resend"
    """The same request with the same key, although an earlier one may have had an effect."""
    LOOK_UP = "look_up"
    WAIT = "wait"
    """Nothing until `not_before`, then ask again what to do, without a finding."""
    POLL = "poll"
    """Ask for the final outcome of what the provider has accepted."""
    SETTLE_SUCCEEDED = "settle_succeeded"
    SETTLE_FAILED = "settle_failed"
    SETTLE_REVERSED = "settle_reversed"
    ACCEPT = "accept"
    """The provider has it; `not_before` is the first poll."""
    CONFIRM_ABSENT = "confirm_absent"
    """It is proven that nothing was performed and nothing can be any more."""
    HAND_OVER = "hand_over"


@dataclass(frozen=True, slots=True)
class Step:
    """A decision: what, by which row of the table, why in plain words, and not before when.

    `rule` is stable and meant for counting and tests; `reason` is meant for a person. Without
    `not_before` it is due now. `alert` asks for somebody's attention at once.
    """

    kind: StepKind
    rule: str
    reason: str
    not_before: datetime | None = None
    alert: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """What the operation's events say, in the store's time (aware, UTC).

    `sent` counts the Dispatchings that may have reached the provider, *including* the one that the
    finding is about, even if that finding proves that it was not sent. `nothing_arrives_after` is
    the end of the last permit and of the call after it; the time that the provider may go on
    working is the contract's. `give_up_at` ends the automatic steps. `known_there`: the provider
    has called a request of this generation a duplicate, in progress, or its name taken; then "not
    found" is a contradiction and no proof.
    """

    now: datetime
    last_event_at: datetime
    first_sent_at: datetime | None
    sent: int
    dispatched: int
    attempts_allowed: int
    nothing_arrives_after: datetime | None
    sender_known: bool
    key_on_every_attempt: bool
    scope_unchanged: bool
    request_identical: bool
    credential_unchanged: bool
    timeout: timedelta
    give_up_at: datetime
    looked_up: int
    last_lookup_absent_at: datetime | None
    handle: str | None
    accepted_at: datetime | None
    waits: int
    known_there: bool = False

    @property
    def clock_went_back(self) -> bool:
        """Whether the time is before the last event: then no age can be trusted."""
        return self.now < self.last_event_at

    def age(self, moment: datetime) -> timedelta:
        """Return how long before `moment` the earliest request may have left; at worst for ever."""
        if self.sent <= 0:
            return timedelta()
        if self.clock_went_back or self.first_sent_at is None:
            return timedelta.max
        return max(moment - self.first_sent_at, timedelta())


def later(moment: datetime, wait: timedelta) -> datetime:
    """Return the moment after a wait, or the last one that a calendar has."""
    try:
        return moment + wait
    except OverflowError:
        return datetime.max.replace(tzinfo=moment.tzinfo)


def in_words(length: timedelta) -> str:
    """Return a length of time as people say it: 23 h 45 min, 2.5 s."""
    if length == timedelta.max:
        return "ever"
    minutes, seconds = divmod(length.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {seconds:.0f} s" if seconds >= 1 else f"{minutes} min"
    return f"{seconds:g} s"
