"""The answer to our own COMMIT gets lost: the unit is then itself an unknown outcome.

Goal: whichever way it was lost, the same units are in once, and nobody is told of a conflict with
himself. Method: a relay between committer and server, and servers that stop.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from settled.domain.errors import StoreUnavailable
from settled.domain.journal.unit import Committed, GuardChange, Unit
from settled.infrastructure.journal.migrate import migrate
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.journal.postgres.migrating import PostgresTarget
from settled.infrastructure.journal.queue import CommitQueue
from settled.infrastructure.testing.fault_relay import Fault, FaultRelay
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_unit,
    after,
    commit,
    eventually,
    everything,
)
from settled.infrastructure.testing.postgres_server import PostgresServer

COMMIT = b"COMMIT\0"
SECONDS = 30.0


@pytest.fixture
def relay(migrated_url: str) -> Generator[FaultRelay]:
    """A relay before the server of the test's database."""
    with FaultRelay.before_postgres(migrated_url) as relay:
        yield relay


@pytest.fixture
def server() -> Generator[PostgresServer]:
    """A server of the test's own, which it may stop."""
    with PostgresServer() as server:
        with PostgresTarget(server.url()) as target:
            migrate(target)
        yield server


def through(relay: FaultRelay, url: str, **more: Any) -> PostgresJournal:
    return PostgresJournal(relay.postgres_url(url), require_fsync=False, **more)


def three_units(journal: PostgresJournal) -> list[Unit]:
    """Return a creation that reserves, an advance, and one over two streams."""
    commit(journal.committer(), old := a_unit())
    reserve = GuardChange("budget", "reserve", 20)
    return [
        a_unit(a_change(events=2), guards=[reserve]),
        after(old, 2),
        a_unit(a_change(), a_change()),
    ]


def check_once(journal: PostgresJournal, units: list[Unit], answers: list[Any]) -> None:
    """Check that the answers name the positions at which each event lies, once."""
    read = {event.event_id: event.position for event in everything(journal)}
    for unit, answer in zip(units, answers, strict=True):
        assert isinstance(answer, Committed), answer
        lie = tuple(tuple(read[e.event_id] for e in change.events) for change in unit.changes)
        assert answer.positions == lie
    guard = journal.guard(TENANT, "budget")
    assert guard is not None
    assert guard.reserved == 20
    assert len(read) == 1 + 6


@pytest.mark.parametrize(
    ("fault", "found"), [(Fault.LOSE_REPLY, True), (Fault.LOSE_REQUEST, False)]
)
def test_the_same_units_again_tell_what_became_of_them(
    migrated_url: str, postgres: PostgresJournal, relay: FaultRelay, fault: Fault, found: bool
) -> None:
    """Committed and not told, or never arrived: the caller hears of neither."""
    postgres.set_ceiling(TENANT, "budget", 100)
    units = three_units(postgres)
    with closing(through(relay, migrated_url)) as journal:
        committer = journal.committer()
        relay.inject(fault, on=COMMIT)
        answers = committer.commit(units)
    assert relay.strikes == 1
    assert [answer.found for answer in answers if isinstance(answer, Committed)] == [found] * 3
    check_once(postgres, units, answers)


def test_a_commit_that_still_waits_for_a_standby_is_waited_for(server: PostgresServer) -> None:
    """Read too early, such a commit looks as if it had never come in."""
    with (
        closing(PostgresJournal(server.url(), require_fsync=False)) as direct,
        FaultRelay.before_postgres(server.url()) as relay,
        closing(through(relay, server.url())) as journal,
        psycopg.connect(server.url(), autocommit=True) as admin,
        ThreadPoolExecutor(1) as pool,
    ):
        direct.set_ceiling(TENANT, "budget", 100)
        units, committer = three_units(direct), journal.committer()
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        admin.execute("SELECT pg_reload_conf()")
        ask = "SHOW synchronous_standby_names"
        eventually(lambda: admin.execute(ask).fetchone() == ("nobody",))
        future = pool.submit(committer.commit, units)
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: admin.execute(waits).fetchone() == (1,))
        relay.inject(Fault.REFUSE)  # cuts the connection; the server's process waits on
        relay.heal()
        lost = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT FROM pg_stat_act%'"
        eventually(lambda: admin.execute(lost).fetchone() == (1,))
        assert not future.done()
        admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        admin.execute("SELECT pg_reload_conf()")
        answers = future.result(SECONDS)
        assert [a.found for a in answers if isinstance(a, Committed)] == [True] * 3
        check_once(direct, units, answers)


def test_a_request_that_outlives_its_sender_lands_nowhere(
    migrated_url: str, postgres: PostgresJournal, relay: FaultRelay
) -> None:
    """The server ends the idle transaction first, and so it must not land on top of the rerun."""
    postgres.set_ceiling(TENANT, "budget", 100)
    units = three_units(postgres)
    settings = {"idle_in_transaction_session_timeout": "700ms"}
    with (
        closing(through(relay, migrated_url, settings=settings)) as journal,
        ThreadPoolExecutor(1) as pool,
    ):
        committer = journal.committer()
        relay.inject(Fault.HOLD_REQUEST, on=b'INSERT INTO "settled".agenda')
        future = pool.submit(committer.commit, units)
        relay.wait_struck()
        cut(committer)
        answers = future.result(SECONDS)
        relay.release()
    assert [a.found for a in answers if isinstance(a, Committed)] == [False] * 3
    check_once(postgres, units, answers)


