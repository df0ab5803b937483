"""A28: the disk is full, or the database read-only, in mid-append.

What stands for a full disk is a limit on the size of files, which the operating system keeps for
the processes that write: their writes really fail, wherever they happen to be.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from settled import Identity, NotFound, StoreReadOnly, StoreUnavailable
from settled.infrastructure.journal.opening import sqlite_path
from settled.infrastructure.testing.journal_units import eventually
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.check import POSTGRESQL, SQLITE, check, refused
from settled.verify.checks_outages import LOAD, under_load
from settled.verify.intending import IntendingProcess
from settled.verify.stage import Stage

OPERATIONS = 100
ROOM_BYTES = 1 << 20
"""What is left for the write-ahead log of a server: less than the load writes."""


@check("A28", "SQLite: the disk is full", databases=SQLITE)
def a28_a_full_disk_under_sqlite(stage: Stage) -> None:
    """Service and worker cannot append any more: nothing is there by half, then both go on."""
    operations = [stage.intend(f"refund-{n}", order=f"order-{n}") for n in range(OPERATIONS)]
    file = sqlite_path(stage.url)
    worker = stage.worker()
    late = Identity("acme", "refund", "late")
    with IntendingProcess(stage, late.operation_id) as service:
        service.wait_ready()
        stage.simulator.wait(calls=OPERATIONS // 5)
        with _full_for(worker.pid, service.pid, beyond=_log_of(file)):
            stage.strike("no file may grow")
            service.go()
            stage.wait_log(worker, "heartbeat_failed")
            assert str(file) in stage.log_of(worker), "the file is named"
            with refused(NotFound):
                stage.get(late)
        # The service has tried again meanwhile: a commit that failed so may be there all the same.
        assert service.answer()["version"] == 1
    for operation in (*operations, stage.get(late)):
        stage.wait(operation, "succeeded")
    assert stage.effects() == OPERATIONS + 1
    assert worker.running
    stage.check_invariant(*operations, stage.get(late))
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@check("A28", "PostgreSQL: read-only in mid-append", databases=POSTGRESQL, own_server=True)
def a28_a_database_that_turns_read_only(stage: Stage) -> None:
    """It takes no writes for a while, under load: said so, nothing is there by half, then on."""
    with under_load(stage) as service, _read_only_at_will(stage.server) as read_only:
        service.wait_begun(LOAD // 4)
        stage.strike("default_transaction_read_only = on")
        read_only(True)
        eventually(lambda: _is_refused(stage))
        with refused(StoreReadOnly, match="read-only"):
            stage.intend("late")
        with refused(NotFound):
            stage.get(Identity("acme", "refund", "late"))
        read_only(False)


@check("A28", "PostgreSQL: no room for the log", databases=POSTGRESQL, own_server=True)
def a28_a_full_disk_under_postgresql(stage: Stage) -> None:
    """The server panics where it writes, and cannot come up again until there is room."""
    server = stage.server
    with under_load(stage) as service:
        service.wait_begun(LOAD // 4)
        _begin_segment(server)
        server.stop()
        with _full_for(0, beyond=ROOM_BYTES):  # whose children inherit it
            server.start()
        stage.strike("no room for pg_wal")
        # It may go on for ever to recover and to panic again, or give up: both are an outage.
        eventually(lambda: "PANIC" in server.log, seconds=60)
        with refused(StoreUnavailable):
            stage.get(Identity("acme", "refund", "refund-0"))
        server.stop("immediate")
        server.start()


@contextmanager
def _full_for(*pids: int, beyond: int) -> Generator[None]:
    """Let these processes (0 is this one) write nothing beyond so many bytes of a file."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, most) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (beyond, most))
    try:
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def _log_of(file: Path) -> int:
    """Return how long the write-ahead log is that every commit is appended to."""
    return file.with_name(f"{file.name}-wal").stat().st_size


def _begin_segment(server: PostgresServer) -> None:
    """Let the write-ahead log go on at the beginning of a segment, and make that file."""
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("SELECT pg_switch_wal()")
        admin.execute("SELECT pg_logical_emit_message(true, 'settled', 'a new segment')")


ReadOnly = Callable[[bool], None]


@contextmanager
def _read_only_at_will(server: PostgresServer) -> Generator[ReadOnly]:
    """Give a switch for the whole server, which is back where it was at the end."""
    own = "-c default_transaction_read_only=off"
    with psycopg.connect(server.url(), autocommit=True, options=own) as admin:

        def switch(on: bool) -> None:
            setting = "SET default_transaction_read_only = on" if on else "RESET ALL"
            admin.execute(f"ALTER SYSTEM {setting}".encode())
            admin.execute("SELECT pg_reload_conf()")

        try:
            yield switch
        finally:
            switch(False)


def _is_refused(stage: Stage) -> bool:
    """Tell whether the service's session has heard of it."""
    try:
        stage.intend(f"early-{stage.app.journal.time().timestamp():.6f}")
    except StoreReadOnly:
        return True
    return False
