"""The audit finds what was done to the tables, and says where: on both databases.

Each test does to a stored history what somebody with the right to write its tables can do.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from settled.domain.errors import InvalidInput, NotPossible
from settled.domain.journal.audit import Breach, Wrong
from settled.domain.journal.mapper import hash_of
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.audit.auditor import anchor, verify
from settled.infrastructure.audit.keys import make_key, read_key
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.address import Address
from tests.audit.conftest import Audited, place

WHERE = "WHERE tenant = ? AND stream = ? AND version = ?"
OTHER = UUID(int=99)

EDITS: dict[str, Any] = {
    "event_id": OTHER,
    "topic": "settled.operation.Cancelled",
    "schema_version": 2,
    "min_reader": 2,
    "recorded_at": "2020-01-01T00:00:00.000000+00:00",
    "actor": "mallory",
    "correlation": "another",
    "causation": OTHER,
    "key_id": "k2",
    "previous_hash": b"\1" * 32,
    "hash": b"\1" * 32,
    "state": b"{}",
    "body": b"{}",
    "body_digest": b"\1" * 32,
    "shard": 1,
    "tenant": "initech",
    "stream": OTHER,
    "version": 99,
}
"""Column -> what somebody writes into it."""


def found_at(breaches: tuple[Breach, ...], event: RecordedEvent) -> set[Wrong]:
    """Return what was found wrong with an event."""
    return {
        breach.wrong
        for breach in breaches
        if (breach.tenant, breach.stream, breach.version)
        == (event.tenant, str(event.stream), event.originator_version)
    }


def test_a_sound_store_is_sound(audited: Audited) -> None:
    """A verdict that cries wolf is not read any more."""
    report = audited.verify()
    assert (report.breaches, report.breach_count, report.erased) == ((), 0, 0)
    assert report.events > report.streams == 30
    assert report.bodies_unchecked == 0 and report.anchors == 1


@pytest.mark.parametrize("column", EDITS)
def test_every_column_is_covered(audited: Audited, column: str) -> None:
    """A column that the hash left out would be free to edit. Found without an anchor too."""
    event = audited.longest()[1]
    audited.edit(f"UPDATE events SET {column} = ? {WHERE}", EDITS[column], *place(event))
    breaches = audited.breaches(anchored=False)
    assert found_at(breaches, event), breaches


def test_an_edited_body_is_told_from_an_erased_one(audited: Audited) -> None:
    """What was erased by right is gone without harm; what was put in its place is not."""
    first = next(event for event in audited.longest() if event.body is not None)
    audited.edit(f"UPDATE events SET body = NULL {WHERE}", *place(first))
    report = audited.verify()
    assert (report.breaches, report.erased) == ((), 1)
    audited.edit(f"UPDATE events SET body = ? {WHERE}", b'{"label":"x"}', *place(first))
    assert found_at(audited.breaches(), first) == {Wrong.BODY_EDITED}


def test_an_unreadable_row_is_a_finding(audited: Audited) -> None:
    """An audit that breaks off at what it was to find has found nothing."""
    event = audited.longest()[2]
    moment = "no time" if audited.edit.on_file else "infinity"
    audited.edit(f"UPDATE events SET recorded_at = ? {WHERE}", moment, *place(event))
    breaches = audited.breaches()
    assert found_at(breaches, event) == {Wrong.EDITED}
    assert "cannot be read" in breaches[0].message


def test_a_dropped_event(audited: Audited) -> None:
    """One that is gone from the middle, or the beginning, leaves a gap."""
    for dropped in (audited.longest()[2], audited.longest("globex")[0]):
        audited.edit(f"DELETE FROM events {WHERE}", *place(dropped))
        assert Wrong.DROPPED in found_at(audited.breaches(anchored=False), dropped)


def test_a_truncated_stream_needs_the_anchor(audited: Audited) -> None:
    """The chain of what is left is whole: only the anchor knows that there was more."""
    last = audited.longest()[-1]
    audited.edit(f"DELETE FROM events {WHERE}", *place(last))
    assert audited.breaches(anchored=False) == ()
    assert found_at(audited.breaches(), last) == {Wrong.TRUNCATED}


def test_a_stream_that_is_gone_needs_the_anchor(audited: Audited) -> None:
    """As above, for all of it."""
    events = audited.longest()
    audited.edit("DELETE FROM events WHERE stream = ?", events[0].stream)
    assert audited.breaches(anchored=False) == ()
    assert found_at(audited.breaches(), events[-1]) == {Wrong.DROPPED}


def test_two_events_change_places(audited: Audited) -> None:
    """Each of the two is told where it belongs."""
    _, second, third, *_ = audited.longest()
    _exchange(audited, second, third)
    breaches = audited.breaches(anchored=False)
    assert Wrong.REORDERED in found_at(breaches, second)
    assert Wrong.REORDERED in found_at(breaches, third)
    assert any("written as version 3" in breach.message for breach in breaches)


def test_two_positions_change_places(audited: Audited) -> None:
    """Within a stream its own order tells; between streams the anchored log does."""
    _, second, third, *_ = audited.longest()
    _swap_positions(audited, second, third)
    assert Wrong.REORDERED in found_at(audited.breaches(anchored=False), third)
    _swap_positions(audited, second, third)
    assert audited.breaches() == ()
    ours, theirs = audited.longest()[-1], audited.longest("globex")[-1]
    _swap_positions(audited, ours, theirs)
    assert Wrong.LOG_CHANGED in {breach.wrong for breach in audited.breaches()}


def test_an_event_of_another_tenant(audited: Audited) -> None:
    """A genuine event in a place where it never was, named with where it comes from."""
    donor, victim = audited.longest("globex")[1], audited.longest()[-1]
    _write_over(audited, victim, donor)
    breaches = audited.breaches(anchored=False)
    assert Wrong.TRANSPLANTED in found_at(breaches, victim)
    assert any(str(donor.stream) in breach.message for breach in breaches)


def test_an_inserted_event(audited: Audited) -> None:
    """Made with a right hash and put into the middle: the event behind it does not follow."""
    _, second, *_ = audited.longest()
    forged = replace(second, actor="mallory")
    forged = replace(forged, hash=hash_of(forged))
    _write_over(audited, second, forged)
    breaches = audited.breaches(anchored=False)
    assert [(b.wrong, b.version) for b in breaches] == [(Wrong.BROKEN, 3)]


def test_a_chain_made_anew_needs_the_anchor(audited: Audited) -> None:
    """The hashes have no key: whoever rewrites all behind an edit is found by the anchor alone."""
    previous = audited.longest()[0].hash
    last = audited.longest()[-1]
    for event in audited.longest()[1:]:
        forged = replace(event, actor="mallory", previous_hash=previous)
        forged = replace(forged, hash=hash_of(forged))
        _write_over(audited, event, forged)
        previous = forged.hash
    assert audited.breaches(anchored=False) == ()
    breaches = audited.breaches()
    assert found_at(breaches, last) == {Wrong.REWRITTEN}
    assert Wrong.LOG_CHANGED in {breach.wrong for breach in breaches}


def test_a_stream_slipped_in_below_the_anchor(audited: Audited) -> None:
    """A history of its own, whole in itself, at a position that was anchored already."""
    event = audited.longest()[0]
    forged = replace(event, originator_id=OTHER, body=None, body_digest=None)
    forged = replace(forged, hash=hash_of(forged))
    audited.edit(f"DELETE FROM events {WHERE}", *place(audited.longest()[0]))
    _insert(audited, forged)
    assert Wrong.LOG_CHANGED in {breach.wrong for breach in audited.breaches()}


def test_a_rollback_needs_the_anchor(audited: Audited) -> None:
    """The store as it was before: every event genuine, and the last ones never happened."""
    end = audited.verify().position
    audited.edit("DELETE FROM events WHERE position > ?", end - 5)
    breaches = audited.breaches()
    assert Wrong.ROLLED_BACK in {breach.wrong for breach in breaches}
    assert all(b.stream for b in breaches if b.wrong in (Wrong.TRUNCATED, Wrong.DROPPED))
    assert audited.breaches(anchored=False) == ()


def test_an_edited_anchor(audited: Audited) -> None:
    """The file is signed: what it says is believed up to the first change, and no further."""
    audited.anchor()
    whole = audited.anchors.read_bytes()
    lines = whole.splitlines(keepends=True)
    for broken in (
        whole.replace(b'"hash":"', b'"hash":"0', 1),
        b"".join(lines[:1] + lines[2:]),
        b"".join(lines[-3:]),
        whole + b"nonsense\n",
    ):
        audited.anchors.write_bytes(broken)
        assert {b.wrong for b in audited.breaches()} == {Wrong.ANCHOR_EDITED}
        with pytest.raises(NotPossible, match="not what was signed"):
            audited.anchor()
    audited.anchors.write_bytes(whole)
    assert audited.breaches() == () and audited.verify().anchors == 2


def test_an_anchor_that_a_crash_left_unfinished(audited: Audited) -> None:
    """Cut off at any line, or within one: the anchors before it hold, and the next one goes on."""
    whole = audited.anchors.read_bytes()
    audited.anchor()
    both = audited.anchors.read_bytes()
    for cut in range(len(whole) + 1, len(both), 37):
        audited.anchors.write_bytes(both[:cut])
        assert audited.verify().anchors == 1
    audited.anchor()
    report = audited.verify()
    assert (report.anchors, report.breaches) == (2, ())


def test_another_key_or_another_store(audited: Audited, tmp_path: Any) -> None:
    """A wrong file is a mistake of whoever audits, and no finding about the store."""
    other = make_key(tmp_path / "other.key")
    with pytest.raises(InvalidInput, match="signed with the key"):
        verify(audited.journal, audited.url, against=audited.anchors, key=other)
    with pytest.raises(InvalidInput, match="signed with the key"):
        anchor(audited.journal, audited.url, audited.anchors, other)
    with pytest.raises(NotPossible, match="not replaced"):
        make_key(tmp_path / "other.key")
    assert read_key(tmp_path / "other.key") == other
    assert (tmp_path / "other.key").stat().st_mode & 0o077 == 0
    with pytest.raises(InvalidInput, match="no key"):
        read_key(audited.anchors)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(InvalidInput, match="no anchor"):
        verify(audited.journal, audited.url, against=empty, key=audited.key)


def test_what_is_broken_is_not_anchored(audited: Audited) -> None:
    """A signature under a changed history would make it the true one."""
    audited.anchors.unlink()
    event = audited.longest()[1]
    audited.edit(f"UPDATE events SET actor = ? {WHERE}", "mallory", *place(event))
    with pytest.raises(NotPossible, match="nothing was anchored"):
        audited.anchor()
    assert audited.anchors.read_bytes() == b""


def test_an_anchor_while_others_write(audited: Audited) -> None:
    """A hole may still be filled while somebody writes: what is behind it is waited for."""
    audited.edit("DELETE FROM events WHERE position = 3")
    events = audited.verify().events
    anchors = audited.anchors.with_name("new")
    if audited.edit.on_file:  # one writer at a time: whatever is seen there is settled
        assert anchor(audited.journal, audited.url, anchors, audited.key).events == events
        return
    address = Address.of(audited.url)
    with closing(address.connect({})) as writer, closing(open_journal(audited.url)) as journal:
        writer.execute("BEGIN")
        writer.execute(f'LOCK TABLE "{address.schema}".events IN ROW EXCLUSIVE MODE'.encode())
        assert journal.read(0, 1000).upto == 2
        timer = threading.Timer(0.1, writer.execute, ["ROLLBACK"])
        timer.start()
        done = anchor(journal, audited.url, anchors, audited.key)
        timer.join()
    assert done.events == events > 2


CONTENT = (
    *("event_id", "topic", "schema_version", "min_reader", "recorded_at", "actor", "correlation"),
    *("causation", "key_id", "previous_hash", "hash", "state", "body", "body_digest"),
)


def _values(audited: Audited, event: RecordedEvent) -> list[Any]:
    at = event.recorded_at
    moment = at.isoformat(timespec="microseconds") if audited.edit.on_file else at
    return [moment if name == "recorded_at" else getattr(event, name) for name in CONTENT]


def _write_over(audited: Audited, victim: RecordedEvent, donor: RecordedEvent) -> None:
    columns = ", ".join(f"{name} = ?" for name in CONTENT)
    audited.edit(f"UPDATE events SET {columns} {WHERE}", *_values(audited, donor), *place(victim))


def _exchange(audited: Audited, one: RecordedEvent, other: RecordedEvent) -> None:
    _write_over(audited, one, other)
    _write_over(audited, other, one)


def _swap_positions(audited: Audited, one: RecordedEvent, other: RecordedEvent) -> None:
    sql = f"UPDATE events SET position = ? {WHERE}"
    (at,), *_ = audited.edit(f"SELECT position FROM events {WHERE}", *place(one))
    (to,), *_ = audited.edit(f"SELECT position FROM events {WHERE}", *place(other))
    audited.edit(sql, 1 << 40, *place(one))
    audited.edit(sql, at, *place(other))
    audited.edit(sql, to, *place(one))


def _insert(audited: Audited, event: RecordedEvent) -> None:
    names = ("tenant", "shard", "stream", "version", "position", *CONTENT)
    marks = ", ".join("?" * len(names))
    place_of = (event.tenant, 0, event.stream, event.originator_version, event.position)
    audited.edit(
        f"INSERT INTO events ({', '.join(names)}) VALUES ({marks})",
        *place_of,
        *_values(audited, event),
    )
