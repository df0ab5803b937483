"""Work that is there before anybody may begin: what workers alone can do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from settled.bench.figure import Sample
from settled.bench.kinds import LATENCY_VARIABLE
from settled.bench.lab import Lab
from settled.bench.load import FIRST
from settled.bench.meter import Meter
from settled.bench.processes import READY_SECONDS, running, started
from settled.bench.settling import Words, looking, nothing_open, wait_until
from settled.infrastructure.journal.opening import open_journal


def intended(lab: Lab, url: str, count: int) -> None:
    """Have so many operations intended by a client process, which then ends."""
    load = ("settled.bench.load", url, str(count - FIRST), str(lab.sizes.threads))
    with running(lab.folder, *load) as client:
        client.go()
        client.answer()


def start_paused(
    lab: Lab, url: str, workers: Sequence[Words], latency_seconds: str, stack: ExitStack
) -> Meter:
    """Start workers while no lane is open, and return the meter that watches them."""
    pause(url, True)
    environment = {LATENCY_VARIABLE: latency_seconds}
    found = [
        stack.enter_context(started(lab.folder, *words, environment=environment))
        for words in workers
    ]
    for worker in found:
        worker.answer(READY_SECONDS)
    return Meter(lab, url, worker=[one.pid for one in found])


def drained(url: str, meter: Meter, count: int, stack: ExitStack) -> Sample:
    """Open the lanes, and return what an operation cost until all are settled."""
    done = stack.enter_context(looking(url, nothing_open(url)))
    meter.start()
    pause(url, False)
    wait_until(done)
    meter.stop()
    stack.close()
    return meter.sample(count)


def pause(url: str, paused: bool) -> None:
    """Close or open every lane of a store."""
    journal = open_journal(url)
    try:
        for lane in journal.lanes():
            journal.pause(lane, paused)
    finally:
        journal.close()
