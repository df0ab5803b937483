"""Replay of what is stored: a gate for new code is worth what it notices, and must not cry wolf.

Old code is not kept for this: what newer code would have changed is changed in today's for a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import settled
from settled import App, NotPossible, TransitionRefused, UnknownKind, presets
from settled.domain import recovery
from settled.domain.contract import Retention
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import AgendaRow, Journal
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.machine.lifecycle import Lifecycle
from settled.domain.operation import events as ev
from settled.domain.operation.deciding_again import Decision
from settled.domain.operation.lifecycle import ARROWS, STATES
from settled.domain.operation.operation import Operation
from settled.domain.provider import Answered
from settled.infrastructure.seeding import seed
from settled.processes import replay
from settled.processes.replay import Odd, Oddity, RecordsOnly, historical, what_if
from tests.audit.raw import Intruder
from tests.projections.test_why import NoProvider, kind
from tests.simulation.history import INSTALLATION, History

OPERATIONS = 40


@pytest.fixture
def app(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """A store of each kind, with operations of every sort."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(replay, "PAGE", 7)
    with settled.open(store_url, migrate=True, require_fsync=False) as opened:
        seed(opened.journal, OPERATIONS)
        yield opened


def found(app: App) -> list[Oddity]:
    return list(historical(app.journal, app.ledger.mapper).oddities)


def first(app: App, name: str) -> tuple[AgendaRow, int]:
    """Return an operation that has an event of this name, and the event's version."""
    for row in app.journal.heads(limit=OPERATIONS):
        for record in app.journal.events(row.tenant, row.stream):
            if record.topic == f"settled.operation.{name}":
                return row, record.originator_version
    raise AssertionError(f"nothing was {name}")


def test_nothing_is_found_where_nothing_has_changed(app: App) -> None:
    """A page at a time, and progress is told; every stream and event counts."""
    told: list[tuple[int, int]] = []

    def tell(streams: int, events: int) -> None:
        told.append((streams, events))

    report = historical(app.journal, app.ledger.mapper, tell)
    assert not report.oddities and report.odd_count == 0
    assert report.streams == OPERATIONS
    assert report.events == len(app.journal.read(0, 1000).events)
    assert len(told) == 6 and told[-1] == (report.streams, report.events)


def test_what_this_code_cannot_know_is_named(app: App, store_url: str) -> None:
    """A topic that nobody declares, and an event of a later schema: each with its version."""
    intruder = Intruder(store_url)
    claimed, second = first(app, "Claimed")
    update = "UPDATE events SET {} WHERE stream = ? AND version = ?"
    intruder(update.format("topic = 'shop.parcel.Packed'"), claimed.stream, second)
    failed, version = first(app, "Failed")
    intruder(update.format("schema_version = 9"), failed.stream, version)
    by_stream = {one.stream: one for one in found(app)}
    assert by_stream[claimed.stream].odd is Odd.UNKNOWN_TOPIC
    assert by_stream[failed.stream].odd is Odd.TOO_NEW
    assert by_stream[failed.stream].version == version and len(by_stream) == 2


