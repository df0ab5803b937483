"""What is read back from a journal: the bytes that were written, and heads that agree with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest

from settled.domain.journal.port import AgendaRow, Committer, Journal, Page
from settled.infrastructure.testing.journal_rules import JournalRules
from settled.infrastructure.testing.journal_store import Store
from settled.infrastructure.testing.journal_units import (
    DUE,
    LATER,
    TENANT,
    a_change,
    a_head,
    a_unit,
    after,
    commit,
    everything,
    stream_of,
)


def _identities(rows: list[AgendaRow]) -> list[str]:
    return [row.identity for row in rows]


class ReadRules(JournalRules):
    """Reading: every column as it was, in the one order, and the agenda as a function of it."""

    def test_every_column_comes_back_as_it_was(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Hashes are over bytes, so one byte or microsecond that changes is a broken chain."""
        every_byte = bytes(range(256))
        full = a_change(
            state=every_byte,
            body=every_byte[::-1],
            body_digest=every_byte[:32],
            hash=every_byte[32:64],
            previous_hash=every_byte[64:96],
            topic="Ausgelöst – 払い戻し 😀",
            actor="agent\t'\"\\%s?",
            correlation="run-7",
            causation=uuid4(),
            key_id="key-2",
            schema_version=3,
            min_reader=2,
            recorded_at=datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5.5))),
        )
        bare = a_change(state=b"", correlation=None, causation=None, body=None, body_digest=None)
        empty = a_change(body=b"")
        (answer,) = commit(committer, a_unit(full, bare, empty))
        written = [
            replace(change.events[0], position=position)
            for change, (position,) in zip((full, bare, empty), answer.positions, strict=True)
        ]
        read = everything(journal)
        assert read == written
        assert read[0].recorded_at.utcoffset() == timedelta(0)
        assert {type(value) for event in read for value in (event.state, event.hash)} == {bytes}
        assert journal.events(TENANT, full.stream) == written[:1]

    def test_a_stream_is_read_between_two_versions(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Excluded below and included above, like every position that means "after this"."""
        unit = a_unit(a_change(events=5))
        commit(committer, unit)

        def versions(*bounds: Any) -> list[int]:
            events = journal.events(TENANT, stream_of(unit), *bounds)
            return [event.originator_version for event in events]

        assert versions() == [1, 2, 3, 4, 5]
        assert versions(2) == [3, 4, 5]
        assert versions(1, 3) == [2, 3]
        assert versions(5) == versions(3, 3) == []
        assert journal.events(TENANT, uuid4()) == journal.events("globex", stream_of(unit)) == []

    def test_several_streams_are_read_at_once(self, journal: Journal, committer: Committer) -> None:
        """Each key has an entry, and a key of another tenant finds nothing."""
        one, two = a_unit(a_change(events=3)), a_unit(a_change(events=2))
        commit(committer, one, two)
        absent, foreign = uuid4(), a_unit(tenant="globex")
        commit(committer, foreign)
        found = journal.streams(
            [
                (TENANT, stream_of(two)),
                (TENANT, stream_of(one)),
                (TENANT, absent),
                (TENANT, stream_of(foreign)),
            ]
        )
        assert {stream: len(events) for stream, events in found.items() if events} == {
            stream_of(one): 3,
            stream_of(two): 2,
        }
        assert found[stream_of(one)] == journal.events(TENANT, stream_of(one))
        assert found.get(absent, []) == found.get(stream_of(foreign), []) == []
        assert dict(journal.streams([])) == {}

    def test_pages_join_into_the_whole_log(self, journal: Journal, committer: Committer) -> None:
        """`more` follows from the limit, `upto` from the log, and nothing is read twice."""
        assert journal.read(0, 10) == replace(journal.read(0, 10), events=(), upto=0, more=False)
        commit(committer, *(a_unit(a_change(events=2)) for _ in range(5)))
        whole = everything(journal)
        assert len(whole) == 10
        after_position, pages = 0, list[Page]()
        while (page := journal.read(after_position, 3)).events:
            pages.append(page)
            after_position = page.events[-1].position or 0
        assert [len(page.events) for page in pages] == [3, 3, 3, 1]
        assert [page.more for page in pages] == [True, True, True, False]
        assert {page.upto for page in pages} == {whole[-1].position}
        assert [event for page in pages for event in page.events] == whole

    def test_the_agenda_is_what_the_last_change_declared(
        self, journal: Journal, committer: Committer
    ) -> None:
        """A head that differed from its stream would leave something open that nobody sees."""
        unit = a_unit()
        commit(committer, unit)
        assert journal.head(TENANT, stream_of(unit)) == AgendaRow(
            tenant=TENANT,
            stream=stream_of(unit),
            kind="refund",
            identity="refund-request-9",
            version=1,
            state="ready",
            due_at=DUE,
            lane="acme/refund/stripe",
            priority=1,
            min_reader=1,
            owner=None,
            takes=0,
            parked_at=None,
        )
        head = a_head(state="accepted", due_at=LATER, priority=2, min_reader=3)
        commit(committer, after(unit, 2, head=head))
        row = journal.head(TENANT, stream_of(unit))
        assert row is not None
        assert (row.version, row.state, row.due_at) == (3, "accepted", LATER)
        assert (row.priority, row.min_reader) == (2, 3)
        commit(committer, a_unit(a_change(stream_of(unit), 3, head=a_head(due_at=None))))
        row = journal.head(TENANT, stream_of(unit))
        assert row is not None
        assert row.due_at is None
        assert journal.head("globex", stream_of(unit)) is None

    @pytest.mark.parametrize(
        ("filters", "found"),
        [
            ({}, "abcdef"),
            ({"tenant": TENANT}, "abcd"),
            ({"kind": "refund"}, "abdef"),
            ({"kind": "email"}, "c"),
            ({"states": ["ready"]}, "abcd"),
            ({"states": ["succeeded", "accepted"]}, "ef"),
            ({"overdue_at": DUE}, "acf"),
            ({"overdue_at": DUE - timedelta(microseconds=1)}, "f"),
            ({"tenant": TENANT, "kind": "refund", "overdue_at": LATER}, "abd"),
            ({"parked": False}, "abcdef"),
            ({"parked": True}, ""),
            ({"limit": 2}, "ab"),
        ],
        ids=str,
    )
    def test_heads_meet_every_filter(
        self, journal: Journal, committer: Committer, filters: dict[str, Any], found: str
    ) -> None:
        """In the order of (tenant, stream) byte by byte, whatever the database's locale is."""
        heads: list[tuple[str, int, dict[str, Any]]] = [
            ("a", 1, {}),
            ("b", 2, {"due_at": LATER}),
            ("c", 3, {"kind": "email"}),
            ("d", 4, {"due_at": DUE + timedelta(microseconds=1)}),
            ("e", 0, {"state": "succeeded", "due_at": None}),
            ("f", 9, {"state": "accepted", "due_at": DUE - timedelta(days=1)}),
        ]
        units = [
            a_unit(
                a_change(
                    UUID(int=number << 120),
                    head=a_head(identity=name, **columns),
                    tenant="globex" if name in "ef" else TENANT,
                ),
                tenant="globex" if name in "ef" else TENANT,
            )
            for name, number, columns in heads
        ]
        commit(committer, *reversed(units))
        assert _identities(journal.heads(**filters)) == list(found)

    def test_heads_are_read_page_by_page(self, journal: Journal, committer: Committer) -> None:
        """The last row of a page is where the next one begins, also between two tenants."""
        for tenant in ("Zed", "acme", "Übung", "globex"):
            commit(committer, *(a_unit(tenant=tenant) for _ in range(3)))
        whole = journal.heads(limit=100)
        keys = [(row.tenant.encode(), row.stream.bytes) for row in whole]
        assert len(keys) == 12
        assert keys == sorted(keys)
        paged: list[AgendaRow] = []
        while page := journal.heads(
            after=(paged[-1].tenant, paged[-1].stream) if paged else None, limit=5
        ):
            paged += page
        assert paged == whole

    def test_the_store_has_a_time_of_its_own(self, journal: Journal) -> None:
        """Everything is timed by it, so it has a zone and does not run backwards."""
        first, second = journal.time(), journal.time()
        assert first.utcoffset() == timedelta(0)
        assert first <= second
        assert abs(datetime.now(UTC) - second) < timedelta(minutes=5)

    def test_a_store_knows_which_one_it_is(self, store: Store, journal: Journal) -> None:
        """The same identity for everybody who opens it; nothing has changed until it has."""
        mine = journal.installation()
        other = store.open()
        try:
            assert other.installation() == mine
        finally:
            other.close()
        assert mine.changed is None
        assert len(mine.secret) >= 16
        journal.anchor()
        journal.adopt()
        assert journal.installation() == mine
