"""Who gets which due row: fairly, once, and never from a worker that lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from threading import Event

import pytest

from settled.domain.journal.port import AgendaRow, Committer, Journal, Membership
from settled.domain.journal.unit import Change, Lost, Unit
from settled.infrastructure.testing.journal_rules import JournalRules
from settled.infrastructure.testing.journal_units import (
    DUE,
    LATER,
    TENANT,
    a_change,
    a_head,
    a_unit,
    commit,
    eventually,
    stream_of,
)


def _head(journal: Journal, unit: Unit) -> AgendaRow:
    row = journal.head(TENANT, stream_of(unit))
    assert row is not None
    return row


def _names(rows: Sequence[AgendaRow]) -> list[str]:
    return [row.identity for row in rows]


def _told(committer: Committer, heard: Event) -> bool:
    """Commit something due, and say whether it was heard of: what comes too early may be missed."""
    commit(committer, a_unit())
    return heard.wait(0.2)


def _due(identity: str, lane: str = "acme/refund/stripe", **columns: object) -> Unit:
    return a_unit(a_change(head=a_head(identity=identity, lane=lane, **columns)))


class ClaimRules(JournalRules):
    """Claims: rows of lapsed owners first, then what is due, in turn over the lanes."""

    @pytest.fixture
    def worker(self, journal: Journal) -> Generator[Membership]:
        """Give the membership of a worker that lives through the test."""
        with self.enrolled(journal) as membership:
            yield membership

    @contextmanager
    def enrolled(self, journal: Journal) -> Generator[Membership]:
        """Enrol a worker for the length of a block."""
        membership = journal.enrol("worker", lease_seconds=60)
        try:
            yield membership
        finally:
            membership.leave()

    def take(
        self,
        committer: Committer,
        worker: Membership,
        want: int = 100,
        kinds: Sequence[str] = ("refund",),
        reader: int = 1,
    ) -> list[AgendaRow]:
        """Claim once."""
        return committer.claim(epoch=worker.epoch, kinds=kinds, want=want, reader=reader)

    def test_who_watches_hears_of_what_is_due(self, journal: Journal, committer: Committer) -> None:
        """A worker that waits looks at once, and not only when its pause is over."""
        heard = Event()
        with closing(journal.watch(heard.set)):
            eventually(lambda: _told(committer, heard))

    def test_a_claimed_row_is_owned_and_counted(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """The returned row is the row as it stands, and nobody gets it a second time."""
        unit = a_unit()
        commit(committer, unit)
        (row,) = self.take(committer, worker)
        assert row == _head(journal, unit)
        assert (row.owner, row.takes, row.version) == (worker.epoch, 1, 1)
        assert self.take(committer, worker) == []

    def test_only_due_rows_of_the_workers_kinds_and_reader_are_taken(
        self, committer: Committer, worker: Membership
    ) -> None:
        """An old release must not touch what only a newer one understands."""
        commit(
            committer,
            _due("mine"),
            _due("later", due_at=LATER),
            _due("settled", due_at=None, lane=""),
            _due("newer", min_reader=2),
            _due("e-mail", kind="email", lane="acme/email/smtp"),
            _due("other provider", lane="acme/refund/adyen"),
        )
        assert sorted(_names(self.take(committer, worker))) == ["mine", "other provider"]
        assert _names(self.take(committer, worker, reader=2)) == ["newer"]
        assert self.take(committer, worker, kinds=()) == []
        assert _names(self.take(committer, worker, kinds=("email", "sms"))) == ["e-mail"]

    def test_priority_goes_before_age_and_age_before_chance(
        self, committer: Committer, worker: Membership
    ) -> None:
        """Within a lane; and never more than were asked for."""
        ages = {"late": 3, "mid": 2, "new": 1}
        commit(
            committer,
            *(
                _due(f"{name}-{priority}", priority=priority, due_at=DUE - timedelta(hours=age))
                for name, age in ages.items()
                for priority in (2, 0, 1)
            ),
        )
        order: list[str] = []
        while rows := self.take(committer, worker, want=2):
            assert len(rows) <= 2
            order += sorted(_names(rows), key=lambda name: (name[-1], -ages[name[:-2]]))
        assert order == [f"{name}-{priority}" for priority in range(3) for name in ages]

    def test_a_long_lane_does_not_starve_the_others(
        self, committer: Committer, worker: Membership
    ) -> None:
        """One tenant's thousand refunds wait behind another tenant's only one, at times."""
        lanes = [f"tenant-{number}/refund/stripe" for number in range(4)]
        commit(committer, *(_due("many", lanes[0]) for _ in range(60)))
        commit(committer, *(_due("few", lane) for lane in lanes[1:] for _ in range(2)))
        shares = Counter(row.lane for row in self.take(committer, worker, want=32))
        assert all(shares[lane] == 2 for lane in lanes[1:]), shares
        assert shares[lanes[0]] > 2, "and what the others leave is used"
        commit(committer, *(_due("few", lane) for lane in lanes[1:] for _ in range(2)))
        taken: list[AgendaRow] = []
        for _ in range(8):
            taken += self.take(committer, worker, want=2)
        shares = Counter(row.lane for row in taken)
        assert all(shares[lane] == 2 for lane in lanes[1:]), shares
        eventually(lambda: self.take(committer, worker, want=8) == [])

    def test_a_paused_lane_rests_for_everybody(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """A provider that is down is paused once, not in each worker."""
        lane = "acme/refund/stripe"
        commit(committer, _due("stopped", lane), _due("going", "acme/refund/adyen"))
        journal.pause(lane, True)
        assert journal.lanes() == {lane: True, "acme/refund/adyen": False}
        assert _names(self.take(committer, worker)) == ["going"]
        journal.pause(lane, False)
        assert _names(self.take(committer, worker)) == ["stopped"]

    def test_what_a_lapsed_owner_left_goes_first_and_is_due_at_once(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Its call may have reached the provider, so nobody waits for the row's own time."""
        with self.enrolled(journal) as gone:
            unit = _due("left behind")
            commit(committer, unit)
            (row,) = self.take(committer, gone)
            held = a_head(identity="left behind", due_at=LATER, held=True)
            commit(committer, a_unit(a_change(row.stream, 1, head=held, fence=gone.epoch)))
            assert _head(journal, unit).owner == gone.epoch
            commit(committer, *(_due("free", priority=0) for _ in range(3)))
            assert _names(self.take(committer, worker, want=1)) == ["free"]
        (row,) = self.take(committer, worker, want=1)
        assert (row.identity, row.owner, row.due_at) == ("left behind", worker.epoch, LATER)

    def test_a_worker_whose_lease_ended_gets_nothing(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Others take its rows at the same moment, so it must not own any."""
        commit(committer, _due("row"))
        with self.enrolled(journal) as gone:
            pass
        assert self.take(committer, gone) == []
        assert committer.claim(epoch=gone.epoch + 9, kinds=["refund"], want=9, reader=1) == []

    def test_the_fence_is_the_epoch_that_still_owns_the_row(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Who lost a row may not dispatch; evidence, which has no fence, anybody may add."""
        unit = _due("row")
        commit(committer, unit)

        def change(expected: int, fence: int | None, held: bool) -> Change:
            return a_change(stream_of(unit), expected, head=a_head(held=held), fence=fence)

        with self.enrolled(journal) as gone:
            self.take(committer, gone)
            commit(committer, a_unit(change(1, gone.epoch, held=True)))
        self.take(committer, worker)
        assert committer.commit([a_unit(change(2, gone.epoch, held=True))]) == [
            Lost(stream_of(unit), worker.epoch)
        ]
        commit(committer, a_unit(change(2, None, held=True)))
        assert _head(journal, unit).owner == worker.epoch
        commit(committer, a_unit(change(3, worker.epoch, held=False)))
        assert _head(journal, unit).owner is None

    def test_a_row_taken_five_times_without_progress_is_parked(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Something is wrong with it that more takes will not cure; a change frees it again."""
        unit = _due("row")
        commit(committer, unit)
        for take in range(1, 6):
            (row,) = self.take(committer, worker)
            assert (row.takes, row.parked_at) == (take, None)
            committer.release(epoch=worker.epoch, rows=[row])
        (parked,) = self.take(committer, worker)
        assert parked.parked_at is not None
        assert parked.owner is None
        assert journal.heads(parked=True) == [parked] == [_head(journal, unit)]
        assert self.take(committer, worker) == []
        assert "parked" in {diagnosis.subject for diagnosis in journal.examine()}
        commit(committer, a_unit(a_change(stream_of(unit), 1)))
        (row,) = self.take(committer, worker)
        assert (row.takes, row.parked_at) == (1, None)

    def test_a_parked_row_can_be_freed_by_hand(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Once its cause is mended nothing about the stream has to change for it to go on."""
        unit, other = _due("row"), _due("other", due_at=LATER)
        commit(committer, unit, other)
        assert not journal.unpark(TENANT, stream_of(unit)), "it is not parked"
        for _ in range(6):
            rows = self.take(committer, worker)
            committer.release(epoch=worker.epoch, rows=rows)
        assert _head(journal, unit).parked_at is not None
        assert not journal.unpark("globex", stream_of(unit))
        assert not journal.unpark(TENANT, stream_of(other))
        assert journal.unpark(TENANT, stream_of(unit))
        free = _head(journal, unit)
        assert (free.parked_at, free.takes, free.owner, free.version) == (None, 0, None, 1)
        assert not journal.unpark(TENANT, stream_of(unit))
        assert [(row.stream, row.takes) for row in self.take(committer, worker)] == [
            (stream_of(unit), 1)
        ]
        assert not journal.unpark(TENANT, stream_of(unit))
        assert _head(journal, unit).owner == worker.epoch, "and a worker's row is left to it"

    def test_only_progress_starts_the_count_of_takes_afresh(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """A lookup that says "still unknown" is an event, and is no progress."""
        unit = _due("row")
        commit(committer, unit)
        for version, (progress, takes) in enumerate([(False, 1), (False, 2), (True, 0)], 1):
            self.take(committer, worker)
            head = a_head(identity="row", progress=progress)
            commit(committer, a_unit(a_change(stream_of(unit), version, head=head)))
            assert _head(journal, unit).takes == takes

    def test_a_release_frees_only_what_is_still_as_it_was_taken(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """A worker that shuts down late must not free a row that has gone on without it."""
        kept, changed = _due("kept"), _due("changed")
        commit(committer, kept, changed)
        rows = self.take(committer, worker)
        with self.enrolled(journal) as other:
            committer.release(epoch=other.epoch, rows=rows)
        assert _head(journal, kept).owner == worker.epoch
        held = a_head(identity="changed", held=True)
        commit(committer, a_unit(a_change(stream_of(changed), 1, head=held)))
        committer.release(epoch=worker.epoch, rows=rows)
        assert (_head(journal, kept).owner, _head(journal, kept).takes) == (None, 1)
        assert _head(journal, changed).owner == worker.epoch

    def test_a_worker_is_given_its_versions_and_providers_alone(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Old work waits for code that knows it, and new work is kept from old code."""
        lanes = ["refund@1/stripe", "refund@2/stripe", "refund@2/adyen", "tab/-", "tab/counter"]
        commit(committer, *(_due(route, f"acme/{route}") for route in lanes))
        with self.enrolled(journal) as newer:
            new = ("refund@2/stripe", "tab")
            taken = sorted(_names(self.take(committer, newer, kinds=new)))
            assert taken == ["refund@2/stripe", "tab/-", "tab/counter"]
            assert self.take(committer, newer, kinds=("refund", "refund@20/stripe")) == []
        (left,) = self.take(committer, worker, kinds=("refund@1/stripe",))
        assert left.identity == "refund@1/stripe"

    def test_what_a_lapsed_owner_left_goes_to_its_version_too(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Taking over is claiming: new code must not finish what old code has begun."""
        unit = _due("old", "acme/refund@1/stripe")
        commit(committer, unit)
        with self.enrolled(journal) as gone:
            self.take(committer, gone, kinds=("refund@1/stripe",))
        assert self.take(committer, worker, kinds=("refund@2/stripe",)) == []
        (row,) = self.take(committer, worker, kinds=("refund@1/stripe",))
        assert (row.stream, row.owner) == (stream_of(unit), worker.epoch)

    def test_what_a_worker_leaves_is_not_given_to_it(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """It cannot read these streams; others can, also where they are another's leavings."""
        held, free, other = _due("held"), _due("free"), _due("other")
        commit(committer, held, free, other)
        leave = {stream_of(held), stream_of(free)}
        with self.enrolled(journal) as gone:
            self.take(committer, gone, want=3)
            rows = [_head(journal, free), _head(journal, other)]
            committer.release(epoch=gone.epoch, rows=rows)
        assert _head(journal, held).owner == gone.epoch
        taken = committer.claim(epoch=worker.epoch, kinds=["refund"], want=9, reader=1, leave=leave)
        assert _names(taken) == ["other"]
        with self.enrolled(journal) as able:
            assert sorted(_names(self.take(committer, able))) == ["free", "held"]

    def test_a_release_that_does_not_count_takes_the_take_back(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """However often somebody meets what it cannot read, it is parked for nobody."""
        unit = _due("row")
        commit(committer, unit)
        for _ in range(9):
            (row,) = self.take(committer, worker)
            assert (row.takes, row.parked_at) == (1, None)
            committer.release(epoch=worker.epoch, rows=[row], counted=False)
        free = _head(journal, unit)
        assert (free.owner, free.takes, free.parked_at) == (None, 0, None)

    def test_lanes_are_open_while_anything_in_them_is(
        self, journal: Journal, committer: Committer, worker: Membership
    ) -> None:
        """Due or not, taken or parked: what is open is what somebody has to know."""
        named = ("later", "taken", "parked", "settled")
        units = {name: _due(name, f"acme/{name}@1/stripe") for name in named}
        later = _due("later", "acme/later@1/stripe", due_at=LATER)
        commit(committer, later, *(units[name] for name in named[1:]))
        self.take(committer, worker, kinds=("taken@1/stripe",))
        for _ in range(6):
            rows = self.take(committer, worker, kinds=("parked@1/stripe",))
            committer.release(epoch=worker.epoch, rows=rows)
        over = a_head(identity="settled", lane="acme/settled@1/stripe", due_at=None)
        commit(committer, a_unit(a_change(stream_of(units["settled"]), 1, head=over)))
        assert journal.heads(parked=True) != []
        assert journal.open_lanes() == [f"acme/{name}@1/stripe" for name in sorted(named[:3])]
        (row,) = journal.heads(lane="acme/taken@1/stripe")
        assert (row.identity, row.owner) == ("taken", worker.epoch)

    def test_the_doctor_says_when_nobody_works(self, journal: Journal) -> None:
        """Due rows then wait without an error anywhere."""
        assert "workers" in {diagnosis.subject for diagnosis in journal.examine()}
        with self.enrolled(journal):
            assert "workers" not in {diagnosis.subject for diagnosis in journal.examine()}
