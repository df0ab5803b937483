"""Up to where the log is settled, for a command that has just begun to look at it."""

from __future__ import annotations

import threading
from contextlib import closing

from settled.domain.journal.port import Journal
from settled.infrastructure.audit.log import open_raw_log

PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.01
_BEHIND_ALL = (1 << 62) - 1
"""A position behind every event: what is read there is only where the log ends."""


def settled_end(journal: Journal, url: str) -> int:
    """Return a position up to which nothing can appear any more.

    It is the end of the log as it stands, unless somebody keeps a transaction open in front of it
    for longer than a few seconds. A reader that is new does not know at once who was still writing.
    """
    with closing(open_raw_log(url)) as log:
        end = log.end()
    pause = threading.Event()
    upto = journal.read(_BEHIND_ALL, 1).upto
    for _ in range(int(PATIENCE_SECONDS / _PAUSE_SECONDS)):
        if upto >= end:
            break
        pause.wait(_PAUSE_SECONDS)
        upto = journal.read(_BEHIND_ALL, 1).upto
    return upto
