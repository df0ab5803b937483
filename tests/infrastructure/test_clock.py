"""How far our time may be from the store's after a sample that was slow to come.

The first question after an outage waits for a connection. Taken as it comes, it would put our clock
ahead of the store by all of that wait, and events would bear times that have not been yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from settled.infrastructure import clock
from settled.infrastructure.clock import SAMPLES, SLOW_SECONDS, StoreClock

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Store:
    """A store whose answers take as long as they are told to; its time is the one that elapses."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.waits: Iterator[float] = iter(())
        self.asked = 0

    def time(self) -> datetime:
        """Answer at the end of the wait: the worst case for whoever asked."""
        self.asked += 1
        self.elapsed += next(self.waits, 0.0)
        return START + timedelta(seconds=self.elapsed)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store, and the time that elapses here as well."""
    store = Store()
    monkeypatch.setattr(clock, "elapsed_seconds", lambda: store.elapsed)
    return store


@pytest.mark.parametrize(
    ("waits", "asked", "ahead_seconds"),
    [
        ([0.01], 1, 0.01),
        ([0.3, 0.01], 2, 0.01),
        ([0.3, 0.2, 0.25], SAMPLES, 0.2),
        ([SLOW_SECONDS + 0.1] * SAMPLES, SAMPLES, 0.0),
    ],
    ids=["quick", "slow, then quick", "the quickest of three", "too slow: the old one stays"],
)
def test_the_quickest_sample_counts(
    store: Store, waits: list[float], asked: int, ahead_seconds: float
) -> None:
    """We are ahead by the quickest sample at most, and never behind."""
    ours = StoreClock(store.time)
    store.waits, store.asked = iter(waits), 0
    ours.refresh()
    ahead = ours.now() - (START + timedelta(seconds=store.elapsed))
    assert store.asked == asked
    assert ahead.total_seconds() == pytest.approx(ahead_seconds)
