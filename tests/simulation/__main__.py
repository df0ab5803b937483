"""The long run: thousands of histories on every processor. `make simulation` runs it.

    python -m tests.simulation --seed 72 --histories 1

Prints what was run and what it met, and exits 1 where something did not hold, with the seed and the
trace of the first such history; and, over enough histories, where too little was done.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time

from tests.simulation.batch import Sum, run
from tests.simulation.contracts import CONDUCTS
from tests.simulation.history import History
from tests.simulation.liveness import shortfalls

ENOUGH_FOR_SHARES = 200
"""Of fewer histories it is not asked how much succeeded, nor how much was given up."""

LONGEST_TRACE = 400
"""How many lines of the end of a trace are printed."""


def report(found: Sum, seed: int, seconds: float) -> None:
    """Print what was run and what it met."""
    operations = sum(size * count for size, count in found.operations.items())
    named = ("requests", "effects", "Dispatching", "OutcomeUnknown", "HandedOver", "Contradicted")
    print(f"seeds {seed} to {seed + found.histories - 1}: {found.histories} histories,")
    print(
        f"  {operations} operations (the largest history: {max(found.operations)}),"
        f" {found.steps} steps, {seconds:.1f} s"
    )
    print("  " + ", ".join(f"{found.recorded[name]} {name}" for name in named))
    for name in CONDUCTS:
        words = ("sent", "succeeded", "sent, faults pass", "given up, faults pass")
        sent, succeeded, sent_passing, given_up = (found.ends[name, word] for word in words)
        print(
            f"    {name}: {succeeded} of {sent} succeeded;"
            f" where faults pass, {given_up} of {sent_passing} were given up"
        )
    print(f"  {sum(found.faults.values())} faults:")
    for fault, count in sorted(found.faults.items(), key=lambda pair: -pair[1]):
        print(f"    {count:7} {fault}")


def show(seed: int) -> None:
    """Run a history again and print the end of its trace, which is the same each time."""
    history = History(seed).run()
    print(f"\nseed {seed} did not hold; the end of its trace:")
    print("\n".join(history.trace[-LONGEST_TRACE:]))


def main() -> int:
    """Run what was asked for; 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--histories", type=int, default=2000, help="how many seeds from there on")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    asked = parser.parse_args()
    began, found = time.monotonic(), Sum()
    last = asked.seed + asked.histories
    parts = [range(start, min(start + 20, last)) for start in range(asked.seed, last, 20)]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for part in pool.imap_unordered(run, parts):
            found.take(part)
    report(found, asked.seed, time.monotonic() - began)
    for seed, violations in sorted(found.failed):
        print(f"seed {seed}: {violations[0]}")
    if found.failed:
        show(min(found.failed)[0])
    many = found.histories >= ENOUGH_FOR_SHARES
    short = shortfalls(found.ends, CONDUCTS) if many else []
    for words in short:
        print(f"too little is done: {words}")
    return 1 if found.failed or short else 0


if __name__ == "__main__":
    sys.exit(main())
