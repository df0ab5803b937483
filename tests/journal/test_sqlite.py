"""What is particular to a file: where it lies, who holds it, what copies and restores do to it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from settled.domain.errors import (
    InvalidInput,
    InvalidStoreUrl,
    StoreError,
    StoreNotMigrated,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    StoreUnsafe,
)
from settled.domain.journal.port import Committer, Journal
from settled.domain.journal.unit import Busy, Committed
from settled.infrastructure.journal.migrate import migrate, script
from settled.infrastructure.journal.opening import open_journal, sqlite_path
from settled.infrastructure.journal.sqlite import database
from settled.infrastructure.journal.sqlite.committer import SqliteCommitter
from settled.infrastructure.journal.sqlite.journal import SqliteJournal
from settled.infrastructure.journal.sqlite.migrating import SqliteTarget
from settled.infrastructure.testing.journal_store import Processes, Store, sqlite_store
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_unit,
    after,
    commit,
    everything,
    stream_of,
)

IMPATIENT_SECONDS = 0.2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a migrated file."""
    path = tmp_path / "shop.db"
    with SqliteTarget(path) as target:
        migrate(target)
    return path


@pytest.fixture
def journal(path: Path) -> Generator[SqliteJournal]:
    """Give a journal that does not wait long for others."""
    with closing(SqliteJournal(path, patience_seconds=IMPATIENT_SECONDS)) as journal:
        yield journal


@pytest.fixture
def committer(journal: SqliteJournal) -> Generator[SqliteCommitter]:
    """Give a committer of that journal."""
    with closing(journal.committer()) as committer:
        yield committer


@pytest.fixture
def other(path: Path) -> Generator[sqlite3.Connection]:
    """Give a connection of somebody else to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


# --- where it lies --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///shop.db", "shop.db"),
        ("sqlite:///data/shop.db", "data/shop.db"),
        ("sqlite:////var/lib/shop.db", "/var/lib/shop.db"),
        ("sqlite:///a%20b%3F.db", "a b?.db"),
    ],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    """Three slashes for a file beside you, four for one anywhere: as other tools have it."""
    assert sqlite_path(url) == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://host/shop.db",
        "sqlite:///:memory:",
        "sqlite:///shop.db?mode=ro",
        "shop.db",
        "mysql://host/shop",
        "sqlite:shop.db",
        "",
    ],
)
def test_a_url_that_names_no_file_says_what_would(url: str) -> None:
    """Above all a journal in memory, which would survive nothing."""
    with pytest.raises(InvalidStoreUrl) as raised:
        open_journal(url, migrate=True)
    assert raised.value.hint


def test_what_is_not_a_migrated_journal_is_not_opened(tmp_path: Path) -> None:
    """Nor is anything made where something was only looked for."""
    empty, text, broken = tmp_path / "empty.db", tmp_path / "notes.txt", tmp_path / "broken.db"
    sqlite3.connect(empty).close()
    text.write_text("refunds to do: " * 500)
    cases: list[tuple[Path, type[StoreError]]] = [
        (tmp_path / "absent.db", StoreNotMigrated),
        (tmp_path / "no folder" / "shop.db", InvalidStoreUrl),
        (tmp_path, InvalidStoreUrl),
        (empty, StoreNotMigrated),
        (text, InvalidStoreUrl),
    ]
    for path, error in cases:
        with pytest.raises(error):
            SqliteJournal(path)
    assert not (tmp_path / "absent.db").exists()
    with SqliteTarget(broken) as target:
        migrate(target)
    with broken.open("r+b") as file:
        file.seek(100)
        file.write(bytes(4000))
    with pytest.raises(StoreUnavailable):
        SqliteJournal(broken)


def test_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its locks are promises; this one is told that the disk at hand is such a file system."""
    assert database.file_system(Path("/proc/version")) == "proc"
    kind = database.file_system(path)
    assert kind
    monkeypatch.setattr(database, "_NETWORK_FILE_SYSTEMS", frozenset({kind}))
    with pytest.raises(StoreUnsafe):
        SqliteJournal(path)


