"""The host's clocks: for leases the one that nobody can set, for everything else one that is set.

A file belongs to one host, so its workers share both. For leases: seconds since the host started,
and which start that was. They go on while the machine sleeps, and no process that was alive before
a restart is alive after it.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """Return the name of this run of the host, or "" where it has none.

    Without a name, a lease from before a restart is told by ending later than it could now.
    """
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""


def boot_seconds() -> float:
    """Return the seconds since the host started, sleep included where it is counted."""
    return time.clock_gettime(_CLOCK)


class SteadyClock:
    """The host's time of day, which goes on at its own pace when somebody sets it back.

    Without that, what is due in a minute would be due when the host gets there again: after an
    hour, where the clock was set back by an hour. It may be set forward at any time.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._at = datetime.min.replace(tzinfo=UTC)
        self._since = boot_seconds()

    def now(self, not_before: datetime | None) -> datetime:
        """Return the time, never before a moment that is known to be over."""
        with self._mutex:
            boot, host = boot_seconds(), datetime.now(UTC)
            own = self._at + timedelta(seconds=boot - self._since)
            later = max(host, not_before or host)
            if later <= own:
                return own
            self._at, self._since = later, boot
            return later


def lapsed(boot: str, lease_seconds: float, lease_until: float) -> bool:
    """Say whether a lease that was counted in that run of the host has ended."""
    now = boot_seconds()
    return boot != boot_id() or not now < lease_until <= now + lease_seconds
