"""Where experiments run: fresh databases on a server that writes through, and their sizes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from settled.domain.errors import InvalidInput, StoreUnsafe
from settled.infrastructure.clock import chance
from settled.infrastructure.journal.migrate import migrate
from settled.infrastructure.journal.opening import is_sqlite, open_target
from settled.infrastructure.journal.postgres.errors import translating
from settled.infrastructure.testing.postgres_server import PostgresServer

_RUNS = 1 << 32
_STATE_DIRECTORY = "SETTLED_STATE_DIR"


@dataclass(frozen=True)
class Sizes:
    """How much is measured. Durations in seconds.

    `operations` is what settled and the floors do in one round of the throughput experiments, and
    `peer_operations` what the other libraries do, which are slower by a factor. `threads` intend at
    once in the client's process; it is also the size of a batch of the floor. `seeded` operations
    are in the store of which a view is rebuilt.
    """

    rounds: int
    operations: int
    peer_operations: int
    singles: int
    pickups: int
    idle_seconds: float
    orphans: int
    appends: int
    delayed: int
    open_operations: int
    claims: int
    worked_off: int
    seeded: int
    starts: int
    threads: int = 100
    concurrency: int = 200


FULL = Sizes(
    rounds=5,
    operations=6_000,
    peer_operations=400,
    singles=1_000,
    pickups=40,
    idle_seconds=10.0,
    orphans=1_000,
    appends=4_000,
    delayed=4_000,
    open_operations=1_000_000,
    claims=200,
    worked_off=30_000,
    seeded=30_000,
    starts=5,
)
QUICK = Sizes(
    rounds=2,
    operations=1_000,
    peer_operations=100,
    singles=200,
    pickups=6,
    idle_seconds=2.0,
    orphans=200,
    appends=800,
    delayed=1_000,
    open_operations=50_000,
    claims=50,
    worked_off=3_000,
    seeded=8_000,
    starts=3,
)


@dataclass
class Lab:
    """What an experiment needs. `cleaning` is done after its last round.

    `server` is one that was brought for this run, of which the processes can be seen.
    """

    sizes: Sizes
    folder: Path
    admin: str
    server: PostgresServer | None = None
    cleaning: ExitStack = field(default_factory=ExitStack)
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _run: str = field(default_factory=lambda: f"{int(chance() * _RUNS):08x}")

    @contextmanager
    def postgres(self, *, migrated: bool = True) -> Generator[str]:
        """Give the URL of a database with nothing in it; it is dropped afterwards."""
        name = f"settled_bench_{self._run}_{next(self._numbers)}"
        with closing(self.connect()) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            url = with_database(self.admin, name)
            if migrated:
                with open_target(url) as target:
                    migrate(target)
            yield url
        finally:
            with closing(self.connect()) as connection:
                drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
                connection.execute(drop.format(sql.Identifier(name)))

    @contextmanager
    def sqlite(self, *, migrated: bool = True) -> Generator[str]:
        """Give the URL of an SQLite file in a folder of its own, which is removed afterwards."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            url = f"sqlite:///{quote(folder)}/settled.db"
            if migrated:
                with open_target(url) as target:
                    migrate(target)
            yield url

    def store(self, dialect: str, *, migrated: bool = True) -> Any:
        """Give a fresh store of one of the two dialects, for the length of a `with` block."""
        return (self.sqlite if dialect == "sqlite" else self.postgres)(migrated=migrated)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect to the database that only manages the others, so that looking costs them nothing.

        Raises StoreUnavailable.
        """
        with translating():
            return psycopg.connect(self.admin, autocommit=True)

    def about(self) -> dict[str, str]:
        """Return what the server says of itself; raises StoreUnsafe where commits can be lost."""
        with closing(self.connect()) as connection:
            told = {
                name: str(connection.execute(f"SHOW {name}").fetchone()[0])  # type: ignore[index]
                for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes")
            }
        if told["fsync"] != "on" or told["synchronous_commit"] in ("off", "local"):
            raise StoreUnsafe(
                f"This server has fsync = {told['fsync']} and synchronous_commit ="
                f" {told['synchronous_commit']}: what it is fast at is not keeping commits.",
                hint="Measure on a server with both of them on.",
            )
        return told


@contextmanager
def laboratory(db: str | None, sizes: Sizes) -> Generator[Lab]:
    """Make a lab on the server that a URL names, or on one that is brought (extra pg-local).

    The role has to be allowed to make databases. What a host knows of its stores is kept in the
    lab's folder. Raises InvalidInput for an SQLite URL: its file is made anyway.
    """
    with ExitStack() as cleaning:
        server = None
        if db is None:
            server = cleaning.enter_context(PostgresServer(fsync=True))
            db = server.url()
        elif is_sqlite(db):
            raise InvalidInput(
                "--db names a PostgreSQL server.",
                hint="Without it a server is brought; SQLite is measured in a temporary folder.",
            )
        folder = Path(cleaning.enter_context(tempfile.TemporaryDirectory(prefix="settled-bench-")))
        cleaning.enter_context(_state_in(folder))
        yield Lab(sizes, folder, _plain(db), server)


def with_database(url: str, name: str) -> str:
    """Return the URL with this database in place of the one that it names."""
    base, mark, query = url.partition("?")
    scheme, separator, rest = base.partition("://")
    authority = rest.partition("/")[0]
    return f"{scheme}{separator}{authority}/{name}{mark}{query}"


def _plain(url: str) -> str:
    """Return the URL without what is ours in it; libpq would refuse that."""
    base, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part and not part.startswith("schema=")]
    return f"{base}?{'&'.join(parts)}" if parts else base


@contextmanager
def _state_in(folder: Path) -> Generator[None]:
    before = os.environ.get(_STATE_DIRECTORY)
    os.environ[_STATE_DIRECTORY] = str(folder / "state")
    try:
        yield
    finally:
        del os.environ[_STATE_DIRECTORY]
        if before is not None:
            os.environ[_STATE_DIRECTORY] = before
