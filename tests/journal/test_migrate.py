"""Migrating: once, whole, by however many processes at once, on both databases.

Goal: no deployment has to arrange for "exactly one of us migrates".
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from settled.domain.errors import (
    InvalidStoreUrl,
    StoreNotMigrated,
    StoreTooNew,
    StoreUnavailable,
)
from settled.infrastructure.journal import migrate as migrating
from settled.infrastructure.journal.migrate import (
    Migration,
    Target,
    check,
    migrate,
    migrations,
    pending,
    script,
)
from settled.infrastructure.journal.opening import open_journal, open_target
from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.testing.journal_units import a_unit, commit, everything


@pytest.fixture
def target(store_url: str) -> Generator[Target]:
    """A fresh database without tables."""
    with open_target(store_url) as target:
        yield target


def test_a_store_is_brought_up_once(target: Target) -> None:
    """What was run is recorded, and not run again."""
    known = list(migrations(target.dialect))
    assert [step.number for step in known] == list(range(1, len(known) + 1))
    assert pending(target) == known
    with pytest.raises(StoreNotMigrated, match=known[0].name):
        check(target)
    assert migrate(target) == known
    assert migrate(target) == pending(target) == []
    check(target)


def test_eighty_migrations_at_once_all_succeed(store_url: str) -> None:
    """Each process of a deployment migrates as it starts; 56 of 80 failed without a lock."""

    def run(_: int) -> int:
        with open_target(store_url) as target:
            return len(migrate(target))

    with ThreadPoolExecutor(80) as pool:
        ran = list(pool.map(run, range(80)))
    with open_target(store_url) as target:
        assert sorted(ran) == [0] * 79 + [len(migrations(target.dialect))]
        check(target)


def test_a_step_that_fails_leaves_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a migration would be neither the old schema nor the new one."""
    (first, *_) = migrations(target.dialect)
    broken = replace(
        first, number=2, name="0002_broken", sql="CREATE TABLE half (a int);\nNONSENSE;\n"
    )

    def known(dialect: str) -> tuple[Migration, ...]:
        return first, broken

    with monkeypatch.context() as patch:
        patch.setattr(migrating, "migrations", known)
        with pytest.raises(Exception, match="(?i)nonsense"):
            migrate(target)
    assert not target.has_table("events")
    assert not target.has_table("half")
    assert migrate(target) == list(migrations(target.dialect))


def test_a_store_ahead_of_the_code_is_refused(target: Target, store_url: str) -> None:
    """Old code would write rows that new code misreads."""
    migrate(target)
    with target.exclusively():
        target.run("INSERT INTO migration (number, name) VALUES (9999, '9999_later')")
    for attempt in (pending, check, migrate, script):
        with pytest.raises(StoreTooNew, match="9999"):
            attempt(target)
    with pytest.raises(StoreTooNew):
        open_journal(store_url)


def test_a_store_without_tables_is_not_opened(postgres_url: str) -> None:
    """The message has to say what to run, not which relation is missing."""
    with pytest.raises(StoreNotMigrated, match="settled migrate"):
        open_journal(postgres_url)


def test_the_printed_script_does_the_same(postgres_url: str) -> None:
    """Where only an administrator may change tables, it is read, run by hand, and found done."""
    with open_target(postgres_url) as target:
        text = script(target)
        assert pending(target), "printing runs nothing"
        with psycopg.connect(postgres_url, autocommit=True) as administrator:
            administrator.execute(text.encode())
        assert pending(target) == []
        assert "CREATE TABLE events" not in script(target)
    with closing(open_journal(postgres_url, require_fsync=False)) as journal:
        commit(journal.committer(), a_unit())
        assert len(everything(journal)) == 1


def test_a_role_that_may_make_no_schema_can_migrate_one(postgres_url: str) -> None:
    """An administrator makes the schema, the service its tables."""
    role = str(conninfo_to_dict(postgres_url)["dbname"])
    with psycopg.connect(postgres_url, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            url = postgres_url.replace("postgres@", f"{role}@")
            with open_target(url) as target, pytest.raises(StoreUnavailable, match="permission"):
                migrate(target)
            administrator.execute(f"CREATE SCHEMA settled AUTHORIZATION {role}".encode())
            with closing(open_journal(url, migrate=True, require_fsync=False)) as journal:
                commit(journal.committer(), a_unit())
                assert journal.installation().changed is None
                assert {diagnosis.severity for diagnosis in journal.examine()} <= {"warn", "fail"}
        finally:
            administrator.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://host/shop", "postgresql://"),
        ("shop", "postgresql://"),
        ("postgresql://host/shop?schema=Shop", "'Shop' cannot be"),
        ("postgresql://host/shop?schema=a%22b", "cannot be"),
        ("postgresql://host/shop?nonsense=1", "nonsense"),
    ],
)
def test_a_url_that_names_nothing_is_told(url: str, message: str) -> None:
    with pytest.raises(InvalidStoreUrl, match=message):
        Address.of(url)


def test_a_url_keeps_what_libpq_is_told() -> None:
    """Only `schema` is ours; a plus sign in a password stays one."""
    address = Address.of(
        "postgresql://u:a+b@h:1/shop?connect_timeout=3&schema=mine&options=-cjit%3Don"
    )
    known = conninfo_to_dict(address.conninfo)
    assert address.schema == "mine"
    assert (known["password"], known["host"], known["dbname"]) == ("a+b", "h", "shop")
    assert known["connect_timeout"] == "3"
    assert address.options({}).startswith("-cjit=on -c search_path")
    assert Address.of("postgresql:///shop").schema == "settled"


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        open_journal(f"postgresql://u@/shop?host={tmp_path}")
