"""The client process: threads that intend, as those of a service do.

`python -m settled.bench.load URL COUNT THREADS` intends COUNT operations for each line that it
reads, and says how long that took, and how long each intent did.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import settled
from settled.bench.kinds import AGENT, PARAMS, refund
from settled.bench.meter import percentile
from settled.bench.processes import say
from settled.infrastructure.clock import elapsed_seconds

FIRST = 20
"""How many operations a client intends before it says that it is ready."""


def main(url: str, count: str, threads: str) -> None:
    """Intend so many operations from so many threads, each time that we are told to."""
    with settled.open(url, kinds=[refund]) as app, ThreadPoolExecutor(int(threads)) as pool:

        def intend(operation_id: str) -> float:
            begun = elapsed_seconds()
            app.operations.intend(refund, operation_id, PARAMS, by=AGENT)
            return elapsed_seconds() - begun

        for number in range(FIRST):
            intend(f"first-{number}")
        say({"ready": True})
        for turn, _ in enumerate(sys.stdin):
            begun = elapsed_seconds()
            took = list(pool.map(intend, [f"refund-{turn}-{n}" for n in range(int(count))]))
            seconds = elapsed_seconds() - begun
            say({"seconds": seconds, "p50": percentile(took, 0.5), "p95": percentile(took, 0.95)})


if __name__ == "__main__":
    main(*sys.argv[1:])
