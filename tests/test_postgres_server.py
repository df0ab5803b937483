"""The server that the other tests stand on: it keeps what it should, and leaves nothing behind.

Every durability test trusts that a crash here is a crash and that committed rows outlive it. And a
test run that is killed must not leave servers running on a developer's machine.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from settled.domain.errors import StoreUnavailable
from settled.infrastructure.testing.postgres_server import PostgresServer, StopMode

OWNER_THAT_WAITS = """
from settled.infrastructure.testing.postgres_server import PostgresServer
server = PostgresServer()
server.start()
print(server.data_directory, server.pid, flush=True)
input()
"""


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_committed_rows_outlive_a_stop(mode: StopMode) -> None:
    """A stop of either kind keeps the data, and settings hold after each start."""
    with PostgresServer(settings={"work_mem": "5MB"}) as server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 9 AS order_number")
        first_pid = server.pid
        server.stop(mode)
        assert not server.running
        server.start()
        assert server.pid != first_pid
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT order_number FROM kept").fetchone() == (9,)
            assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)
            recovered = "database system was not properly shut down" in server.log
            assert recovered == (mode == "immediate")


def test_close_leaves_nothing() -> None:
    """After the block neither the process nor its folder exists."""
    with PostgresServer() as server:
        pid, data = server.pid, server.data_directory
    assert not data.parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_server_goes_when_its_owner_is_killed() -> None:
    """A test run that dies by SIGKILL leaves no server and no folder."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER_THAT_WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert owner.stdout is not None
    folder, pid = owner.stdout.readline().split()
    status = Path("/proc", pid, "status").read_text(encoding="ascii")
    supervisor = os.pidfd_open(int(re.findall(r"PPid:\s+(\d+)", status)[0]))
    try:
        owner.kill()
        owner.communicate()
        ended, _, _ = select.select([supervisor], [], [], 30)
    finally:
        os.close(supervisor)
    assert ended
    assert not Path(folder).parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_server_that_cannot_start_says_why() -> None:
    """The server's own words reach the person who has to act on them."""
    with pytest.raises(StoreUnavailable, match="no_such_setting"):
        PostgresServer(settings={"no_such_setting": "1"}).__enter__()


def test_a_folder_without_programs_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrong SETTLED_PG_BIN is named, and no other server is taken in silence."""
    monkeypatch.setenv("SETTLED_PG_BIN", str(tmp_path))
    with pytest.raises(StoreUnavailable, match=str(tmp_path)):
        PostgresServer().start()
