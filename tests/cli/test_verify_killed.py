"""A run of `settled verify` that is itself killed: what it started ends, what it left goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from settled.infrastructure.journal.opening import is_sqlite
from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.ground import ground
from tests.cli.runner import CommandLine
from tests.cli.test_verify import left_over


@contextmanager
def killed_run(bare: CommandLine, only: str, said: str) -> Generator[set[int]]:
    """Kill a run once it has begun a check and a worker of it stands; gives what it had started."""
    command = [sys.executable, "-m", "settled", "verify", "--db", bare.url, "--only", only]
    run = subprocess.Popen(
        command, cwd=bare.folder, env=bare.environment | {"TMPDIR": str(bare.folder)}
    )
    try:
        eventually(lambda: has(descendants(run.pid), said))
        started = descendants(run.pid)
    finally:
        run.kill()
        run.wait(10)
    yield started


def descendants(pid: int) -> set[int]:
    """Return the processes that a process has started, and those that these have started."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = {int(c) for task in tasks for c in (task / "children").read_text().split()}
    except OSError:
        return set()  # it has just ended
    return children.union(*(descendants(child) for child in children))


def has(pids: set[int], said: str) -> bool:
    """Tell whether one of the processes has these words in its command line, or is stopped."""
    return any(said in told(pid) for pid in pids)


def told(pid: int) -> str:
    """Return the command line of a process, and the letter of its state."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return ""
    return f"{line}state={status[:1]}"


def alive(pids: set[int]) -> set[int]:
    """Return which of the processes still run."""
    return {pid for pid in pids if told(pid) and "state=Z" not in told(pid)}


@pytest.mark.parametrize(
    ("only", "said"),
    [("A4", "minded worker"), ("A36", "state=T"), ("A39", "multiprocessing.spawn")],
    ids=["workers", "a worker that stands still", "writers"],
)
def test_what_it_started_ends_by_itself(bare: CommandLine, only: str, said: str) -> None:
    """SIGKILL to the run: its workers, frozen ones too, and its provider are gone soon after."""
    with killed_run(bare, only, said) as started:
        assert len(started) >= 2, "a provider and a worker"
        eventually(lambda: not alive(started))


def test_the_next_run_removes_what_it_left(bare: CommandLine) -> None:
    """Folder and schema of the dead run are removed, those of a run that lives are not."""
    with killed_run(bare, "A4", "minded worker") as started:
        eventually(lambda: not alive(started))
    dead = left_over(bare.url, bare.folder)
    assert dead
    with ground(bare.url, keep=False) as living, living.store("A1-1") as (url, _):
        if not is_sqlite(url):
            address = Address.of(url)
            with closing(address.connect({})) as connection:
                connection.execute(f"CREATE SCHEMA {address.schema}".encode())
        assert any(left in what for left in dead for what in living.removed)
        done = bare("verify", "--db", bare.url, "--only", "A14", TMPDIR=str(bare.folder))
        assert done.code == 3, done.err
        mine = left_over(bare.url, bare.folder)
        assert len(mine) == 1 and living.run in mine[0]
    assert left_over(bare.url, bare.folder) == []


def test_signals_of_a_person_clean_up(bare: CommandLine) -> None:
    """SIGTERM, unlike SIGKILL, leaves nothing to the next run."""
    command = [sys.executable, "-m", "settled", "verify", "--db", bare.url, "--only", "A4"]
    run = subprocess.Popen(command, cwd=bare.folder, env=bare.environment)
    try:
        eventually(lambda: has(descendants(run.pid), "minded worker"))
        started = descendants(run.pid)
        os.kill(run.pid, signal.SIGTERM)
        assert run.wait(30) == 1
    finally:
        run.kill()
        run.wait(10)
    eventually(lambda: not alive(started))
    assert left_over(bare.url, bare.folder) == []
