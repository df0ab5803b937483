"""What is measured around a piece of work: time, CPU of each process, commits, WAL.

CPU and memory are read from /proc, so they are there on Linux alone. What a server counts is read
once the work's connections are gone: a backend tells its last counts when it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from settled.bench.lab import Lab
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import is_sqlite

_TICKS = os.sysconf("SC_CLK_TCK")
_GONE_SECONDS = 15.0
_LOOK_SECONDS = 0.02
_UTIME, _STIME, _CUTIME, _CSTIME = 11, 12, 13, 14  # behind the name in parentheses

_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
_WAL = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn WHERE %s::text IS NOT NULL"
_CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process and its ended children have used."""
    fields = _stat(pid)
    return sum(int(fields[n]) for n in (_UTIME, _STIME, _CUTIME, _CSTIME)) / _TICKS


def rss_bytes(pid: int) -> int:
    """Return how much memory of a process is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def server_cpu_seconds(postmaster: int) -> float:
    """Return the CPU time of a PostgreSQL server: the postmaster's and its backends'."""
    total = cpu_seconds(postmaster)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _stat(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended while we looked; the postmaster's children count it
            if int(fields[1]) == postmaster:
                total += (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS
    return total


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Meter:
    """Measures one piece of work on one fresh store, done by some processes."""

    def __init__(self, lab: Lab, url: str, **pids: Sequence[int]) -> None:
        """`pids` are the processes, by the name under which their CPU together is told."""
        self._lab = lab
        self._database = None if is_sqlite(url) else urlsplit(url).path[1:]
        self._pids = pids
        self._seconds = 0.0
        self._cpu: dict[str, float] = {}
        self._commits = self._wal_bytes = 0

    def start(self) -> None:
        """Begin."""
        self._commits, self._wal_bytes = self._ask(_COMMITS), self._ask(_WAL)
        self._cpu = self._read_cpu()
        self._seconds = elapsed_seconds()

    def stop(self) -> None:
        """Stop the clocks; the processes still run."""
        self._seconds = elapsed_seconds() - self._seconds
        self._cpu = {name: now - self._cpu[name] for name, now in self._read_cpu().items()}
        self._wal_bytes = self._ask(_WAL) - self._wal_bytes

    def sample(self, operations: int) -> dict[str, float]:
        """Return the costs of one operation; the processes have ended or are about to."""
        found = {
            "per_second": operations / self._seconds,
            "wall_us": self._seconds / operations * 1e6,
            **{f"{name}_cpu_us": used / operations * 1e6 for name, used in self._cpu.items()},
        }
        if self._database is not None:
            self._wait_until_alone()
            found["commits"] = (self._ask(_COMMITS) - self._commits) / operations
            found["wal_bytes"] = self._wal_bytes / operations
        return found

    def _read_cpu(self) -> dict[str, float]:
        found = {name: sum(map(cpu_seconds, pids)) for name, pids in self._pids.items()}
        if self._lab.server is not None and self._database is not None:
            found["server"] = server_cpu_seconds(self._lab.server.pid)
        return found

    def _ask(self, question: str) -> int:
        if self._database is None:
            return 0
        with closing(self._lab.connect()) as connection:
            return int(_one(connection, question, self._database)[0])

    def _wait_until_alone(self) -> None:
        give_up_at = elapsed_seconds() + _GONE_SECONDS
        with closing(self._lab.connect()) as connection:
            while _one(connection, _CONNECTED, self._database)[0]:
                assert elapsed_seconds() < give_up_at, "somebody stays connected to the database"
                time.sleep(_LOOK_SECONDS)


def _one(connection: psycopg.Connection[Any], text: str, database: str | None) -> tuple[Any, ...]:
    row = connection.execute(text.encode(), (database,)).fetchone()
    assert row is not None
    return tuple(row)


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text[text.rindex(")") + 2 :].split()
