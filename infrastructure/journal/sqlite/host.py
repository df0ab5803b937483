"""The host's clock for leases: seconds since it started, and which start that was.

A file belongs to one host, so its workers share this clock. Nobody can set it, it goes on while
the machine sleeps, and no process that was alive before a restart is alive after it.
"""

from __future__ import annotations

import time
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


def lapsed(boot: str, lease_seconds: float, lease_until: float) -> bool:
    """Say whether a lease that was counted in that run of the host has ended."""
    now = boot_seconds()
    return boot != boot_id() or not now < lease_until <= now + lease_seconds
