"""What the conformance suite runs on, and the processes that it starts there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

from settled.domain.journal.port import Journal
from settled.infrastructure.testing.journal_units import PATIENCE_SECONDS

_SPAWN = get_context("spawn")


@dataclass(frozen=True)
class Store:
    """A fresh, migrated store. Both functions are called in other processes too, so they pickle.

    `open` opens the journal. `transaction` opens a transaction of a caller's own on the same
    database and gives its connection: it commits at the end of the block, and rolls back where the
    block raises.
    """

    open: Callable[[], Journal]
    transaction: Callable[[], AbstractContextManager[Any]]


def sqlite_store(path: Path, opening: Callable[[], Journal]) -> Store:
    """Return a store on an SQLite file that was migrated."""
    return Store(opening, partial(_sqlite_transaction, path))


def postgres_store(url: str, opening: Callable[[], Journal]) -> Store:
    """Return a store on a PostgreSQL database that was migrated."""
    return Store(opening, partial(_postgres_transaction, url))


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

_gate: Barrier


class Processes:
    """Several processes that begin to work on a store at the same moment."""

    def __init__(self, store: Store, work: Work, count: int) -> None:
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


def _set_gate(gate: Barrier) -> None:
    global _gate
    _gate = gate


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

    def _receive(self) -> Any:
        assert self._here.poll(PATIENCE_SECONDS), "the worker process says nothing"
        return self._here.recv()


def _work(store: Store, lease_seconds: float, claims: int, there: Connection) -> None:
    with closing(store.open()) as journal, closing(journal.committer()) as committer:
        membership = journal.enrol("a worker process", lease_seconds)
        if claims:
            rows = committer.claim(epoch=membership.epoch, kinds=["refund"], want=claims, reader=1)
            assert len(rows) == claims
        there.send(membership.epoch)
        while there.recv() == "renew":
            there.send(membership.renew())
