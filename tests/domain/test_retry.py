"""Retries that come too early or for ever make an incident worse, so every wait is bounded."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.domain.errors import InvalidInput, InvalidKind
from settled.domain.retry import MAX_SECONDS, FullJitter, retry_after

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CAP = timedelta(hours=2)
UNIT = st.floats(0, 1, exclude_max=True)
SECONDS = st.floats(0.001, MAX_SECONDS)


@given(SECONDS, SECONDS, st.integers(1, 10_000), UNIT)
def test_a_delay_lies_within_the_grown_base_and_the_cap(
    one: float, other: float, attempt: int, unit: float
) -> None:
    """U(0, min(cap, base·2^(n−1))), for every attempt up to the ten-thousandth."""
    base, cap = sorted((one, other))
    delay = FullJitter(base, cap, attempts=8).delay(attempt, unit)
    ceiling = cap if attempt > 60 else min(cap, base * 2 ** (attempt - 1))
    assert timedelta(0) <= delay <= timedelta(seconds=ceiling)


def test_the_whole_range_is_used() -> None:
    """Full jitter starts at zero: half of it would let a crowd come back together."""
    retry = FullJitter(base_seconds=1, cap_seconds=60, attempts=8)
    assert retry.delay(3, 0.0) == timedelta(0)
    assert retry.delay(3, 0.5) == timedelta(seconds=2)
    assert retry.delay(7, 0.5) == timedelta(seconds=30)
    assert retry.delay(10_000, 0.5) == timedelta(seconds=30)


@pytest.mark.parametrize(("attempt", "unit"), [(0, 0.5), (1, 1.0), (1, -0.1), (1, float("nan"))])
def test_an_impossible_attempt_or_unit_is_refused(attempt: int, unit: float) -> None:
    with pytest.raises(InvalidInput):
        FullJitter(1, 60, 8).delay(attempt, unit)


def test_attempts_and_total_time_are_both_bounds() -> None:
    retry = FullJitter(1, 60, attempts=3, total_seconds=100)
    assert retry.allows(3, timedelta(seconds=99))
    assert not retry.allows(4, timedelta(0))
    assert not retry.allows(2, timedelta(seconds=100))
    assert FullJitter(1, 60, attempts=3).allows(3, timedelta(days=9))


@pytest.mark.parametrize(
    "declared",
    [
        {"base_seconds": 0},
        {"base_seconds": -1},
        {"base_seconds": float("nan")},
        {"base_seconds": 61},
        {"base_seconds": "1"},
        {"cap_seconds": float("inf")},
        {"cap_seconds": MAX_SECONDS + 1},
        {"attempts": 0},
        {"attempts": 1.5},
        {"attempts": True},
        {"total_seconds": 0},
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(InvalidKind):
        FullJitter(**{"base_seconds": 1, "cap_seconds": 60, "attempts": 8, **declared})


def http_date(moment: datetime) -> str:
    return format_datetime(moment.astimezone(UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3600"}, 3600),
        ({"retry-after": "0.5"}, 0.5),
        ({"RETRY-AFTER": " 30 "}, 30),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": http_date(NOW + timedelta(seconds=90))}, 90),
        ({"Retry-After": "Sunday, 01-Mar-26 12:01:30 GMT"}, 90),
        ({"Retry-After": "Sun Mar  1 12:01:30 2026"}, 90),
        ({"Retry-After": http_date(NOW - timedelta(days=1))}, 0),
        ({"Retry-After": str(10**12)}, CAP.total_seconds()),
        ({"Retry-After": "9" * 1000}, CAP.total_seconds()),
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, CAP.total_seconds()),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After-Ms": "soon", "Retry-After": "1"}, 1),
        ({"X-RateLimit-Reset": str(int(NOW.timestamp()) + 45)}, 45),
        ({"X-RateLimit-Reset": str(int(NOW.timestamp()) - 45)}, 0),
        ({"X-RateLimit-Reset": "45"}, 45),
        ({"X-RateLimit-Reset": "45", "X-RateLimit-Remaining": "0"}, 45),
        ({"Retry-After": "7", "X-RateLimit-Reset": "45"}, 7),
    ],
)
def test_every_form_of_retry_after_is_understood(headers: dict[str, str], seconds: float) -> None:
    """Case 10: seconds, an HTTP date, 0.5, a date in the past, 10^12."""
    assert retry_after(headers, NOW, CAP) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Retry-After": ""},
        {"Retry-After": "soon"},
        {"Retry-After": "-5"},
        {"Retry-After": "NaN"},
        {"Retry-After": "inf"},
        {"Retry-After": "1e3"},
        {"Retry-After": "120, 120"},
        {"Retry-After": "99 99 99 99:99:99"},
        {"X-RateLimit-Reset": "2026-03-01"},
        {"X-RateLimit-Reset": "45", "X-RateLimit-Remaining": "4999"},
    ],
)
def test_what_cannot_be_read_counts_as_absent(headers: dict[str, str]) -> None:
    """Then the backoff of our own decides, which is bounded too."""
    assert retry_after(headers, NOW, CAP) is None


@given(
    st.dictionaries(
        st.sampled_from(["Retry-After", "retry-after-ms", "x-ratelimit-reset"]),
        st.text(string.printable) | st.integers().map(str) | st.floats().map(str),
    ),
    st.datetimes(timezones=st.just(UTC)),
)
def test_no_header_leads_past_the_bounds(headers: dict[str, str], now: datetime) -> None:
    """Providers send anything, and a clock may have jumped (case 22)."""
    wait = retry_after(headers, now, CAP)
    assert wait is None or timedelta(0) <= wait <= CAP


def test_a_date_is_compared_as_an_instant() -> None:
    abroad = NOW.astimezone(timezone(timedelta(hours=9)))
    headers = {"Retry-After": http_date(NOW + timedelta(seconds=90))}
    assert retry_after(headers, abroad, CAP) == timedelta(seconds=90)
