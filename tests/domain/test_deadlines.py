"""A deadline that grows on its way down lets work go on that nobody waits for any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.domain.deadlines import Deadline
from settled.domain.errors import InvalidInput
from settled.domain.permit import SendPermit

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@given(MOMENTS, MOMENTS, st.timedeltas())
def test_a_child_never_outlives_its_parent(end: datetime, now: datetime, limit: timedelta) -> None:
    """Whatever limit is asked for, at whatever time."""
    parent = Deadline(end)
    try:
        child = parent.child(limit, now)
    except InvalidInput:
        assert limit < timedelta(0)  # Before the calendar began, which nobody can mean.
        return
    assert child.at == min(end, now + limit) if limit < end - now else child == parent


@given(MOMENTS, MOMENTS)
def test_time_left_is_never_negative(end: datetime, now: datetime) -> None:
    """Case 22: a clock that stepped back or forth gives no negative age."""
    deadline = Deadline(end)
    assert deadline.left(now) >= timedelta(0)
    assert deadline.passed(now) == (deadline.left(now) == timedelta(0))


def test_session_turn_and_call_nest() -> None:
    session = Deadline.after(timedelta(hours=1), NOW)
    turn = session.child(timedelta(minutes=5), NOW)
    call = turn.child(timedelta(minutes=10), NOW + timedelta(minutes=1))
    assert call.at == turn.at == NOW + timedelta(minutes=5)
    assert call.left(NOW + timedelta(minutes=4)) == timedelta(minutes=1)


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no time zone"):
        Deadline(datetime(2026, 3, 1))
    with pytest.raises(InvalidInput, match="no time zone"):
        Deadline.after(timedelta(1), datetime(2026, 3, 1))


def test_a_limit_past_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidInput, match="outside of the calendar"):
        Deadline.after(timedelta.max, NOW)


def test_a_permit_ends_on_the_monotonic_clock() -> None:
    """A worker that froze and thaws after the end sends nothing."""
    permit = SendPermit(until_monotonic=100.0, until=NOW)
    assert permit.check(99.999) is None
    for late in (100.0, 103.5, float("inf"), float("nan")):
        assert permit.check(late) is not None
    assert permit.check(103.5) == (
        "the send permit ended at 2026-03-01T12:00:00+00:00, 3.500 s before the first byte; "
        "nothing was sent"
    )
