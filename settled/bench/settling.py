"""Intent to settled: the job as a whole, on both databases, beside the floor and other libraries.

One client process intends, one worker process performs; the provider is a function in the worker
that returns at once. Measured from the first intent until nothing is open any more. Only ways of
doing it are compared that make the intent durable before the effect.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg

from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.meter import Meter
from settled.bench.processes import WORKER, running
from settled.bench.template import make
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path

DBOS = "dbos"
LANGGRAPH = "langgraph"
PROCRASTINATE = "procrastinate"

_RAW_IS_FASTER = 4
_SLOWER_ON_SQLITE = 4
_LOOK_SECONDS = 0.01
_DONE_SECONDS = 900.0
_NOTHING_OPEN = "SELECT NOT EXISTS (SELECT FROM settled.agenda WHERE due_at IS NOT NULL)"
_NOTHING_OPEN_SQLITE = "SELECT NOT EXISTS (SELECT 1 FROM agenda WHERE due_at IS NOT NULL)"

Words = tuple[str, ...]


@dataclass(frozen=True)
class System:
    """One way to do the job: what the client and the worker are, and how one sees that all is done.

    Words are a module and its arguments. `client` is told when to begin and says when all is
    intended; without a `worker` it performs as well. `done` is a query that says so; without one
    the client's word counts.
    """

    client: Words
    worker: Words | None = None
    done: str | None = None


def settle(lab: Lab, url: str, system: System, operations: int) -> Sample:
    """Run the job once on a fresh store and return what an operation cost."""
    with ExitStack() as stack:
        worker = None
        if system.worker is not None:
            worker = stack.enter_context(running(lab.folder, *system.worker))
        client = stack.enter_context(running(lab.folder, *system.client))
        done = stack.enter_context(looking(url, system.done)) if system.done else None
        if done is not None:
            wait_until(done)
        pids = {"client": [client.pid]} | ({"worker": [worker.pid]} if worker is not None else {})
        meter = Meter(lab, url, **pids)
        meter.start()
        client.go()
        intended = client.answer()
        if done is not None:
            wait_until(done)
        meter.stop()
        stack.close()
        sample = meter.sample(operations)
        sample["intended_per_second"] = operations / intended["seconds"]
        return sample


@contextmanager
def looking(url: str, question: str) -> Generator[Callable[[], bool]]:
    """Give what asks a store a question, on a connection that is kept for it.

    On PostgreSQL all in one transaction, each time under a new snapshot: else our looking would be
    counted among the commits of whom we measure.
    """
    if is_sqlite(url):
        with closing(sqlite3.connect(sqlite_path(url))) as file:
            yield lambda: bool(file.execute(question).fetchone()[0])
        return
    with psycopg.connect(url) as connection:

        def ask() -> bool:
            row = connection.execute(question.encode()).fetchone()
            return row is not None and bool(row[0])

        yield ask


def wait_until(done: Callable[[], bool]) -> None:
    """Look again and again until it is done."""
    give_up_at = elapsed_seconds() + _DONE_SECONDS
    while not done():
        assert elapsed_seconds() < give_up_at, "what was intended is not settled"
        time.sleep(_LOOK_SECONDS)


def nothing_open(url: str) -> str:
    """Return the query that says whether every operation of a store is settled."""
    return _NOTHING_OPEN_SQLITE if is_sqlite(url) else _NOTHING_OPEN


def ours(lab: Lab, url: str) -> System:
    """Return how the job is done with settled."""
    sizes = lab.sizes
    load = ("settled.bench.load", url, str(sizes.operations), str(sizes.threads))
    worker = (*WORKER, "--url", url, "--concurrency", str(sizes.concurrency))
    return System(load, worker, nothing_open(url))


def raw_operations(lab: Lab) -> int:
    """Return how many operations the floor does in a round: as many as take a second or two."""
    return lab.sizes.operations * _RAW_IS_FASTER


def raw(lab: Lab, url: str, template: str) -> System:
    """Return how the floor does it: a batch is as large as ours can be."""
    count, batch = str(raw_operations(lab)), str(lab.sizes.threads)
    if is_sqlite(url):
        path = str(sqlite_path(url))
        return System(("settled.bench.raw_sqlite", path, template, count, batch))
    module = "settled.bench.raw_postgres"
    return System(
        (module, "client", url, template, count, batch),
        (module, "worker", url, template, batch, "0"),
        _NOTHING_OPEN,
    )


def peer_operations(lab: Lab, dialect: str) -> int:
    """Return how many operations the other libraries do in a round."""
    return lab.sizes.peer_operations // (_SLOWER_ON_SQLITE if dialect == "sqlite" else 1)


def peers(lab: Lab, url: str) -> dict[str, System]:
    """Return how the other libraries that are installed do it."""
    count = str(peer_operations(lab, "sqlite" if is_sqlite(url) else "postgresql"))
    found: dict[str, System] = {}
    if installed("dbos"):
        module = "settled.bench.peer_dbos"
        found[DBOS] = System(
            (module, "client", url, count, "16"),
            (module, "worker", url, "0.05"),
            "SELECT NOT EXISTS (SELECT FROM dbos.workflow_status WHERE status <> 'SUCCESS')",
        )
        if is_sqlite(url):
            found[DBOS] = System((module, "direct", url, count))
    if installed("langgraph") and installed(f"langgraph.checkpoint.{_flavour(url)}"):
        found[LANGGRAPH] = System(("settled.bench.peer_langgraph", url, count, "8"))
    if installed("procrastinate") and not is_sqlite(url):
        module = "settled.bench.peer_procrastinate"
        found[PROCRASTINATE] = System(
            (module, "client", url, count, "16"),
            (module, "worker", url, str(lab.sizes.concurrency)),
            "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status <> 'succeeded')",
        )
    return found


def _flavour(url: str) -> str:
    return "sqlite" if is_sqlite(url) else "postgres"


def installed(module: str) -> bool:
    """Tell whether another library is there."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _contenders(lab: Lab, dialect: str) -> Contenders:
    def once(name: str) -> Sample:
        peer = name in others
        with lab.store(dialect, migrated=not peer) as url:
            if name == OURS:
                return settle(lab, url, ours(lab, url), lab.sizes.operations)
            if name == RAW:
                system = raw(lab, url, make(url, lab.folder))
                return settle(lab, url, system, raw_operations(lab))
            return settle(lab, url, peers(lab, url)[name], peer_operations(lab, dialect))

    others = peers(lab, "sqlite:///settled.db" if dialect == "sqlite" else lab.admin)
    return {name: partial(once, name) for name in (OURS, RAW, *others)}


@experiment(
    "settle-postgresql",
    "Intent to settled on PostgreSQL",
    Figure("postgresql", "Intent to settled", "per_second", "ops/s", 3_000, Better.HIGHER),
    Figure("dbos", "… against the DBOS queue", "per_second", "×", 10, Better.HIGHER, over=DBOS),
    Figure("share", "… share of raw psycopg", "per_second", "", 0.4, Better.HIGHER, over=RAW),
    Figure("commits", "… commits an operation", "commits", "", 0.2, Better.LOWER),
    Figure("wal", "… WAL an operation", "wal_bytes", "B", 2_560, Better.LOWER),
)
def on_postgresql(lab: Lab) -> Contenders:
    """Measure the job on PostgreSQL."""
    return _contenders(lab, "postgresql")


@experiment(
    "settle-sqlite",
    "Intent to settled on SQLite",
    Figure("sqlite", "Intent to settled, SQLite", "per_second", "ops/s", 3_000, Better.HIGHER),
)
def on_sqlite(lab: Lab) -> Contenders:
    """Measure the job on SQLite."""
    return _contenders(lab, "sqlite")
