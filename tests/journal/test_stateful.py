"""Sequences that nobody thought of, against a journal and a model of it in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from settled.domain.journal.port import AgendaRow, Journal, Membership
from settled.domain.journal.unit import (
    Answer,
    Change,
    Committed,
    Exists,
    GuardChange,
    Head,
    Lost,
    RecordedEvent,
    Refused,
    Stale,
    Unit,
)
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.testing.journal_units import (
    DUE,
    LATER,
    TENANT,
    a_change,
    a_head,
    a_unit,
    everything,
)

LANES = [f"{TENANT}/{kind}/stripe" for kind in ("refund", "charge", "email")]
TAKES = 5
CEILING = 100

Openings = Callable[[], Journal]
number = itertools.count()


@dataclass
class Stream:
    """What the model knows of one stream."""

    row: AgendaRow
    events: list[RecordedEvent] = field(default_factory=list[RecordedEvent])


heads = st.builds(
    a_head,
    lane=st.sampled_from(LANES),
    due_at=st.sampled_from([DUE, DUE, DUE, LATER, None]),
    priority=st.sampled_from([0, 1, 2]),
    min_reader=st.sampled_from([1, 1, 1, 1, 1, 2]),
    held=st.booleans(),
    progress=st.booleans(),
    state=st.sampled_from(["ready", "dispatching", "succeeded"]),
)
acts = st.builds(
    GuardChange,
    key=st.sampled_from(["budget", "no row"]),
    act=st.sampled_from(["reserve", "reserve", "release", "consume"]),
    amount=st.integers(1, 60),
)
guards = st.lists(acts, max_size=2)
every_kind = {"refund", "charge", "email"}
kinds = st.sampled_from([every_kind, every_kind, {"refund"}, {"charge", "sms"}, set[str]()])


class JournalMachine(RuleBasedStateMachine):
    """Does the same to a journal and to the model, and compares what they say."""

    def __init__(self, opening: Openings) -> None:
        super().__init__()
        self.journal = opening()
        self.committer = self.journal.committer()
        self.streams: dict[UUID, Stream] = {}
        self.written: list[tuple[Unit, Committed]] = []
        self.log: list[RecordedEvent] = []
        self.paused = dict.fromkeys(LANES, False)
        self.workers: list[Membership] = []
        self.gone: set[int] = set()
        self.reserved = self.consumed = 0

    @initialize()
    def begin(self) -> None:
        self.journal.set_ceiling(TENANT, "budget", CEILING)
        for lane in LANES:
            self.journal.pause(lane, False)
        self.commit([a_unit(a_change(head=a_head(lane=lane))) for lane in LANES])
        self.enrol()
        self.enrol()

    # --- writing ------------------------------------------------------------------------------

    @rule(heads=st.lists(heads, min_size=1, max_size=3), guards=guards, events=st.integers(1, 3))
    def create(self, heads: list[Head], guards: list[GuardChange], events: int) -> None:
        self.commit([a_unit(*(a_change(events=events, head=h) for h in heads), guards=guards)])

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), head=heads, guards=guards, ahead=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def advance(
        self, data: st.DataObject, head: Head, guards: list[GuardChange], ahead: int
    ) -> None:
        stream = self.pick(data)
        version = self.streams[stream].row.version
        owner = self.streams[stream].row.owner
        fence = data.draw(st.sampled_from([owner, owner, None, 10_000]), "fence")
        change = a_change(stream, max(0, version + ahead), 2, head=head, fence=fence)
        self.commit([a_unit(change, guards=guards)])

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), heads=st.lists(heads, min_size=2, max_size=4), amount=st.integers(1, 60))
    def commit_a_group(self, data: st.DataObject, heads: list[Head], amount: int) -> None:
        """Creations that compete for one guard, and among them a unit that is stale."""
        guards = [GuardChange("budget", "reserve", amount)]
        units = [a_unit(a_change(head=head), guards=guards) for head in heads]
        stale = self.pick(data)
        units.insert(1, a_unit(a_change(), a_change(stale, self.streams[stale].row.version + 3)))
        self.commit(units)

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def write_again(self, data: st.DataObject) -> None:
        unit, answer = data.draw(st.sampled_from(self.written), "unit")
        assert self.committer.commit([unit]) == [replace(answer, found=True)]

    def commit(self, units: list[Unit]) -> None:
        answers = self.committer.commit(units)
        for unit, answer in zip(units, answers, strict=True):
            expected = self.refusal(unit)
            if expected is not None:
                assert answer == expected
                continue
            assert isinstance(answer, Committed)
            assert not answer.found
            self.admit(unit, answer)

    def refusal(self, unit: Unit) -> Answer | None:
        rows = [self.row(change) for change in unit.changes]
        for change, row in zip(unit.changes, rows, strict=True):
            version = row.version if row else 0
            if version != change.expected:
                kind = Stale if change.expected else Exists
                return kind(change.stream, version)
        for change, row in zip(unit.changes, rows, strict=True):
            owner = row.owner if row else None
            if change.fence not in (None, owner):
                return Lost(change.stream, owner)
        reserved, consumed = self.reserved, self.consumed
        for guard in unit.guards:
            if guard.key != "budget":
                return Refused(guard.key, 0)
            left = CEILING - reserved - consumed if guard.act == "reserve" else reserved
            if guard.amount > left:
                return Refused(guard.key, left)
            reserved += guard.amount if guard.act == "reserve" else -guard.amount
            consumed += guard.amount if guard.act == "consume" else 0
        self.reserved, self.consumed = reserved, consumed
        return None

    def row(self, change: Change) -> AgendaRow | None:
        stream = self.streams.get(change.stream)
        return stream.row if stream else None

    def admit(self, unit: Unit, answer: Committed) -> None:
        self.written.append((unit, answer))
        for change, positions in zip(unit.changes, answer.positions, strict=True):
            head, was = change.head, self.row(change)
            values: dict[str, Any] = {
                name: getattr(head, name)
                for name in ("state", "due_at", "lane", "priority", "min_reader")
            }
            row = AgendaRow(
                tenant=unit.tenant,
                stream=change.stream,
                kind=head.kind,
                identity=head.identity,
                version=change.last,
                owner=was.owner if was and head.held else None,
                takes=was.takes if was and not head.progress else 0,
                parked_at=None,
                **values,
            )
            stream = self.streams.setdefault(change.stream, Stream(row))
            stream.row = row
            for event, position in zip(change.events, positions, strict=True):
                assert not self.log or position > (self.log[-1].position or 0)
                stream.events.append(replace(event, position=position))
                self.log.append(stream.events[-1])

    def pick(self, data: st.DataObject) -> UUID:
        return data.draw(st.sampled_from(sorted(self.streams)), "stream")

    # --- owning -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def enrol(self) -> None:
        worker = self.journal.enrol("worker", 600)
        assert worker.epoch not in self.gone
        self.workers.append(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        worker = self.workers.pop(data.draw(st.integers(0, len(self.workers) - 1), "worker"))
        worker.leave()
        self.gone.add(worker.epoch)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), times=st.integers(1, 7), some_kinds=kinds)
    def claim_without_progress(self, data: st.DataObject, times: int, some_kinds: set[str]) -> None:
        worker = data.draw(st.sampled_from(self.workers), "worker")
        for _ in range(times):
            self.take(worker.epoch, 100, some_kinds)
            self.free(worker.epoch)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), want=st.sampled_from([1, 2, 5, 100]), some_kinds=kinds)
    def claim(self, data: st.DataObject, want: int, some_kinds: set[str]) -> None:
        worker = data.draw(st.sampled_from(self.workers), "worker")
        self.take(worker.epoch, want, some_kinds)

    def take(self, epoch: int, want: int, kinds: set[str]) -> None:
        open_rows = {
            stream.row.stream: stream.row
            for stream in self.streams.values()
            if not self.paused[stream.row.lane]
            and stream.row.lane.split("/")[1] in kinds
            and stream.row.due_at is not None
            and stream.row.min_reader <= 1
        }
        left = {key for key, row in open_rows.items() if row.owner in self.gone}
        free = {
            key
            for key, row in open_rows.items()
            if row.owner is None and row.parked_at is None and row.due_at == DUE
        }
        rows = self.committer.claim(epoch=epoch, kinds=sorted(kinds), want=want, reader=1)
        taken = {row.stream for row in rows}
        assert len(taken) == len(rows) <= want
        assert taken <= left | free
        assert bool(taken) == bool(left | free)
        assert len(taken & left) == min(want, len(left)), "what was left behind goes first"
        for row in rows:
            was = open_rows[row.stream]
            parked = was.takes >= TAKES
            assert (row.parked_at is not None) == parked
            assert row == replace(
                was,
                owner=None if parked else epoch,
                takes=was.takes + 1,
                parked_at=row.parked_at,
            )
            self.streams[row.stream].row = row

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.free(data.draw(st.sampled_from(self.workers), "worker").epoch)

    def free(self, epoch: int) -> None:
        rows = [stream.row for stream in self.streams.values()]
        self.committer.release(epoch=epoch, rows=rows)
        for row in rows:
            if row.owner == epoch:
                self.streams[row.stream].row = replace(row, owner=None)

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def unpark(self, data: st.DataObject) -> None:
        row = self.streams[self.pick(data)].row
        assert self.journal.unpark(TENANT, row.stream) == (row.parked_at is not None)
        if row.parked_at is not None:
            self.streams[row.stream].row = replace(row, parked_at=None, takes=0, owner=None)

    @rule(lane=st.sampled_from(LANES), paused=st.sampled_from([False, False, True]))
    def pause(self, lane: str, paused: bool) -> None:
        self.journal.pause(lane, paused)
        self.paused[lane] = paused

    # --- looking ------------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        """Compare all there is; always possible, so that no sequence ends for want of a step."""
        assert everything(self.journal) == self.log
        rows = sorted(self.streams.values(), key=lambda stream: stream.row.stream.bytes)
        assert self.journal.heads(limit=10_000) == [stream.row for stream in rows]
        found = self.journal.streams([(TENANT, stream) for stream in self.streams])
        assert {key: stream.events for key, stream in self.streams.items()} == dict(found)
        assert self.journal.lanes() == self.paused
        guard = self.journal.guard(TENANT, "budget")
        assert guard is not None
        assert (guard.reserved, guard.consumed) == (self.reserved, self.consumed)
        assert guard.reserved + guard.consumed <= CEILING

    def teardown(self) -> None:
        try:
            self.look()
        finally:
            self.committer.close()
            self.journal.close()


def run(opening: Openings, examples: int) -> None:
    class Machine(JournalMachine):
        def __init__(self) -> None:
            super().__init__(opening)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_sqlite_agrees_with_the_model(tmp_path: Path) -> None:
    """Each sequence in a file of its own."""

    def opening() -> Journal:
        return open_journal(f"sqlite:///{tmp_path / f'{next(number)}.db'}", migrate=True)

    run(opening, 25)


def test_postgres_agrees_with_the_model(postgres_url: str) -> None:
    """Each sequence in a schema of its own."""
    separator = "&" if "?" in postgres_url else "?"

    def opening() -> Journal:
        url = f"{postgres_url}{separator}schema=settled_{next(number)}"
        return open_journal(url, migrate=True, require_fsync=False)

    run(opening, 12)


def test_the_model_can_disagree(tmp_path: Path) -> None:
    """A journal that something else writes to differs from the model, and the look says so."""
    machine = JournalMachine(
        lambda: open_journal(f"sqlite:///{tmp_path / 'settled.db'}", migrate=True)
    )
    machine.begin()
    machine.look()
    machine.committer.commit([a_unit()])
    with pytest.raises(AssertionError):
        machine.look()
    machine.committer.close()
    machine.journal.close()
