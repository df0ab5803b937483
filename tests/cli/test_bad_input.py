"""Whatever is typed wrongly: a clear error, the right exit code, and nothing written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from settled.infrastructure.journal.migrate import migrations
from settled.infrastructure.testing.postgres_server import PostgresServer
from tests.cli.runner import CommandLine, Done

REFUND = '{"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}'
INTEND = ("ops", "intend", "refund")
TEN_MEGABYTES = b'{"order": "' + b"a" * 10_000_000 + b'"}'


def refused(done: Done, code: int, name: str, *words: str) -> None:
    """Assert that a command failed as it has to, for people and without a traceback."""
    assert (done.code, done.out) == (code, ""), done.err
    assert "Traceback" not in done.err
    assert done.err.startswith(f"settled.{name}: "), done.err
    assert "docs/errors.md#settled-" in done.err
    for word in words:
        assert word in done.err, done.err


@pytest.mark.parametrize(
    ("params", "name", "word"),
    [
        ('{"order": "order-72"}', "InvalidParams", "amount is missing"),
        (REFUND.replace("}}", '}, "note": "x"}'), "InvalidParams", "note is not a field"),
        (REFUND.replace('"30.00"', "30.0"), "InvalidParams", 'such as "30.00"'),
        (REFUND.replace('"30.00"', "NaN"), "InvalidParams", "amount"),
        (REFUND.replace('"30.00"', '"30.001"'), "InvalidParams", "amount"),
        (REFUND.replace('"USD"', '"XXQ"'), "InvalidParams", "currency"),
        (REFUND.replace('"order-72"', '"order-72", "order": "order-73"'), "InvalidParams", "twice"),
        (REFUND.replace("order-72", "order\\u0000"), "InvalidParams", "order"),
        ("[]", "InvalidParams", "not a JSON object"),
        ("{", "InvalidParams", "not JSON"),
    ],
)
def test_params_that_do_not_validate(
    settled_: CommandLine, params: str, name: str, word: str
) -> None:
    """The one way in refuses what has more than one reading, whoever calls."""
    refused(settled_(*INTEND, "r-1", params), 2, name, word)
    assert settled_.stored() == (0, 0)


def test_params_that_are_no_text(settled_: CommandLine) -> None:
    """Bytes that are not UTF-8, and far too many of them, come from broken pipes and programs."""
    refused(settled_(*INTEND, "r-1", "-", given=b'{"order": "\xff"}'), 2, "InvalidParams", "UTF-8")
    refused(settled_(*INTEND, "r-1", "-", given=TEN_MEGABYTES), 2, "TooLarge", "64 KiB")
    missing = settled_(*INTEND, "r-1", "@no-such-file")
    assert missing.code == 2 and "no-such-file" in missing.err
    assert settled_.stored() == (0, 0)


@pytest.mark.parametrize(
    ("operation_id", "word"),
    [
        ("refund\x07-9", "U+0007"),
        ("refund\n9", "U+000A"),
        ("r" * 10_000, "10000 characters"),
        ("", "empty"),
        (" r-1", "blanks"),
        ("re\u0301fund", "NFC"),
    ],
)
def test_ids_that_cannot_be_used(settled_: CommandLine, operation_id: str, word: str) -> None:
    """An id that two people would read as another one makes two operations of one."""
    refused(settled_(*INTEND, operation_id, REFUND), 2, "InvalidIdentity", word)
    refused(settled_("ops", "show", operation_id), 2, "InvalidIdentity", word)
    assert settled_.stored() == (0, 0)


def test_what_is_not_there(settled_: CommandLine) -> None:
    """The three ways to miss an operation are told apart."""
    assert settled_(*INTEND, "refund-request-9", REFUND).code == 0
    before = settled_.stored()
    show = ("ops", "show", "refund-request-9")
    refused(settled_(*show, "--tenant", "nobody"), 1, "NotFound", "no tenant nobody")
    refused(settled_(*show, "--kind", "email"), 1, "NotFound", "no operations of kind email")
    refused(settled_("ops", "history", "r-1"), 1, "NotFound", "no operation r-1")
    cancel = ("ops", "cancel", "r-1", "--reason", "x")
    refused(settled_(*cancel), 1, "NotFound", "no operation r-1")
    refused(settled_("ops", "intend", "gift", "r-1", REFUND), 2, "UnknownKind", "known: email")
    refused(settled_("ops", "list", "--tenant", "Acme!"), 2, "InvalidIdentity", "Acme!")
    other = REFUND.replace("30.00", "35.00")
    changed = settled_(*INTEND, "refund-request-9", other)
    refused(changed, 2, "ParametersChanged", "stored 30.00 USD, given 35.00 USD")
    assert settled_.stored() == before


def test_commands_that_are_used_wrongly(settled_: CommandLine) -> None:
    """A script that asked for JSON gets JSON, also for its own mistakes."""
    assert settled_("ops", "settle", "r-1", "--outcome", "maybe").code == 2
    for wrong in (["ops", "lost"], ["ops", "list", "--limit", "0"], ["worker", "--nme", "x"]):
        done = settled_(*wrong, "--json")
        assert done.code == 2
        assert done.error["name"] == "UsageError" and done.error["message"]
    missing = settled_("ops", "list", "--json", SETTLED_URL="")
    assert "--url" in missing.error["message"]


@pytest.mark.parametrize(
    ("url", "code", "name"),
    [
        ("mysql://localhost/shop", 2, "InvalidStoreUrl"),
        ("shop.db", 2, "InvalidStoreUrl"),
        ("sqlite://", 2, "InvalidStoreUrl"),
        ("sqlite:///:memory:", 2, "InvalidStoreUrl"),
        ("postgresql://localhost/shop?no_such_option=1", 2, "InvalidStoreUrl"),
        ("postgresql://127.0.0.1:1/shop", 3, "StoreUnavailable"),
        ("sqlite:///missing.db", 3, "StoreNotMigrated"),
    ],
)
def test_stores_that_are_not_there(tmp_path: Path, url: str, code: int, name: str) -> None:
    """A mistyped URL neither hangs nor makes a database."""
    settled_ = CommandLine(url, tmp_path)
    for command in (["ops", "list"], [*INTEND, "r-1", REFUND], ["worker"], ["doctor"]):
        refused(settled_(*command), code, name)
    assert not list(tmp_path.glob("*.db"))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """A wrong path must not be taken for an empty store, nor be written over."""
    file = tmp_path / "notes.db"
    file.write_text("these are my notes\n" * 100, encoding="utf-8")
    settled_ = CommandLine(f"sqlite:///{file}", tmp_path)
    for command in (["ops", "list"], ["migrate"], [*INTEND, "r-1", REFUND]):
        refused(settled_(*command), 2, "InvalidStoreUrl", "not a database")
    assert file.read_text(encoding="utf-8").startswith("these are my notes")


def test_a_store_without_tables(bare: CommandLine) -> None:
    """The error says which command makes the tables, and that command does."""
    for command in (["ops", "list"], [*INTEND, "r-1", REFUND], ["worker"], ["doctor"]):
        refused(bare(*command), 3, "StoreNotMigrated", "settled migrate")
    printed = bare("migrate", "--print")
    assert "CREATE TABLE" in printed.out
    refused(bare("ops", "list"), 3, "StoreNotMigrated")
    done = bare("migrate", "--json").document
    assert done["applied"] == [step.name for step in migrations(done["dialect"])]
    assert bare("migrate", "--json").document["applied"] == []
    assert bare("ops", "list").code == 0


def test_a_store_of_a_newer_version(settled_: CommandLine) -> None:
    """Old code that writes into new tables loses what it does not know."""
    assert settled_(*INTEND, "r-1", REFUND).code == 0
    before = settled_.stored()
    insert = "INSERT INTO {} (number, name) VALUES (9999, '9999_future')"
    if settled_.url.startswith("sqlite"):
        with sqlite3.connect(settled_.folder / "settled.db") as file:
            file.execute(insert.format("migration"))
    else:
        with psycopg.connect(settled_.url) as connection:
            connection.execute(insert.format("settled.migration").encode())
    commands = (["ops", "list"], [*INTEND, "r-2", REFUND], ["worker"], ["migrate"], ["doctor"])
    for command in commands:
        refused(settled_(*command), 3, "StoreTooNew", "9999")
    drop = "DELETE FROM {} WHERE number = 9999"
    if settled_.url.startswith("sqlite"):
        with sqlite3.connect(settled_.folder / "settled.db") as file:
            file.execute(drop.format("migration"))
    else:
        with psycopg.connect(settled_.url) as connection:
            connection.execute(drop.format("settled.migration").encode())
    assert settled_.stored() == before


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "no file"),
        ("import nothing_of_this_name\n", "nothing_of_this_name"),
        ("def broken(:\n", "SyntaxError"),
        ("KINDS = []\n", "declares no kind"),
        ("from settled import Kind\nKind('Refund!', None, None, 'x')\n", "Refund!"),
    ],
)
def test_modules_of_kinds(tmp_path: Path, text: str | None, word: str) -> None:
    """What is wrong with the user's own module is said of that module."""
    file = tmp_path / "kinds.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    settled_ = CommandLine(f"sqlite:///{tmp_path / 'shop.db'}", tmp_path)
    assert settled_("migrate").code == 0
    done = settled_("worker", "--kinds", str(file))
    assert done.code in (2, 4) and word in done.err and "Traceback" not in done.err
    named = settled_("worker", "--kinds", "settled.domain.kind:nothing")
    refused(named, 4, "InvalidKind", "has no nothing")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A mistyped path makes no folders either."""
    settled_ = CommandLine(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'shop.db'}", tmp_path)
    refused(settled_("migrate"), 2, "InvalidStoreUrl", "does not exist")
    assert not (tmp_path / "no").exists()


def test_an_unsafe_server_is_refused(tmp_path: Path) -> None:
    """Where a commit can be lost, an intent can be lost after its provider was called."""
    with PostgresServer(fsync=False) as server:
        settled_ = CommandLine(server.url(), tmp_path)
        assert settled_("migrate").code == 0
        refused(settled_(*INTEND, "r-1", REFUND), 3, "StoreUnsafe", "fsync")
        refused(settled_("worker"), 3, "StoreUnsafe", "fsync")
        assert settled_("ops", "list").code == 0, "looking does no harm"
        report = settled_("doctor")
        assert report.code == 1 and "fail  fsync" in report.out
        assert settled_(*INTEND, "r-1", REFUND, "--accept-unsafe-store").code == 0
        with settled_.worker("--accept-unsafe-store"):
            view = settled_.until("r-1", lambda row: row.state == "succeeded")
    assert view["reference"] == "acme/refund/r-1"
