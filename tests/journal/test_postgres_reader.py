"""Reading in order without a writer's lock: what may be delivered while transactions are open.

Goal: no event is missed, repeated or out of order, and nobody waits who need not. Each case is a
schedule of open transactions, played by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, closing
from typing import Any
from uuid import UUID

import psycopg
import pytest

from settled.domain.journal.unit import Committed
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.testing.journal_units import a_change, a_unit, commit, eventually
from settled.infrastructure.testing.postgres_server import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]


class Writers:
    """Callers with open transactions of their own, each of which has appended one event."""

    def __init__(self, url: str, journal: PostgresJournal, stack: ExitStack) -> None:
        self.url = url
        self.journal = journal
        self.stack = stack

    def connect(self) -> Connection:
        """Open a connection that the test closes."""
        return self.stack.enter_context(closing(psycopg.connect(self.url)))

    def write(self, connection: Connection | None = None) -> tuple[Connection, int]:
        """Append one event in an open transaction; return its connection and its position."""
        connection = connection or self.connect()
        answer = self.journal.join(connection, a_unit())
        assert isinstance(answer, Committed)
        return connection, answer.positions[0][0]

    def done(self) -> int:
        """Append one event in a transaction that commits; return its position."""
        connection, position = self.write()
        connection.commit()
        return position

    def read(self, after_position: int = 0) -> list[int]:
        """Return the positions that a reader is given now."""
        page = self.journal.read(after_position, 100)
        return [event.position or 0 for event in page.events]


@pytest.fixture
def writers(migrated_url: str, postgres: PostgresJournal) -> Generator[Writers]:
    """Writers on a fresh database; what they leave open is rolled back."""
    with ExitStack() as stack:
        yield Writers(migrated_url, postgres, stack)


def test_a_lower_position_in_flight_is_waited_for(writers: Writers) -> None:
    """Delivered later, it would be behind the reader, and missed for ever."""
    open_one, lower = writers.write()
    higher = writers.done()
    assert [writers.read() for _ in range(3)] == [[], [], []]
    open_one.commit()
    assert writers.read() == [lower, higher]


def test_a_rolled_back_position_is_passed_at_once(writers: Writers) -> None:
    """A hole that nobody can fill any more must not stop the log."""
    open_one, _ = writers.write()
    higher = writers.done()
    assert writers.read() == []
    open_one.rollback()
    assert writers.read() == [higher]


def test_a_hole_from_before_the_first_look_stops_nobody(writers: Writers) -> None:
    """A reader that starts now sees only who is still there."""
    writers.write()[0].rollback()
    higher = writers.done()
    assert writers.read() == [higher]


def test_an_old_transaction_elsewhere_stops_nobody(writers: Writers) -> None:
    """It can fill no hole; readers by transaction id would wait for it."""
    elsewhere = writers.connect()
    elsewhere.execute("CREATE TABLE orders (id int)")
    writers.write()[0].rollback()
    higher = writers.done()
    assert writers.read() == [higher]


def test_an_idle_reader_of_the_events_stops_nobody(writers: Writers) -> None:
    """Reading takes another lock than writing does."""
    reader = writers.connect()
    reader.execute("SELECT count(*) FROM settled.events")
    writers.write()[0].rollback()
    higher = writers.done()
    assert writers.read() == [higher]


def test_what_lies_below_the_hole_is_delivered(writers: Writers) -> None:
    """Only what is above the position in question has to wait."""
    below = writers.done()
    open_one, hole = writers.write()
    above = writers.done()
    assert writers.read() == [below]
    last = writers.done()
    assert writers.read(below) == []
    open_one.commit()
    assert writers.read(below) == [hole, above, last]


def test_a_newcomer_does_not_extend_the_wait(writers: Writers) -> None:
    """Under steady load somebody is always there; waiting for all of them would never end."""
    old, _ = writers.write()
    higher = writers.done()
    assert writers.read() == []
    newcomer, highest = writers.write()
    old.rollback()
    assert writers.read() == [higher]
    newcomer.commit()
    assert writers.read(higher) == [highest]


def test_a_killed_writer_leaves_a_dead_hole(writers: Writers) -> None:
    """Its server process is gone, and its lock with it."""
    doomed, _ = writers.write()
    higher = writers.done()
    assert writers.read() == []
    with psycopg.connect(writers.url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", (doomed.info.backend_pid,))
    assert writers.read() == [higher]


def test_a_rolled_back_savepoint_does_not_hide_its_transaction(writers: Writers) -> None:
    """The lock stays with the whole transaction, and so does the wait."""
    connection = writers.connect()
    connection.execute("SAVEPOINT before")
    writers.write(connection)
    connection.execute("ROLLBACK TO before")
    _, mine = writers.write(connection)
    higher = writers.done()
    assert writers.read() == []
    connection.commit()
    assert writers.read() == [mine, higher]


def test_the_lock_precedes_the_position(writers: Writers) -> None:
    """All of this rests on it: a blocked INSERT has not drawn its position yet."""
    with psycopg.connect(writers.url, autocommit=True) as admin, writers.connect() as blocker:
        name = admin.execute(
            "SELECT pg_get_serial_sequence('settled.events', 'position')"
        ).fetchone()
        assert name is not None
        drawn = f"SELECT last_value, is_called FROM {name[0]}".encode()
        committer = writers.journal.committer()
        for _ in range(12):  # also from a plan that is kept
            commit(committer, a_unit())
        before = admin.execute(drawn).fetchone()
        blocker.execute("LOCK TABLE settled.events IN SHARE MODE")
        thread = threading.Thread(target=commit, args=(committer, a_unit()))
        thread.start()
        blocked = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted"
            " AND relation = 'settled.events'::regclass"
        )
        eventually(lambda: admin.execute(blocked).fetchone() == (1,))
        assert admin.execute(drawn).fetchone() == before
        blocker.rollback()
        thread.join()
        assert admin.execute(drawn).fetchone() != before


def test_positions_cannot_be_given_by_hand(migrated_url: str, postgres: PostgresJournal) -> None:
    """One that was not drawn under the lock would be behind the readers."""
    commit(postgres.committer(), a_unit())
    copy = (
        "INSERT INTO settled.events SELECT tenant, shard, %s, version, position + 1, event_id,"
        " topic, schema_version, min_reader, recorded_at, actor, correlation, causation, key_id,"
        " previous_hash, hash, state, body, body_digest FROM settled.events"
    )
    with psycopg.connect(migrated_url) as connection:
        with pytest.raises(psycopg.errors.GeneratedAlways):
            connection.execute(copy, (UUID(int=1),))


def test_a_large_hole_and_a_cold_start_cost_nothing(writers: Writers) -> None:
    """A page is never short because of burnt positions, nor taken for the end."""
    first = writers.done()
    with psycopg.connect(writers.url, autocommit=True) as admin:
        admin.execute(
            "SELECT setval(pg_get_serial_sequence('settled.events', 'position'), 30000000)"
        )
    committer = writers.journal.committer()
    answers = commit(committer, *(a_unit(a_change(events=2)) for _ in range(20)))
    last = answers[-1].positions[0][-1]
    assert last > 30_000_000
    with closing(PostgresJournal(writers.url, require_fsync=False)) as cold:
        pages: list[int] = []
        while (page := cold.read(pages[-1] if pages else 0, 7)).events:
            pages += [event.position or 0 for event in page.events]
            assert page.more == (len(page.events) == 7)
        assert (pages[0], pages[-1], len(pages)) == (first, last, 41)


def test_a_prepared_transaction_is_waited_for() -> None:
    """It holds its lock without a session, for as long as its manager likes."""
    with PostgresServer(settings={"max_prepared_transactions": "2"}) as server:
        open_journal(server.url(), migrate=True, require_fsync=False).close()
        with (
            closing(PostgresJournal(server.url(), require_fsync=False)) as journal,
            ExitStack() as stack,
        ):
            writers = Writers(server.url(), journal, stack)
            two_phase, lower = writers.write()
            two_phase.execute("PREPARE TRANSACTION 'order-72'")
            two_phase.commit()
            higher = writers.done()
            assert writers.read() == []
            subjects = {diagnosis.subject for diagnosis in journal.examine()}
            assert "prepared" in subjects
            with psycopg.connect(server.url(), autocommit=True) as manager:
                manager.execute("COMMIT PREPARED 'order-72'")
            assert writers.read() == [lower, higher]
