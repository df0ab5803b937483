"""The file: its connections, whose turn it is to write, and what its errors mean.

Every connection writes through to the disk at each commit: with `synchronous = NORMAL` the last
commits are lost when the power fails, and an intent that is lost after its provider was called is
the one failure that this journal exists to rule out.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from settled.domain.errors import (
    InvalidStoreUrl,
    StoreNotMigrated,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsafe,
)
from settled.infrastructure.journal.sqlite.host import SteadyClock
from settled.infrastructure.journal.sqlite.turn import Turn

PATIENCE_SECONDS = 5.0
"""How long a writer waits for the others before it says so."""

_CHECKPOINT_PAGES = 4000
_FIRST_STRICT = (3, 37, 0)
_NETWORK_FILE_SYSTEMS = frozenset(
    "9p acfs afs beegfs ceph cifs coda fuse.ceph fuse.gcsfuse fuse.glusterfs fuse.rclone fuse.s3fs"
    " fuse.sshfs gfs2 gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs prl_fs pvfs2 smb3 smbfs vboxsf"
    " virtiofs vmhgfs".split()
)


class Closable(Protocol):
    """What is closed together with the database."""

    def close(self) -> None:
        """Close it; nothing happens when that was done before."""
        ...


class Database:
    """One SQLite file. Safe to use from several threads; its connections do not outlive it."""

    def __init__(self, path: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        check_place(path)
        if not path.exists():
            raise StoreNotMigrated(
                f"{path} does not exist yet.", hint="Run `settled migrate` first."
            )
        self.path = path
        self.patience_seconds = patience_seconds
        self.clock = SteadyClock()
        self._idle: list[sqlite3.Connection] = []
        self._users: set[Closable] = set()
        self._mutex = threading.Lock()
        self._closed = False

    def beside(self, suffix: str) -> Path:
        """Return the path of a file that belongs to the database and lies beside it."""
        return self.path.with_name(self.path.name + suffix)

    def connect(self) -> sqlite3.Connection:
        """Open a connection that makes every commit durable. The file has to exist."""
        with translating(self.path):
            connection = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode=rw",
                uri=True,
                isolation_level=None,
                timeout=self.patience_seconds,
                check_same_thread=False,
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            except sqlite3.Error:
                connection.close()
                raise
        return connection

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Give a connection inside a read transaction: one snapshot, and a short one.

        A read transaction that stays open keeps the write-ahead log from being reused.
        """
        with self._mutex:
            if self._closed:
                raise StoreUnavailable(f"The journal {self.path} was closed.")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.connect()
        try:
            with translating(self.path):
                connection.execute("BEGIN")
                yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            with self._mutex:
                if not self._closed:
                    self._idle.append(connection)
                    connection = None
            if connection is not None:
                connection.close()

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Give a connection inside a write transaction that commits at the end of the block."""
        writer = Writer(self)
        try:
            with writer.transaction() as connection:
                yield connection
        finally:
            writer.close()

    def close_with_me(self, user: Closable) -> None:
        """Have something closed when the database is."""
        with self._mutex:
            self._users.add(user)

    def forget(self, user: Closable) -> None:
        """Say that something was closed already."""
        with self._mutex:
            self._users.discard(user)

    def close(self) -> None:
        """Close every connection; one that reads now is closed when it is done."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            users = list(self._users)
        for user in users:
            user.close()
        for connection in idle:
            connection.close()


class Writer:
    """A connection that writes, and its place in the queue. Used by one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.connection = database.connect()
        self._turn = Turn(database.beside(".turn"))
        self._closed = False
        database.close_with_me(self)

    def begin(self) -> bool:
        """Begin a write transaction; False when somebody else holds the file for too long."""
        if self._closed:
            raise StoreUnavailable(f"This connection to {self._database.path} was closed.")
        if not self._turn.take(self._database.patience_seconds):
            return False
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._turn.give()
            if isinstance(error, sqlite3.OperationalError) and is_busy(error):
                return False
            raise
        return True

    def end(self, *, commit: bool) -> None:
        """Commit or roll back, and let the next writer write."""
        try:
            if commit:
                self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._turn.give()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Give the connection inside a transaction that commits at the end of the block.

        Raises StoreUnavailable when somebody else holds the file for too long.
        """
        with translating(self._database.path):
            if not self.begin():
                raise occupied(self._database.path)
            done = False
            try:
                yield self.connection
                done = True
            finally:
                self.end(commit=done)

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._database.forget(self)
        self.connection.close()
        self._turn.close()


@contextmanager
def translating(path: Path) -> Generator[None]:
    """Turn SQLite's errors into those of the tree; errors about one value are left as they are.

    Whether a failed COMMIT is durable is not known then: the same unit again tells.
    """
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError):
        raise
    except sqlite3.DatabaseError as error:
        raise _translated(error, path) from error


def check_place(path: Path) -> None:
    """Raise where no SQLite file can be kept, or where its locks could not be relied on."""
    if sqlite3.sqlite_version_info < _FIRST_STRICT:
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old.", hint="It has to be 3.37 or newer."
        )
    if path.is_dir():
        raise InvalidStoreUrl(
            f"{path} is a folder.", hint="Name a file in it, such as sqlite:///settled.db."
        )
    if not path.parent.is_dir():
        raise InvalidStoreUrl(f"The folder {path.parent} does not exist.", hint="Make it first.")
    if (kind := file_system(path)) in _NETWORK_FILE_SYSTEMS:
        raise StoreUnsafe(
            f"{path} is on a network file system ({kind}), whose locks cannot be relied on.",
            hint="Put the file on a local disk, or use PostgreSQL.",
        )


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another connection's transaction was in the way."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def file_system(path: Path) -> str:
    """Return the type of the file system that a path is on, or "" where the host does not say."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, escaped, fs_type, *_ = line.split(" ")
        point = escaped.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fs_type
    return kind


def occupied(path: Path) -> StoreUnavailable:
    """Return the error for a file that somebody else holds beyond a writer's patience."""
    return StoreUnavailable(
        f"Another transaction holds {path} for too long.",
        hint="Look for a caller that keeps its own transaction open, or a stopped process.",
    )


def _translated(error: sqlite3.DatabaseError, path: Path) -> Exception:
    # An error that the driver itself raises has no code of SQLite.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
    told = f"{path}: {error}."
    if code == sqlite3.SQLITE_FULL:
        return StoreReadOnly(told, hint="Make room on the disk; nothing of it was written.")
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(told, hint="Let this user write the file and its folder.")
    if code == sqlite3.SQLITE_NOTADB:
        return InvalidStoreUrl(told, hint="The URL has to name an SQLite file.")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreUnavailable(told, hint="Restore a backup, then run `settled adopt`.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return occupied(path)
    if code == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return StoreNotMigrated(told, hint="Run `settled migrate` first.")
    return StoreUnavailable(told)
