"""The job with DBOS: a workflow of one step, by its queue.

`python -m settled.bench.peer_dbos client URL COUNT THREADS` enqueues, `… worker URL POLL` performs
and looks at its queue every POLL seconds, and `… single URL COUNT` enqueues one at a time and says
how long after that each was called. `… direct URL COUNT` calls the workflows without a queue, one
after the other: on SQLite that is faster than several at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from settled.bench.meter import percentile
from settled.bench.processes import pause_seconds, say, serve, stay
from settled.infrastructure.clock import elapsed_seconds

QUEUE = "bench"
_POLL_SECONDS = 1.0
_VERSION = "1"

dbos: Any = import_module("dbos")  # installed with the extra `bench` alone


def _launched(url: str, poll_seconds: float) -> Any:
    """Start DBOS with its workflow and its queue."""
    config = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "application_version": _VERSION,
    }
    library = dbos.DBOS(config=config)

    call_provider = library.step()(_call_provider)

    def refund(key: str, amount: int) -> dict[str, Any]:
        receipt: dict[str, Any] = call_provider(key, amount)
        return receipt

    workflow = library.workflow(name="refund")(refund)
    dbos.DBOS.launch()
    dbos.DBOS.register_queue(QUEUE, polling_interval_sec=poll_seconds)
    return workflow


def _call_provider(key: str, amount: int) -> dict[str, Any]:
    return {"id": f"re_{key}", "amount": amount, "at": elapsed_seconds()}


def worker(url: str, poll_seconds: str) -> None:
    """Perform what is enqueued until this process is ended."""
    _launched(url, float(poll_seconds))
    say({"ready": True})
    stay()


def client(url: str, count: str, threads: str) -> None:
    """Enqueue so many workflows from so many threads."""
    library = dbos.DBOSClient(system_database_url=url, application_name="bench")

    def enqueue(number: int) -> None:
        _enqueue(library, f"refund-{number}")

    with ThreadPoolExecutor(int(threads)) as pool:
        serve()
        begun = elapsed_seconds()
        list(pool.map(enqueue, range(int(count))))
        say({"seconds": elapsed_seconds() - begun})
    library.destroy()


def single(url: str, count: str) -> None:
    """Enqueue one at a time, and say how many seconds later each was called."""
    library = dbos.DBOSClient(system_database_url=url, application_name="bench")
    serve()
    took: list[float] = []
    for number in range(int(count)):
        time.sleep(pause_seconds(number))
        begun = elapsed_seconds()
        took.append(_enqueue(library, f"refund-{number}").get_result()["at"] - begun)
    say({"p50": percentile(took, 0.5)})
    library.destroy()


def _enqueue(library: Any, key: str) -> Any:
    options = {
        "workflow_name": "refund",
        "queue_name": QUEUE,
        "workflow_id": key,
        "app_version": _VERSION,
    }
    return library.enqueue(options, key, 3_000)


def direct(url: str, count: str) -> None:
    """Run so many workflows, one after the other."""
    refund = _launched(url, _POLL_SECONDS)
    serve()
    begun = elapsed_seconds()
    for number in range(int(count)):
        with dbos.SetWorkflowID(f"refund-{number}"):
            refund(f"refund-{number}", 3_000)
    say({"seconds": elapsed_seconds() - begun})
    dbos.DBOS.destroy()


ROLES: dict[str, Callable[..., None]] = {
    "client": client,
    "worker": worker,
    "direct": direct,
    "single": single,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
