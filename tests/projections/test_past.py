"""An operation as it was: what somebody who debugs types, and what is told of then and now."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from settled import InvalidInput, NotFound
from settled.domain.journal.unit import RecordedEvent
from settled.domain.operation.operation import Operation
from settled.projections.history import history_of
from settled.projections.operation_view import OperationView, view_of
from settled.projections.past import Change, Gap, as_of, changes, gaps, moment_of
from tests.projections.histories import BEGAN, history, mapper
from tests.projections.test_why import SENT, UNKNOWN, operation, sealed


def test_a_version_or_a_time_is_understood() -> None:
    """Times are copied from what `ops history` prints, which is UTC."""
    assert moment_of("3") == 3
    at = datetime(2026, 11, 30, 14, 3, 9, tzinfo=UTC)
    for text in ("2026-11-30T14:03:09Z", "2026-11-30 14:03:09", "2026-11-30 15:03:09+01:00"):
        assert moment_of(text) == at
    assert moment_of("2026-11-30 14:03:09.000 UTC") == at
    with pytest.raises(InvalidInput, match="yesterday is neither"):
        moment_of("yesterday")


def test_as_of_takes_the_beginning_of_the_stream() -> None:
    """A version is included, and so is a moment; before the first event there is nothing."""
    records = sealed(operation(*SENT))
    assert len(as_of(records, 2)) == 2
    assert len(as_of(records, BEGAN + timedelta(seconds=1))) == 2
    assert len(as_of(records, BEGAN + timedelta(days=1))) == 3
    for version in (0, 4):
        with pytest.raises(NotFound, match="no version"):
            as_of(records, version)
    with pytest.raises(NotFound, match="nothing yet"):
        as_of(records, BEGAN - timedelta(seconds=1))


def test_what_changed_is_told_in_words() -> None:
    """From dispatching to unknown: the state, the reason, the rule and the next time."""
    records = sealed(operation(*UNKNOWN))
    before, after = (view_of(_folded(records[:n])) for n in (3, 4))
    found = {change.name: str(change) for change in changes(before, after)}
    assert found["state"] == "state is outcome_unknown, and was dispatching"
    assert found["reason"] == "reason is no reply within 30 s, and was not there"
    assert set(found) <= {"state", "reason", "rule", "next_at", "since"}
    assert not changes(after, after)
    assert str(Change("receipt", {"id": "re_1"}, None)).startswith("receipt is gone")
    assert str(Change("cancel_requested", False, True)) == "cancel requested is yes, and was no"


def test_any_two_versions_can_be_compared() -> None:
    """The picture of an operation has nothing that stands in the way, whatever happened to it."""
    for seed in range(100):
        _, records = history(random.Random(seed), 10)
        pictures = [view_of(_folded(records[: n + 1])) for n in range(len(records))]
        for before, after in zip(pictures, pictures[1:], strict=False):
            assert all(str(change) for change in changes(before, after))
            assert after == replace(
                before,
                version=after.version,
                **{change.name: change.after for change in changes(before, after)},
            )


def test_gaps_between_intent_dispatch_and_answer() -> None:
    """How long it waited to be sent and how long it went unanswered; a cancel is no answer."""
    records = sealed(operation(*SENT, "CancelRequested", "OutcomeUnknown"))
    assert gaps(history_of(records)) == [Gap("waiting", 1, 3, 2.0), Gap("answering", 3, 5, 2.0)]
    retried = sealed(operation(*SENT, "RetryScheduled", "Claimed", "Dispatching"))
    assert [gap.what for gap in gaps(history_of(retried))] == ["waiting", "answering"]
    assert gaps([]) == []


def test_erased_details_leave_the_rest() -> None:
    """A body that was erased is no error: what it held reads as nothing."""
    records = sealed(operation(*UNKNOWN))
    erased = [replace(records[0], body=None), *records[1:]]
    assert history_of(erased)[0].erased
    (params,) = (c for c in changes(_view(records), _view(erased)) if c.name == "params")
    assert params.after is None and "gone" in str(params)


def _view(records: Sequence[RecordedEvent]) -> OperationView:
    return view_of(_folded(records))


def _folded(records: Sequence[RecordedEvent]) -> Operation:
    folded = mapper().fold(records)
    assert isinstance(folded, Operation)
    return folded
