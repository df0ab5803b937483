"""A worker's place among the others: its epoch, its lease, and a lock that lives as long as it.

The lock is held by the session, so it is gone the moment the worker's host says that the connection
is. The worker table's own id is the first key of these locks, which keeps them apart from those of
another installation in the same database; the second is the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.journal.postgres.address import Address, Row, Texts
from settled.infrastructure.journal.postgres.errors import translating

GRACE_SECONDS = 0.3
"""For how long a lock must be missing: a worker whose connection broke comes back by then."""

_SETTINGS = {"lock_timeout": "2s", "statement_timeout": "10s"}

_ENROL = """
INSERT INTO {schema}.worker
       (name, started_at, lease_seconds, lease_until, server_started_at, serves)
VALUES (%(name)b::text, clock_timestamp(), %(lease)b::float8,
        clock_timestamp() + %(lease)b::float8 * interval '1 second', pg_postmaster_start_time(),
        %(serves)b::text[])
RETURNING epoch"""

_LOCK = """
SELECT pg_try_advisory_lock('{schema}.worker'::regclass::oid::int4, %(epoch)b::int4)"""

# The session that we lost: only it can hold the lock of our epoch.
_END_LOST = """
SELECT pg_terminate_backend(l.pid, 2000) FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND l.classid = '{schema}.worker'::regclass AND l.objid = %(epoch)b::int4::oid
   AND l.pid <> pg_backend_pid()"""

_RENEW = """
UPDATE {schema}.worker
   SET lease_until = clock_timestamp() + lease_seconds * interval '1 second'
 WHERE epoch = %(epoch)b::int8 AND lease_until > clock_timestamp()
RETURNING epoch"""

_LOCKED_HERE = """
UPDATE {schema}.worker SET server_started_at = pg_postmaster_start_time()
 WHERE epoch = %(epoch)b::int8"""

# A lock says something only on the server where it was taken, and since that server's last start.
_UNLOCKED = """
    w.lease_until > clock_timestamp() AND w.epoch <> %(me)b::int8
AND w.server_started_at = pg_postmaster_start_time()
AND NOT EXISTS (
    SELECT FROM pg_locks l
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND l.classid = '{schema}.worker'::regclass AND l.objid = w.epoch::int4::oid)"""

_MISSING = f"SELECT w.epoch FROM {{schema}}.worker w WHERE {_UNLOCKED}"

_END = f"""
UPDATE {{schema}}.worker w SET lease_until = clock_timestamp()
 WHERE w.epoch = ANY (%(gone)b::int8[]) AND {_UNLOCKED}
RETURNING w.epoch"""

# Not at once: a claim that began under a lease may still be on its way, and a row of an owner whom
# nobody knows could never be taken again.
_FORGET = """
DELETE FROM {schema}.worker w
 WHERE w.lease_until < clock_timestamp() - interval '10 minutes'
   AND NOT EXISTS (SELECT FROM {schema}.agenda a
                    WHERE a.owner = w.epoch AND a.parked_at IS NULL)"""

_LEAVE = """
UPDATE {schema}.worker SET lease_until = clock_timestamp()
 WHERE epoch = %(epoch)b::int8 AND lease_until > clock_timestamp()
RETURNING epoch"""


class PostgresMembership:
    """One worker's place. It has a connection of its own, direct to the server."""

    def __init__(
        self,
        address: Address,
        texts: Texts,
        name: str,
        lease_seconds: float,
        serves: Sequence[str] = (),
    ) -> None:
        self._address = address
        self._texts = texts
        self._missing: dict[int, float] = {}
        self._locked = False
        self._closed = False
        self._connection = self._address.connect(_SETTINGS)
        try:
            self._enrol({"name": name, "lease": lease_seconds, "serves": list(serves)})
        except BaseException:
            self._connection.close()
            raise

    @property
    def epoch(self) -> int:
        """The number under which this worker owns rows. Never given twice."""
        return self._epoch

    def renew(self) -> bool:
        """Extend the lease by its length; False when it was taken away: stop dispatching.

        Raises StoreUnavailable when the server cannot be reached; the lease then runs on.
        """
        with translating():
            extended = self._mine(_RENEW)
            if extended and not self._locked:
                self._locked = self._lock()
            return extended is not None

    def sweep(self) -> Sequence[int]:
        """End the leases of workers that are gone; return their epochs.

        A worker is gone when its lock was missing in two sweeps with the grace between them.
        """
        now = time.monotonic()
        with translating():
            found = self._connection.execute(self._texts[_MISSING], {"me": self._epoch})
            self._missing = {epoch: self._missing.get(epoch, now) for (epoch,) in found}
            gone = [epoch for epoch, at in self._missing.items() if now - at >= GRACE_SECONDS]
            ended: list[int] = []
            if gone:
                arguments = {"me": self._epoch, "gone": gone}
                rows = self._connection.execute(self._texts[_END], arguments)
                ended = [epoch for (epoch,) in rows]
            self._connection.execute(self._texts[_FORGET])
        return ended

    def leave(self) -> None:
        """Give the place up: what this worker still owns is claimable at once."""
        with translating():
            self._mine(_LEAVE)
        self.close()

    def close(self) -> None:
        """Close the connection; without a leave the others find the lock missing."""
        self._closed = True
        self._connection.close()

    def _enrol(self, values: dict[str, Any]) -> None:
        # In one transaction, so that nobody sees a worker that has no lock yet.
        with translating(), self._connection.transaction():
            row = self._one(_ENROL, values)
            assert row is not None
            self._epoch: int = row[0]
            self._locked = self._lock()

    def _mine(self, text: str) -> Row | None:
        """Run a statement on the own row, over a new connection where the old one was cut."""
        arguments = {"epoch": self._epoch}
        try:
            return self._one(text, arguments)
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
        self._reconnect()
        return self._one(text, arguments)

    def _reconnect(self) -> None:
        if self._closed:
            raise StoreUnavailable("This worker's place was given up.", hint="Enrol it again.")
        self._connection = self._address.connect(_SETTINGS)
        self._locked = False
        self._one(_END_LOST, {"epoch": self._epoch})

    def _lock(self) -> bool:
        """Take the lock that says we live, and note on which server it means something."""
        got = self._one(_LOCK, {"epoch": self._epoch}) == (True,)
        if got:
            self._connection.execute(self._texts[_LOCKED_HERE], {"epoch": self._epoch})
        return got

    def _one(self, text: str, arguments: dict[str, Any]) -> Row | None:
        return self._connection.execute(self._texts[text], arguments).fetchone()