def test_migrating_twice_does_nothing_and_a_newer_store_is_refused(path: Path) -> None:
    """An old release must not write to tables that it does not know."""
    with SqliteTarget(path) as target:
        assert migrate(target) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO migration (number, name) VALUES (9999, 'later')")
    with pytest.raises(StoreTooNew):
        SqliteJournal(path)


def test_the_printed_script_makes_the_same_tables(path: Path, tmp_path: Path) -> None:
    """Who may not let a program change tables runs the text instead."""
    printed = tmp_path / "printed.db"
    with SqliteTarget(printed) as target:
        text = script(target)
    assert not printed.exists()
    schema = "SELECT name, sql FROM sqlite_master ORDER BY name"
    with (
        closing(sqlite3.connect(printed, isolation_level=None)) as made,
        closing(sqlite3.connect(path)) as migrated,
    ):
        made.executescript(text)
        assert made.execute(schema).fetchall() == migrated.execute(schema).fetchall()
    SqliteJournal(printed).close()


# --- who holds it ---------------------------------------------------------------------------------


def test_a_foreign_transaction_makes_units_busy_and_nothing_else_wait_for_ever(
    journal: Journal, committer: Committer, other: sqlite3.Connection
) -> None:
    """Busy says nothing about the unit, so the very same one is committed afterwards."""
    unit = a_unit()
    other.execute("BEGIN IMMEDIATE")
    (answer,) = committer.commit([unit])
    assert isinstance(answer, Busy)
    assert everything(journal) == []
    for blocked in (
        lambda: journal.pause("acme/refund/stripe", True),
        lambda: journal.enrol("worker", 60),
        lambda: committer.claim(epoch=1, kinds=["refund"], want=1, reader=1),
    ):
        with pytest.raises(StoreUnavailable):
            blocked()
    other.execute("ROLLBACK")
    assert isinstance(committer.commit([unit])[0], Committed)


def test_a_stopped_process_that_has_its_turn_makes_units_busy(
    committer: Committer, path: Path
) -> None:
    """The lock that gives fair turns has no timeout of its own, and must not hang anybody."""
    with path.with_name("shop.db.turn").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(2):
            began = time.monotonic()
            assert isinstance(committer.commit([a_unit()])[0], Busy)
            assert time.monotonic() - began < 5
        fcntl.flock(held, fcntl.LOCK_UN)
    commit(committer, a_unit())


def _count_commits(store: Store, journal: Journal, number: int) -> int:
    done, until = 0, time.monotonic() + 1.5
    with closing(journal.committer()) as committer:
        while time.monotonic() < until:
            commit(committer, a_unit())
            done += 1
    return done


def test_writers_take_turns(path: Path) -> None:
    """SQLite's own waiting lets one of eight writers do fifty times as much as another."""
    store = sqlite_store(path, partial(SqliteJournal, path))
    counts = Processes(store, _count_commits, 4).results()
    assert min(counts) * 5 > max(counts), counts


def test_a_full_disk_is_told_and_nothing_is_written(
    journal: SqliteJournal, other: sqlite3.Connection
) -> None:
    """The unit is as good as before: with room again, the same one is committed."""
    (pages,) = other.execute("PRAGMA page_count").fetchone()
    with closing(journal.committer()) as committer:
        # The limit belongs to a connection, so it is set on the one that will meet it.
        connection = committer.connection
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        unit = a_unit(a_change(state=bytes(500_000)))
        with pytest.raises(StoreReadOnly):
            committer.commit([unit])
        assert everything(journal) == []
        connection.execute("PRAGMA max_page_count = 1000000")
        assert isinstance(committer.commit([unit])[0], Committed)


