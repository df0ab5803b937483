"""`settled audit`, `contract`, `schema`, `export` and `import`, as whoever runs them sees them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.infrastructure.journal.postgres.address import Address
from tests.cli.runner import CommandLine

PARAMS = '{"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}'
MEMORY = Path("/dev/shm")


def change_actor(url: str) -> None:
    """Write the store's table behind its back."""
    sql = "UPDATE {} SET actor = 'mallory' WHERE version = 1"
    if is_sqlite(url):
        with closing(sqlite3.connect(sqlite_path(url))) as file, file:
            file.execute(sql.format("events"))
        return
    address = Address.of(url)
    with closing(address.connect({})) as server:
        server.execute(sql.format(f'"{address.schema}".events').encode())


def intend(settled_: CommandLine) -> None:
    done = settled_("ops", "intend", "refund", "refund-request-9", PARAMS)
    assert done.code == 0, done.err


def test_audit(settled_: CommandLine) -> None:
    """Key, anchor, verify; then a row is changed, and the verdict names it and exits with 1."""
    intend(settled_)
    made = settled_("audit", "key", "--to", "auditor.key", "--json")
    assert made.code == 0 and len(made.document["key"]) == 16
    held = ("--key", "auditor.key", "--json")
    done = settled_("audit", "anchor", "--to", "anchors", *held)
    assert done.document == {"number": 1, "position": 1, "events": 1, "heads": 1}
    sound = settled_("audit", "verify", "--against", "anchors", *held)
    assert (sound.code, sound.document["sound"]) == (0, True)
    assert "Nothing is wrong." in settled_("audit", "verify").out
    change_actor(settled_.url)
    found = settled_("audit", "verify", "--json")
    (breach,) = found.document["breaches"]
    assert (found.code, breach["wrong"], breach["version"]) == (1, "edited", 1)
    assert breach["stream"] in settled_("audit", "verify").out
    assert settled_("audit", "verify", "--against", "anchors").code == 2, "without its key"


def test_export_and_import(settled_: CommandLine, tmp_path: Path) -> None:
    """A copy shows what the original shows, and a worker on it says why it does not work."""
    intend(settled_)
    assert settled_("export", "--to", "all.jsonl").code == 2, "neither a stream nor all"
    assert settled_("export", "--all", "--to", "all.jsonl", "--json").document["events"] == 1
    copy = CommandLine(f"sqlite:///{tmp_path / 'copy.db'}", tmp_path)
    assert copy("migrate").code == 0
    done = copy("import", "--from", "all.jsonl")
    assert done.code == 0 and "nothing is dispatched" in done.out
    ours = settled_("ops", "show", "refund-request-9", "--json").document
    assert copy("ops", "show", "refund-request-9", "--json").document == ours
    worker = copy("worker", "--json")
    assert worker.code == 3 and "copy" in worker.err and "adopt" not in worker.err
    adopted = copy("adopt", "--yes", "--json")
    assert adopted.code == 3 and adopted.error["code"] == "SETTLED-305"
    assert copy("ops", "history", "refund-request-9", "--json").document["events"][1:] == []
    one = settled_("export", "--stream", "acme/refund/none", "--to", "none.jsonl")
    assert one.code == 1


def test_schema(settled_: CommandLine) -> None:
    """Every event is described under its topic and its schema version."""
    done = settled_("schema")
    events = done.document["events"]
    intended = events["settled.operation.Intended"]["1"]
    assert "params" in intended["body"]["properties"]
    assert "params" not in intended["envelope"]["properties"]


def test_contract(settled_: CommandLine) -> None:
    """Complete for the shop; then an open operation is of a kind that is declared no more."""
    intend(settled_)
    page = settled_("contract")
    assert page.code == 0 and "payments-oncall" in page.out and "No answer is missing." in page.out
    assert "## refund" in settled_("contract", "--format", "md").out
    document = settled_("contract", "--format", "json").document
    assert document["complete"] and len(document["kinds"][0]["answers"]) == 6
    kinds = f"{settled_.environment['SETTLED_KINDS']}"
    (settled_.folder / "mail_only.py").write_text(
        Path(kinds).read_text(encoding="utf-8").replace('"refund",', '"reimbursement",', 1),
        encoding="utf-8",
    )
    without = settled_("contract", "--check", "--json", "--kinds", "mail_only.py")
    assert (without.code, list(without.document["missing"])) == (1, ["refund"])


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[CommandLine]:
    """Commands on a store on a file system that is gone when the host restarts."""
    place = MEMORY / f"settled-test-{os.getpid()}.db"
    try:
        yield CommandLine(f"sqlite:///{place}", tmp_path)
    finally:
        for left in MEMORY.glob(f"{place.name}*"):
            with suppress(FileNotFoundError):
                left.unlink()


def test_a_store_in_memory(in_memory: CommandLine) -> None:
    """It works until the host restarts, which is what it should have been for."""
    assert in_memory("migrate").code == 0
    done = in_memory("contract", "--check")
    assert done.code == 1 and "tmpfs" in done.out


def test_tables_that_a_crash_empties(settled_: CommandLine) -> None:
    """UNLOGGED saves a little time, and costs every intent."""
    if is_sqlite(settled_.url):
        assert settled_("contract", "--check").code == 0
        return
    address = Address.of(settled_.url)
    with closing(address.connect({})) as server:
        _set(server, address.schema, "UNLOGGED")
        done = settled_("contract", "--check", "--json")
        assert done.code == 1 and "UNLOGGED" in str(done.document["missing"]["refund"])
        _set(server, address.schema, "LOGGED")
    assert settled_("contract", "--check").code == 0


def _set(server: psycopg.Connection[tuple[object, ...]], schema: str, how: str) -> None:
    server.execute(f'ALTER TABLE "{schema}".events SET {how}'.encode())
