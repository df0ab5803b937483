"""A26: a store that does not survive a restart is named, and nothing is said to be complete."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from settled.infrastructure.journal.opening import open_journal, sqlite_path
from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.journal.sqlite.database import file_system
from settled.infrastructure.journal.survival import VOLATILE
from settled.verify.check import POSTGRESQL, SQLITE, check
from settled.verify.stage import Stage

_MEMORY = Path("/dev/shm")


@check("A26", "SQLite: the file is on a file system in memory", databases=SQLITE)
def a26_a_file_in_memory(stage: Stage) -> None:
    """The same kinds are complete on a disk, and are not in memory."""
    on_disk = file_system(sqlite_path(stage.url)) not in VOLATILE
    code, document = _contract(stage, stage.url)
    assert (code == 0) is on_disk, f"{code}: {document['missing']}"
    assert file_system(_MEMORY) in VOLATILE, "this host has no file system in memory to try it on"
    file = _MEMORY / f"{stage.folder.parent.name}-{stage.folder.name}.db"
    try:
        url = f"sqlite:///{file}"
        open_journal(url, migrate=True).close()
        _expect_missing(stage, url, "memory")
    finally:
        for left in _MEMORY.glob(f"{file.name}*"):
            left.unlink()


@check("A26", "PostgreSQL: tables that a crash empties", databases=POSTGRESQL)
def a26_unlogged_tables(stage: Stage) -> None:
    """UNLOGGED tables are named; made durable again, nothing is missing."""
    code, document = _contract(stage, stage.url)
    assert code == 0, document["missing"]
    for table in ("events", "agenda"):
        _alter(stage, table, "UNLOGGED")
        _expect_missing(stage, stage.url, f"{table} is UNLOGGED")
        _alter(stage, table, "LOGGED")
    code, document = _contract(stage, stage.url)
    assert code == 0, document["missing"]


@check("A26", "PostgreSQL: commits that do not wait for the disk", databases=POSTGRESQL)
def a26_commits_that_do_not_wait(stage: Stage) -> None:
    """A server that answers before its log is on the disk loses what it has answered for."""
    separator = "&" if "?" in stage.url else "?"
    hasty = f"{stage.url}{separator}options=-c%20synchronous_commit%3Doff"
    _expect_missing(stage, hasty, "synchronous_commit is off")


def _expect_missing(stage: Stage, url: str, word: str) -> None:
    code, document = _contract(stage, url)
    assert code == 1 and not document["complete"], f"{code}: it is said to be complete"
    assert document["missing"].keys() >= {"refund", "evidence"}
    for kind, missing in document["missing"].items():
        assert any(word in what for what in missing), f"{kind}: {missing} does not say {word!r}"


def _contract(stage: Stage, url: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "settled", "contract", "--check", "--json", "--url", url],
        env=stage.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=stage.folder,
    )
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def _alter(stage: Stage, table: str, how: str) -> None:
    address = Address.of(stage.url)
    with closing(address.connect({})) as server:
        server.execute(f'ALTER TABLE "{address.schema}".{table} SET {how}'.encode())
