"""The job with procrastinate: a task that is deferred by one process and run by another.

`python -m settled.bench.peer_procrastinate client URL COUNT THREADS` defers, `… worker URL
CONCURRENCY` runs. It keeps no receipt: the job's row says that it succeeded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from settled.bench.processes import mind, say, serve
from settled.infrastructure.clock import elapsed_seconds

procrastinate: Any = import_module("procrastinate")  # installed with the extra `bench` alone


def _app(connector: Any) -> tuple[Any, Any]:
    app = procrastinate.App(connector=connector)
    return app, app.task(name="refund")(_refund)


async def _refund(key: str, amount: int) -> dict[str, Any]:
    return {"id": f"re_{key}", "amount": amount}


def worker(url: str, concurrency: str) -> None:
    """Run what is deferred until this process is ended."""
    making, _ = _app(procrastinate.SyncPsycopgConnector(conninfo=url))
    with making.open():
        making.schema_manager.apply_schema()
    app, _ = _app(procrastinate.PsycopgConnector(conninfo=url))
    mind()
    say({"ready": True})
    app.run_worker(concurrency=int(concurrency), fetch_job_polling_interval=0.1)


def client(url: str, count: str, threads: str) -> None:
    """Defer so many jobs from so many threads."""
    size = int(threads)
    connector = procrastinate.SyncPsycopgConnector(conninfo=url, min_size=size, max_size=size)
    app, refund = _app(connector)

    def defer(number: int) -> None:
        refund.defer(key=f"refund-{number}", amount=3_000)

    with app.open(), ThreadPoolExecutor(size) as pool:
        serve()
        begun = elapsed_seconds()
        list(pool.map(defer, range(int(count))))
        say({"seconds": elapsed_seconds() - begun})


ROLES: dict[str, Callable[..., None]] = {"client": client, "worker": worker}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
