"""The committer's connection, which can be lost and found again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

import psycopg
from psycopg.pq import TransactionStatus

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.journal.postgres.address import Address, Connection
from settled.infrastructure.journal.postgres.errors import translating

SETTINGS = {
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
    "statement_timeout": "30s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""What bounds the time for which a committer that stopped can hold its locks."""

_TRANSACTION_TIMEOUT = (170000, b"SET transaction_timeout = '60s'")
_BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_PAUSE_SECONDS = 0.02

Backend = tuple[int, datetime]
"""A server process: its number, and when it started, because numbers are given again."""


class Session:
    """One connection at a time, and what is known of the ones before it. Used by one thread."""

    def __init__(
        self, address: Address, *, settings: Mapping[str, str], patience_seconds: float
    ) -> None:
        self._address = address
        self._settings = {**SETTINGS, **settings}
        self.patience_seconds = patience_seconds
        self._backends: list[Backend] = []
        self._closed = False
        self._connect()

    @property
    def lost(self) -> bool:
        """Whether the connection has to be made anew before anything else."""
        return self.connection.closed

    def reset(self) -> None:
        """Undo the open transaction, if there is one."""
        if not self.lost and self.connection.info.transaction_status != TransactionStatus.IDLE:
            try:
                self.connection.execute("ROLLBACK")
            except psycopg.Error:
                # Without its connection the server undoes it by itself; the next use connects.
                if not self.lost:
                    raise

    def reconnect(self) -> bool:
        """Connect again, and wait until no earlier connection is inside a transaction any more.

        Returns whether that is so; False when it took longer than the patience. Raises
        StoreUnavailable when there is no connection within the patience.
        """
        if self._closed:
            raise StoreUnavailable("This committer was closed.")
        deadline = time.monotonic() + self.patience_seconds
        while self.lost:
            try:
                self._connect()
            except StoreUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
        while self._any_earlier_is_alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        del self._backends[:-1]
        return True

    def close(self) -> None:
        """Close the connection for good."""
        self._closed = True
        self.connection.close()

    def _connect(self) -> None:
        connection = self._address.connect(self._settings)
        version, statement = _TRANSACTION_TIMEOUT
        with translating():
            if connection.info.server_version >= version:
                connection.execute(statement)
            row = connection.execute(_BACKEND).fetchone()
        assert row is not None
        self.connection: Connection = connection
        self._backends.append(row)

    def _any_earlier_is_alive(self) -> bool:
        """Say whether a backend that we lost may still commit what we sent to it."""
        earlier = self._backends[:-1]
        if not earlier:
            return False
        found = self.connection.execute(
            "SELECT FROM pg_stat_activity a"
            "  JOIN unnest(%s::int4[], %s::timestamptz[]) AS b(pid, started)"
            "    ON a.pid = b.pid AND a.backend_start = b.started"
            " WHERE a.xact_start IS NOT NULL LIMIT 1",
            ([pid for pid, _ in earlier], [started for _, started in earlier]),
        )
        return found.fetchone() is not None
