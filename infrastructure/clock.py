"""The clock port's implementation: the only place that reads a clock or draws a random number."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

SLOW_SECONDS = 0.5
"""How long a sample may take: our time may be ahead of the store's by as much, never behind."""

QUICK_SECONDS = 0.02
SAMPLES = 3
"""A sample that took longer than that is taken again, up to so often; the quickest counts."""

_DRAWN_BITS = ~(0xF << 76 | 0x3 << 62)
_VERSION_AND_VARIANT = 0x7 << 76 | 0x2 << 62
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_seconds() -> float:
    """Return seconds since some fixed moment, also while the host was suspended."""
    return time.clock_gettime(_BOOT_CLOCK)


def _version_7(milliseconds: bytes, drawn: bytes) -> UUID:
    value = int.from_bytes(milliseconds + drawn, "big")
    return UUID(int=value & _DRAWN_BITS | _VERSION_AND_VARIANT)


def chance() -> float:
    """Return a number in [0, 1), for jitter."""
    return random.random()


class StoreClock:
    """The store's time: its last sample plus what has elapsed here since.

    The host's wall clock is never asked (under SQLite it is the store's own). `refresh` takes a new
    sample; it is called by the heartbeat and before commands, never on the way to a provider.
    """

    def __init__(self, sample: Callable[[], datetime]) -> None:
        self._sample = sample
        self._lock = threading.Lock()
        self._since = elapsed_seconds()
        self._at = sample()
        self._last = self._at

    def now(self) -> datetime:
        """Return the store's time in UTC, never earlier than what was returned before."""
        with self._lock:
            now = self._at + timedelta(seconds=elapsed_seconds() - self._since)
            self._last = max(self._last, now)
            return self._last

    def refresh(self, older_than_seconds: float = 0.0) -> None:
        """Ask the store for its time, unless the last sample is young enough."""
        if elapsed_seconds() - self._since < older_than_seconds:
            return
        least_seconds, found = SLOW_SECONDS, None
        for _ in range(SAMPLES):
            before = elapsed_seconds()
            at = self._sample()
            took_seconds = elapsed_seconds() - before
            if took_seconds <= least_seconds:
                least_seconds, found = took_seconds, (at, before)
            if took_seconds <= QUICK_SECONDS:
                break  # a slow one, such as the first after an outage, would put us ahead
        if found is None:
            return  # nobody knows when in between the store looked: the old sample says more
        with self._lock:
            self._at, self._since = found

    def monotonic(self) -> float:
        """Return elapsed seconds; they go on while the host is suspended."""
        return elapsed_seconds()

    def new_ids(self, count: int) -> list[UUID]:
        """Return version 7 UUIDs (RFC 9562): the store's milliseconds, then chance."""
        milliseconds = int(self.now().timestamp() * 1000).to_bytes(6, "big")
        drawn = os.urandom(10 * count)
        return [_version_7(milliseconds, drawn[10 * n : 10 * n + 10]) for n in range(count)]

    def uniform(self) -> float:
        """Return a number in [0, 1)."""
        return chance()
