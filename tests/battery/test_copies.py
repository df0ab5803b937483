"""A store that is not where it was: copied, restored into another server, or to an earlier point.

What is ready in it may have been sent from where it was before. So no worker works on it until it
is adopted, and then everything that looks unsent counts as possibly sent.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from settled import Identity
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.journal_units import eventually
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.stage import AGENT, Stage, staged

RESENT, LOOKED_UP, HANDED_OVER = "resend-only", "lookup-only", "nothing"
TABLES = ("installation", "events", "agenda", "guard", "reference", "lane", "worker")


def intend_all(stage: Stage, number: int = 1) -> None:
    """Intend one operation for each way in which a contract resolves what may have been sent."""
    for kind in (RESENT, LOOKED_UP, HANDED_OVER):
        stage.intend(f"{kind}-{number}", kind=kind, order=f"{kind}-{number}")


def state(stage: Stage, kind: str, number: int = 1) -> str:
    """Return the state of one of them."""
    return stage.get(Identity("acme", kind, f"{kind}-{number}")).state


def perform_all(stage: Stage, number: int = 1) -> None:
    """Let a worker perform them, and stop it."""
    worker = stage.worker("original")
    for kind in (RESENT, LOOKED_UP, HANDED_OVER):
        stage.wait(stage.get(Identity("acme", kind, f"{kind}-{number}")), "succeeded")
    assert worker.terminate() == 0


def adopted_by_contract(copy: Stage, number: int = 1) -> None:
    """Check that nothing works on the copy, adopt it, and check what becomes of the ready ones.

    All three were performed from where the store was before.
    """
    held, requests = copy.effects(), copy.requests()
    with pytest.raises(AssertionError, match="adopt"):
        copy.worker("too-early")
    assert copy.workers[-1].process.wait(30) != 0
    assert [state(copy, kind, number) for kind in (RESENT, LOOKED_UP, HANDED_OVER)] == ["ready"] * 3
    assert copy.requests() == requests
    command = [sys.executable, "-m", "settled", "adopt", "--yes", "--actor", "ada"]
    told = subprocess.run(
        command,
        env=copy.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=copy.folder,
    )
    assert told.returncode == 0, told.stderr
    assert [state(copy, kind, number) for kind in (RESENT, LOOKED_UP, HANDED_OVER)] == [
        "outcome_unknown"
    ] * 3
    copy.worker("after")
    ends = {RESENT: "succeeded", LOOKED_UP: "succeeded", HANDED_OVER: "handed_over"}
    for kind, end in ends.items():
        view = copy.wait(copy.get(Identity("acme", kind, f"{kind}-{number}")), end)
        assert copy.fields(view, "OutcomeUnknown")[0]["cause"] == "adopted"
    assert copy.effects() == held
    by_order = [r for r in copy.simulator.log().calls() if f'"{RESENT}-{number}"' in r.body]
    assert len({r.key for r in by_order}) == len({r.body_sha256 for r in by_order}) == 1
    assert len(by_order) == 2
    assert copy.requests() == requests + 1


def anchored(stage: Stage) -> bool:
    """Tell whether the end of the log is noted outside the database."""
    last = 0
    for kind in (RESENT, LOOKED_UP, HANDED_OVER):
        identity = Identity("acme", kind, f"{kind}-1")
        history = stage.app.operations.history(identity, by=AGENT)
        last = max(last, history[-1].position or 0)
    folders = (Path(os.environ["SETTLED_STATE_DIR"]), stage.folder)
    notes = [note for folder in folders for note in folder.glob("*.anchor")]
    return any(json.loads(note.read_text())["position"] >= last for note in notes)


@pytest.fixture
def postgres(
    postgres_url: str, simulator: SimulatorClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """A stage on PostgreSQL."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    with staged(postgres_url, simulator, tmp_path) as stage:
        yield stage


def test_a35_a_database_made_from_another(postgres: Stage, tmp_path: Path) -> None:
    """A35: CREATE DATABASE … TEMPLATE: the copy has other numbers, and waits for adoption."""
    intend_all(postgres)
    url = postgres.url
    postgres.app.close()  # a database that is in use cannot be copied
    name = urlsplit(url).path[1:]
    copy = f"{name}_copy"
    with psycopg.connect(url.replace(name, "postgres"), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(copy), sql.Identifier(name)
            )
        )
        try:
            with staged(url, postgres.simulator, tmp_path) as original:
                perform_all(original)
            folder = tmp_path / "copy"
            folder.mkdir()
            with staged(url.replace(name, copy), postgres.simulator, folder) as second:
                adopted_by_contract(second)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(copy)))


