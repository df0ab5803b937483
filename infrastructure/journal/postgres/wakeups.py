"""Wake-ups over LISTEN and NOTIFY: they make a worker look sooner, and nothing depends on them.

A NOTIFY inside a transaction makes commits wait for each other, so one is sent afterwards, by a
thread and a connection of its own: however many commits there were meanwhile, it is one.
"""

from __future__ import annotations

import logging
import os
import selectors
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
        self._turn = threading.Event()
        self._ended = threading.Event()
        self._due = False
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None

    def tell(self) -> None:
        """Say that something has become due. Does not wait, and may be called from any thread."""
        if self._thread is None:
            with self._mutex:
                if self._thread is None and not self._ended.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="settled-notify", daemon=True
                    )
                    self._thread.start()
        self._due = True
        self._turn.set()

    def close(self) -> None:
        """Send what was told, end the thread and close its connection."""
        with self._mutex:
            self._ended.set()
        self._turn.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._turn.wait()
            self._turn.clear()
            sent = True
            if self._due:
                self._due = False
                # A connection that was idle may have been cut: then a new one is tried at once.
                sent = self._sent() or self._sent()
            if self._ended.is_set():
                break
            if not sent:
                self._due = True
                self._turn.set()
            self._ended.wait(SPACING_SECONDS if sent else RECONNECT_SECONDS)
        if self._connection is not None:
            self._connection.close()

    def _sent(self) -> bool:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._address.connect({})
            self._connection.execute("SELECT pg_notify(%s, '')", (self._address.schema,))
        except (psycopg.Error, StoreUnavailable) as error:
            _log.debug("not notified: %s", error)
            return False
        return True


class Listener:
    """Calls a function, on a thread of its own, whenever another process may have made work.

    A pooler that shares connections between clients passes on no notifications: then this hears
    nothing, and workers look by themselves.
    """

    def __init__(self, address: Address, changed: Callable[[], None]) -> None:
        self._address = address
        self._changed = changed
        self._ended = threading.Event()
        self._process = os.getpid()
        self._wakes, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="settled-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close its connection."""
        if self._ended.is_set() or os.getpid() != self._process:
            return  # after a fork, thread and pipe are the parent's
        self._ended.set()
        os.write(self._wake, b"\0")
        self._thread.join()
        os.close(self._wakes)
        os.close(self._wake)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen()
            except Exception as error:  # whatever it is: workers look by themselves meanwhile
                _log.debug("not listening: %r", error)
                self._ended.wait(RECONNECT_SECONDS)

    def _listen(self) -> None:
        connection = self._address.connect({})
        try:
            connection.execute(f'LISTEN "{self._address.schema}"'.encode())
            self._changed()  # what was notified before this was not heard
            with selectors.DefaultSelector() as selector:
                selector.register(connection.fileno(), selectors.EVENT_READ)
                selector.register(self._wakes, selectors.EVENT_READ)
                while not self._ended.is_set():
                    selector.select()
                    if any(True for _ in connection.notifies(timeout=0)):
                        self._changed()
        finally:
            connection.close()
