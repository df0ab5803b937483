"""What the battery itself would find: a check that cannot fail would show nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from settled import HistoryEntry, Kind
from settled.infrastructure.simulator.record import Seen
from settled.verify import kinds
from settled.verify.checks_clocks import HOUR, expect_off
from settled.verify.invariant import Unsent, check_invariant
from settled.verify.soak import given_up

START = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
UNSENT: dict[str, Any] = {"evidence": {"phase": "not begun"}}


def entry(name: str, seconds: float, **fields: Any) -> HistoryEntry:
    """Return an event that was recorded so many seconds after the start."""
    at = START + timedelta(seconds=seconds)
    topic = f"settled.operation.{name}"
    return HistoryEntry(1, name, topic, at, "worker", None, None, None, fields, False, "")


def dispatching(seconds: float, key: str = "key-1", body: str = "body-1") -> HistoryEntry:
    """Return a Dispatching."""
    return entry("Dispatching", seconds, key=key, request_digest=body)


def call(seconds: float, key: str | None = "key-1", body: str = "body-1") -> Seen:
    """Return a request that the provider saw so many seconds after the start."""
    return Seen(
        number=1,
        at=START.timestamp() + seconds,
        method="POST",
        path="/v1/refunds",
        query={},
        headers={},
        key=key,
        body="{}",
        body_sha256=body,
        connection=1,
    )


WRONG: dict[str, tuple[list[HistoryEntry], list[Seen], str]] = {
    "of no operation": ([dispatching(0)], [call(1, key="key-2")], "belong to no Dispatching"),
    "of no body": ([dispatching(0)], [call(1, key=None, body="body-2")], "belong to no"),
    "too many": ([dispatching(0)], [call(1), call(2)], "2 requests after 1"),
    "too early": ([dispatching(1)], [call(0)], "before its commit"),
    "the second too early": ([dispatching(0), dispatching(5)], [call(1), call(2)], "before its"),
    "proven unsent": ([dispatching(0), entry("HandedOver", 1, **UNSENT)], [call(1)], "after 0"),
    "early, behind one that was proven unsent": (
        [dispatching(0), entry("RetryScheduled", 1, **UNSENT), dispatching(5)],
        [call(2)],
        "before its commit",
    ),
    "another body": ([dispatching(0)] * 2, [call(1), call(2, body="body-2")], "differ"),
    "another key": ([dispatching(0), dispatching(1, "key-2")], [], "one key and one body"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_request_is_found(wrong: str) -> None:
    """Each way in which a request can lack its Dispatching is found."""
    history, calls, said = WRONG[wrong]
    with pytest.raises(AssertionError, match=said):
        check_invariant([history], calls)


def test_what_was_not_sent_is_counted() -> None:
    """A Dispatching without a request is known to be unsent, or missing; others have theirs."""
    proven = [dispatching(0), entry("CancelRequested", 1), entry("OutcomeUnknown", 2, **UNSENT)]
    history = [*proven, dispatching(3), entry("OutcomeUnknown", 4), dispatching(5)]
    assert check_invariant([history], [call(6)]) == Unsent(missing=1, proven=1)


def test_equal_bodies_without_a_key_are_counted_together() -> None:
    """Nothing says which of two operations a request belongs to: both may have sent one."""
    histories = [[dispatching(0)], [dispatching(1, key="key-2")]]
    calls = [call(2, key=None), call(3, key=None)]
    assert check_invariant(histories, calls) == Unsent(0, 0)
    with pytest.raises(AssertionError, match="3 requests after 2"):
        check_invariant(histories, [*calls, call(4, key=None)])


def test_a_clock_that_is_right_is_found(tmp_path: Path) -> None:
    """A worker whose clock was not put wrong would show nothing of wrong clocks."""
    told = tmp_path / "told"
    told.write_text(str(datetime.now(UTC).timestamp()))
    expect_off(told, 0)
    with pytest.raises(AssertionError, match="off, not"):
        expect_off(told, HOUR)


def handed(rule: str, *, sent: int = 1, seconds: float = 1) -> list[HistoryEntry]:
    """Return the history of what was handed over after so many requests."""
    requests = [dispatching(0)] * sent
    return [entry("Intended", 0), *requests, entry("HandedOver", seconds, rule=rule)]


@pytest.mark.parametrize(
    ("kind", "history", "is_given_up"),
    [
        (kinds.soaked, handed("lost reply, window open"), True),
        (kinds.soaked, handed("lost reply, nothing left", sent=12), False),
        (kinds.soaked_lookup, handed("look again", seconds=601), False),
        (kinds.soaked_lookup, handed("duplicate, window open"), True),
        (kinds.soaked_resend, handed("duplicate, window open"), False),
        (kinds.soaked_nothing, handed("lost reply, nothing left"), False),
    ],
)
def test_handing_everything_over_is_no_success(
    kind: Kind[Any], history: Sequence[HistoryEntry], is_given_up: bool
) -> None:
    """A system that leaves to a person what the provider's contract solves is found."""
    assert given_up(kind, history) is is_given_up