def test_a35_rows_copied_into_a_fresh_server(postgres: Stage, tmp_path: Path) -> None:
    """A35: what a dump and restore does: the same rows in another cluster."""
    intend_all(postgres)
    with PostgresServer(fsync=True) as server:
        open_journal(server.url(), migrate=True).close()
        with (
            psycopg.connect(postgres.url) as source,
            psycopg.connect(server.url()) as target,
        ):
            for table in TABLES:
                target.execute(sql.SQL("TRUNCATE settled.{}").format(sql.Identifier(table)))
                copy_table(source, target, table)
            target.execute(
                "SELECT setval(pg_get_serial_sequence('settled.events', 'position'),"
                " (SELECT max(position) FROM settled.events))"
            )
        perform_all(postgres)
        folder = tmp_path / "copy"
        folder.mkdir()
        with staged(server.url(), postgres.simulator, folder) as second:
            adopted_by_contract(second)


def copy_table(
    source: psycopg.Connection[tuple[object, ...]],
    target: psycopg.Connection[tuple[object, ...]],
    table: str,
) -> None:
    """Copy the rows of a table, as a dump does."""
    name = sql.Identifier(table)
    with (
        source.cursor().copy(sql.SQL("COPY settled.{} TO STDOUT").format(name)) as rows,
        target.cursor().copy(sql.SQL("COPY settled.{} FROM STDIN").format(name)) as copied,
    ):
        for row in rows:
            copied.write(row)


@pytest.mark.parametrize("ended", ["terminated", "killed"])
def test_a35_a_server_restored_to_an_earlier_point(
    simulator: SimulatorClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """A35: the data directory is put back to where it was before the operations were performed.

    Nothing in the database tells; what its workers noted on this host does, also after they were
    killed, which is when people restore backups.
    """
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    with PostgresServer(fsync=True) as server:
        backup = server.data_directory.parent / "backup"
        with staged(server.url(), simulator, tmp_path) as stage:
            intend_all(stage)
        server.stop()
        shutil.copytree(server.data_directory, backup, copy_function=shutil.copy2)
        server.start()
        with staged(server.url(), simulator, tmp_path) as stage:
            perform(stage, ended)
        server.stop()
        put_back(backup, server.data_directory)
        server.start()
        with staged(server.url(), simulator, tmp_path) as restored:
            adopted_by_contract(restored)


def perform(stage: Stage, ended: str) -> None:
    """Perform everything, and let the worker's end be of this sort."""
    worker = stage.worker("original")
    for kind in (RESENT, LOOKED_UP, HANDED_OVER):
        stage.wait(stage.get(Identity("acme", kind, f"{kind}-1")), "succeeded")
    if ended == "terminated":
        assert worker.terminate() == 0
    else:
        eventually(lambda: anchored(stage))
        worker.kill()


def put_back(backup: Path, place: Path) -> None:
    """Replace a folder's content by a backup of it, with the owners that it had."""
    owner = place.stat()
    for inside in place.iterdir():
        shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
    shutil.copytree(backup, place, dirs_exist_ok=True, symlinks=True)
    for path in [place, *place.rglob("*")]:
        shutil.chown(path, owner.st_uid, owner.st_gid)


@pytest.fixture
def sqlite(
    sqlite_url: str, simulator: SimulatorClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """A stage on an SQLite file."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    with staged(sqlite_url, simulator, tmp_path) as stage:
        yield stage


def backup_file(source: Path, target: Path) -> None:
    """Back an SQLite file up, as its own tools do."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as two:
        one.backup(two)


def test_a35_a_copied_file(sqlite: Stage, tmp_path: Path) -> None:
    """A35: a copy of an SQLite file is another file, and waits for adoption."""
    intend_all(sqlite)
    copy = tmp_path / "elsewhere" / "settled.db"
    copy.parent.mkdir()
    backup_file(tmp_path / "settled.db", copy)
    perform_all(sqlite)
    with staged(f"sqlite:///{copy}", sqlite.simulator, copy.parent) as second:
        adopted_by_contract(second)


@pytest.mark.parametrize("ended", ["terminated", "killed"])
def test_a35_a_file_restored_in_place(sqlite: Stage, tmp_path: Path, ended: str) -> None:
    """A35: an older content of the very same file: the note beside it tells."""
    intend_all(sqlite)
    place, backup = tmp_path / "settled.db", tmp_path / "backup.db"
    backup_file(place, backup)
    perform(sqlite, ended)
    sqlite.app.close()
    backup_file(backup, place)
    with staged(sqlite.url, sqlite.simulator, tmp_path) as restored:
        adopted_by_contract(restored)
