"""What has to hold between processes: real ones, killed, stopped, and in each other's way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, closing
from functools import partial
from uuid import uuid4

import pytest

from settled.domain.journal.port import Committer, Journal
from settled.domain.journal.unit import Committed, Exists, ReferenceTaken
from settled.infrastructure.testing.journal_rules import JournalRules
from settled.infrastructure.testing.journal_store import (
    Processes,
    Store,
    WorkerHere,
    WorkerProcess,
    start_worker,
)
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_unit,
    commit,
    eventually,
    everything,
)
from settled.infrastructure.testing.journal_work import AMOUNT, claim, create, name, spend, write


class ProcessRules(JournalRules):
    """Several processes at once."""

    def test_of_eight_processes_one_creates_a_stream(self, store: Store, journal: Journal) -> None:
        """The identity of an operation is unique, whoever intends it at the same moment."""
        stream = uuid4()
        answers = Processes(store, partial(create, stream), 8).results()
        assert sorted(map(type, answers), key=str) == [Committed] + [Exists] * 7
        assert len(everything(journal)) == 1

    def test_of_eight_processes_one_takes_a_reference(self, store: Store, journal: Journal) -> None:
        """Twenty references, wanted by all at once: each has one stream, and all hear which."""
        heard = [said for told in Processes(store, name, 8).results() for said in told]
        for reference in {reference for reference, _, _ in heard}:
            owner = journal.referenced(TENANT, "stripe", reference)
            assert owner is not None
            for stream, answer in [(s, a) for named, s, a in heard if named == reference]:
                if stream == owner:
                    assert isinstance(answer, Committed)
                else:
                    assert answer == ReferenceTaken("stripe", reference, owner)
        assert len(heard) == 160
        assert len(everything(journal)) == len(journal.heads(TENANT)) == 20

    def test_eight_processes_never_overspend_a_guard(self, store: Store, journal: Journal) -> None:
        """Looked at all the while, not at the end alone."""
        journal.set_ceiling(TENANT, "budget", 700)
        processes = Processes(store, spend, 8)
        samples = 0
        while processes.running:
            row = journal.guard(TENANT, "budget")
            assert row is not None
            assert 0 <= row.reserved
            assert row.reserved + row.consumed <= row.ceiling
            samples += 1
        tally: Counter[str] = sum(processes.results(), Counter[str]())
        row = journal.guard(TENANT, "budget")
        assert row is not None
        assert samples
        assert tally["Refused"], tally
        assert row.consumed == AMOUNT * tally["consume"]
        taken_off = tally["release"] + tally["consume"]
        assert row.reserved == AMOUNT * (tally["Committed"] - taken_off)

    def test_no_reader_misses_repeats_or_reverses_an_event(
        self, store: Store, journal: Journal
    ) -> None:
        """Positions appear late and out of order, or never; readers see one order all the same."""
        processes = Processes(store, write, 4)
        slow, fast = list[int](), list[int]()
        going = True
        while going:
            going = processes.running
            for seen, limit in ((slow, 7), (fast, 500)):
                page = journal.read(seen[-1] if seen else 0, limit)
                seen += [event.position or 0 for event in page.events]
        written = sorted(p for positions in processes.results() for p in positions)
        for seen in (slow, fast):
            rest = everything(journal, seen[-1] if seen else 0)
            assert seen + [event.position for event in rest] == written
        assert [event.position for event in everything(journal)] == written

    def test_four_claimers_get_distinct_rows(
        self, store: Store, journal: Journal, committer: Committer
    ) -> None:
        """All of the rows, each of them once."""
        units = [a_unit() for _ in range(200)]
        commit(committer, *units)
        taken = [stream for streams in Processes(store, claim, 4).results() for stream in streams]
        assert len(taken) == len(set(taken)) == 200


class WorkerRules(JournalRules):
    """Membership: who is alive, said by locks and leases."""

    @pytest.fixture
    def stack(self) -> Generator[ExitStack]:
        """Give what closes the processes that a test started."""
        with ExitStack() as stack:
            yield stack

    def start(
        self, stack: ExitStack, store: Store, seconds: float, claims: int = 0
    ) -> WorkerProcess | WorkerHere:
        """Start a worker in a process of its own, where the store allows it."""
        return stack.enter_context(closing(start_worker(store, seconds, claims)))

    def is_alive(self, journal: Journal, epoch: int) -> bool:
        """Say whether a worker's lease runs."""
        return any(row.epoch == epoch and not row.lapsed for row in journal.workers())

    def test_an_epoch_is_never_given_twice(self, journal: Journal) -> None:
        """Whatever was said about an owner stays true of that owner alone."""
        epochs: list[int] = []
        for _ in range(3):
            membership = journal.enrol("worker", 60)
            epochs.append(membership.epoch)
            membership.leave()
        assert epochs == sorted(set(epochs))

    def test_a_worker_is_seen_until_it_leaves(self, journal: Journal) -> None:
        """With its name, what it serves and its lease, by the store's clock."""
        before = journal.time()
        membership = journal.enrol("worker-1", 60, ["refund@2/stripe", "tab"])
        (row,) = journal.workers()
        assert (row.epoch, row.name, row.lapsed) == (membership.epoch, "worker-1", False)
        assert row.serves == ("refund@2/stripe", "tab")
        assert before <= row.started_at <= journal.time() < row.lease_until
        assert membership.renew()
        assert journal.workers()[0].lease_until > row.lease_until
        assert list(membership.sweep()) == []
        membership.leave()
        assert not self.is_alive(journal, row.epoch)

    def test_a_killed_worker_is_gone_long_before_its_lease(
        self, store: Store, journal: Journal, committer: Committer, stack: ExitStack
    ) -> None:
        """The system frees its lock at once, so its rows wait for the grace, not for a minute."""
        commit(committer, a_unit(), a_unit())
        killed = self.start(stack, store, 60, claims=2)
        membership = journal.enrol("survivor", 60)
        assert list(membership.sweep()) == []
        assert committer.claim(epoch=membership.epoch, kinds=["refund"], want=9, reader=1) == []
        killed.kill()
        eventually(lambda: killed.epoch in membership.sweep(), seconds=5)
        assert not self.is_alive(journal, killed.epoch)
        rows = committer.claim(epoch=membership.epoch, kinds=["refund"], want=9, reader=1)
        assert [row.takes for row in rows] == [2, 2]
        membership.leave()

    def test_a_stopped_worker_lapses_by_its_lease_alone(
        self, store: Store, journal: Journal, stack: ExitStack
    ) -> None:
        """It may thaw at any time, so a sweep must not take it for dead; but renew tells it."""
        stopped = self.start(stack, store, 2.0)
        membership = journal.enrol("survivor", 60)
        assert stopped.renew()
        stopped.stop()
        swept: list[int] = []

        def lapsed() -> bool:
            swept.extend(membership.sweep())
            return not self.is_alive(journal, stopped.epoch)

        began = time.monotonic()
        eventually(lapsed)
        assert time.monotonic() - began > 1.0
        assert stopped.epoch not in swept
        stopped.go_on()
        assert not stopped.renew()
        membership.leave()

    def test_a_live_worker_is_never_swept(
        self, store: Store, journal: Journal, stack: ExitStack
    ) -> None:
        """Two that sweep at once must not mistake each other's look at a lock for its absence."""
        other = self.start(stack, store, 60)
        one, two = journal.enrol("one", 60), journal.enrol("two", 60)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert list(one.sweep()) == list(two.sweep()) == []
        assert all(self.is_alive(journal, epoch) for epoch in (one.epoch, two.epoch, other.epoch))
        assert other.renew()
        one.leave()
        two.leave()
