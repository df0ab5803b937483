"""A real PostgreSQL server of one's own: started in half a second, gone without a trace.

    with PostgresServer() as server:
        psycopg.connect(server.url("postgres"))

It listens on a UNIX socket in a folder that only its user can enter, and nowhere else, so it needs
neither a password nor a free port. PostgreSQL refuses to run as root: root runs it as `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote, urlencode

import psycopg

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.testing.postgres_binaries import (
    find_binaries,
    public_temporary_directory,
)

StopMode = Literal["smart", "fast", "immediate"]

START_SECONDS = 60.0
"""How long a start, including the recovery after an immediate stop, and a stop may take."""

_SOCKET_PATH_BYTES = 107
_PORT = 5432


class PostgresServer:
    """A PostgreSQL server with its own data, which can be stopped, crashed and started again.

    `settings` are server parameters, by name. `fsync` makes it write through to the disk, which
    costs time and matters only when the machine itself may stop; a crash of the server alone
    loses nothing without it.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None, fsync: bool = False) -> None:
        self._settings = {"listen_addresses": "", "fsync": "on" if fsync else "off"}
        self._settings |= settings or {}
        self._supervisor: subprocess.Popen[str] | None = None
        self._directory: Path | None = None
        self._pid = 0
        self._user = self._group = -1
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user, self._group = nobody.pw_uid, nobody.pw_gid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the postmaster; raises StoreUnavailable when it does not run."""
        if not self.running:
            raise StoreUnavailable("This PostgreSQL server does not run.", hint="Call start().")
        return self._pid

    @property
    def running(self) -> bool:
        """Whether the server runs now."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def data_directory(self) -> Path:
        """The folder of the data and of the socket; made by the first start."""
        if self._directory is None:
            raise StoreUnavailable("This PostgreSQL server has no data yet.", hint="Call start().")
        return self._directory / "data"

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases, for the superuser."""
        query = urlencode({"host": str(self.data_directory), "port": _PORT}, safe="/")
        return f"postgresql://postgres@/{quote(database, safe='')}?{query}"

    def start(self) -> None:
        """Start the server, with the data it had before, and wait until it answers."""
        if self.running:
            return
        binaries = find_binaries(for_others=self._user >= 0)
        if self._directory is None:
            self._initialise(binaries)
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [str(binaries / "postgres"), "-D", str(self.data_directory)]
        command += ["-k", str(self.data_directory), *options]
        script = Path(__file__).with_name("postgres_supervisor.py")
        identity = [str(self._user), str(self._group)]
        with (self._base / "log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", str(script), str(self._base), *identity, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd="/",
                env=self._environment,
                start_new_session=True,
            )
        assert self._supervisor.stdout is not None
        self._pid = int(self._supervisor.stdout.readline() or 0)
        self._wait_until_it_answers()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data.

        "smart" waits for clients to leave, "fast" ends their transactions, "immediate" is a crash:
        no checkpoint, and the next start recovers from the write-ahead log.
        """
        if self._supervisor is None:
            return
        try:
            self._supervisor.communicate(f"{mode}\n", timeout=START_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise StoreUnavailable(
                f"PostgreSQL did not stop ({mode}) within {START_SECONDS:.0f} s.",
                hint="Close the connections, or stop it with mode 'immediate'.",
            ) from error
        self._supervisor = None

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop("immediate")
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return (self._base / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def _base(self) -> Path:
        return self.data_directory.parent

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": "/", "TZ": "UTC"}

    def _initialise(self, binaries: Path) -> None:
        base = Path(tempfile.mkdtemp(prefix="settled-pg-", dir=public_temporary_directory()))
        self._directory = base
        longest = os.fsencode(base / "data" / f".s.PGSQL.{_PORT}.lock")
        if len(longest) > _SOCKET_PATH_BYTES:
            self.close()
            raise StoreUnavailable(
                f"The path of the server's socket would be longer than {_SOCKET_PATH_BYTES} bytes.",
                hint="Point TMPDIR at a folder with a shorter name, such as /tmp.",
            )
        base.chmod(0o755)
        (base / "data").mkdir(mode=0o700)
        if self._user >= 0:
            os.chown(base / "data", self._user, self._group)
        told = subprocess.run(
            [
                *(binaries / "initdb", "-D", base / "data", "-U", "postgres", "--auth=trust"),
                *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"),
            ],
            capture_output=True,
            text=True,
            cwd="/",
            env=self._environment,
            user=self._user if self._user >= 0 else None,
            group=self._group if self._group >= 0 else None,
            extra_groups=[] if self._group >= 0 else None,
        )
        if told.returncode != 0:
            self.close()
            raise StoreUnavailable(f"initdb failed: {told.stderr.strip()}")

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.running and time.monotonic() < deadline:
                    time.sleep(0.01)
                    continue
                log = self.log
                self.stop("immediate")
                raise StoreUnavailable(
                    f"PostgreSQL did not start.\n{log.strip()}",
                    hint="The server's own log, above, says why.",
                ) from error
