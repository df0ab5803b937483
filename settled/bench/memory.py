"""The memory of a worker that has worked off a great many operations.

Looked at ten times on the way, each time when nothing is open. How it goes on is told by the slope
over the second half, because the first operations fill caches that every process has.
"""

from __future__ import annotations

from contextlib import ExitStack

from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.meter import rss_bytes
from settled.bench.processes import WORKER, running
from settled.bench.settling import Words, looking, nothing_open, wait_until
from settled.bench.template import make

STEPS = 10
A_MILLION = 1_000_000
ENOUGH = 20_000
"""From how many operations a slope is told: below that it is the noise of the allocator."""

_MEGABYTE = 1e6


@experiment(
    "memory",
    "Memory of a worker",
    Figure("memory", "Memory of a worker afterwards", "rss_mb", "MB", 150, Better.LOWER),
    Figure(
        *("memory-million", "… after 1,000,000 operations, by the slope", "projected_mb", "MB"),
        *(150, Better.LOWER),
    ),
    rounds=1,
)
def memory(lab: Lab) -> Contenders:
    """Have one worker work off many operations; the floor is the process that psycopg alone has."""
    return {OURS: lambda: _worked_off(lab, OURS), RAW: lambda: _worked_off(lab, RAW)}


def _worked_off(lab: Lab, name: str) -> Sample:
    step = lab.sizes.worked_off // STEPS
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        if name == OURS:
            words: Words = (*WORKER, "--url", url, "--concurrency", str(lab.sizes.concurrency))
        else:
            template = make(url, lab.folder)
            words = ("settled.bench.raw_postgres", "worker", url, template)
            words = (*words, str(lab.sizes.threads), "0")
        worker = stack.enter_context(running(lab.folder, *words))
        done = stack.enter_context(looking(url, nothing_open(url)))
        seen = [rss_bytes(worker.pid)]
        load = ("settled.bench.load", url, str(step), str(lab.sizes.threads))
        client = stack.enter_context(running(lab.folder, *load))
        for _ in range(STEPS):
            client.go()
            client.answer()
            wait_until(done)
            seen.append(rss_bytes(worker.pid))
    return sample_of(seen, step)


def sample_of(seen: list[int], step: int) -> Sample:
    """Return what ten looks at a process's memory, one each `step` operations, say."""
    last = seen[len(seen) // 2 :]
    slope = _slope(last) / step
    count = (len(seen) - 1) * step
    found = {
        "rss_mb": seen[-1] / _MEGABYTE,
        "at_start_mb": seen[0] / _MEGABYTE,
        "bytes_per_operation": slope,
        "operations": float(count),
    }
    if count >= ENOUGH:
        growth = max(0.0, slope) * max(0, A_MILLION - count)
        found["projected_mb"] = (seen[-1] + growth) / _MEGABYTE
    return found


def _slope(values: list[int]) -> float:
    """Return by how much the values grow from one to the next: a least-squares line."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    across = sum((n - middle) * (value - mean) for n, value in enumerate(values))
    return across / sum((n - middle) ** 2 for n in range(len(values)))
