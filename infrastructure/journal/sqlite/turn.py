"""Whose turn it is to write: SQLite's own waiting polls, and lets one writer starve the others."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path


class Turn:
    """A queue of writers over all processes of the host, made of a lock on a side file.

    It is flock, not fcntl's record lock, which any close of the file in this process would drop.
    The operating system hands the lock on, and frees it when its holder dies. Used by one thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab")

    def take(self, patience_seconds: float) -> bool:
        """Wait for the turn; False when it did not come within the patience."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait(patience_seconds)
        return True

    def give(self) -> None:
        """Let the next writer write."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the side file."""
        self._file.close()

    def _wait(self, patience_seconds: float) -> bool:
        """Wait on a thread: flock knows no timeout, and its holder may be stopped for ever."""
        file, decided = self._file, threading.Lock()
        abandoned = granted = False

        def wait() -> None:
            nonlocal granted
            fcntl.flock(file, fcntl.LOCK_EX)
            with decided:
                granted = not abandoned
            if not granted:
                file.close()

        thread = threading.Thread(target=wait, name="settled-turn", daemon=True)
        thread.start()
        thread.join(patience_seconds)
        with decided:
            abandoned = not granted
        if abandoned:
            self._file = self._path.open("ab")
        return not abandoned
