"""What has to come to its end without people: a recovery that hands everything over is safe too.

What is safe is looked at after each step (`watch`). That something is done at all shows only in a
sum over many histories, as shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.simulation.history import History

MOST_GIVEN_UP: Mapping[str, float] = {
    "keyed": 0.05,
    "natural": 0.05,
    "decided": 0.05,
    "pending": 0.05,
    "mollie": 0.1,
    "asked": 0.2,
    "lagging": 0.2,
    "stripe": 0.3,
    "vague": 0.4,
}
"""By contract: the largest share of operations that may be left to people where faults pass.

A key that is known to be kept is enough for nearly all; a look-up fails those whose time runs out
while it is not answered, or whose absence is no proof in time. A contract that is not here offers
neither a look-up nor an answer to every question about its keys.
"""

LEAST_SUCCEEDED = 0.4
"""The smallest share of operations of a contract that succeed by themselves, whatever the faults.

They are declined, rejected or taken back, and time runs out while nobody works; yet not for most.
"""

FEW = 20
"""Of fewer operations no share is worth looking at."""

_PASSES_SECONDS = 60.0


def ends(history: History) -> Counter[tuple[str, str]]:
    """Count, by contract, what was sent, succeeded and was given up; and where all faults pass."""
    counts: Counter[tuple[str, str]] = Counter()
    passes = history.chances.longest_down_seconds <= _PASSES_SECONDS
    passes = passes and not history.tally["kill every worker for long"]
    for stream in history.watch.streams.values():
        if stream.provider is not None and stream.attempts:
            name = stream.provider.name
            counts[name, "sent"] += 1
            counts[name, "succeeded"] += stream.succeeded
            counts[name, "sent, faults pass"] += passes
            counts[name, "given up, faults pass"] += passes and stream.given_up
    return counts


def shortfalls(counts: Counter[tuple[str, str]], contracts: Mapping[str, object]) -> list[str]:
    """Return what is done too seldom, in words. A contract under which nothing succeeds is one."""
    found: list[str] = []
    for name in contracts:
        sent, succeeded = counts[name, "sent"], counts[name, "succeeded"]
        if not succeeded or (sent >= FEW and succeeded / sent < LEAST_SUCCEEDED):
            found.append(f"{name}: {succeeded} of {sent} succeeded")
        sent, given_up = counts[name, "sent, faults pass"], counts[name, "given up, faults pass"]
        most = MOST_GIVEN_UP.get(name, 1.0)
        if sent >= FEW and given_up / sent > most:
            found.append(f"{name}: {given_up} of {sent} were given up although all faults pass")
    return found
