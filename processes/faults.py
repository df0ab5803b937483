"""Named points around every commit and every call, where a test may kill the process.

Free when unset: reaching a point costs one comparison. A hook is set by the testing kit only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable


class FaultPoint(enum.StrEnum):
    """Where a process can be stopped. The detail names the last event, or what is called."""

    BEFORE_CLAIM = "before_claim"
    AFTER_CLAIM = "after_claim"
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    BEFORE_JOIN = "before_join"
    AFTER_JOIN = "after_join"
    """Written into the caller's own transaction, which is still open."""
    BEFORE_CALL = "before_call"
    AFTER_CALL = "after_call"
    BEFORE_LOOKUP = "before_lookup"
    AFTER_LOOKUP = "after_lookup"
    BEFORE_NOTIFY = "before_notify"
    AFTER_NOTIFY = "after_notify"


Hook = Callable[[FaultPoint, str], None]

_hook: Hook | None = None


def set_hook(hook: Hook | None) -> None:
    """Install what is called at each point, or remove it."""
    global _hook
    _hook = hook


def reach(point: FaultPoint, detail: str = "") -> None:
    """Tell the hook, if there is one, that this point is reached."""
    if _hook is not None:
        _hook(point, detail)
