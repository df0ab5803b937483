"""The base of every state machine, and how its events are stored: guards, topics, mapper, chain.

Users build on it, and streams that are stored once have to be read for years.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar
from uuid import UUID, uuid5

import pytest
from eventsourcing.domain import OriginatorIDError, OriginatorVersionError
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.domain.clock import Stamp
from settled.domain.errors import (
    DeclarationError,
    InvalidLifecycle,
    NotPossible,
    StoreTooNew,
    TransitionRefused,
)
from settled.domain.journal.mapper import READER, EventMapper, hash_of
from settled.domain.journal.unit import FIRST_HASH, RecordedEvent
from settled.domain.keys import DerivedKeys
from settled.domain.machine import ABSENT, Arrow, Event, Lifecycle, State, StateMachine
from settled.domain.machine.event import TOPICS
from settled.processes.ledger import head_of

STREAM = UUID("6d0f2f0e-6d8c-5f0b-9a53-3f5b0b1f7c11")
NOW = datetime(2026, 11, 30, 14, 3, 9, 123456, tzinfo=UTC)
STAMP = Stamp(NOW, "ada")
KEYS = DerivedKeys(b"a secret of the installation")


class Opened(Event):
    """A tab was opened, with a limit in cents."""

    TOPIC: ClassVar[str] = "test.tab.Opened"
    tenant: str
    identity: str
    limit: int

    def apply(self, tab: Tab) -> None:
        tab.left = self.limit


class Bought(Event):
    """Something was put on the tab. `note` may have to be erased."""

    TOPIC: ClassVar[str] = "test.tab.Bought"
    SCHEMA_VERSION: ClassVar[int] = 2
    BODY: ClassVar[frozenset[str]] = frozenset({"note"})
    cents: int
    note: str | None = None

    @classmethod
    def upcast(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {"cents": fields["euros"] * 100, "note": fields.get("note")}

    def apply(self, tab: Tab) -> None:
        tab.left -= self.cents
        tab.notes += (self.note,)


class Paid(Event):
    """The tab is settled. Only readers of the second kind know what that means."""

    TOPIC: ClassVar[str] = "test.tab.Paid"
    MIN_READER: ClassVar[int] = READER


class Tab(StateMachine):
    """What somebody still has to pay."""

    TOPIC = "test.tab"
    EVENTS = (Opened, Bought, Paid)
    LIFECYCLE = Lifecycle(
        "tab",
        states=[State("open", "Still bought on."), State("paid", "Over.", settled=True)],
        arrows=[
            Arrow((ABSENT,), "Opened", "open"),
            Arrow(("open",), "Bought", None, guard="must_have_credit"),
            Arrow(("open",), "Paid", "paid"),
        ],
    )

    def prepare(self) -> None:
        super().prepare()
        self.left = 0
        self.notes: tuple[str | None, ...] = ()

    def must_have_credit(self) -> None:
        if self.left <= 0:
            raise TransitionRefused("The limit is reached.")

    def next_due(self) -> datetime | None:
        return None if self.settled else self.created_on + timedelta(days=1)


def opened(limit: int = 1000) -> Tab:
    return Tab.begin(Opened, STREAM, STAMP, tenant="acme", identity="tab-1", limit=limit)


def ids(count: int) -> list[UUID]:
    return [uuid5(STREAM, str(n)) for n in range(count)]


def sealed(machine: StateMachine) -> tuple[RecordedEvent, ...]:
    return EventMapper(KEYS).seal(machine, ids)


def folded(records: Sequence[RecordedEvent]) -> Tab:
    tab = EventMapper(KEYS).fold(records)
    assert isinstance(tab, Tab)
    return tab


def full_tab() -> tuple[RecordedEvent, ...]:
    tab = opened()
    tab.record(Bought, STAMP, cents=250, note="two coffees")
    tab.record(Bought, Stamp(NOW, "bo", "visit-1", STREAM), cents=100)
    tab.record(Paid, STAMP)
    return sealed(tab)


# Commands.


def test_recording_folds_at_once_and_keeps_what_is_pending() -> None:
    """A command sees the state that the one before it led to, before anything is stored."""
    tab = opened()
    assert (tab.tenant, tab.kind, tab.identity) == ("acme", "tab", "tab-1")
    assert (tab.state, tab.version, tab.settled, tab.held) == ("open", 1, False, False)
    assert (tab.lane, tab.priority) == ("acme/tab/-", 1)
    tab.record(Bought, STAMP, cents=400)
    assert (tab.left, tab.version) == (600, 2)
    tab.record(Paid, STAMP)
    assert (tab.state, tab.settled, tab.next_due()) == ("paid", True, None)
    assert [type(event) for event in tab.pending_events] == [Opened, Bought, Paid]


def test_a_refused_command_records_nothing() -> None:
    """By the table or by its guard: the stream stays as it was."""
    tab = opened(limit=100)
    tab.record(Bought, STAMP, cents=100)
    with pytest.raises(TransitionRefused, match="limit is reached"):
        tab.record(Bought, STAMP, cents=1)
    tab.record(Paid, STAMP)
    with pytest.raises(TransitionRefused, match="does not happen to a tab that is paid"):
        tab.record(Bought, STAMP, cents=1)
    assert (tab.version, len(list(tab.pending_events))) == (3, 3)
    with pytest.raises(NotPossible):
        Tab.begin(Paid, STREAM, STAMP)


def test_times_of_a_stream_never_go_back() -> None:
    """Two workers' clocks differ a little; a history that ran backwards explains nothing."""
    tab = opened()
    tab.record(Bought, STAMP.later(NOW - timedelta(seconds=5)), cents=1)
    tab.record(Bought, STAMP.later(NOW + timedelta(seconds=5)), cents=1)
    times = [record.recorded_at for record in sealed(tab)]
    assert times == [NOW, NOW, NOW + timedelta(seconds=5)]


