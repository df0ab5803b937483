"""Who is alive, on PostgreSQL: leases by the server's clock, liveness by the server's locks.

Goal: a crash is noticed within a second, and neither a restart of the server nor a connection that
broke makes the others believe that a live worker is gone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.journal.postgres.membership import PostgresMembership
from settled.infrastructure.testing.journal_store import WorkerProcess, postgres_store
from settled.infrastructure.testing.journal_units import (
    LANE,
    a_change,
    a_head,
    a_unit,
    commit,
    eventually,
)
from settled.infrastructure.testing.postgres_server import PostgresServer


@pytest.fixture
def server() -> Generator[PostgresServer]:
    """A server of the test's own, which it may stop."""
    with PostgresServer() as server:
        open_journal(server.url(), migrate=True, require_fsync=False).close()
        yield server


def break_line(url: str, member: PostgresMembership) -> None:
    """End the server's side of a membership's connection: the one that holds its lock."""
    with psycopg.connect(url, autocommit=True) as admin:
        ended = admin.execute(
            "SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l"
            " WHERE l.locktype = 'advisory' AND l.classid = 'settled.worker'::regclass"
            " AND l.objid::int8 = %s",
            (member.epoch,),
        )
        assert ended.fetchall() == [(True,)]


def test_what_a_killed_worker_held_is_taken_at_once(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """Its lock ends with its process; a lease of a minute would leave unknown outcomes waiting."""
    commit(postgres.committer(), *(a_unit() for _ in range(4)))
    store = postgres_store(
        migrated_url, partial(PostgresJournal, migrated_url, require_fsync=False)
    )
    with closing(WorkerProcess(store, 60, claims=4)) as worker:
        member, committer = postgres.enrol("survivor", 60), postgres.committer()
        assert list(member.sweep()) == []
        claim: dict[str, Any] = {"kinds": ["refund"], "want": 9, "reader": 1}
        assert committer.claim(epoch=member.epoch, **claim) == []
        os.kill(worker.pid, signal.SIGKILL)
        assert eventually(member.sweep) == [worker.epoch]
        rows = committer.claim(epoch=member.epoch, **claim)
        assert [(row.owner, row.takes) for row in rows] == [(member.epoch, 2)] * 4


def test_a_broken_line_costs_no_lease(migrated_url: str, postgres: PostgresJournal) -> None:
    """The worker takes its lock again before the others may call it gone."""
    member, other = postgres.enrol("worker", 60), postgres.enrol("other", 60)
    break_line(migrated_url, member)
    assert list(other.sweep()) == []
    assert member.renew()
    for _ in range(40):
        assert list(other.sweep()) == []
    assert [row.lapsed for row in postgres.workers()] == [False, False]
    break_line(migrated_url, member)
    assert eventually(other.sweep) == [member.epoch]


def test_who_was_swept_is_told(migrated_url: str, postgres: PostgresJournal) -> None:
    """A worker that comes back too late must not go on dispatching."""
    member, other = postgres.enrol("worker", 60), postgres.enrol("other", 60)
    break_line(migrated_url, member)
    assert eventually(other.sweep) == [member.epoch]
    assert not member.renew()
    assert not member.renew()
    member.leave()
    assert [row.name for row in postgres.workers()] == ["other"]


def test_after_a_restart_only_leases_count(server: PostgresServer) -> None:
    """Every lock is gone then, and every worker alive: a missing lock says nothing."""
    with closing(PostgresJournal(server.url(), require_fsync=False)) as journal:
        member, other = journal.enrol("worker", 60), journal.enrol("other", 60)
        server.stop("immediate")
        with pytest.raises(StoreUnavailable):
            member.renew()
        server.start()
        assert other.renew()
        for _ in range(60):
            assert list(other.sweep()) == []
        assert member.renew()
        break_line(server.url(), member)  # its lock was taken on this run of the server
        assert eventually(other.sweep) == [member.epoch]


def test_two_installations_in_one_database_do_not_mix(migrated_url: str) -> None:
    """Their epochs are the same numbers, and their locks must not be."""
    second = f"{migrated_url}&schema=second"
    with (
        closing(PostgresJournal(migrated_url, require_fsync=False)) as one,
        closing(open_journal(second, migrate=True, require_fsync=False)) as two,
    ):
        mine, theirs = one.enrol("mine", 60), two.enrol("theirs", 60)
        observer = one.enrol("observer", 60)
        assert mine.epoch == theirs.epoch
        break_line(migrated_url, mine)
        assert eventually(observer.sweep) == [mine.epoch]
        assert [row.lapsed for row in two.workers()] == [False]
        commit(two.committer(), a_unit())
        assert one.heads() == []


def test_old_workers_are_forgotten_once_they_own_nothing(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """The table must not grow for ever, nor forget an owner whose rows are still to be taken."""
    commit(postgres.committer(), a_unit())
    member = postgres.enrol("worker", 60)
    owner, idle = postgres.enrol("owner", 60), postgres.enrol("idle", 60)
    postgres.committer().claim(epoch=owner.epoch, kinds=["refund"], want=1, reader=1)
    owner.leave()
    idle.leave()
    known = "SELECT epoch FROM settled.worker ORDER BY epoch"
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        member.sweep()
        assert admin.execute(known).fetchall() == [(e.epoch,) for e in (member, owner, idle)]
        admin.execute(
            "UPDATE settled.worker SET lease_until = lease_until - interval '1 hour'"
            " WHERE epoch <> %s",
            (member.epoch,),
        )
        member.sweep()
        assert admin.execute(known).fetchall() == [(member.epoch,), (owner.epoch,)]


def test_a_claim_is_filled_from_the_one_lane_that_has_something(
    postgres: PostgresJournal,
) -> None:
    """Shares are for when several want something; otherwise they would only slow down."""
    committer, member = postgres.committer(), postgres.enrol("worker", 60)
    lanes = [LANE, *(f"tenant-{n}/refund/stripe" for n in range(20))]
    for lane in lanes:
        postgres.pause(lane, False)
    commit(committer, *(a_unit() for _ in range(100)))
    rows = committer.claim(epoch=member.epoch, kinds=["refund"], want=64, reader=1)
    assert len(rows) == len({row.stream for row in rows}) == 64


def test_a_row_that_becomes_due_in_the_past_is_found(postgres: PostgresJournal) -> None:
    """What a claim remembers of a lane must not hide what is released into it later."""
    committer, member = postgres.committer(), postgres.enrol("worker", 60)
    commit(committer, *(a_unit() for _ in range(3)))
    claim = partial(committer.claim, epoch=member.epoch, kinds=["refund"], want=9, reader=1)
    assert len(claim()) == 3
    early = a_head(due_at=postgres.time().replace(year=2001))
    commit(committer, a_unit(a_change(head=early)))
    (row,) = eventually(claim, 5)
    assert row.due_at == early.due_at
