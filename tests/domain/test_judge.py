"""Judging decides what both databases mean by admitted, so it is proven here without either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.domain.journal.judge import (
    MAX_EVENT_BYTES,
    MAX_GROUP_BYTES,
    Balance,
    Balances,
    Holding,
    Holdings,
    Seen,
    commit_group,
    invalid,
    judge,
    next_group,
)
from settled.domain.journal.unit import (
    FIRST_HASH,
    Answer,
    Busy,
    Change,
    Committed,
    Exists,
    GuardChange,
    Head,
    Invalid,
    Lost,
    RecordedEvent,
    Reference,
    ReferenceTaken,
    Refused,
    Stale,
    Unit,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HEAD = Head("refund", "refund-request-9", "ready", NOW, "acme/refund/stripe")


def an_event(stream: UUID, version: int, **columns: Any) -> RecordedEvent:
    values: dict[str, Any] = {
        "topic": "Intended",
        "state": b"{}",
        "tenant": "acme",
        "event_id": uuid4(),
        "schema_version": 1,
        "min_reader": 1,
        "recorded_at": NOW,
        "actor": "support-agent",
        "key_id": "key-1",
        "previous_hash": FIRST_HASH,
        "hash": FIRST_HASH,
    }
    return RecordedEvent(stream, version, **values | columns)


def a_change(expected: int = 0, events: int = 1, **columns: Any) -> Change:
    stream = uuid4()
    versions = range(expected + 1, expected + 1 + events)
    return Change(stream, expected, tuple(an_event(stream, v, **columns) for v in versions), HEAD)


def a_unit(*changes: Change, guards: Sequence[GuardChange] = ()) -> Unit:
    return Unit("acme", changes or (a_change(),), tuple(guards))


def seen(unit: Unit, **columns: Any) -> dict[UUID, Seen]:
    """What a transaction sees of a unit's streams when nothing stands in its way."""
    return {
        change.stream: replace(Seen(True, change.expected), **columns) for change in unit.changes
    }


def written(change: Change, first: int) -> Seen:
    ids = [event.event_id for event in change.events]
    return Seen(True, change.last, events=[(e, first + n) for n, e in enumerate(ids)])


def test_a_free_stream_at_the_expected_version_is_admitted() -> None:
    unit = a_unit(a_change(), a_change(3, 2))
    assert judge(unit, seen(unit), {}, {}) is None


def test_its_own_events_are_found_whatever_happened_since() -> None:
    """A lost answer is resolved by the events, not by the head, the row's lock or the guards."""
    change, other = a_change(0, 2), a_change(4)
    unit = a_unit(change, other, guards=[GuardChange("budget", "reserve", 5)])
    streams = {change.stream: written(change, 7), other.stream: written(other, 9)}
    streams[change.stream].version, streams[change.stream].free = 12, False
    assert judge(unit, streams, {}, {}) == Committed(((7, 8), (9,)), found=True)


def test_half_of_its_own_events_are_not_enough() -> None:
    """A unit is all or nothing, so one stream found and one not is a conflict, never success."""
    change, other = a_change(), a_change(4)
    streams = {change.stream: written(change, 7), other.stream: Seen(True, 4)}
    assert judge(a_unit(change, other), streams, {}, {}) == Exists(change.stream, 1)


@pytest.mark.parametrize(
    ("expected", "answer"), [(0, Exists), (3, Stale)], ids=["creation", "advance"]
)
def test_a_version_that_differs_is_final_even_where_the_row_is_locked(
    expected: int, answer: type[Exists] | type[Stale]
) -> None:
    unit = a_unit(a_change(expected))
    stream = unit.changes[0].stream
    assert judge(unit, seen(unit, version=5, free=False), {}, {}) == answer(stream, 5)


def test_who_lost_the_row_hears_it_before_busy_but_after_stale() -> None:
    """Lost is final like Stale; a stale writer has to read again before ownership matters."""
    change = replace(a_change(2), fence=7)
    unit = a_unit(change)
    assert judge(unit, seen(unit, owner=8, free=False), {}, {}) == Lost(change.stream, 8)
    assert judge(unit, seen(unit, owner=None), {}, {}) == Lost(change.stream, None)
    assert judge(unit, seen(unit, owner=8, version=3), {}, {}) == Stale(change.stream, 3)
    assert judge(unit, seen(unit, owner=7), {}, {}) is None


def test_a_stream_or_guard_that_somebody_holds_is_busy() -> None:
    unit = a_unit(guards=[GuardChange("budget", "reserve", 1)])
    held: Balances = {("acme", "budget"): Balance(False, 100, 0, 0)}
    assert judge(unit, seen(unit, free=False), held, {}) == Busy(str(unit.changes[0].stream))
    assert judge(unit, seen(unit), held, {}) == Busy("budget")


