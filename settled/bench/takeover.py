"""A worker is killed with everything in flight, and another one takes over.

The first worker has called the provider for each operation and got no answer yet. The second one is
idle, and its provider answers at once. Measured from the SIGKILL until the first operation, and
until the last one, is settled. Beside it: what the second worker needs for as many operations that
nobody has touched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import psycopg

from settled.bench.draining import intended, pause
from settled.bench.figure import OURS, Better, Contenders, Figure, Sample, experiment
from settled.bench.kinds import LATENCY_VARIABLE
from settled.bench.lab import Lab
from settled.bench.processes import WORKER, running
from settled.bench.settling import looking, nothing_open, wait_until
from settled.infrastructure.clock import elapsed_seconds

UNDISTURBED = "undisturbed"

_IN_FLIGHT = "SELECT count(*) >= %d FROM settled.agenda WHERE state = 'dispatching'"
_FIRST = "SELECT EXISTS (SELECT FROM settled.agenda WHERE due_at IS NULL)"
_HANGS = {LATENCY_VARIABLE: "3600"}


@experiment(
    "takeover",
    "Takeover after SIGKILL",
    Figure(
        *("takeover-first", "Takeover, first recovered", "first_s", "s", 1, Better.LOWER),
        beside=UNDISTURBED,
    ),
    Figure(
        *("takeover-all", "Takeover, all settled", "all_s", "s", 5, Better.LOWER),
        beside=UNDISTURBED,
    ),
    rounds=3,
)
def takeover(lab: Lab) -> Contenders:
    """Measure the takeover, and the same work without one."""
    return {OURS: lambda: _killed(lab), UNDISTURBED: lambda: _undisturbed(lab)}


def _killed(lab: Lab) -> Sample:
    count = lab.sizes.orphans
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        words = (*WORKER, "--url", url, "--concurrency", str(count))
        hangs = running(lab.folder, *words, "--name", "first", environment=_HANGS)
        first = stack.enter_context(hangs)
        intended(lab, url, count)
        wait_until(stack.enter_context(looking(url, _IN_FLIGHT % count)))
        stack.enter_context(running(lab.folder, *words, "--name", "second"))
        return _timed(url, stack, first.kill)


def _undisturbed(lab: Lab) -> Sample:
    count = lab.sizes.orphans
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        intended(lab, url, count)
        pause(url, True)
        words = (*WORKER, "--url", url, "--concurrency", str(count))
        stack.enter_context(running(lab.folder, *words))
        return _timed(url, stack, lambda: pause(url, False))


def _timed(url: str, stack: ExitStack, begin: Callable[[], None]) -> Sample:
    first = stack.enter_context(looking(url, _FIRST))
    last = stack.enter_context(looking(url, nothing_open(url)))
    begin()
    begun = elapsed_seconds()
    wait_until(first)
    first_seconds = elapsed_seconds() - begun
    wait_until(last)
    all_seconds = elapsed_seconds() - begun
    _must_have_succeeded(url)
    return {"first_s": first_seconds, "all_s": all_seconds}


def _must_have_succeeded(url: str) -> None:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT state, count(*) FROM settled.agenda GROUP BY 1")
        states: dict[str, int] = dict(found.fetchall())
    assert set(states) == {"succeeded"}, f"not all was recovered: {states}"
