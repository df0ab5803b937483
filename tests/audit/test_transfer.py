"""A history that is exported and imported is the same history, on the same database or the other.

And a copy stays a copy: it is looked at, audited and read, and nothing is ever dispatched from it.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import settled
from settled.domain.errors import InstallationChanged, InvalidInput, NotFound, NotPossible
from settled.domain.journal.port import AgendaRow, Journal
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.audit.auditor import verify
from settled.infrastructure.journal.opening import is_sqlite, open_journal
from settled.infrastructure.seeding import SeededRefund
from settled.infrastructure.transfer.exporting import export
from settled.infrastructure.transfer.importing import Imported, import_copy
from settled.infrastructure.transfer.schema import event_schemas
from tests.audit.conftest import Audited, place


@pytest.fixture(params=["sqlite", "postgres"])
def copy_url(request: pytest.FixtureRequest, audited: Audited, tmp_path: Path) -> str:
    """The URL of an empty store, on either database, that is not the one that is exported."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'copy.db'}"
    elif is_sqlite(audited.url):
        url = str(request.getfixturevalue("settled_postgres_url"))
    else:
        url = f"{audited.url}&schema=copy"
    open_journal(url, migrate=True).close()
    return url


@pytest.fixture
def exported(audited: Audited, tmp_path: Path) -> Path:
    """The whole of the audited store, in a file."""
    path = tmp_path / "all.jsonl"
    export(audited.journal, audited.url, path)
    return path


def copied(url: str, path: Path) -> Imported:
    with closing(open_journal(url)) as journal:
        return import_copy(journal, url, path)


def log_of(journal: Journal) -> list[RecordedEvent]:
    return list(journal.read(0, 10_000).events)


def without_work(row: AgendaRow) -> tuple[object, ...]:
    """Return what an agenda row says that follows from the log."""
    return (row.tenant, row.stream, row.kind, row.identity, row.version, row.state, row.due_at)


def test_the_copy_is_the_same_history(audited: Audited, exported: Path, copy_url: str) -> None:
    """Every column of every event, the agenda that follows from them, and a sound chain."""
    audited.edit("UPDATE events SET body = NULL WHERE position = 1")
    export(audited.journal, audited.url, exported)
    done = copied(copy_url, exported)
    assert (done.streams, done.unread_count) == (30, 0)
    with closing(open_journal(copy_url)) as journal:
        assert log_of(journal) == log_of(audited.journal)
        theirs = audited.journal.heads(limit=100)
        assert list(map(without_work, journal.heads(limit=100))) == list(map(without_work, theirs))
        assert journal.lanes().keys() == audited.journal.lanes().keys()
        report = verify(journal, copy_url, against=audited.anchors, key=audited.key)
    assert (report.breaches, report.events, report.erased) == ((), done.events, 1)
    assert report.bodies_unchecked > 0, "their key stays with the original"


def test_a_copy_never_dispatches(audited: Audited, exported: Path, copy_url: str) -> None:
    """No worker works on it, and nobody can make it an original."""
    done = copied(copy_url, exported)
    assert done.original == audited.journal.installation().id
    with closing(open_journal(copy_url)) as journal:
        installation = journal.installation()
        assert installation.copy_of == done.original and "copy" in str(installation.changed)
        assert installation.secret != audited.journal.installation().secret
        with pytest.raises(InstallationChanged, match="cannot be adopted"):
            journal.adopt()
        failing = [one.message for one in journal.examine() if one.severity == "fail"]
        assert any("copy" in message for message in failing)
    with settled.open(copy_url) as app, pytest.raises(InstallationChanged, match="copy"):
        app.start_worker()


