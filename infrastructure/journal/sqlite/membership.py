"""Workers on one host: a lease in the database, and a locked file that says "still running".

The operating system frees the lock of a killed process at once, so the others need not wait for
its lease. A stopped process keeps its lock and loses its lease, and may thaw at any time; that is
what send permits and fences are for.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from settled.domain.errors import InvalidInput
from settled.domain.journal.port import WorkerRow
from settled.infrastructure.journal.sqlite import host
from settled.infrastructure.journal.sqlite.claims import lapsed_epochs
from settled.infrastructure.journal.sqlite.database import Database, Writer
from settled.infrastructure.journal.sqlite.reading import store_time
from settled.infrastructure.journal.sqlite.rows import to_text

GRACE_SECONDS = 0.2
"""How long a liveness lock has to be missing before its worker counts as gone."""


def enrol(
    database: Database, name: str, lease_seconds: float, serves: Sequence[str]
) -> SqliteMembership:
    """Register a worker. Its row is seen by others only once its liveness file is locked."""
    if not lease_seconds > 0:
        raise InvalidInput(f"A lease of {lease_seconds} s ends before it begins.")
    writer = Writer(database)
    try:
        with writer.transaction() as connection:
            _forget(connection)
            cursor = connection.execute(
                "INSERT INTO worker (name, started_at, boot, lease_seconds, lease_until, serves)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    name,
                    to_text(store_time(connection, database.clock)),
                    host.boot_id(),
                    lease_seconds,
                    host.boot_seconds() + lease_seconds,
                    json.dumps(list(serves)),
                ),
            )
            epoch = cursor.lastrowid
            assert epoch is not None
            path = _liveness(database, epoch)
            path.parent.mkdir(exist_ok=True)
            liveness = path.open("ab")
            fcntl.flock(liveness, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        writer.close()
        raise
    return SqliteMembership(database, writer, liveness, epoch, lease_seconds)


class SqliteMembership:
    """One worker's place among the others. Used by its heartbeat thread alone."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        liveness: IO[bytes],
        epoch: int,
        lease_seconds: float,
    ) -> None:
        self._database = database
        self._writer = writer
        self._liveness = liveness
        self._epoch = epoch
        self._lease_seconds = lease_seconds
        self._missing_since: dict[int, float] = {}
        database.close_with_me(self)

    @property
    def epoch(self) -> int:
        """The number under which this worker owns rows. Never given twice."""
        return self._epoch

    def renew(self) -> bool:
        """Extend the lease; False when it was ended or ran out, and others may have the rows."""
        with self._writer.transaction() as connection:
            lease = connection.execute(
                "SELECT boot, lease_seconds, lease_until FROM worker WHERE epoch = ?",
                (self._epoch,),
            ).fetchone()
            if lease is None or host.lapsed(*lease):
                return False
            connection.execute(
                "UPDATE worker SET lease_until = ? WHERE epoch = ?",
                (host.boot_seconds() + self._lease_seconds, self._epoch),
            )
        return True

    def sweep(self) -> Sequence[int]:
        """End the leases of workers whose locks are missing for the grace; return their epochs."""
        now = time.monotonic()
        with self._database.reading() as connection:
            lapsed = lapsed_epochs(connection)
            known = [epoch for (epoch,) in connection.execute("SELECT epoch FROM worker")]
        missing = {
            epoch: self._missing_since.get(epoch, now)
            for epoch in set(known) - set(lapsed) - {self._epoch}
            if _is_unlocked(_liveness(self._database, epoch))
        }
        self._missing_since = missing
        gone = sorted(epoch for epoch, since in missing.items() if now - since >= GRACE_SECONDS)
        if gone or lapsed:
            with self._writer.transaction() as connection:
                connection.executemany(
                    "UPDATE worker SET lease_until = 0 WHERE epoch = ?",
                    [(epoch,) for epoch in gone],
                )
                _forget(connection)
        for epoch in (*gone, *lapsed):
            if _is_unlocked(path := _liveness(self._database, epoch)):
                path.unlink(missing_ok=True)
        return gone

    def leave(self) -> None:
        """Give the place up: what this worker still owns is claimable at once."""
        if self._liveness.closed:
            return
        with self._writer.transaction() as connection:
            connection.execute("UPDATE worker SET lease_until = 0 WHERE epoch = ?", (self._epoch,))
            _forget(connection)
        _liveness(self._database, self._epoch).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close what this place holds; without a leave the others find its lock missing."""
        self._database.forget(self)
        self._liveness.close()
        self._writer.close()


def workers(connection: sqlite3.Connection) -> list[WorkerRow]:
    """Return the registered workers, also those that lapsed and still own rows."""
    now, boot = datetime.now(UTC), host.boot_seconds()
    rows = connection.execute(
        "SELECT epoch, name, serves, started_at, boot, lease_seconds, lease_until FROM worker"
        " WHERE lease_until > 0 OR EXISTS (SELECT 1 FROM agenda WHERE owner = epoch)"
        " ORDER BY epoch"
    )
    found: list[WorkerRow] = []
    for epoch, name, serves, started_at, *lease in rows:
        started = datetime.fromisoformat(started_at)
        length, end = lease[1:]
        counted_now = lease[0] == host.boot_id() and 0 < end <= boot + length
        until = now + timedelta(seconds=end - boot) if counted_now else started
        served = tuple(json.loads(serves))
        found.append(WorkerRow(epoch, name, started, until, host.lapsed(*lease), served))
    return found


def _forget(connection: sqlite3.Connection) -> None:
    """Drop the lapsed workers that own nothing any more. Their epochs are not given again."""
    connection.executemany(
        "DELETE FROM worker WHERE epoch = ?"
        " AND NOT EXISTS (SELECT 1 FROM agenda WHERE owner = worker.epoch)",
        [(epoch,) for epoch in lapsed_epochs(connection)],
    )


def _liveness(database: Database, epoch: int) -> Path:
    return database.beside(".workers") / str(epoch)


def _is_unlocked(path: Path) -> bool:
    """Say whether nobody holds the lock. A file that somebody removed proves nothing: False.

    Asked for in shared mode, so that two workers that ask at once do not mislead each other.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