@pytest.mark.parametrize(
    ("acts", "answer"),
    [
        ([("reserve", 40)], None),
        ([("reserve", 41)], Refused("budget", 40)),
        ([("reserve", 10), ("reserve", 31)], Refused("budget", 30)),
        ([("release", 20), ("reserve", 60)], None),
        ([("release", 21)], Refused("budget", 20)),
        ([("consume", 21)], Refused("budget", 20)),
        ([("recount", 500)], None),
        ([("recount", 500), ("reserve", 1)], Refused("budget", -460)),
    ],
)
def test_guards_refuse_what_is_not_left(acts: list[tuple[Any, int]], answer: Answer) -> None:
    """Of 100, 20 are reserved and 40 consumed; a unit's own acts count against each other."""
    unit = a_unit(guards=[GuardChange("budget", act, amount) for act, amount in acts])
    balances: Balances = {("acme", "budget"): Balance(True, 100, 20, 40)}
    assert judge(unit, seen(unit), balances, {}) == answer
    assert balances["acme", "budget"].touched == (answer is None)


def test_a_guard_without_a_row_has_nothing_left() -> None:
    unit = a_unit(guards=[GuardChange("budget", "reserve", 1)])
    others: Balances = {("globex", "budget"): Balance(True, 100, 0, 0)}
    assert judge(unit, seen(unit), others, {}) == Refused("budget", 0)


acts = st.builds(
    GuardChange,
    key=st.sampled_from(["budget", "line"]),
    act=st.sampled_from(["reserve", "release", "consume"]),
    amount=st.integers(1, 60),
)


