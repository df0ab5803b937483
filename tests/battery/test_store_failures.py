"""PostgreSQL crashes under load, or the answer to a COMMIT is lost on the wire.

Each test has a server of its own, which it may stop.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import settled
from settled import StoreUnavailable
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.fault_relay import Fault, FaultRelay
from settled.infrastructure.testing.journal_units import eventually
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.stage import AGENT, Stage, staged

OPEN = ("ready", "claimed", "dispatching", "outcome_unknown")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, which writes through to its disk."""
    with PostgresServer(fsync=True) as own:
        yield own


@pytest.fixture
def stage(
    server: PostgresServer,
    simulator: SimulatorClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """A stage on that server."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    with staged(server.url(), simulator, tmp_path) as open_stage:
        yield open_stage


@pytest.fixture
def relay(server: PostgresServer) -> Iterator[FaultRelay]:
    """What goes to the server through this can be lost."""
    with FaultRelay.before_postgres(server.url()) as open_relay:
        yield open_relay


def test_a25_the_answer_to_an_intents_commit_is_lost(
    stage: Stage, server: PostgresServer, relay: FaultRelay
) -> None:
    """A25: the service's COMMIT arrives and its answer does not: one Intended, no conflict."""
    with settled.open(
        relay.postgres_url(server.url()), kinds=stage.app.kinds.by_name.values()
    ) as app:
        relay.inject(Fault.LOSE_REPLY, on=b"settled.operation.Intended")
        params = {"order": "order-72", "amount": settled.Money("30.00", "USD")}
        told = app.operations.intend("refund", "refund-request-9", params, by=AGENT)
        relay.wait_struck()
    assert (told.state, told.version) == ("ready", 1)
    assert stage.names(told) == ["Intended"]
    stage.worker()
    done = stage.wait(told, "succeeded")
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done)


@pytest.mark.parametrize("event", ["Dispatching", "Succeeded"])
@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
def test_a25_a_workers_commit_is_lost(
    stage: Stage, server: PostgresServer, relay: FaultRelay, event: str, fault: Fault
) -> None:
    """A25: a commit around the call is lost, before or after the server had it: nothing twice."""
    url = relay.postgres_url(server.url())
    worker = stage.worker(environment={"SETTLED_URL": url}, lease_seconds=10)
    relay.inject(fault, on=f"settled.operation.{event}".encode())
    operation = stage.intend(kind="nothing")
    done = stage.wait(operation, "succeeded", "handed_over")
    assert relay.strikes == 1
    assert done.state == "succeeded"
    assert Counter(stage.names(done)) == Counter(
        ["Intended", "Claimed", "Dispatching", "Succeeded"]
    )
    assert (stage.requests(), stage.effects()) == (1, 1)
    assert worker.terminate() == 0


def test_a25_immediate_shutdown_under_load(stage: Stage, server: PostgresServer) -> None:
    """A25: the server crashes twice while 200 operations are begun and performed by two workers.

    Whoever was told of an error begins it again; in the end each was begun once and performed once,
    and neither worker was restarted.
    """
    workers = [stage.worker("first"), stage.worker("second")]
    begun = threading.Semaphore(0)
    errors: list[BaseException] = []

    def begin(numbers: range) -> None:
        for number in numbers:
            try:
                while True:
                    try:
                        stage.intend(f"refund-{number}", order=f"order-{number}")
                        break
                    except StoreUnavailable:
                        continue
            except BaseException as error:
                errors.append(error)
                return
            finally:
                begun.release()

    threads = [threading.Thread(target=begin, args=(range(n, 200, 4),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for crash_after in (60, 60):
        for _ in range(crash_after):
            assert begun.acquire(timeout=30)
        server.stop("immediate")
        server.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    eventually(lambda: not stage.app.journal.heads("acme", states=OPEN), seconds=60)
    views = [stage.get(settled.Identity("acme", "refund", f"refund-{n}")) for n in range(200)]
    assert {view.state for view in views} == {"succeeded"}
    for view in views:
        assert stage.names(view).count("Intended") == 1
    assert stage.effects() == 200
    assert Counter(effect.key for effect in stage.simulator.effects()).most_common(1)[0][1] == 1
    stage.check_invariant(*views)
    for worker in workers:
        assert worker.terminate() == 0, stage.log_of(worker)


def left_by(stage: Stage, epoch: int) -> int:
    """Return how many operations are still as a worker left them."""
    rows = stage.app.journal.heads("acme", states=["dispatching"], limit=300)
    return sum(row.owner == epoch for row in rows)


def test_case_19_the_database_dies_in_the_middle_of_recovery(
    stage: Stage, server: PostgresServer, tmp_path: Path
) -> None:
    """CASE 19: 250 lapsed claims, and the server is killed while they are taken over.

    When it is back, all of them are taken up within a lease, by a worker that nobody restarted.
    """
    lease_seconds = 5.0
    stage.simulator.fault(times=None, hold_before=True)
    gone = stage.worker("gone", concurrency=300)
    operations = [
        stage.intend(f"refund-{n}", kind="patient", order=f"order-{n}") for n in range(250)
    ]
    stage.simulator.wait(held=250)
    gone.kill()
    scanning, go_on = tmp_path / "scanning", tmp_path / "go-on"
    stage.simulator.clear_faults()
    stage.worker(
        "second",
        concurrency=40,
        lease_seconds=lease_seconds,
        fault=f"after_claim@3=touch:{scanning},after_claim@3=wait:{go_on}",
    )
    eventually(scanning.exists)
    server.stop("immediate")
    go_on.touch()
    server.start()
    back = stage.app.journal.time()
    stage.simulator.release()
    eventually(lambda: not left_by(stage, epoch=1), seconds=60)
    assert (stage.app.journal.time() - back).total_seconds() < lease_seconds
    for operation in operations:
        stage.wait(operation, "succeeded")
    assert stage.effects() == 250
    stage.check_invariant(*operations)


def test_a_worker_outlives_a_server_that_is_away_for_longer_than_its_lease(
    stage: Stage, server: PostgresServer, relay: FaultRelay
) -> None:
    """A25: the lease ends meanwhile; the worker takes a new place by itself when it can."""
    url = relay.postgres_url(server.url())
    worker = stage.worker(environment={"SETTLED_URL": url}, lease_seconds=0.5)
    first = stage.wait(stage.intend("refund-1"), "succeeded")
    relay.inject(Fault.REFUSE)
    eventually(lambda: all(row.lapsed for row in stage.app.journal.workers()))
    relay.heal()
    second = stage.wait(stage.intend("refund-2"), "succeeded")
    assert worker.process.poll() is None
    assert worker.terminate() == 0
    stage.check_invariant(first, second)
