"""When to try again: full jitter of our own, and what the provider asked for.

Chance and the clock are passed in: the domain draws no random numbers and reads no clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from settled.domain.errors import InvalidInput, InvalidKind

MAX_SECONDS = 366 * 24 * 3600
"""The longest wait or total that makes sense to declare: a year."""

_MOST_DOUBLINGS = 1000  # 2.0 ** 1000 is still a float, and past any cap.
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_SMALLEST_EPOCH_SECONDS = 1_000_000_000  # 2001. A smaller reset is a number of seconds to wait.


@dataclass(frozen=True, slots=True)
class FullJitter:
    """Exponential backoff with full jitter: U(0, min(cap, base · 2^(n−1))) before retry n.

    At most `attempts` requests in all, and none begins once `total_seconds` have passed since the
    first. Raises `InvalidKind` for a declaration that cannot be meant. The formula is "Full
    Jitter" of M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
    """

    base_seconds: float
    cap_seconds: float
    attempts: int
    total_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse a declaration that cannot be meant."""
        _check_seconds("base_seconds", self.base_seconds)
        _check_seconds("cap_seconds", self.cap_seconds)
        if self.base_seconds > self.cap_seconds:
            raise InvalidKind("base_seconds is over cap_seconds.", hint="Swap them.")
        _check_attempts(self.attempts)
        if self.total_seconds is not None:
            _check_seconds("total_seconds", self.total_seconds)

    def delay(self, attempt: int, unit: float) -> timedelta:
        """Return the wait after the `attempt`th request failed, counted from 1.

        `unit` is a number in [0, 1) that the caller drew evenly.
        """
        if attempt < 1 or not 0 <= unit < 1:
            raise InvalidInput(
                f"No delay for attempt {attempt} with unit {unit}.",
                hint="Attempts count from 1; unit lies in [0, 1).",
            )
        grown = self.base_seconds * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)
        return timedelta(seconds=unit * min(self.cap_seconds, grown))

    def allows(self, attempt: int, elapsed: timedelta) -> bool:
        """Tell whether the `attempt`th request may begin, `elapsed` after the first one began."""
        if attempt > self.attempts:
            return False
        return self.total_seconds is None or elapsed < timedelta(seconds=self.total_seconds)


def retry_after(headers: Mapping[str, str], now: datetime, cap: timedelta) -> timedelta | None:
    """Return how long a provider asks to be left alone, from zero to `cap`; None if it does not.

    Understood, in this order: `Retry-After-Ms` (milliseconds), `Retry-After` (RFC 9110, section
    10.2.3: seconds or an HTTP date; fractions are taken too), and `X-RateLimit-Reset` (seconds
    since 1970, or to wait) unless `X-RateLimit-Remaining` says that requests are left. What cannot
    be read counts as absent. A moment that has passed is zero. `now` is aware.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    waits = (
        _seconds(given.get("retry-after-ms"), per_second=1000),
        _seconds(given.get("retry-after")),
        _until_date(given.get("retry-after"), now),
        _until_reset(given, now),
    )
    wait_seconds = next((wait for wait in waits if wait is not None), None)
    if wait_seconds is None:
        return None
    longest_seconds = max(cap.total_seconds(), 0.0)
    return timedelta(seconds=min(max(wait_seconds, 0.0), longest_seconds))


def _seconds(text: str | None, per_second: int = 1) -> float | None:
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    return float(text) / per_second  # A thousand digits are infinity, which the cap bounds.


def _until_date(text: str | None, now: datetime) -> float | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:  # RFC 9110: an HTTP date is in UTC, whatever form it has.
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()


def _until_reset(given: Mapping[str, str], now: datetime) -> float | None:
    reset = _seconds(given.get("x-ratelimit-reset"))
    left = _seconds(given.get("x-ratelimit-remaining"))
    if reset is None or (left is not None and left > 0):
        return None
    return reset - now.timestamp() if reset >= _SMALLEST_EPOCH_SECONDS else reset


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidKind(f"{name} is a {type(value).__name__}.", hint="Give seconds as a number.")
    if not (math.isfinite(value) and 0 < value <= MAX_SECONDS):
        raise InvalidKind(f"{name} is {value}.", hint="Give seconds, more than 0, up to a year.")


def _check_attempts(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidKind(f"attempts is {value!r}.", hint="Give a whole number, 1 or more.")