def test_an_event_folds_into_its_own_place_only() -> None:
    """A gap or a foreign event would be a state that never was."""
    tab, events = opened(), [EventMapper(KEYS).to_domain_event(r) for r in full_tab()]
    with pytest.raises(OriginatorVersionError):
        events[2].mutate(tab)
    other = events[1].model_copy(update={"originator_id": UUID(int=1)})
    with pytest.raises(OriginatorIDError):
        other.mutate(tab)


class Nameless(Event):
    """A first event without the fields that name the stream."""

    TOPIC: ClassVar[str] = "test.nameless.Nameless"


class Unnamed(StateMachine):
    """A machine whose author forgot both."""

    TOPIC = "test.unnamed"
    EVENTS = (Nameless,)
    LIFECYCLE = Lifecycle(
        "unnamed",
        states=[State("on", "?", settled=True)],
        arrows=[Arrow((ABSENT,), "Nameless", "on")],
    )


class Undue(Tab):
    """Forgets that an open state needs a due time."""

    TOPIC = "test.undue"

    def next_due(self) -> datetime | None:
        return None


def test_mistakes_of_a_machine_are_named() -> None:
    """Its author has to learn what is missing, and not from a stream that nobody looks at."""
    with pytest.raises(DeclarationError, match="has no attribute 'tenant'|no attribute"):
        Unnamed.begin(Nameless, STREAM, STAMP)
    first = EventMapper(KEYS).to_domain_event(full_tab()[0])
    undue = Undue.shell(first)
    undue.state = "open"
    with pytest.raises(DeclarationError, match="A tab that is open is due at None"):
        head_of(undue)
    undue.state = "paid"
    assert head_of(undue).due_at is None


def test_table_and_events_have_to_agree() -> None:
    """An event without an arrow never happens; an arrow without an event cannot be stored."""
    half = {"LIFECYCLE": Tab.LIFECYCLE, "EVENTS": (Opened, Bought)}
    with pytest.raises(InvalidLifecycle, match="do not both name Paid"):
        type("Half", (StateMachine,), {"TOPIC": "test.half", **half})
    with pytest.raises(DeclarationError, match="Half has no TOPIC"):
        type("Half", (StateMachine,), half)


def test_a_topic_belongs_to_one_event() -> None:
    """Two classes under one topic: stored events would be read as something else."""
    with pytest.raises(DeclarationError, match=r"test\.tab\.Paid belongs to .*Paid already"):
        type("Other", (Event,), {"TOPIC": "test.tab.Paid", "__module__": __name__})
    with pytest.raises(DeclarationError, match=r"Give elsewhere\.Paid a topic of its own"):
        type("Paid", (Event,), {"TOPIC": "test.tab.Paid", "__module__": "elsewhere"})
    assert TOPICS["test.tab.Paid"] is Paid
    assert len({kind.TOPIC for kind in TOPICS.values()}) == len(TOPICS)


# Storing.

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
MOMENTS = st.datetimes(
    datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC) | st.just(timezone.max)
)


@settings(deadline=None)
@given(
    limit=st.integers(1, 2**70),
    bought=st.lists(st.tuples(st.integers(0, 9), TEXT | st.none()), max_size=5),
    actor=TEXT,
    correlation=TEXT | st.none(),
    causation=st.uuids() | st.none(),
    at=MOMENTS,
)
def test_what_is_stored_comes_back(
    limit: int,
    bought: list[tuple[int, str | None]],
    actor: str,
    correlation: str | None,
    causation: UUID | None,
    at: datetime,
) -> None:
    """Every value an event can have survives, with ids and times from the columns."""
    tab = opened(limit + 100)
    stamp = Stamp(max(at, NOW), actor, correlation, causation)
    for cents, note in bought:
        tab.record(Bought, stamp, cents=cents, note=note)
    events = list(tab.pending_events)
    records = sealed(tab)
    again = [EventMapper(KEYS).to_domain_event(record) for record in records]
    assert again == events
    other = folded(records)
    assert vars(other) | {"_pending_events": None} == vars(tab) | {"_pending_events": None}
    assert b"note" not in b"".join(record.state for record in records)


