"""The permission to write the first byte of one request, which ends by itself.

A worker may freeze between recording Dispatching and sending, and thaw after others have judged
the attempt. It holds a permit of fixed length and looks at it immediately before the first byte,
on a monotonic clock: wall clocks jump, and a jump must not lengthen a permit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SendPermit:
    """Until when a request may begin.

    `until_monotonic` is in seconds of the sender's monotonic clock and means nothing to another
    process. `until` is the same end in the store's time: recorded, and what "nothing can still
    arrive" is counted from.
    """

    until_monotonic: float
    until: datetime

    def check(self, monotonic_now: float) -> str | None:
        """Return why the request must not begin any more, or None if it may.

        The reason is evidence: whoever gets one has sent nothing, and reports just that.
        """
        if monotonic_now < self.until_monotonic:  # Written so that a NaN permits nothing.
            return None
        late_seconds = monotonic_now - self.until_monotonic
        return (
            f"the send permit ended at {self.until.isoformat()}, {late_seconds:.3f} s before the "
            "first byte; nothing was sent"
        )
