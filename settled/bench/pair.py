"""Two workers against one, with a provider that takes 20 ms and 200 calls in flight each.

Everything is intended before; measured is how fast it is worked off. The floor takes and settles
batches of 200 rows with 20 ms between the two transactions, in one process and in two.
"""

from __future__ import annotations

from contextlib import ExitStack

from settled.bench.draining import drained, intended, start_paused
from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.processes import WORKER
from settled.bench.settling import Words
from settled.bench.template import make

LATENCY_SECONDS = "0.02"
IN_FLIGHT = 200


@experiment(
    "pair",
    "Two workers against one",
    Figure("pair", "Two workers against one", "speed_up", "×", 1.8, Better.HIGHER),
    rounds=3,
)
def pair(lab: Lab) -> Contenders:
    """Measure both with one worker and with two."""

    def compared(name: str) -> Sample:
        one, two = _drained(lab, name, 1), _drained(lab, name, 2)
        return {"speed_up": two / one, "one_per_second": one, "two_per_second": two}

    return {OURS: lambda: compared(OURS), RAW: lambda: compared(RAW)}


def _drained(lab: Lab, name: str, workers: int) -> float:
    """Return how many operations a second so many workers settle."""
    with lab.postgres() as url, ExitStack() as stack:
        if name == OURS:
            words: Words = (*WORKER, "--url", url, "--concurrency", str(IN_FLIGHT))
        else:
            template = make(url, lab.folder)
            words = ("settled.bench.raw_postgres", "worker", url, template, str(IN_FLIGHT))
            words = (*words, LATENCY_SECONDS)
        intended(lab, url, lab.sizes.delayed)
        meter = start_paused(lab, url, [words] * workers, LATENCY_SECONDS, stack)
        return drained(url, meter, lab.sizes.delayed, stack)["per_second"]