def test_positions_go_on_behind_the_last(audited: Audited, exported: Path, copy_url: str) -> None:
    """What is recorded in the copy later stands behind the history, and not in it."""
    copied(copy_url, exported)
    with closing(open_journal(copy_url)) as journal:
        end = log_of(journal)[-1].position or 0
        with settled.open(copy_url, kinds=[_kind(SeededRefund)]) as app:
            params = {"order": "order-1", "amount": settled.Money("1.00", "USD")}
            app.operations.intend("refund", "later", params, by=settled.Principal("acme", "ada"))
        assert (log_of(journal)[-1].position or 0) > end


def test_single_streams(audited: Audited, tmp_path: Path, copy_url: str) -> None:
    """For a report about one operation, that operation is enough."""
    rows = audited.journal.heads("acme", limit=2)
    names = tuple(f"{row.tenant}/{row.kind}/{row.identity}" for row in rows)
    count = export(audited.journal, audited.url, tmp_path / "two.jsonl", names)
    assert count == sum(row.version for row in rows)
    assert copied(copy_url, tmp_path / "two.jsonl").streams == 2
    with closing(open_journal(copy_url)) as journal:
        assert verify(journal, copy_url).breaches == ()
    with pytest.raises(NotFound, match="acme/refund/none"):
        export(audited.journal, audited.url, tmp_path / "none", ("acme/refund/none",))
    with pytest.raises(InvalidInput, match="names no stream"):
        export(audited.journal, audited.url, tmp_path / "none", ("acme",))
    assert not (tmp_path / "none").exists()


def test_all_or_nothing(audited: Audited, exported: Path, copy_url: str) -> None:
    """A file that lost its end, or a line, leaves the store as empty as it was."""
    whole = exported.read_bytes()
    lines = whole.splitlines(keepends=True)
    for broken in (
        b"".join(lines[:-1]),
        b"".join(lines[:5] + lines[6:]),
        whole.replace(b'"actor":"', b'"actor":"x', 1),
        whole[: len(whole) // 2],
        b"".join(lines[1:]),
        b"".join([*lines[:3], b"{}\n", *lines[3:]]),
        b"".join([*lines[:3], lines[2], *lines[3:]]),
    ):
        exported.write_bytes(broken)
        with pytest.raises(InvalidInput):
            copied(copy_url, exported)
    exported.write_bytes(whole)
    assert copied(copy_url, exported).events > 0
    with pytest.raises(NotPossible, match="already"):
        copied(copy_url, exported)


def test_a_changed_history_is_carried_over_as_it_is(
    audited: Audited, tmp_path: Path, copy_url: str
) -> None:
    """Who looks into a fraud needs the evidence, not a refusal."""
    event = audited.longest()[1]
    where = "WHERE tenant = ? AND stream = ? AND version = ?"
    audited.edit(f"UPDATE events SET actor = ? {where}", "mallory", *place(event))
    export(audited.journal, audited.url, tmp_path / "all.jsonl")
    copied(copy_url, tmp_path / "all.jsonl")
    with closing(open_journal(copy_url)) as journal:
        (breach,) = verify(journal, copy_url).breaches
    assert (breach.stream, breach.version) == (str(event.stream), 2)


def test_what_is_exported_is_as_its_schema_says(exported: Path) -> None:
    """A schema that nobody's events meet describes another program."""
    schemas = event_schemas()["events"]
    bodies = 0
    for line in exported.read_text(encoding="utf-8").splitlines()[1:-1]:
        event: dict[str, Any] = json.loads(line)
        schema = schemas[event["topic"]][str(event["schema_version"])]
        assert set(json.loads(event["state"])) == set(schema["envelope"]["properties"])
        assert schema["envelope"]["required"] == list(schema["envelope"]["properties"])
        assert (event["body"] is None) == (schema["body"] is None)
        if event["body"] is not None:
            bodies += 1
            assert set(json.loads(event["body"])) == set(schema["body"]["properties"])
    assert bodies > 10


def _kind(params: type[settled.Params]) -> settled.Kind[Any]:
    provider = settled.HttpProvider("https://psp.example", contract=settled.presets.generic_http)
    return settled.Kind("refund", params, provider, "payments-oncall")
