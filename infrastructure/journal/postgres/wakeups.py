"""Wake-ups over LISTEN and NOTIFY: they make a worker look sooner, and nothing depends on them.

A NOTIFY inside a transaction makes commits wait for each other, so one is sent afterwards, by a
thread and a connection of its own: however many commits there were meanwhile, it is one.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable

import psycopg

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.journal.postgres.address import Address, Connection

_log = logging.getLogger("settled.wakeups")

SPACING_SECONDS = 0.005
"""How long nothing is sent after a notification: what comes meanwhile shares the next."""

RECONNECT_SECONDS = 1.0
"""How long a server that is away is left alone. Until it is back, workers look by themselves."""


class Notifier:
    """Sends a notification soon after `tell`, as one for all that were told meanwhile."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._told = threading.Event()
        self._ended = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    def tell(self) -> None:
        """Say that something has become due. Does not wait, and may be called from any thread."""
        if self._thread is None:
            with self._mutex:
                if self._thread is None and not self._ended.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="settled-notify", daemon=True
                    )
                    self._thread.start()
        self._told.set()

    def close(self) -> None:
        """End the thread and close its connection."""
        with self._mutex:
            self._ended.set()
        self._told.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        connection: Connection | None = None
        while True:
            self._told.wait()
            self._told.clear()
            if self._ended.is_set():
                break
            pause_seconds = SPACING_SECONDS
            try:
                if connection is None or connection.closed:
                    connection = self._address.connect({})
                connection.execute("SELECT pg_notify(%s, '')", (self._address.schema,))
            except (psycopg.Error, StoreUnavailable) as error:
                _log.debug("not notified: %s", error)
                pause_seconds = RECONNECT_SECONDS
            self._ended.wait(pause_seconds)
        if connection is not None:
            connection.close()


class Listener:
    """Calls a function, on a thread of its own, whenever another process may have made work."""

    def __init__(self, address: Address, changed: Callable[[], None]) -> None:
        self._address = address
        self._changed = changed
        self._ended = threading.Event()
        self._wakes, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="settled-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close its connection."""
        if self._ended.is_set():
            return
        self._ended.set()
        os.write(self._wake, b"\0")
        self._thread.join()
        os.close(self._wakes)
        os.close(self._wake)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen()
            except (psycopg.Error, StoreUnavailable) as error:
                _log.debug("not listening: %s", error)
                self._ended.wait(RECONNECT_SECONDS)

    def _listen(self) -> None:
        connection = self._address.connect({})
        try:
            connection.execute(f'LISTEN "{self._address.schema}"'.encode())
            self._changed()  # what was notified before this was not heard
            while not self._ended.is_set():
                select.select([connection.fileno(), self._wakes], [], [])
                if any(True for _ in connection.notifies(timeout=0)):
                    self._changed()
        finally:
            connection.close()