def test_a_file_that_cannot_be_written_is_told(
    journal: Journal, committer: SqliteCommitter, other: sqlite3.Connection
) -> None:
    """Whatever the reason is, the person who runs it hears that it is about writing."""
    committer.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreReadOnly):
        committer.commit([a_unit()])
    assert everything(journal) == []


def test_a_closed_journal_says_so(path: Path) -> None:
    """Closing closes committers and places too; what comes later is an error of the tree."""
    journal = SqliteJournal(path)
    committer, membership = journal.committer(), journal.enrol("worker", 60)
    journal.close()
    for late in (
        lambda: journal.read(0, 1),
        lambda: committer.commit([a_unit()]),
        membership.renew,
        membership.sweep,
    ):
        with pytest.raises(StoreUnavailable):
            late()


def test_commits_wait_for_the_disk(committer: SqliteCommitter, other: sqlite3.Connection) -> None:
    """FULL, not NORMAL: with the latter, the last commits are lost when the power fails."""
    assert committer.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_readers_leave_no_transaction_open(
    journal: Journal, committer: Committer, other: sqlite3.Connection
) -> None:
    """One open reader keeps the log from being reused, and it grows without bound."""
    commit(committer, a_unit())
    everything(journal)
    journal.heads()
    busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0


# --- joining --------------------------------------------------------------------------------------


