"""A35: a store that is not where it was: copied, restored elsewhere, or to an earlier point.

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
from contextlib import closing
from pathlib import Path
from typing import LiteralString
from urllib.parse import quote

import psycopg
from psycopg import sql

from settled import Identity
from settled.infrastructure.journal.opening import open_journal, sqlite_path
from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.testing.journal_units import eventually
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.check import POSTGRESQL, SQLITE, check, check_each, refused
from settled.verify.stage import AGENT, Stage

ENDS = {"resend-only": "succeeded", "lookup-only": "succeeded", "nothing": "handed_over"}
"""One kind for each way in which a contract resolves what may have been sent -> its end."""

TABLES = ("installation", "events", "agenda", "guard", "reference", "lane", "worker")
ENDED = ("terminated", "killed")
"""How the worker ended before somebody restored a backup: mostly, that is why one does."""


def intend_all(stage: Stage) -> None:
    """Intend one operation of each of the kinds."""
    for kind in ENDS:
        stage.intend(f"{kind}-1", kind=kind, order=f"{kind}-1")


def perform_all(stage: Stage, ended: str = "terminated") -> None:
    """Let a worker perform them, and end in one of these ways."""
    worker = stage.worker("original")
    for kind in ENDS:
        stage.wait(_identity(kind), "succeeded")
    if ended == "killed":
        eventually(lambda: _anchored(stage))
        worker.kill()
    else:
        assert worker.terminate() == 0


def expect_held_until_adopted(stage: Stage) -> None:
    """Check that nothing works on the copy, adopt it, and check what becomes of the ready ones.

    All of them were performed from where the store was before.
    """
    held, requests = stage.effects(), stage.requests()
    with refused(AssertionError, match="adopt"):
        stage.worker("too-early")
    assert stage.workers[-1].process.wait(30) != 0
    assert _states(stage) == {"ready"}
    assert stage.requests() == requests
    _adopt(stage)
    assert _states(stage) == {"outcome_unknown"}
    stage.worker("after")
    for kind, end in ENDS.items():
        view = stage.wait(_identity(kind), end)
        assert stage.fields(view, "OutcomeUnknown")[0]["cause"] == "adopted"
    assert stage.effects() == held
    resent = [seen for seen in stage.simulator.log().calls() if '"resend-only-1"' in seen.body]
    assert len({seen.key for seen in resent}) == len({seen.body_sha256 for seen in resent}) == 1
    assert len(resent) == 2
    assert stage.requests() == requests + 1


@check("A35", "SQLite: the file is copied", databases=SQLITE)
def a35_a_copied_file(stage: Stage) -> None:
    """A copy of an SQLite file is another file, and waits for adoption."""
    intend_all(stage)
    copy = stage.folder / "elsewhere" / "settled.db"
    copy.parent.mkdir()
    _back_up(sqlite_path(stage.url), copy)
    perform_all(stage)
    stage.move(f"sqlite:///{quote(str(copy))}")
    expect_held_until_adopted(stage)


@check_each("A35", "SQLite: restored in place, its worker {}", ENDED, databases=SQLITE)
def a35_a_file_restored_in_place(stage: Stage, ended: str) -> None:
    """An older content of the very same file: the note beside it tells."""
    intend_all(stage)
    place, backup = sqlite_path(stage.url), stage.folder / "backup.db"
    _back_up(place, backup)
    perform_all(stage, ended)
    stage.app.close()
    _back_up(backup, place)
    stage.move(stage.url)
    expect_held_until_adopted(stage)


@check("A35", "a database made from another", databases=POSTGRESQL, own_server=True)
def a35_a_database_made_from_another(stage: Stage) -> None:
    """CREATE DATABASE … TEMPLATE: the copy has other numbers, and waits for adoption."""
    intend_all(stage)
    stage.app.close()  # a database that is in use cannot be copied
    copy = f"copy_{Address.of(stage.url).schema}"
    with psycopg.connect(stage.server.url("template1"), autocommit=True) as admin:
        admin.execute(_named("CREATE DATABASE {} TEMPLATE postgres", copy))
    stage.cleaning.callback(_drop_database, stage.server, copy)
    stage.move(stage.url)
    perform_all(stage)
    schema = Address.of(stage.url).schema
    stage.move(f"{stage.server.url(copy)}&schema={schema}")
    expect_held_until_adopted(stage)


@check("A35", "a dump restored into another server", databases=POSTGRESQL, own_server=True)
def a35_rows_copied_into_a_fresh_server(stage: Stage) -> None:
    """What a dump and restore does: the same rows in another cluster."""
    intend_all(stage)
    other = stage.cleaning.enter_context(PostgresServer(fsync=True))
    schema = Address.of(stage.url).schema
    url = f"{other.url()}&schema={schema}"
    open_journal(url, migrate=True).close()
    with (
        psycopg.connect(stage.server.url()) as source,
        psycopg.connect(other.url()) as target,
    ):
        for table in TABLES:
            name = sql.Identifier(schema, table)
            target.execute(sql.SQL("TRUNCATE {}").format(name))
            with (
                source.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(name)) as rows,
                target.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copied,
            ):
                for row in rows:
                    copied.write(row)
        events = sql.Identifier(schema, "events")
        target.execute(
            sql.SQL(
                "SELECT setval(pg_get_serial_sequence({}, 'position'), max(position)) FROM {}"
            ).format(sql.Literal(f"{schema}.events"), events)
        )
    perform_all(stage)
    stage.move(url)
    expect_held_until_adopted(stage)


@check_each(
    "A35",
    "restored to an earlier point, its worker {}",
    ENDED,
    databases=POSTGRESQL,
    own_server=True,
)
def a35_a_server_restored_to_an_earlier_point(stage: Stage, ended: str) -> None:
    """The data directory is put back to where it was before the operations were performed.

    Nothing in the database tells; what its workers noted on this host does.
    """
    server = stage.server
    backup = stage.folder / "backup"
    intend_all(stage)
    server.stop()
    shutil.copytree(server.data_directory, backup)
    server.start()
    perform_all(stage, ended)
    stage.app.close()
    server.stop()
    _put_back(backup, server.data_directory)
    server.start()
    stage.move(stage.url)
    expect_held_until_adopted(stage)


def _identity(kind: str) -> Identity:
    return Identity("acme", kind, f"{kind}-1")


def _states(stage: Stage) -> set[str]:
    return {stage.get(_identity(kind)).state for kind in ENDS}


def _adopt(stage: Stage) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "settled", "adopt", "--yes", "--actor", "ada"],
        env=stage.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=stage.folder,
    )
    assert told.returncode == 0, told.stderr


def _anchored(stage: Stage) -> bool:
    """Tell whether the end of the log is noted outside the database."""
    histories = [stage.app.operations.history(_identity(kind), by=AGENT) for kind in ENDS]
    last = max(history[-1].position or 0 for history in histories)
    folders = (Path(os.environ["SETTLED_STATE_DIR"]), stage.folder)
    notes = [note for folder in folders for note in folder.glob("*.anchor")]
    return any(json.loads(note.read_text())["position"] >= last for note in notes)


def _back_up(source: Path, target: Path) -> None:
    """Back an SQLite file up, as its own tools do."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as two:
        one.backup(two)


def _put_back(backup: Path, place: Path) -> None:
    """Replace a folder's content by a backup of it, with the owner that it had."""
    owner = place.stat()
    for inside in place.iterdir():
        shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
    shutil.copytree(backup, place, dirs_exist_ok=True, symlinks=True)
    for path in [place, *place.rglob("*")]:
        shutil.chown(path, owner.st_uid, owner.st_gid)


def _named(statement: LiteralString, name: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(name))


def _drop_database(server: PostgresServer, name: str) -> None:
    with psycopg.connect(server.url("template1"), autocommit=True) as admin:
        admin.execute(_named("DROP DATABASE {} WITH (FORCE)", name))
