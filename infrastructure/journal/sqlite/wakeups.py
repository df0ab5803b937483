"""Wake-ups by looking at the file: nobody is told of another process's commit, but it can be seen.

`PRAGMA data_version` changes with each commit of another connection, and asking for it takes a few
microseconds: https://sqlite.org/pragma.html#pragma_data_version
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

from settled.infrastructure.journal.sqlite.database import Database

_log = logging.getLogger("settled.wakeups")

LOOK_SECONDS = 0.005
"""How often it is looked whether somebody has committed."""


class Watcher:
    """Calls a function, on a thread of its own, whenever somebody has written to the file."""

    def __init__(self, database: Database, changed: Callable[[], None]) -> None:
        self._database = database
        self._changed = changed
        self._ended = threading.Event()
        self._connection = database.connect()
        self._thread = threading.Thread(target=self._run, name="settled-watch", daemon=True)
        self._thread.start()
        database.close_with_me(self)

    def close(self) -> None:
        """End the thread and close its connection."""
        self._ended.set()
        self._thread.join()
        self._connection.close()
        self._database.forget(self)

    def _run(self) -> None:
        seen = self._version()
        while not self._ended.wait(LOOK_SECONDS):
            version = self._version()
            if version != seen:
                seen = version
                self._changed()

    def _version(self) -> int | None:
        try:
            row = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            _log.debug("not seen: %s", error)
            return None
        return int(row[0])
