"""How soon an idle worker calls the provider, and what it costs to be idle. Two processes.

The provider's function says when it was called. The floor writes the same rows of an intent, with a
NOTIFY in the same transaction, and the other process says when it heard of it. DBOS looks at its
queue once a second, as it does by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from uuid import uuid4

import settled
from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.kinds import AGENT, PARAMS, refund
from settled.bench.lab import Lab
from settled.bench.meter import cpu_seconds, percentile
from settled.bench.processes import WORKER, Process, pause_seconds, running
from settled.bench.raw_postgres import CHANNEL, Tables, connect
from settled.bench.settling import DBOS, installed
from settled.bench.template import Template, make
from settled.infrastructure.clock import elapsed_seconds

_WAIT_SECONDS = 30.0
_PEER_PICKUPS = 10


@experiment(
    "pickup",
    "Intent to provider call when idle",
    Figure("pickup", "Intent to provider call, p50", "p50_ms", "ms", 10, Better.LOWER),
    Figure("idle", "CPU of an idle worker", "idle_percent", "%", 1, Better.LOWER),
    rounds=3,
)
def pickup(lab: Lab) -> Contenders:
    """Measure single intents with pauses between them, then nothing at all."""
    found = {OURS: lambda: _ours(lab), RAW: lambda: _raw(lab)}
    if installed("dbos"):
        found[DBOS] = lambda: _dbos(lab)
    return found


def _ours(lab: Lab) -> Sample:
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        worker = stack.enter_context(running(lab.folder, *WORKER, "--url", url))
        app = stack.enter_context(settled.open(url, kinds=[refund]))

        def single(number: int) -> float:
            begun = elapsed_seconds()
            operation = app.operations.intend(refund, f"refund-{number}", PARAMS, by=AGENT)
            operation = app.operations.wait(operation, timeout_seconds=_WAIT_SECONDS)
            assert operation.receipt is not None
            return float(operation.receipt["at"]) - begun

        return _sample(lab, [_paused(single, n) for n in range(lab.sizes.pickups)], worker)


def _raw(lab: Lab) -> Sample:
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        template = Template.read(make(url, lab.folder))
        words = ("settled.bench.raw_postgres", "listener", url)
        listener = stack.enter_context(running(lab.folder, *words))
        connection = stack.enter_context(connect(url))
        tables = Tables(connection, template)
        connection.commit()

        def single(_: int) -> float:
            begun = elapsed_seconds()
            tables.intend([uuid4()])
            connection.execute(f"NOTIFY {CHANNEL}".encode())
            connection.commit()
            return float(listener.answer(_WAIT_SECONDS)["at"]) - begun

        return _sample(lab, [_paused(single, n) for n in range(lab.sizes.pickups)], listener)


def _dbos(lab: Lab) -> Sample:
    module = "settled.bench.peer_dbos"
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres(migrated=False))
        worker = stack.enter_context(running(lab.folder, module, "worker", url, "1.0"))
        count = str(min(_PEER_PICKUPS, lab.sizes.pickups))
        client = stack.enter_context(running(lab.folder, module, "single", url, count))
        client.go()
        took = float(client.answer()["p50"])
        return _sample(lab, [took], worker)


def _paused(single: Callable[[int], float], number: int) -> float:
    time.sleep(pause_seconds(number))
    return single(number)


def _sample(lab: Lab, took: list[float], worker: Process) -> Sample:
    time.sleep(1.0)  # what the last operation has set going is over
    begun, before = elapsed_seconds(), cpu_seconds(worker.pid)
    time.sleep(lab.sizes.idle_seconds)
    used = (cpu_seconds(worker.pid) - before) / (elapsed_seconds() - begun)
    return {
        "p50_ms": percentile(took, 0.5) * 1e3,
        "p95_ms": percentile(took, 0.95) * 1e3,
        "idle_percent": used * 100,
    }