@given(
    st.lists(st.lists(acts, max_size=4), max_size=12),
    st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_guards_are_never_overspent_and_a_unit_is_taken_whole_or_not_at_all(
    group: list[list[GuardChange]], ceilings: tuple[int, int]
) -> None:
    balances: Balances = {
        ("acme", key): Balance(True, ceiling, 0, 0)
        for key, ceiling in zip(("budget", "line"), ceilings, strict=True)
    }
    for guards in group:
        before = dict(balances)
        unit = a_unit(guards=guards)
        answer = judge(unit, seen(unit), balances, {})
        if answer is not None:
            assert balances == before
            continue
        for key in ("budget", "line"):
            sums = {act: 0 for act in ("reserve", "release", "consume")}
            for guard in guards:
                sums[guard.act] += guard.amount if guard.key == key else 0
            was, now = before["acme", key], balances["acme", key]
            reserved = was.reserved + sums["reserve"] - sums["release"] - sums["consume"]
            assert (now.reserved, now.consumed) == (reserved, was.consumed + sums["consume"])
            assert now.reserved >= 0
            assert now.remaining >= 0


def naming(unit: Unit) -> Unit:
    return replace(unit, references=(Reference("stripe", "re_1", unit.changes[0].stream),))


RE_1 = ("acme", "stripe", "re_1")


def test_a_reference_goes_to_the_first_unit_of_a_group_that_is_admitted() -> None:
    """A unit that is refused takes none, and one that is told of the owner takes off no guard."""
    loser = naming(a_unit(guards=[GuardChange("budget", "reserve", 101)]))
    winner = naming(a_unit())
    rival = naming(a_unit(guards=[GuardChange("budget", "reserve", 1)]))
    balances: Balances = {("acme", "budget"): Balance(True, 100, 0, 0)}
    holdings: Holdings = {RE_1: Holding(True)}
    answers = [judge(unit, seen(unit), balances, holdings) for unit in (loser, winner, rival)]
    owner = winner.changes[0].stream
    assert answers == [Refused("budget", 100), None, ReferenceTaken("stripe", "re_1", owner)]
    assert holdings == {RE_1: Holding(True, owner, touched=True)}
    assert balances["acme", "budget"].remaining == 100


def test_a_reference_never_moves_so_who_has_it_is_said_before_busy() -> None:
    unit, owner = naming(a_unit()), uuid4()
    taken: Holdings = {RE_1: Holding(False, owner)}
    assert judge(unit, seen(unit, free=False), {}, taken) == ReferenceTaken("stripe", "re_1", owner)
    assert judge(unit, seen(unit), {}, {RE_1: Holding(False)}) == Busy("re_1")
    own: Holdings = {RE_1: Holding(False, unit.changes[0].stream)}
    assert judge(unit, seen(unit), {}, own) is None
    assert not own[RE_1].touched, "it is written once"


def test_one_unit_cannot_give_a_reference_to_two_streams() -> None:
    one, two = a_change(), a_change()
    references = tuple(Reference("stripe", "re_1", change.stream) for change in (one, two))
    unit = replace(a_unit(one, two), references=references)
    holdings: Holdings = {RE_1: Holding(True)}
    assert judge(unit, seen(unit), {}, holdings) == ReferenceTaken("stripe", "re_1", one.stream)
    assert holdings == {RE_1: Holding(True)}


def _with_head(**columns: Any) -> Unit:
    return a_unit(replace(a_change(), head=replace(HEAD, **columns)))


def _gap() -> Change:
    change = a_change(0, 3)
    return replace(change, events=(change.events[0], change.events[2]))


_twice = a_change()

_INVALID = {
    "empty": (Unit("acme", ()), "at least one change"),
    "no events": (a_unit(replace(a_change(), events=())), "at least one event"),
    "stream twice": (a_unit(_twice, _twice), "twice"),
    "gap": (a_unit(_gap()), "versions 1 to 2"),
    "wrong stream": (a_unit(replace(a_change(), stream=uuid4())), "those of its stream"),
    "other tenant": (replace(a_unit(), tenant="globex"), "never crosses tenants"),
    "large": (a_unit(a_change(state=bytes(MAX_EVENT_BYTES), body=b"x")), "bytes"),
    "naive": (a_unit(a_change(recorded_at=datetime(2026, 1, 1))), "no time zone"),
    "naive due": (_with_head(due_at=datetime(2026, 1, 1)), "no time zone"),
    "lane": (_with_head(lane="acme/refund"), "tenant/kind/provider"),
    "priority": (_with_head(priority=3), "priority"),
    "min_reader": (_with_head(min_reader=1 << 15), "min_reader"),
    "event min_reader": (a_unit(a_change(min_reader=-1)), "min_reader"),
    "zero": (a_unit(guards=[GuardChange("budget", "reserve", 0)]), "amount"),
    "huge": (a_unit(guards=[GuardChange("budget", "reserve", 1 << 62)]), "amount"),
    "act": (a_unit(guards=[GuardChange("budget", "seize", 1)]), "act"),  # type: ignore[arg-type]
    "nul": (a_unit(a_change(topic="a\0b")), "NUL"),
    "surrogate": (a_unit(a_change(actor="\ud800")), "surrogate"),
    "long": (a_unit(a_change(correlation="x" * 2001)), "2000"),
    "long reference": (
        replace(a_unit(), references=(Reference("stripe", "x" * 2001, uuid4()),)),
        "2000",
    ),
}


@pytest.mark.parametrize("name", _INVALID)
def test_what_no_database_takes_is_named_before_it_is_queued(name: str) -> None:
    """One bad member would otherwise fail its whole group in the database."""
    unit, reason = _INVALID[name]
    assert reason in (invalid(unit) or "")


def test_a_sound_unit_is_not_invalid() -> None:
    """The largest event, a text outside of the basic plane, and every guard act are accepted."""
    change = a_change(state=bytes(MAX_EVENT_BYTES), actor="😀", correlation="x" * 2000)
    guards = [GuardChange("budget", act, 1) for act in ("reserve", "recount")]
    assert invalid(a_unit(change, guards=guards)) is None


def test_a_group_holds_a_stream_once_and_keeps_its_order() -> None:
    first = a_unit()
    follow = a_unit(replace(first.changes[0], expected=1))
    bound = a_unit(a_change(), follow.changes[0])
    last = a_unit(bound.changes[0])
    other = a_unit()
    assert next_group([first, follow, bound, last, other], 10) == (
        [first, other],
        [follow, bound, last],
    )


def test_a_group_is_bounded_by_number_and_by_bytes() -> None:
    many = [a_unit() for _ in range(5)]
    assert next_group(many, 2) == (many[:2], many[2:])
    large = a_unit(*(a_change(state=bytes(MAX_EVENT_BYTES)) for _ in range(9)))
    assert large.size > MAX_GROUP_BYTES
    assert next_group([large, many[0]], 10) == ([large], [many[0]])
    assert next_group([many[0], large], 10) == ([many[0]], [large])


class Poison(Exception):
    """What the database of the next tests raises about one unit."""


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_poison_fails_alone(poisoned: set[int], malformed: set[int]) -> None:
    """Whatever members a database refuses, each of the others is attempted with success once."""
    units = [a_unit(a_change(topic="a\0b" if n in malformed else "Intended")) for n in range(41)]
    bad = {units[n].changes[0].stream for n in poisoned}
    committed: list[UUID] = []

    def attempt(group: Sequence[Unit]) -> list[Answer]:
        streams = [unit.changes[0].stream for unit in group]
        assert not any(invalid(unit) for unit in group)
        if not bad.isdisjoint(streams):
            raise Poison
        committed.extend(streams)
        return [Committed(((1,),)) for _ in group]

    answers = commit_group(attempt, units, (Poison,))
    refused = {n for n, answer in enumerate(answers) if isinstance(answer, Invalid)}
    assert refused == poisoned | malformed
    assert len(committed) == len(set(committed)) == 41 - len(refused)


def test_an_error_that_is_not_poison_is_not_swallowed() -> None:
    """A lost connection says nothing about any unit, so no unit may be called invalid for it."""

    def attempt(group: Sequence[Unit]) -> list[Answer]:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        commit_group(attempt, [a_unit(), a_unit()], (Poison,))
