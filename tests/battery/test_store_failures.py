"""Case 19: PostgreSQL dies while workers recover what another one has left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.journal_units import eventually
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.stage import Stage, staged


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
    settled_state_directory: Path,
) -> Iterator[Stage]:
    """A stage on that server."""
    with staged(server.url(), simulator, tmp_path) as open_stage:
        yield open_stage


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
