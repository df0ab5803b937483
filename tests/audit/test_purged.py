"""A purge leaves the chain whole and every anchor good; what only looks like one is found.

Purging is the one way to drop events by right, so it is where somebody would hide who drops them
by wrong.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from settled.domain.contract import ProviderContract
from settled.domain.journal.audit import Wrong
from settled.domain.journal.gone import pack, unpack
from settled.domain.journal.mapper import EventMapper, hash_of
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import Change, Committed, RecordedEvent, Unit
from settled.domain.keys import DerivedKeys
from settled.domain.operation.events import EvidenceRecorded
from settled.domain.operation.operation import Operation
from settled.domain.operation.purge import purge
from settled.domain.purges import Purges
from settled.infrastructure.audit.auditor import verify
from settled.infrastructure.clock import StoreClock
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.queue import CommitQueue
from settled.infrastructure.transfer.exporting import export
from settled.infrastructure.transfer.importing import import_copy
from settled.processes.ledger import Ledger
from settled.processes.purging import unit_of
from settled.processes.replay import historical
from tests.audit.conftest import Audited, place
from tests.audit.test_audit import WHERE, found_at

FORGETFUL = ProviderContract(provider="psp", operation="refund")


@contextmanager
def ledger_of(audited: Audited) -> Generator[Ledger]:
    journal = audited.journal
    queue = CommitQueue(journal.committer())
    mapper = EventMapper(DerivedKeys(journal.installation().secret))
    try:
        yield Ledger(journal, queue, mapper, StoreClock(journal.time))
    finally:
        queue.close()


def settled_ones(audited: Audited, tenant: str = "acme") -> list[AgendaRow]:
    rows = audited.journal.heads(tenant, limit=1000)
    return [row for row in rows if row.due_at is None and row.kind != "purges"]


def purge_one(ledger: Ledger, row: AgendaRow, *, told: bool = True) -> RecordedEvent:
    """Purge an operation, with or without a word in the record, and return what is left."""
    records = ledger.journal.events(row.tenant, row.stream)
    operation = ledger.mapper.fold(records)
    assert isinstance(operation, Operation)
    stamp = ledger.stamp("ada")
    far = replace(stamp, at=stamp.at.replace(year=stamp.at.year + 1))
    purge(operation, records, FORGETFUL, far, "old enough")
    unit = unit_of(ledger, [operation], stamp, "old enough") if told else ledger.unit(operation)
    assert isinstance(ledger.append(unit), Committed)
    (left,) = ledger.journal.events(row.tenant, row.stream)
    return left


@pytest.fixture
def purged(audited: Audited) -> RecordedEvent:
    """What is left of the longest settled stream, which was anchored before it was purged."""
    row = max(settled_ones(audited), key=lambda row: (row.version, row.identity))
    with ledger_of(audited) as ledger:
        return purge_one(ledger, row)


def test_what_was_purged_by_right_is_sound(audited: Audited, purged: RecordedEvent) -> None:
    """By the chain, by the anchor of before, by one of after, and after the next purge too."""
    report = audited.verify()
    assert (report.breaches, report.purged) == ((), purged.originator_version - 1)
    audited.anchor()
    assert audited.verify().anchors == 2 and audited.breaches() == ()
    with ledger_of(audited) as ledger:
        for row in settled_ones(audited) + settled_ones(audited, "globex"):
            purge_one(ledger, row)
        assert audited.breaches() == ()
        row = settled_ones(audited)[0]
        again = purge_one(ledger, row)
    assert again.originator_version == row.version + 1
    audited.anchor()
    assert audited.breaches() == ()


def test_an_event_is_missing_without_its_tombstone(audited: Audited, purged: RecordedEvent) -> None:
    """Dropped from the front without a purge, or the tombstone itself: both are gaps."""
    other = next(row for row in settled_ones(audited) if row.stream != purged.stream)
    first, *_ = audited.journal.events(other.tenant, other.stream)
    audited.edit(f"DELETE FROM events {WHERE}", *place(first))
    assert Wrong.DROPPED in found_at(audited.breaches(anchored=False), first)
    audited.edit(f"DELETE FROM events {WHERE}", *place(purged))
    breaches = audited.breaches(anchored=False)
    assert Wrong.DROPPED in found_at(breaches, purged), "its record knows of it"


def test_what_came_after_a_purge_is_watched_as_before(audited: Audited) -> None:
    """The chain goes on from the tombstone, so a gap behind it is a gap."""
    row = settled_ones(audited)[0]
    with ledger_of(audited) as ledger:
        purge_one(ledger, row)
        for n in range(3):
            _note(ledger, row, f"evt_{n}")
    assert audited.breaches() == ()
    _, first, second, _ = audited.journal.events(row.tenant, row.stream)
    audited.edit(f"UPDATE events SET actor = 'mallory' {WHERE}", *place(second))
    assert found_at(audited.breaches(anchored=False), second) == {Wrong.EDITED}
    audited.edit(f"DELETE FROM events {WHERE}", *place(first))
    assert Wrong.DROPPED in found_at(audited.breaches(anchored=False), first)


def _note(ledger: Ledger, row: AgendaRow, key: str) -> None:
    ledger.execute(row.tenant, row.stream, lambda machine: _record_note(ledger, machine, key))


def test_a_purge_that_is_not_recorded_is_found(audited: Audited) -> None:
    """Whoever writes a right tombstone and says nothing of it is told, without any anchor."""
    with ledger_of(audited) as ledger:
        left = purge_one(ledger, settled_ones(audited)[0], told=False)
    assert found_at(audited.breaches(anchored=False), left) == {Wrong.PURGE_HIDDEN}


def test_a_tombstone_that_was_made_anew_is_found(audited: Audited, purged: RecordedEvent) -> None:
    """With right hashes it is whole in itself; the record of purges has the hash of another one."""
    state = json.loads(purged.state)
    state["left"]["state"] = "failed"
    forged = replace(purged, state=json.dumps(state).encode())
    forged = replace(forged, hash=hash_of(forged))
    audited.edit(
        f"UPDATE events SET state = ?, hash = ? {WHERE}", forged.state, forged.hash, *place(purged)
    )
    breaches = audited.breaches(anchored=False)
    assert found_at(breaches, purged) == {Wrong.PURGE_HIDDEN}
    assert "something else" in breaches[0].message


@pytest.mark.parametrize("lie", ["edited", "shorter", "not"])
def test_a_tombstone_says_soundly_what_is_gone(
    audited: Audited, purged: RecordedEvent, lie: str
) -> None:
    """Places and hashes that are not those of before excuse nothing."""
    state: dict[str, Any] = json.loads(purged.state)
    gone = unpack(state["gone"])
    state["gone"] = {
        "edited": pack([gone[0]._replace(hash=bytes(32)), *gone[1:]]),
        "shorter": pack(gone[1:]),
        "not": 7,
    }[lie]
    forged = replace(purged, state=json.dumps(state).encode())
    forged = replace(forged, hash=hash_of(forged))
    audited.edit(
        f"UPDATE events SET state = ?, hash = ? {WHERE}", forged.state, forged.hash, *place(purged)
    )
    wrongs = {breach.wrong for breach in audited.breaches()}
    assert Wrong.LOG_CHANGED in wrongs
    assert (Wrong.DROPPED in wrongs) == (lie != "edited")


def test_a_history_that_was_changed_before_its_purge_is_found(audited: Audited) -> None:
    """The tombstone keeps what was there, and that is not what was anchored."""
    row = max(settled_ones(audited), key=lambda row: (row.version, row.identity))
    last = audited.journal.events(row.tenant, row.stream)[-1]
    forged = replace(last, actor="mallory")
    sql = f"UPDATE events SET actor = 'mallory', hash = ? {WHERE}"
    audited.edit(sql, hash_of(forged), *place(last))
    with ledger_of(audited) as ledger:
        purge_one(ledger, row)
    assert audited.breaches(anchored=False) == ()
    breaches = audited.breaches()
    assert found_at(breaches, last) == {Wrong.REWRITTEN}
    assert Wrong.LOG_CHANGED in {breach.wrong for breach in breaches}


def test_the_record_of_purges_cannot_be_dropped(audited: Audited, purged: RecordedEvent) -> None:
    """It is watched by its own chain, by what was purged, and by the next anchor."""
    audited.anchor()
    audited.edit("DELETE FROM events WHERE stream = ?", Purges.stream("acme"))
    assert found_at(audited.breaches(anchored=False), purged) == {Wrong.PURGE_HIDDEN}
    wrongs = {breach.wrong for breach in audited.breaches()}
    assert {Wrong.DROPPED, Wrong.LOG_CHANGED} <= wrongs


def test_a_purged_stream_cannot_be_dropped(audited: Audited, purged: RecordedEvent) -> None:
    """A whole stream that is gone needs an anchor, but not where it was once purged."""
    audited.edit("DELETE FROM events WHERE stream = ?", purged.stream)
    assert found_at(audited.breaches(anchored=False), purged) == {Wrong.DROPPED}


def test_a_copy_of_a_purged_store_is_as_sound(
    audited: Audited, purged: RecordedEvent, tmp_path: Path
) -> None:
    """Exported and imported it is audited against the same anchors, folded, and found."""
    path, url = tmp_path / "all.jsonl", f"sqlite:///{tmp_path / 'copy.db'}"
    export(audited.journal, audited.url, path)
    open_journal(url, migrate=True).close()
    copy = open_journal(url)
    try:
        done = import_copy(copy, url, path)
        assert done.unread == ()
        assert verify(copy, url, against=audited.anchors, key=audited.key).breaches == ()
        assert copy.events("acme", purged.stream) == [purged]
        ours = audited.journal.head("acme", purged.stream)
        theirs = copy.head("acme", purged.stream)
        assert theirs == ours
        for provider, name in json.loads(purged.state)["left"]["references"]:
            assert copy.referenced("acme", provider, name) == purged.stream
        mapper = EventMapper(DerivedKeys(copy.installation().secret))
        assert historical(copy, mapper).oddities == ()
    finally:
        copy.close()


def test_purging_meanwhile_is_no_breach(audited: Audited) -> None:
    """An auditor who reads while somebody purges finds nothing, and signs what is there."""
    failed: list[BaseException] = []
    going = threading.Event()

    def purge_all() -> None:
        try:
            with ledger_of(audited) as ledger:
                for row in settled_ones(audited):
                    purge_one(ledger, row)
                    going.set()
                    _note(ledger, row, "evt_1")
        except BaseException as error:
            failed.append(error)
        finally:
            going.set()

    purging = threading.Thread(target=purge_all)
    purging.start()
    going.wait()
    while purging.is_alive():
        assert audited.breaches() == ()
        audited.anchor()
    purging.join()
    assert not failed
    assert audited.breaches() == ()


def test_a_unit_that_only_claims_to_purge_is_not_taken(audited: Audited) -> None:
    """The journal drops for an event alone whose topic says that it stands for others."""
    row = settled_ones(audited)[0]
    records = audited.journal.events(row.tenant, row.stream)
    with ledger_of(audited) as ledger:
        machine = ledger.mapper.fold(records)
        assert machine is not None
        _record_note(ledger, machine, "evt_9")
        (change,) = ledger.unit(machine).changes
        unit = Unit(row.tenant, (replace(change, drops_older=True),))
        answer = ledger.queue.submit(unit).result()
    assert isinstance(change, Change) and "stands for them" in str(answer)
    assert audited.journal.events(row.tenant, row.stream) == records


def _record_note(ledger: Ledger, machine: Any, key: str) -> None:
    machine.record(
        EvidenceRecorded,
        ledger.stamp("webhook"),
        via="webhook",
        answered="pending",
        reference=None,
        reason="late",
        key=key,
    )
