"""Copies, restores and unsafe servers: the cases in which a log that looks whole is not.

Goal: a database that does not know of effects that came about never dispatches by itself.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from settled.domain.errors import StoreUnavailable, StoreUnsafe
from settled.domain.journal.port import Journal
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_unit,
    commit,
    eventually,
    everything,
)
from settled.infrastructure.testing.postgres_server import PostgresServer


@pytest.fixture
def copy_url(migrated_url: str) -> Generator[str]:
    """The URL of a copy, made while the original had one event."""
    with closing(PostgresJournal(migrated_url, require_fsync=False)) as journal:
        commit(journal.committer(), a_unit())
    name = str(conninfo_to_dict(migrated_url)["dbname"])
    copy = sql.Identifier(f"{name}_copy")
    admin_url = migrated_url.replace(name, "postgres")
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(copy, sql.Identifier(name)))
        try:
            yield migrated_url.replace(name, f"{name}_copy")
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copy))


def subjects(journal: Journal) -> dict[str, str]:
    return {diagnosis.subject: diagnosis.severity for diagnosis in journal.examine()}


def test_a_copy_is_noticed_until_it_is_adopted(migrated_url: str, copy_url: str) -> None:
    """A staging system made of production's data would send everything a second time."""
    with (
        closing(PostgresJournal(migrated_url, require_fsync=False)) as original,
        closing(PostgresJournal(copy_url, require_fsync=False)) as copy,
    ):
        assert original.installation().changed is None
        found = copy.installation()
        assert found.changed == "it is another database of the cluster"
        assert (found.id, found.secret) == (original.installation().id, found.secret)
        assert subjects(copy)["installation"] == "fail"
        commit(original.committer(), *(a_unit() for _ in range(5)))
        original.anchor()
        copy.adopt()
        assert copy.installation().changed is None
        assert "installation" not in subjects(copy)
        copy.anchor()
        assert original.installation().changed is None


def test_a_restore_to_an_earlier_point_is_noticed(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """Every part of the server is as it was; only this host remembers how far the log had come."""
    commit(postgres.committer(), *(a_unit() for _ in range(5)))
    postgres.anchor()
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        admin.execute("DELETE FROM settled.events WHERE position > 3")
    assert postgres.installation().changed == "its log ends at 3, and had come to 5"
    postgres.anchor()
    assert postgres.installation().changed is not None
    postgres.adopt()
    assert postgres.installation().changed is None


def test_tables_made_anew_are_noticed(migrated_url: str, postgres: PostgresJournal) -> None:
    """As a dump does that is restored into the same database."""
    commit(postgres.committer(), a_unit())
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        admin.execute("CREATE TABLE settled.fresh (LIKE settled.events INCLUDING ALL)")
        admin.execute("DROP TABLE settled.events")
        admin.execute("ALTER TABLE settled.fresh RENAME TO events")
    assert "its tables were made anew" in (postgres.installation().changed or "")


def test_a_promoted_standby_is_noticed() -> None:
    """A failover may have lost the last commits, and nobody can tell from the data."""
    with PostgresServer() as server:
        with closing(open_journal(server.url(), migrate=True, require_fsync=False)) as journal:
            commit(journal.committer(), a_unit())
        server.stop("fast")
        signal_file = server.data_directory / "recovery.signal"
        signal_file.touch()
        status = server.data_directory.stat()
        os.chown(signal_file, status.st_uid, status.st_gid)
        with (server.data_directory / "postgresql.auto.conf").open("a") as conf:
            conf.write("restore_command = 'false'\n")
        server.start()
        with closing(PostgresJournal(server.url(), require_fsync=False)) as journal:
            changed = journal.installation().changed
            assert changed == "the server was restored or a standby was promoted"


def test_a_folder_that_cannot_be_written_is_a_finding(
    postgres: PostgresJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs the notice of a restore, and must not cost the service."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "file"))
    commit(postgres.committer(), a_unit())
    postgres.anchor()
    assert postgres.installation().changed is None
    assert subjects(postgres)["anchor"] == "warn"
    postgres.adopt()


def test_a_damaged_anchor_is_a_finding(postgres: PostgresJournal, state_directory: Path) -> None:
    """Half a file is no reason to stop, nor to be taken for a position."""
    commit(postgres.committer(), a_unit())
    postgres.anchor()
    (path,) = state_directory.glob("*.anchor")
    path.write_text("{")
    assert postgres.installation().changed is None
    assert subjects(postgres)["anchor"] == "warn"
    postgres.adopt()
    assert "anchor" not in subjects(postgres)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_server_that_loses_commits_is_refused(setting: str) -> None:
    """An intent that is lost after its effect came about is sent again."""
    with PostgresServer(settings={setting: "off"}, fsync=True) as server:
        with pytest.raises(StoreUnsafe, match=f"{setting} is off"):
            open_journal(server.url(), migrate=True)
        if setting != "fsync":
            with pytest.raises(StoreUnsafe, match=setting):
                PostgresJournal(server.url(), require_fsync=False)
            return
        with closing(PostgresJournal(server.url(), require_fsync=False)) as journal:
            assert subjects(journal)["fsync"] == "fail"


def test_the_doctor_names_who_holds_the_log(migrated_url: str, postgres: PostgresJournal) -> None:
    """An idle caller stops every reader, and from the outside nothing seems wrong."""
    with psycopg.connect(migrated_url, application_name="shop") as caller:
        postgres.join(caller, a_unit())
        messages = {diagnosis.subject: diagnosis.message for diagnosis in postgres.examine()}
        assert "(shop)" in messages["holder"]
        assert str(caller.info.backend_pid) in messages["holder"]
        caller.rollback()
        assert "holder" not in subjects(postgres)


def test_an_asynchronous_standby_is_named() -> None:
    """A failover to it loses the last commits, and with them what was sent."""
    with PostgresServer() as server:
        with closing(open_journal(server.url(), migrate=True, require_fsync=False)) as journal:
            assert "standby" not in subjects(journal)
            with psycopg.connect(
                f"{server.url()}&replication=true&application_name=copy-in-rome", autocommit=True
            ) as standby:
                with standby.cursor() as cursor:
                    cursor.execute("IDENTIFY_SYSTEM")
                    row = cursor.fetchone()
                assert row is not None
                standby.pgconn.send_query(f"START_REPLICATION PHYSICAL {row[2]}".encode())
                standby.pgconn.flush()

                def named() -> str:
                    messages = {told.subject: told.message for told in journal.examine()}
                    return messages.get("standby", "")

                assert "copy-in-rome" in eventually(named)
                standby.pgconn.finish()


def test_adopting_with_an_anchor_that_stays_is_refused(
    migrated_url: str, postgres: PostgresJournal, state_directory: Path
) -> None:
    """It would say that the database is bound, and then stop dispatching all the same."""
    commit(postgres.committer(), *(a_unit() for _ in range(3)))
    postgres.anchor()
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        admin.execute("DELETE FROM settled.events WHERE position > 1")
    (path,) = state_directory.glob("*.anchor")
    path.with_suffix(".new").mkdir()
    with pytest.raises(StoreUnavailable, match="could not be bound anew"):
        postgres.adopt()
    assert len(everything(postgres)) == 1
    assert postgres.head(TENANT, everything(postgres)[0].stream) is not None
