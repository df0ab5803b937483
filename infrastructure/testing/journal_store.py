"""What the conformance suite runs on, and the processes that it starts there."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

from settled.domain.journal.port import Journal, Membership
from settled.infrastructure.testing.journal_units import PATIENCE_SECONDS
from settled.infrastructure.testing.memory_journal import MemoryJournal
from settled.infrastructure.testing.memory_tables import MemoryStore

_SPAWN = get_context("spawn")


@dataclass(frozen=True)
class Store:
    """A fresh, migrated store. Both functions are called in other processes too, so they pickle.

    `open` opens the journal. `transaction` opens a transaction of a caller's own on the same
    database and gives its connection: it commits at the end of the block, and rolls back where the
    block raises.

    `here` says that no other process can see the store. Then threads take the place of processes,
    and a worker that is killed is one whose journal is closed without a leave.
    """

    open: Callable[[], Journal]
    transaction: Callable[[], AbstractContextManager[Any]]
    here: bool = False


def sqlite_store(path: Path, opening: Callable[[], Journal]) -> Store:
    """Return a store on an SQLite file that was migrated."""
    return Store(opening, partial(_sqlite_transaction, path))


def postgres_store(url: str, opening: Callable[[], Journal]) -> Store:
    """Return a store on a PostgreSQL database that was migrated."""
    return Store(opening, partial(_postgres_transaction, url))


def memory_store(memory: MemoryStore) -> Store:
    """Return a store in memory."""
    return Store(partial(MemoryJournal, memory), memory.transaction, here=True)


@contextmanager
def _sqlite_transaction(path: Path) -> Generator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)
    with closing(connection):
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@contextmanager
def _postgres_transaction(url: str) -> Generator[psycopg.Connection[Any]]:
    import psycopg  # here, because a process that only uses SQLite has no use for it

    with closing(psycopg.connect(url)) as connection, connection.transaction():
        yield connection


Work = Callable[[Store, Journal, int], Any]
"""What one of several processes does: with the store, a journal of its own, and its number."""

_gate: Barrier | threading.Barrier


class Processes:
    """Several processes, or threads, that begin to work on a store at the same moment."""

    def __init__(self, store: Store, work: Work, count: int) -> None:
        self._pool: Executor
        if store.here:
            _set_gate(threading.Barrier(count))
            self._pool = ThreadPoolExecutor(count)
        else:
            gate = _SPAWN.Barrier(count)
            self._pool = ProcessPoolExecutor(
                count, mp_context=_SPAWN, initializer=_set_gate, initargs=(gate,)
            )
        self._futures: list[Future[Any]] = [
            self._pool.submit(_run, store, work, number) for number in range(count)
        ]

    @property
    def running(self) -> bool:
        """Whether one of them still works."""
        return not all(future.done() for future in self._futures)

    def results(self) -> list[Any]:
        """Return what each of them returned; raise what one of them raised."""
        try:
            return [future.result(PATIENCE_SECONDS) for future in self._futures]
        finally:
            self._pool.shutdown()


def _set_gate(gate: Barrier | threading.Barrier) -> None:
    global _gate
    _gate = gate
    threading.Thread(target=_end_with_starter, daemon=True).start()


def _end_with_starter() -> None:
    """End this process when the one that has started it dies: nothing else tells those of a pool.

    Threads that take the place of processes have nobody to wait for.
    """
    starter = parent_process()
    if starter is not None:
        starter.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _run(store: Store, work: Work, number: int) -> Any:
    with closing(store.open()) as journal:
        _gate.wait(PATIENCE_SECONDS)
        return work(store, journal, number)


class WorkerProcess:
    """A process that has a worker's place in the journal and does what it is told."""

    def __init__(self, store: Store, lease_seconds: float, claims: int = 0) -> None:
        self._here, there = _SPAWN.Pipe()
        self._process: SpawnProcess = _SPAWN.Process(
            target=_work, args=(store, lease_seconds, claims, there), daemon=True
        )
        self._process.start()
        there.close()
        self.epoch: int = self._receive()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the process."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the process where it is."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process go on that was stopped."""
        self._signal(signal.SIGCONT)

    def renew(self) -> bool:
        """Have the worker renew its lease, and return what it was told."""
        self._here.send("renew")
        return bool(self._receive())

    def close(self) -> None:
        """Kill the process, if that was not done yet."""
        self._process.kill()
        self._process.join(PATIENCE_SECONDS)
        self._process.close()
        self._here.close()

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def _receive(self) -> Any:
        assert self._here.poll(PATIENCE_SECONDS), "the worker process says nothing"
        return self._here.recv()


class WorkerHere:
    """The same within this process, for a store that no other can see: it only does as it is told.

    To be stopped is to renew nothing.
    """

    def __init__(self, store: Store, lease_seconds: float, claims: int = 0) -> None:
        self._journal = store.open()
        self._membership = _enrol(self._journal, lease_seconds, claims)
        self.epoch = self._membership.epoch

    def kill(self) -> None:
        """Let go of everything without a word."""
        self._journal.close()

    def stop(self) -> None:
        """Do nothing from here on."""

    def go_on(self) -> None:
        """Be there to be asked again."""

    def renew(self) -> bool:
        """Renew the lease, and return what the worker was told."""
        return self._membership.renew()

    def close(self) -> None:
        """End, if that was not done yet."""
        self._journal.close()


def start_worker(store: Store, lease_seconds: float, claims: int = 0) -> WorkerProcess | WorkerHere:
    """Start what has a worker's place in the journal, in a process where the store allows it."""
    return (WorkerHere if store.here else WorkerProcess)(store, lease_seconds, claims)


def _enrol(journal: Journal, lease_seconds: float, claims: int) -> Membership:
    membership = journal.enrol("a worker process", lease_seconds)
    if claims:
        with closing(journal.committer()) as committer:
            rows = committer.claim(epoch=membership.epoch, kinds=["refund"], want=claims, reader=1)
            assert len(rows) == claims
    return membership


def _work(store: Store, lease_seconds: float, claims: int, there: Connection) -> None:
    with closing(store.open()) as journal:
        membership = _enrol(journal, lease_seconds, claims)
        there.send(membership.epoch)
        while there.recv() == "renew":
            there.send(membership.renew())
