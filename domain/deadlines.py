"""Deadlines that nest: a session's bounds its turns', a turn's bounds its calls'.

They are absolute instants, because a number of seconds left means nothing after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from settled.domain.errors import InvalidInput

_NONE_LEFT = timedelta(0)


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """The instant after which something must not begin, or go on."""

    at: datetime

    def __post_init__(self) -> None:
        """Refuse an instant that is none without a time zone."""
        _check_aware(self.at)

    @classmethod
    def after(cls, limit: timedelta, now: datetime) -> Deadline:
        """Return the deadline `limit` from `now`. A negative limit has passed already."""
        _check_aware(now)
        try:
            return cls(now + limit)
        except OverflowError:
            raise InvalidInput(
                f"A limit of {limit.days} days ends outside of the calendar.",
                hint="Give the limit that the business knows, such as timedelta(hours=20).",
            ) from None

    def child(self, limit: timedelta, now: datetime) -> Deadline:
        """Return a deadline `limit` from `now` that never outlives this one."""
        if limit >= self.at - now:
            return self
        return Deadline.after(limit, now)

    def left(self, now: datetime) -> timedelta:
        """Return the time left, zero once it has passed."""
        return max(self.at - now, _NONE_LEFT)

    def passed(self, now: datetime) -> bool:
        """Tell whether nothing is left."""
        return now >= self.at


def _check_aware(moment: datetime) -> None:
    if moment.utcoffset() is None:
        raise InvalidInput("The moment has no time zone.", hint="Use datetime.now(UTC).")