def cut(committer: Any) -> None:
    """Break the committer's connection from its own side, as a dying network card would."""
    with socket.socket(fileno=os.dup(committer._session.connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("fault", "on", "taken"),
    [
        (Fault.LOSE_REPLY, COMMIT, True),
        (Fault.LOSE_REQUEST, COMMIT, False),
        (Fault.LOSE_REPLY, b"lapsed", False),
    ],
)
def test_a_claim_whose_answer_was_lost_leaves_no_row_behind(
    migrated_url: str,
    postgres: PostgresJournal,
    relay: FaultRelay,
    fault: Fault,
    on: bytes,
    taken: bool,
) -> None:
    """Rows of a worker that lives and does not know of them could be taken by nobody else."""
    commit(postgres.committer(), *(a_unit() for _ in range(5)))
    with closing(through(relay, migrated_url)) as journal:
        committer, member = journal.committer(), postgres.enrol("worker", 60)

        def claim() -> list[Any]:
            return committer.claim(epoch=member.epoch, kinds=["refund"], want=9, reader=1)

        relay.inject(fault, on=on)
        with pytest.raises(StoreUnavailable):
            claim()
        if taken:
            assert {row.owner for row in postgres.heads()} == {member.epoch}
        rows = eventually(claim)
        assert [(row.owner, row.takes) for row in rows] == [(member.epoch, 1)] * 5
        assert claim() == []


def test_a_crash_of_the_server_is_survived_by_waiting(server: PostgresServer) -> None:
    """It recovers within seconds, and the group that was on its way is then told the truth."""
    with (
        closing(PostgresJournal(server.url(), require_fsync=False)) as journal,
        ThreadPoolExecutor(1) as pool,
    ):
        committer = journal.committer()
        commit(committer, old := a_unit())
        server.stop("immediate")
        future = pool.submit(committer.commit, [after(old), a_unit()])
        server.start()
        answers = future.result(SECONDS)
        assert [type(answer) for answer in answers] == [Committed, Committed]
        assert len(everything(journal)) == 3


def test_a_reader_goes_on_soon_after_a_long_outage(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts to connect do not become rarer, so that none comes long after the server is back."""
    tried: list[str] = []
    connect = psycopg.Connection.connect

    def counted(conninfo: str = "", **options: Any) -> Any:
        tried.append(conninfo)
        return connect(conninfo, **options)

    monkeypatch.setattr(psycopg.Connection, "connect", counted)
    with (
        closing(
            PostgresJournal(server.url(), require_fsync=False, patience_seconds=SECONDS)
        ) as journal,
        ThreadPoolExecutor(1) as pool,
    ):
        assert journal.lanes() == {}
        server.stop("immediate")
        tried.clear()
        future = pool.submit(journal.lanes)
        eventually(lambda: len(tried) > 24, seconds=SECONDS)
        server.start()
        assert future.result(SECONDS) == {}


def test_the_very_same_units_may_be_submitted_after_the_patience(server: PostgresServer) -> None:
    """StoreUnavailable says that it is not known whether they are in; they must not be in twice."""
    with closing(
        PostgresJournal(server.url(), require_fsync=False, patience_seconds=0.2)
    ) as journal:
        committer = journal.committer()
        commit(committer, old := a_unit())
        units = [after(old), a_unit()]
        (first,) = committer.commit(units[:1])
        server.stop("fast")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                committer.commit(units)
        server.start()
        again, new = committer.commit(units)
        assert isinstance(first, Committed)
        assert again == Committed(first.positions, found=True)
        assert isinstance(new, Committed)
        assert not new.found


def test_the_queue_outlasts_a_restart(server: PostgresServer) -> None:
    """Callers wait for their futures meanwhile, and none of them hears of the restart."""
    with closing(
        PostgresJournal(server.url(), require_fsync=False, patience_seconds=0.1)
    ) as journal:
        queue = CommitQueue(journal.committer(), store_patience_seconds=SECONDS)
        futures = [queue.submit(a_unit()) for _ in range(100)]
        server.stop("immediate")
        futures += [queue.submit(a_unit()) for _ in range(100)]
        server.start()
        answers = [future.result(SECONDS) for future in futures]
        queue.close()
        assert {type(answer) for answer in answers} == {Committed}
        assert len(everything(journal)) == 200


def test_the_queue_gives_up_when_its_patience_is_over(server: PostgresServer) -> None:
    """A caller must get its thread back, and be told that nothing is known."""
    with closing(
        PostgresJournal(server.url(), require_fsync=False, patience_seconds=0.1)
    ) as journal:
        queue = CommitQueue(journal.committer(), store_patience_seconds=0.3)
        server.stop("immediate")
        with pytest.raises(StoreUnavailable):
            queue.submit(a_unit()).result(SECONDS)
        server.start()
        assert isinstance(queue.submit(a_unit()).result(SECONDS), Committed)
        queue.close()
