"""The commit queue: groups, order, patience, and that every future gets its answer.

Goal: a caller never learns that its unit shared a transaction with others.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing
from functools import partial

import psycopg
import pytest

from settled.domain.errors import StoreUnavailable
from settled.domain.journal.port import Committer, Journal
from settled.domain.journal.unit import Answer, Busy, Committed, Exists, Invalid, Unit
from settled.infrastructure.journal import queue as queue_module
from settled.infrastructure.journal.opening import is_sqlite, open_journal
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.journal.queue import CommitQueue
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_unit,
    after,
    everything,
    stream_of,
)

SECONDS = 30.0


@pytest.fixture
def journal(store_url: str) -> Generator[Journal]:
    """A journal in a fresh database, on each of the two."""
    more = {} if is_sqlite(store_url) else {"require_fsync": False}
    with closing(open_journal(store_url, migrate=True, **more)) as journal:
        yield journal


@pytest.fixture
def queue(journal: Journal) -> Generator[CommitQueue]:
    """A queue over a committer of that journal."""
    with closing(CommitQueue(journal.committer())) as queue:
        yield queue


def hold(queue: CommitQueue) -> threading.Event:
    """Occupy the queue's thread until the event that is returned is set."""
    gate, reached = threading.Event(), threading.Event()

    def wait(committer: Committer) -> None:
        reached.set()
        gate.wait(SECONDS)

    queue.run(wait)
    assert reached.wait(SECONDS)
    return gate


def answer_of(future: Future[Answer]) -> Answer:
    return future.result(SECONDS)


def test_what_waits_shares_a_transaction(journal: Journal, queue: CommitQueue) -> None:
    """One flush of the disk for all that came in during the one before."""
    gate = hold(queue)
    futures = [queue.submit(a_unit()) for _ in range(1000)]
    gate.set()
    assert {type(answer_of(future)) for future in futures} == {Committed}
    assert (queue.units, queue.groups) == (1000, 5)
    assert len(everything(journal)) == 1000


def test_a_lone_unit_waits_for_nobody(queue: CommitQueue) -> None:
    """Under light load a group of one is committed at once."""
    for _ in range(5):
        assert isinstance(answer_of(queue.submit(a_unit())), Committed)
    assert (queue.units, queue.groups) == (5, 5)


def test_units_on_one_stream_keep_their_order(queue: CommitQueue) -> None:
    """A caller may send the next change before it has heard of the last one."""
    gate = hold(queue)
    units = [a_unit()]
    for _ in range(20):
        units.append(after(units[-1]))
    futures = [queue.submit(unit) for unit in units]
    gate.set()
    assert {type(answer_of(future)) for future in futures} == {Committed}
    assert queue.groups == len(units)


def test_each_caller_gets_its_own_answer(queue: CommitQueue) -> None:
    """Losers and poison share a group with winners."""
    gate = hold(queue)
    first = a_unit()
    units = [first, a_unit(a_change(topic="a\0b")), a_unit(), a_unit(a_change(stream_of(first)))]
    futures = [queue.submit(unit) for unit in units]
    gate.set()
    kinds = [type(answer_of(future)) for future in futures]
    assert kinds == [Committed, Invalid, Committed, Exists]


def test_work_runs_between_groups_with_the_committer(journal: Journal, queue: CommitQueue) -> None:
    """A claim must not wait behind a long queue, nor use the connection beside a commit."""
    member = journal.enrol("worker", 60)
    answer_of(queue.submit(a_unit()))
    claimed = queue.run(
        lambda committer: committer.claim(epoch=member.epoch, kinds=["refund"], want=9, reader=1)
    )
    (row,) = claimed.result(SECONDS)
    assert row.owner == member.epoch
    member.leave()


def test_work_that_fails_tells_its_caller_alone(queue: CommitQueue) -> None:
    """The thread has others to serve."""

    def fail(committer: Committer) -> None:
        raise LookupError("no such row")

    failed = queue.run(fail)
    with pytest.raises(LookupError, match="no such row"):
        failed.result(SECONDS)
    assert isinstance(answer_of(queue.submit(a_unit())), Committed)


def test_what_was_cancelled_in_time_is_not_written(journal: Journal, queue: CommitQueue) -> None:
    """A caller that was told "cancelled" must be able to rely on it."""
    gate = hold(queue)
    kept, dropped = queue.submit(a_unit()), queue.submit(a_unit())
    assert dropped.cancel()
    gate.set()
    answer_of(kept)
    assert len(everything(journal)) == 1


def test_closing_answers_what_waits(journal: Journal) -> None:
    """A service that stops must not leave callers without a word."""
    queue = CommitQueue(journal.committer())
    gate = hold(queue)
    futures = [queue.submit(a_unit()) for _ in range(300)]
    closer = threading.Thread(target=queue.close)
    closer.start()
    gate.set()
    closer.join(SECONDS)
    assert all(future.done() for future in futures)
    assert len(everything(journal)) == 300
    for late in (lambda: queue.submit(a_unit()), lambda: queue.run(lambda committer: None)):
        with pytest.raises(StoreUnavailable, match="closed"):
            late()


def test_busy_units_wait_beside_the_others(migrated_url: str, postgres: PostgresJournal) -> None:
    """Somebody's open transaction holds one stream; its followers wait, all others pass."""
    with (
        closing(CommitQueue(postgres.committer())) as queue,
        closing(psycopg.connect(migrated_url)) as foreign,
    ):
        answer_of(queue.submit(unit := a_unit()))
        foreign.execute(
            "SELECT FROM settled.agenda WHERE stream = %s FOR UPDATE", (stream_of(unit),)
        )
        held = queue.submit(second := after(unit))
        follower = queue.submit(after(second))
        others = [queue.submit(a_unit()) for _ in range(200)]
        assert {type(answer_of(other)) for other in others} == {Committed}
        assert not held.done()
        assert not follower.done()
        foreign.rollback()
        assert isinstance(answer_of(held), Committed)
        assert isinstance(answer_of(follower), Committed)


def test_busy_is_answered_when_the_patience_is_over(
    migrated_url: str, postgres: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller is told that somebody holds its stream rather than kept for ever."""
    monkeypatch.setattr(queue_module, "BUSY_PATIENCE_SECONDS", 0.2)
    with (
        closing(CommitQueue(postgres.committer())) as queue,
        closing(psycopg.connect(migrated_url)) as foreign,
    ):
        answer_of(queue.submit(unit := a_unit()))
        foreign.execute("SELECT FROM settled.agenda FOR UPDATE")
        held = partial(queue.submit, after(unit))
        assert isinstance(answer_of(held()), Busy)
        foreign.rollback()
        assert isinstance(answer_of(held()), Committed)


def test_many_callers_at_once(journal: Journal, queue: CommitQueue) -> None:
    """Each of them waits for its own units only, and none is lost between the threads."""
    made: list[Unit] = []

    def call() -> None:
        for _ in range(50):
            unit = a_unit()
            assert isinstance(answer_of(queue.submit(unit)), Committed)
            made.append(unit)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(made) == len(journal.heads(TENANT, limit=1000)) == 800
    assert queue.groups < 800
