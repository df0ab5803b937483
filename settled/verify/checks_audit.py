"""A32: somebody edits, drops, reorders or inserts stored events, with the right to write tables."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from settled.domain.journal.anchors import AuditKey
from settled.domain.journal.audit import Breach, Wrong
from settled.domain.journal.mapper import hash_of
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.audit.auditor import anchor, verify
from settled.infrastructure.audit.keys import make_key
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.infrastructure.journal.postgres.address import Address
from settled.verify.check import check
from settled.verify.stage import Stage

_COLUMNS = (
    "tenant, shard, stream, version, position, event_id, topic, schema_version, min_reader,"
    " recorded_at, actor, correlation, causation, key_id, previous_hash, hash, state, body,"
    " body_digest"
)
_STREAM = "WHERE tenant = ? AND stream = ?"
_EVENT = f"{_STREAM} AND version = ?"


@dataclass(frozen=True)
class _Audited:
    """Performed operations, an anchor outside their store, and somebody who writes its tables."""

    stage: Stage
    key: AuditKey
    anchors: Path
    key_file: Path

    def edit(self, sql: str, *values: Any) -> None:
        """Run one statement on the table `events`; `?` stands for a value."""
        if is_sqlite(self.stage.url):
            given = [value.bytes if isinstance(value, UUID) else value for value in values]
            place = sqlite_path(self.stage.url)
            with closing(sqlite3.connect(place, isolation_level=None)) as file:
                file.execute(sql, given)
            return
        with closing(Address.of(self.stage.url).connect({})) as server:
            server.execute(sql.replace("?", "%s").encode(), values or None)

    @contextmanager
    def changed(self, what: str) -> Generator[None]:
        """Put the history back after the block, as it was."""
        self.stage.strike(f"events {what}")
        overriding = "" if is_sqlite(self.stage.url) else "OVERRIDING SYSTEM VALUE"
        self.edit(f"CREATE TABLE events_before AS SELECT {_COLUMNS} FROM events")
        yield
        self.edit("DELETE FROM events")
        self.edit(
            f"INSERT INTO events ({_COLUMNS}) {overriding} SELECT {_COLUMNS} FROM events_before"
        )
        self.edit("DROP TABLE events_before")

    def history(self, operation_id: str) -> list[RecordedEvent]:
        """Return the events of an operation."""
        journal = self.stage.app.journal
        (row,) = (row for row in journal.heads("acme") if row.identity == operation_id)
        return journal.events("acme", row.stream)

    def breaches(self, *, anchored: bool) -> tuple[Breach, ...]:
        """Audit the store."""
        against, key = (self.anchors, self.key) if anchored else (None, None)
        journal = self.stage.app.journal
        return verify(journal, self.stage.url, against=against, key=key).breaches

    def expect(self, wrong: Wrong, event: RecordedEvent, *, anchored: bool = False) -> None:
        """Check that this is found at an event, and where it needs an anchor, not without it."""
        if anchored:
            assert not self.breaches(anchored=False), "the chain alone was not to show that"
        wanted = (wrong, event.tenant, str(event.stream), event.originator_version)
        found = [(b.wrong, b.tenant, b.stream, b.version) for b in self.breaches(anchored=anchored)]
        assert wanted in found, f"{wanted} is not among {found}"


def _place(event: RecordedEvent) -> tuple[str, UUID, int]:
    return event.tenant, event.stream, event.originator_version


def _audited(stage: Stage) -> _Audited:
    """Perform two operations, anchor their history, and find nothing wrong with it."""
    for name in ("72", "73"):
        stage.intend(name, order=name)
    stage.worker()
    for name in ("72", "73"):
        stage.wait(stage.intend(name, order=name), "succeeded")
    stage.end_workers()
    key_file = stage.folder / "auditor.key"
    audited = _Audited(stage, make_key(key_file), stage.folder / "anchors", key_file)
    anchor(stage.app.journal, stage.url, audited.anchors, audited.key)
    assert not audited.breaches(anchored=True)
    return audited


@check("A32", "edited, dropped, reordered, inserted, transplanted: the chain alone tells")
def a32_the_chain_tells(stage: Stage) -> None:
    """Each is named with its stream and version, and what was put back is sound again."""
    audited = _audited(stage)
    first, second, third, *_, last = audited.history("72")
    foreign = audited.history("73")[-1]
    behind = replace(last, originator_version=last.originator_version + 1)
    with audited.changed("edited"):
        audited.edit(f"UPDATE events SET actor = ? {_EVENT}", "mallory", *_place(second))
        audited.expect(Wrong.EDITED, second)
        _expect_told(audited, second)
    with audited.changed("edited in their body"):
        audited.edit(f"UPDATE events SET body = ? {_EVENT}", b"{}", *_place(first))
        audited.expect(Wrong.BODY_EDITED, first)
    with audited.changed("dropped"):
        audited.edit(f"DELETE FROM events {_EVENT}", *_place(second))
        audited.expect(Wrong.DROPPED, second)
    with audited.changed("reordered"):
        away = replace(second, originator_version=1_000)
        for old, new in ((second, 1_000), (third, 2), (away, 3)):
            audited.edit(f"UPDATE events SET version = ? {_EVENT}", new, *_place(old))
        audited.expect(Wrong.REORDERED, second)
        audited.expect(Wrong.REORDERED, third)
    with audited.changed("inserted"):
        sql = f"UPDATE events SET actor = ?, hash = ? {_EVENT}"
        forged = replace(second, actor="mallory")
        audited.edit(sql, "mallory", hash_of(forged), *_place(second))
        audited.expect(Wrong.BROKEN, third)
    with audited.changed("transplanted"):
        sql = f"UPDATE events SET stream = ?, version = ? {_EVENT}"
        audited.edit(sql, last.stream, behind.originator_version, *_place(foreign))
        audited.expect(Wrong.TRANSPLANTED, behind)
    assert not audited.breaches(anchored=True)


@check("A32", "cut off, rolled back, made anew: the anchor tells")
def a32_the_anchor_tells(stage: Stage) -> None:
    """What is left is whole in itself; only somebody outside knows that it was another."""
    audited = _audited(stage)
    last = audited.history("72")[-1]
    with audited.changed("cut off"):
        audited.edit(f"DELETE FROM events {_EVENT}", *_place(last))
        audited.expect(Wrong.TRUNCATED, last, anchored=True)
    with audited.changed("dropped with their stream"):
        audited.edit(f"DELETE FROM events {_STREAM}", last.tenant, last.stream)
        audited.expect(Wrong.DROPPED, last, anchored=True)
    with audited.changed("rolled back"):
        audited.edit("DELETE FROM events WHERE position >= ?", last.position)
        audited.expect(Wrong.TRUNCATED, last, anchored=True)
        wrongs = {breach.wrong for breach in audited.breaches(anchored=True)}
        assert Wrong.ROLLED_BACK in wrongs, f"the log's end was moved, and that is not in {wrongs}"
    with audited.changed("made anew"):
        forged = replace(last, actor="mallory")
        sql = f"UPDATE events SET actor = ?, hash = ? {_EVENT}"
        audited.edit(sql, "mallory", hash_of(forged), *_place(last))
        audited.expect(Wrong.REWRITTEN, last, anchored=True)
    assert not audited.breaches(anchored=True)


def _expect_told(audited: _Audited, event: RecordedEvent) -> None:
    """Check that the command line names the event too, and exits with 1."""
    done = subprocess.run(
        [sys.executable, "-m", "settled", "audit", "verify", "--against", str(audited.anchors)]
        + ["--key", str(audited.key_file), "--json"],
        env=audited.stage.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=audited.stage.folder,
    )
    assert done.returncode == 1, f"the exit code is {done.returncode}: {done.stderr}"
    told = [(one["stream"], one["version"]) for one in json.loads(done.stdout)["breaches"]]
    assert (str(event.stream), event.originator_version) in told, told