def test_an_upcast_that_fails_is_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """New code with a new schema, whose upcast does not expect what is stored."""

    def upcast(fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {**fields, "reason": fields["because"]}

    monkeypatch.setattr(ev.Failed, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(ev.Failed, "upcast", upcast)
    odd = found(app)
    assert odd and {one.odd for one in odd} == {Odd.NOT_UPCAST}
    assert all("because" in one.message for one in odd)


def test_a_lifecycle_that_refuses_what_happened_is_named(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New code that has lost an arrow, or has a guard that it did not have."""
    row, version = first(app, "HandedOver")
    kept = tuple(arrow for arrow in ARROWS if arrow.event != "HandedOver")
    with monkeypatch.context() as changed:
        changed.setattr(Operation, "LIFECYCLE", Lifecycle("operation", states=STATES, arrows=kept))
        odd = found(app)
    assert {one.odd for one in odd} == {Odd.REFUSED}
    assert (row.stream, version) in {(one.stream, one.version) for one in odd}

    def refuse(operation: Operation) -> None:
        raise TransitionRefused("not on a Monday")

    monkeypatch.setattr(Operation, "must_not_be_withdrawn", refuse)
    assert {(one.odd, one.message) for one in found(app)} == {
        (Odd.REFUSED, "Claimed: not on a Monday")
    }


def test_an_event_that_cannot_be_folded_is_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a fold stumbles over ends that stream, and no other."""

    def stumble(event: ev.Failed, operation: Operation) -> None:
        raise ZeroDivisionError("nothing to divide by")

    monkeypatch.setattr(ev.Failed, "apply", stumble)
    odd = found(app)
    assert odd and {one.odd for one in odd} == {Odd.UNREADABLE}
    assert "ZeroDivisionError" in odd[0].message


def test_code_that_wants_another_due_time_is_named(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agenda has what older code said; what differs is told, from and to."""

    def an_hour_later(operation: Operation) -> datetime | None:
        return None if operation.settled or operation.due is None else operation.due + HOUR

    monkeypatch.setattr(Operation, "next_due", an_hour_later)
    open_rows = app.journal.heads(states=Operation.OPEN, limit=OPERATIONS)
    odd = found(app)
    assert {one.stream for one in odd} == {row.stream for row in open_rows}
    assert {one.odd for one in odd} == {Odd.HEAD_DIFFERS} and "due_at is" in odd[0].message

    def never(operation: Operation) -> None:
        return None

    monkeypatch.setattr(Operation, "next_due", never)
    assert {one.odd for one in found(app)} == {Odd.UNREADABLE}, "open, and never due"


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("change", "odd", "message"),
    [
        ("UPDATE agenda SET state = 'ready' WHERE stream = ?", Odd.HEAD_DIFFERS, "state is ready"),
        ("UPDATE agenda SET version = 2 WHERE stream = ?", Odd.HEAD_DIFFERS, "has version 2"),
        ("UPDATE agenda SET version = 9 WHERE stream = ?", Odd.HEAD_DIFFERS, "has version 9"),
        ("DELETE FROM agenda WHERE stream = ?", Odd.HEAD_MISSING, "the agenda does not"),
    ],
)
def test_an_agenda_that_says_something_else_is_named(
    app: App, store_url: str, change: str, odd: Odd, message: str
) -> None:
    """State and version by hand, and a row that is gone: nothing would ever look at its stream."""
    row, _ = first(app, "HandedOver")
    Intruder(store_url)(change, row.stream)
    (one,) = found(app)
    assert (one.odd, one.stream) == (odd, row.stream) and message in one.message


def test_writers_meanwhile_are_no_oddity(app: App) -> None:
    """A stream that goes on between the reading of its row and of its events is as it has to be."""
    row, _ = first(app, "Proposed")

    class Meanwhile:
        """A journal to which somebody writes whenever the agenda has been read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(app.journal, name)

        def heads(self, **given: Any) -> list[AgendaRow]:
            rows = app.journal.heads(**given)
            if row.stream in {one.stream for one in rows}:
                command: Callable[[Operation], None] = _revise(app)
                app.ledger.execute(row.tenant, row.stream, command)
            return rows

    journal: Any = Meanwhile()
    before = app.journal.head(row.tenant, row.stream)
    assert not historical(_journal(journal), app.ledger.mapper).oddities
    after = app.journal.head(row.tenant, row.stream)
    assert before is not None and after is not None and after.version > before.version


def _journal(given: Any) -> Journal:
    journal: Journal = given
    return journal


def _revise(app: App) -> Callable[[Operation], None]:
    def command(operation: Operation) -> None:
        operation.record(
            ev.Cancelled, app.ledger.stamp("ada"), reason="withdrawn while it was read"
        )

    return command


def test_a_report_holds_the_first_and_counts_all(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded where every stream of a large store is odd."""
    monkeypatch.setattr(replay, "SHOWN", 3)
    monkeypatch.setattr(Operation, "lane", "elsewhere")
    report = historical(app.journal, app.ledger.mapper)
    assert len(report.oddities) == 3 and report.odd_count == OPERATIONS


def test_a_provider_of_records_can_be_asked_nothing() -> None:
    """Whatever a replay did wrong, no request could leave: there is nobody who would send it."""
    nobody: Any = None
    provider = RecordsOnly(NoProvider(presets.smtp))  # type: ignore[arg-type]
    assert (provider.name, provider.contract) == ("psp.example", presets.smtp)
    with pytest.raises(NotPossible, match="does not make a request"):
        provider.seal(nobody, "key", nobody, b"")
    with pytest.raises(NotPossible, match="does not send"):
        asyncio.run(provider.send(nobody))
    with pytest.raises(NotPossible, match="does not ask"):
        asyncio.run(provider.look_up(nobody))


# Decided again, on histories in which everything goes wrong.

SEEDS = (94, 219, 280, 2, 136, 17, 130, 12)
"""Chosen so that nearly every rule decides; in the first three clocks went back."""


def decided(
    history: History, changed: Callable[[Kind[Any]], Kind[Any]] = lambda kind: kind
) -> list[Decision]:
    mapper = EventMapper(DerivedKeys(INSTALLATION.secret))
    kinds = Kinds.of(map(changed, history.kinds))
    with history.store.reading() as tables:
        streams = [records for records in tables.streams.values()]
    found: list[Decision] = []
    for records in streams:
        if records[0].topic.startswith("settled.operation."):
            found += what_if(records, mapper, kinds)[1]
    return found


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return [History(number).run() for number in SEEDS]


def test_the_same_code_decides_the_same(histories: list[History]) -> None:
    """Hundreds of decisions under faults of every sort: each is decided again as it was."""
    decisions = [decision for history in histories for decision in decided(history)]
    assert len(decisions) > 100
    assert not [decision for decision in decisions if decision.differs]
    ends = {decision.recorded[-1].partition(" ")[0] for decision in decisions}
    assert {"Succeeded", "OutcomeUnknown", "LookedUp", "HandedOver", "Dispatching"} <= ends


def test_another_contract_decides_otherwise(histories: list[History]) -> None:
    """A key that is not known to be kept: what was sent again would be asked or handed over."""

    def forgetful(kind: Kind[Any]) -> Kind[Any]:
        contract = replace(kind.provider.contract, retention=Retention())
        provider: Any = NoProvider(contract, kind.provider.name)
        return replace(kind, provider=provider)

    decisions = [one for history in histories for one in decided(history, forgetful)]
    differing = [decision for decision in decisions if decision.differs]
    again = [one for one in differing if one.recorded == ("Dispatching",)]
    assert again
    assert all(one.today[-1].startswith(("a look-up", "HandedOver")) for one in again), again


def test_another_rule_of_recovery_decides_otherwise(
    histories: list[History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New code that gave up after each lost reply would be noticed before it takes over."""
    inside: Any = vars(recovery)
    row = replace(inside["_TABLE"][Answered.LOST], window_open=inside["_hand_over"])
    monkeypatch.setattr(recovery, "_TABLE", {**inside["_TABLE"], Answered.LOST: row})
    differing = [d for history in histories for d in decided(history) if d.differs]
    assert differing
    assert all("lost reply" in one.today[-1] for one in differing)


def test_a_kind_that_is_not_declared_is_refused(app: App) -> None:
    """Without its contract nothing can be decided again, nor with another provider's."""
    row, _ = first(app, "Succeeded")
    records = app.journal.events(row.tenant, row.stream)
    with pytest.raises(UnknownKind, match="No kind 'refund'"):
        what_if(records, app.ledger.mapper, Kinds.of([]))
    elsewhere: Any = NoProvider(presets.smtp, "mail.example")
    with pytest.raises(UnknownKind, match="authorised for provider psp.example"):
        what_if(records, app.ledger.mapper, Kinds.of([replace(kind(), provider=elsewhere)]))


def test_details_that_were_erased_are_no_difference(histories: list[History]) -> None:
    """Evidence and receipt may be gone; the rule and the kind of answer stay, and tell."""
    mapper = EventMapper(DerivedKeys(INSTALLATION.secret))
    (history, *_) = histories
    with history.store.reading() as tables:
        streams = list(tables.streams.values())
    for records in streams:
        if records[0].topic.startswith("settled.operation."):
            erased = [replace(record, body=None) for record in records]
            _, decisions = what_if(erased, mapper, Kinds.of(history.kinds))
            assert not [one for one in decisions if one.differs]