def test_only_a_transaction_on_the_same_file_can_be_joined(
    journal: Journal, tmp_path: Path
) -> None:
    """Two files cannot commit together, whatever their names are."""
    for name in (tmp_path / "orders.db", ":memory:"):
        with closing(sqlite3.connect(name, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(InvalidInput, match=r"not to .*shop\.db"):
                journal.join(connection, a_unit())


def test_a_transaction_that_could_lose_the_intent_is_refused(
    journal: Journal, other: sqlite3.Connection
) -> None:
    """The caller's connection decides whether its commit waits for the disk."""
    other.execute("PRAGMA synchronous = NORMAL")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnsafe):
        journal.join(other, a_unit())


def test_a_transaction_that_read_an_older_state_is_refused(
    journal: Journal, committer: Committer, other: sqlite3.Connection
) -> None:
    """It could never write, so retrying inside it would go on for ever."""
    other.execute("PRAGMA synchronous = FULL")
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM events").fetchone()
    commit(committer, a_unit())
    with pytest.raises(InvalidInput, match="older state"):
        journal.join(other, a_unit())


def test_a_join_works_whatever_the_connection_makes_of_rows_and_texts(
    journal: Journal, path: Path
) -> None:
    """The service set up its connection for its own needs; its own rows commit with the unit."""
    first, second = a_unit(), a_unit()
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE orders (id INTEGER)")
        with connection:
            connection.execute("INSERT INTO orders VALUES (72)")
            assert isinstance(journal.join(connection, first), Committed)
            again = journal.join(connection, first)
            assert isinstance(again, Committed)
            assert again.found
            assert isinstance(journal.join(connection, second), Committed)
        assert connection.execute("SELECT count(*) FROM orders").fetchone()[0] == 1
    assert [event.stream for event in everything(journal)] == [stream_of(first), stream_of(second)]


# --- time, positions and places -------------------------------------------------------------------


def test_time_is_never_before_the_last_recorded_event(
    journal: Journal, committer: Committer
) -> None:
    """A clock that was set back must not let later events seem to be the earlier ones."""
    ahead = journal.time().replace(year=2990)
    commit(committer, a_unit(a_change(recorded_at=ahead)))
    assert journal.time() == ahead


def test_a_position_is_not_given_again_after_a_purge(
    journal: Journal, committer: Committer, other: sqlite3.Connection
) -> None:
    """A reader that stands at the purged end would never see an event that took its place."""
    first = a_unit(a_change(events=3))
    (answer,) = commit(committer, first)
    other.execute("DELETE FROM events WHERE version > 1")
    (later,) = commit(committer, a_unit())
    assert later.positions[0][0] == answer.positions[0][-1] + 1


@pytest.mark.parametrize(
    "restart",
    ["UPDATE worker SET boot = 'another run'", "UPDATE worker SET lease_until = 1e12"],
    ids=["another boot id", "a host without boot ids"],
)
def test_a_restart_of_the_host_ends_every_lease(
    journal: Journal, committer: Committer, other: sqlite3.Connection, restart: str
) -> None:
    """Leases are counted in seconds since the start, so one from before it means nothing."""
    unit = a_unit()
    commit(committer, unit)
    before = journal.enrol("before", 60)
    rows = committer.claim(epoch=before.epoch, kinds=["refund"], want=1, reader=1)
    assert len(rows) == 1
    other.execute(restart)
    assert [worker.lapsed for worker in journal.workers()] == [True]
    assert not before.renew()
    now = journal.enrol("now", 60)
    (row,) = committer.claim(epoch=now.epoch, kinds=["refund"], want=1, reader=1)
    assert (row.stream, row.owner) == (stream_of(unit), now.epoch)


def test_a_removed_liveness_file_proves_nothing(journal: Journal, path: Path) -> None:
    """Somebody who tidies up must not make two workers of one: then only leases count."""
    one, two = journal.enrol("one", 60), journal.enrol("two", 60)
    shutil.rmtree(path.with_name("shop.db.workers"))
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert list(two.sweep()) == []
    assert one.renew()


def test_leaving_leaves_no_file(journal: Journal, path: Path) -> None:
    """A host that starts workers every minute would otherwise collect them for ever."""
    membership = journal.enrol("worker", 60)
    assert os.listdir(path.with_name("shop.db.workers")) == [str(membership.epoch)]
    membership.leave()
    membership.leave()
    assert os.listdir(path.with_name("shop.db.workers")) == []


# --- copies and restores --------------------------------------------------------------------------


def test_a_copy_is_noticed_until_it_is_adopted(
    journal: Journal, committer: Committer, path: Path, tmp_path: Path
) -> None:
    """Both would dispatch what is ready, so the copy says that it is one, and the original not."""
    commit(committer, a_unit())
    journal.anchor()
    copied = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copied)) as goal:
        source.backup(goal)
    shutil.copy(path.with_name("shop.db.anchor"), copied.with_name("copy.db.anchor"))
    with closing(SqliteJournal(copied)) as copy:
        assert "bound to" in (copy.installation().changed or "")
        assert copy.installation().id == journal.installation().id
        assert [f.subject for f in copy.examine() if f.severity == "fail"] == ["installation"]
        copy.adopt()
        assert copy.installation().changed is None
    assert journal.installation().changed is None


def test_a_renamed_file_is_the_same_one(path: Path) -> None:
    """A number in the file system, and not the path, says which file it is."""
    SqliteJournal(path).close()
    moved = path.rename(path.with_name("moved.db"))
    with closing(SqliteJournal(moved)) as journal:
        assert journal.installation().changed is None


def test_a_backup_put_in_its_place_is_noticed_until_it_is_adopted(
    path: Path, tmp_path: Path
) -> None:
    """The file stays the same one, and only the anchor knows that the log had been longer."""
    unit = a_unit()
    with closing(SqliteJournal(path)) as journal, closing(journal.committer()) as committer:
        commit(committer, unit)
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    with closing(SqliteJournal(path)) as journal, closing(journal.committer()) as committer:
        commit(committer, after(unit, 2))
        journal.anchor()
    with path.open("r+b") as file:
        file.truncate()
        file.write(backup.read_bytes())
    with closing(SqliteJournal(path)) as journal, closing(journal.committer()) as committer:
        changed = journal.installation().changed
        assert changed == "The log ends at position 1; it had come to 3."
        assert len(journal.events(TENANT, stream_of(unit))) == 1
        journal.anchor()
        assert journal.installation().changed == changed
        journal.adopt()
        assert journal.installation().changed is None
