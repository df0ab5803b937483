"""Where the demo happens: a store of its own, a provider, and workers as processes."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from settled.domain.errors import InvalidStoreUrl, StoreUnavailable
from settled.infrastructure.journal.migrate import migrate
from settled.infrastructure.journal.opening import is_sqlite, open_target

LEASE_SECONDS = 1.0
"""Short, so that a dead worker is noticed while one looks."""

_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LOG_CHARACTERS = 2000


@dataclass
class Place:
    """The folder and the store of one run; `kept` names what is left of it."""

    folder: Path
    url: str
    kept: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class WorkerProcess:
    """A worker that runs as `settled worker`."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait_until_ready(self) -> None:
        """Wait for its ready line. Raises StoreUnavailable with the end of its log."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], _READY_SECONDS)
        line = self.process.stdout.readline() if readable else ""
        if not line or not json.loads(line)["ready"]:
            raise StoreUnavailable(f"{self.name} did not begin to work:\n{self.said()}")

    def said(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8")[-_LOG_CHARACTERS:]

    def kill(self) -> int:
        """End it with SIGKILL, which no process can prepare for; return its exit status."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait(_STOP_SECONDS)

    def stop(self) -> int:
        """Let it end by itself, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)


@contextmanager
def stage(db: str | None, keep: bool) -> Generator[Place]:
    """Make a folder and a migrated store, and remove both at the end unless they are kept."""
    schema_url = _own_schema(db) if db is not None else None
    with ExitStack() as cleaning:
        folder = Path(mkdtemp(prefix="settled-demo-"))
        if not keep:
            cleaning.callback(shutil.rmtree, folder)
        place = Place(folder, schema_url or f"sqlite:///{folder / 'demo.db'}")
        with open_target(place.url) as target:
            migrate(target)
        if schema_url is not None and not keep:
            cleaning.callback(_drop_schema, schema_url)
        if keep:
            place.kept += [str(folder)] + ([_schema_of(schema_url)] if schema_url else [])
        yield place


@contextmanager
def workers(
    place: Place, environment: dict[str, str], count: int
) -> Generator[list[WorkerProcess]]:
    """Run so many workers; they work when the block begins and are gone when it ends."""
    running = [_start(place, environment, f"worker-{n}") for n in range(1, count + 1)]
    try:
        for one in running:
            one.wait_until_ready()
        yield running
    finally:
        for one in running:
            if one.process.poll() is None:
                one.kill()
            assert one.process.stdout is not None
            one.process.stdout.close()


def _start(place: Place, environment: dict[str, str], name: str) -> WorkerProcess:
    log = place.folder / f"{name}.log"
    command = [sys.executable, "-m", "settled", "worker", "--json", "--name", name]
    command += ["--url", place.url, "--kinds", "settled.demo.kinds:refund"]
    command += ["--lease-seconds", str(LEASE_SECONDS), "--idle-seconds", "0.02"]
    # What dies here is a process, never the machine: the demo may run on a test server.
    command += ["--accept-unsafe-store"]
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "SETTLED_STATE_DIR": str(place.folder), **environment},
        )
    return WorkerProcess(name, process, log)


def _own_schema(db: str) -> str:
    if is_sqlite(db):
        raise InvalidStoreUrl(
            "On SQLite the demo makes a file of its own.",
            hint="Leave --db out; --keep keeps the file and says where it is.",
        )
    if "schema=" in db.partition("?")[2]:
        raise InvalidStoreUrl(
            "The demo works in a schema of its own.", hint="Leave schema= out of the URL."
        )
    return f"{db}{'&' if '?' in db else '?'}schema=settled_demo_{os.getpid()}"


def _schema_of(url: str) -> str:
    from settled.infrastructure.journal.postgres.address import Address

    return f"schema {Address.of(url).schema}"


def _drop_schema(url: str) -> None:
    from psycopg import sql

    from settled.infrastructure.journal.postgres.address import Address

    address = Address.of(url)
    connection = address.connect({})
    try:
        connection.execute(
            sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(address.schema))
        )
    finally:
        connection.close()