def broken(records: Sequence[RecordedEvent]) -> list[int]:
    """Return the versions at which the chain does not hold."""
    previous = FIRST_HASH
    found: list[int] = []
    for record in records:
        key = KEYS.key(record.tenant, record.key_id)
        body = record.body
        whole = body is None or record.body_digest == hmac.digest(key, body, hashlib.sha256)
        if record.previous_hash != previous or record.hash != hash_of(record) or not whole:
            found.append(record.originator_version)
        previous = record.hash
    return found


EDITS: list[dict[str, Any]] = [
    {"tenant": "globex"},
    {"originator_id": UUID(int=1)},
    {"originator_version": 9},
    {"event_id": UUID(int=1)},
    {"topic": "test.tab.Paid"},
    {"schema_version": 1},
    {"min_reader": 0},
    {"recorded_at": NOW + timedelta(microseconds=1)},
    {"actor": "eve"},
    {"correlation": ""},
    {"correlation": "visit-2"},
    {"causation": UUID(int=1)},
    {"state": b'{"cents":1}'},
    {"body": b'{"note":"one coffee"}'},
    {"body_digest": None},
    {"body_digest": b""},
    {"previous_hash": FIRST_HASH},
    {"hash": bytes(32)},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_any_edit_breaks_the_chain(edit: dict[str, Any]) -> None:
    """Whoever changes a row has to be found, also when what was missing is only made empty."""
    records = list(full_tab())
    assert broken(records) == []
    records[1] = replace(records[1], **edit)
    assert broken(records)


def test_leaving_out_or_swapping_breaks_the_chain() -> None:
    """And an edit that makes its own hash right breaks the next one."""
    one, two, three, four = full_tab()
    for records in ([one, three, four], [one, three, two, four], [two, three, four]):
        assert broken(records)
    forged = replace(two, actor="eve")
    assert broken([one, replace(forged, hash=hash_of(forged)), three, four]) == [3]
    assert broken([one, two, three]) == []


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_hashes_tell_every_two_states_apart(one: bytes, other: bytes) -> None:
    """No two records share an encoding, wherever the border between two parts lies."""
    record = full_tab()[0]
    first = replace(record, state=one, body_digest=other)
    second = replace(record, state=one + other[:1], body_digest=other[1:])
    assert (hash_of(first) == hash_of(second)) == (first == second)


def test_a_chain_goes_on_where_it_was_loaded() -> None:
    """The next commit builds on the last stored hash, not on a new beginning."""
    records = full_tab()[:2]
    tab = folded(records)
    tab.record(Paid, STAMP)
    assert broken([*records, *sealed(tab)]) == []


def test_an_erased_body_still_folds() -> None:
    """After an erasure the state is the same, the words are gone, and the chain holds."""
    records = [replace(record, body=None) for record in full_tab()]
    tab, before = folded(records), folded(full_tab())
    assert (tab.state, tab.left, tab.version) == (before.state, before.left, before.version)
    assert (tab.notes, before.notes) == ((None, None), ("two coffees", None))
    assert broken(records) == []


def test_an_old_schema_is_read_as_today_s() -> None:
    """Stored events are never rewritten, so each reader turns old fields into new ones."""
    one, two, *_ = full_tab()
    old = replace(two, schema_version=1, state=b'{"euros":3}')
    assert folded([one, old]).left == 700
    assert folded([one, old]).notes == ("two coffees",)


@pytest.mark.parametrize(
    "newer", [{"topic": "test.tab.Tipped"}, {"min_reader": READER + 1}, {"schema_version": 3}]
)
def test_what_newer_code_wrote_is_not_guessed_at(newer: dict[str, Any]) -> None:
    """Skipping it would be a state that newer code never saw."""
    one, two, *_ = full_tab()
    with pytest.raises(StoreTooNew, match="Event 2 of stream") as caught:
        folded([one, replace(two, **newer)])
    assert "that wrote it" in caught.value.hint


def test_the_head_carries_what_readers_have_to_know() -> None:
    """A worker that does not understand a stream must not be given it."""
    tab = opened()
    assert (tab.min_reader, head_of(tab).min_reader) == (1, 1)
    tab.record(Paid, STAMP)
    assert head_of(tab).min_reader == READER
    assert head_of(tab).state == "paid"
    assert EventMapper(KEYS).fold([]) is None
