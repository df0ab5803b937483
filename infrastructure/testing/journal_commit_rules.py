"""What a journal has to answer to units, and what it must have written then."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from settled.domain.errors import SettledError
from settled.domain.journal.judge import MAX_EVENT_BYTES
from settled.domain.journal.port import Committer, Journal
from settled.domain.journal.unit import (
    Answer,
    Committed,
    Exists,
    GuardChange,
    Invalid,
    Lost,
    ReferenceTaken,
    Refused,
    Stale,
    Unit,
)
from settled.infrastructure.testing.journal_rules import JournalRules
from settled.infrastructure.testing.journal_store import Store
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_head,
    a_unit,
    after,
    commit,
    everything,
    naming,
    purging,
    stream_of,
)
from settled.infrastructure.testing.journal_work import Undone


def _names(answers: list[Answer]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


def _reserve(amount: int, key: str = "budget") -> GuardChange:
    return GuardChange(key, "reserve", amount)


def _balance(journal: Journal, key: str = "budget") -> tuple[int, int]:
    row = journal.guard(TENANT, key)
    assert row is not None
    return row.reserved, row.consumed


class CommitRules(JournalRules):
    """Admission: each unit whole or not at all, and each told the truth."""

    def test_a_unit_gets_the_positions_under_which_it_is_read(
        self, journal: Journal, committer: Committer
    ) -> None:
        """One tuple a change, in the order of its events: that is what callers wait for."""
        unit = a_unit(a_change(events=2), a_change(events=3))
        (answer,) = commit(committer, unit)
        assert [len(positions) for positions in answer.positions] == [2, 3]
        read = {event.event_id: event.position for event in everything(journal)}
        for change, positions in zip(unit.changes, answer.positions, strict=True):
            assert tuple(read[event.event_id] for event in change.events) == positions

    def test_losers_hear_why_and_leave_nothing(
        self, journal: Journal, committer: Committer
    ) -> None:
        """A unit that lost changes no row, burns no position and fails no other of its group."""
        journal.set_ceiling(TENANT, "budget", 100)
        first = a_unit(a_change(events=2), guards=[_reserve(60)])
        pair = a_unit(a_change(), a_change(events=3))
        commit(committer, first, pair)
        before, absent = everything(journal), uuid4()
        losers = [
            a_unit(a_change(stream_of(first))),
            a_unit(a_change(stream_of(pair), 7), a_change()),
            a_unit(guards=[_reserve(41)]),
            a_unit(a_change(absent, 3)),
            a_unit(guards=[_reserve(1, "no such guard")]),
            a_unit(a_change(pair.changes[1].stream, 3), guards=[_reserve(10), _reserve(31)]),
            a_unit(guards=[GuardChange("budget", "release", 61)]),
            a_unit(a_change(stream_of(first), 2, fence=7)),
        ]
        winner = a_unit()
        *answers, won = committer.commit([*losers, winner])
        assert answers == [
            Exists(stream_of(first), 2),
            Stale(stream_of(pair), 1),
            Refused("budget", 40),
            Stale(absent, 0),
            Refused("no such guard", 0),
            Refused("budget", 30),
            Refused("budget", 60),
            Lost(stream_of(first), None),
        ]
        last = max(event.position or 0 for event in before)
        assert won == Committed(((last + 1,),))
        assert everything(journal)[: len(before)] == before
        assert [event.event_id for event in everything(journal)[len(before) :]] == [
            winner.changes[0].events[0].event_id
        ]
        assert _balance(journal) == (60, 0)
        assert len(journal.heads(TENANT)) == 4

    def test_the_same_unit_again_is_found(self, journal: Journal, committer: Committer) -> None:
        """So is a lost answer resolved: nothing is written twice, and no guard counts twice."""
        journal.set_ceiling(TENANT, "budget", 100)
        unit = a_unit(a_change(events=2), a_change(), guards=[_reserve(60)])
        (answer,) = commit(committer, unit)
        assert committer.commit([unit]) == [Committed(answer.positions, found=True)]
        commit(committer, after(unit))
        assert committer.commit([unit]) == [Committed(answer.positions, found=True)]
        assert _balance(journal) == (60, 0)
        assert len(everything(journal)) == 4

    def test_half_a_unit_is_never_written(self, journal: Journal, committer: Committer) -> None:
        """Two creations of which one exists, an advance whose guard refuses: all or nothing."""
        journal.set_ceiling(TENANT, "budget", 1)
        unit, twin = a_unit(), a_change()
        commit(committer, unit)
        answers = committer.commit(
            [
                a_unit(twin, a_change(stream_of(unit))),
                a_unit(a_change(stream_of(unit), 1), guards=[_reserve(1), _reserve(1)]),
            ]
        )
        assert answers == [Exists(stream_of(unit), 1), Refused("budget", 0)]
        assert journal.head(TENANT, twin.stream) is None
        assert _balance(journal) == (0, 0)
        assert len(everything(journal)) == 1

    def test_a_stream_twice_in_one_group_is_still_answered_rightly(
        self, committer: Committer
    ) -> None:
        """The queue never does it; a caller that does gets two answers and not an error."""
        stream = uuid4()
        assert _names(committer.commit([a_unit(a_change(stream)), a_unit(a_change(stream))])) == [
            "Committed",
            "Exists",
        ]
        advances = [a_unit(a_change(stream, 1)), a_unit(a_change(stream, 1, 2))]
        assert _names(committer.commit(advances)) == ["Committed", "Stale"]
        same = a_unit()
        first, second = committer.commit([same, same])
        assert isinstance(first, Committed)
        assert second == Committed(first.positions, found=True)

    def test_a_guard_in_many_units_of_a_group_keeps_its_balance(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Three of five reservations of 30 fit into 100, whichever transaction they share."""
        journal.set_ceiling(TENANT, "budget", 100)
        units = [a_unit(guards=[_reserve(30)]) for _ in range(5)]
        assert _names(committer.commit(units)) == ["Committed"] * 3 + ["Refused"] * 2
        assert _balance(journal) == (90, 0)

    def test_guards_count_use_and_evidence(self, journal: Journal, committer: Committer) -> None:
        """Evidence of an effect counts past the ceiling; a lowered ceiling undoes nothing."""
        journal.set_ceiling(TENANT, "budget", 100)
        acts: list[tuple[Any, int, tuple[int, int]]] = [
            ("reserve", 60, (60, 0)),
            ("consume", 40, (20, 40)),
            ("release", 5, (15, 40)),
            ("recount", 500, (515, 40)),
        ]
        for act, amount, balance in acts:
            commit(committer, a_unit(guards=[GuardChange("budget", act, amount)]))
            assert _balance(journal) == balance
        journal.set_ceiling(TENANT, "budget", 10)
        row = journal.guard(TENANT, "budget")
        assert row is not None
        assert (row.ceiling, row.reserved, row.consumed) == (10, 515, 40)

    def test_poison_fails_alone(self, journal: Journal, committer: Committer) -> None:
        """Eight units that no database takes, in a group of 200: 192 are committed."""
        units = [a_unit() for _ in range(200)]
        beyond = [GuardChange("budget", "recount", (1 << 62) - 1)] * 3
        journal.set_ceiling(TENANT, "budget", 100)
        poisons = {
            3: a_unit(a_change(topic="a\0b")),
            40: a_unit(a_change(actor="\ud800")),
            41: a_unit(a_change(recorded_at=datetime(2026, 1, 1))),
            77: a_unit(a_change(state=bytes(MAX_EVENT_BYTES), body=b"x")),
            78: a_unit(guards=beyond),
            120: a_unit(a_change(), guards=beyond),
            130: Unit(TENANT, ()),
            199: a_unit(a_change(head=a_head(priority=1 << 40))),
        }
        for number, poison in poisons.items():
            units[number] = poison
        answers = committer.commit(units)
        refused = {n for n, answer in enumerate(answers) if isinstance(answer, Invalid)}
        assert refused == set(poisons), Counter(_names(answers))
        assert _names(answers).count("Committed") == 192
        assert len(everything(journal)) == len(journal.heads(TENANT, limit=1000)) == 192
        assert _balance(journal) == (0, 0)

    def test_positions_follow_the_order_of_a_group(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Also past the point where a server stops planning each execution anew (the eleventh)."""
        chance = random.Random(72)
        units = [a_unit(a_change(events=chance.randint(1, 4))) for _ in range(60)]
        for _ in range(14):
            chance.shuffle(units)
            answers = commit(committer, *units)
            given = [n for answer in answers for positions in answer.positions for n in positions]
            assert given == sorted(given)
            units = [after(unit, chance.randint(1, 4)) for unit in units]
        versions: Counter[object] = Counter()
        for event in everything(journal):
            versions[event.stream] += 1
            assert event.originator_version == versions[event.stream]

    def test_references_find_their_stream(self, journal: Journal, committer: Committer) -> None:
        """A provider's name for an effect leads to the stream that had it, within its tenant."""
        unit = naming(a_unit(), "re_1", "re_2")
        commit(committer, unit)
        assert journal.referenced(TENANT, "stripe", "re_1") == stream_of(unit)
        assert journal.referenced(TENANT, "stripe", "re_2") == stream_of(unit)
        assert journal.referenced(TENANT, "stripe", "re_3") is None
        assert journal.referenced(TENANT, "adyen", "re_1") is None
        assert journal.referenced("globex", "stripe", "re_1") is None
        theirs = naming(a_unit(a_change(tenant="globex"), tenant="globex"), "re_1")
        commit(committer, theirs)
        assert journal.referenced("globex", "stripe", "re_1") == stream_of(theirs)

    def test_a_reference_belongs_to_one_stream(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Else two operations succeed on one refund of the provider, and one customer gets none."""
        journal.set_ceiling(TENANT, "budget", 100)
        first = naming(a_unit(), "re_1")
        rival = naming(a_unit(guards=[_reserve(60)]), "re_2", "re_1")
        others = [naming(a_unit(guards=[_reserve(40)]), "re_3"), naming(a_unit(), "re_2")]
        answers = committer.commit([first, rival, *others])
        taken = ReferenceTaken("stripe", "re_1", stream_of(first))
        assert answers[1] == taken
        assert _names(answers) == ["Committed", "ReferenceTaken", "Committed", "Committed"]
        late = ReferenceTaken("stripe", "re_2", stream_of(others[1]))
        assert committer.commit([rival, a_unit()])[0] == late
        assert journal.head(TENANT, stream_of(rival)) is None
        assert _balance(journal) == (40, 0)
        assert journal.referenced(TENANT, "stripe", "re_2") == stream_of(others[1])
        assert committer.commit([naming(after(others[0]), "re_1")]) == [taken]
        assert [event.originator_version for event in everything(journal)] == [1] * 4

    def test_a_stream_may_name_its_reference_again(
        self, journal: Journal, committer: Committer
    ) -> None:
        """A reply and a webhook both tell it; and the same unit again is found as any other is."""
        unit = naming(a_unit(), "re_1")
        (answer,) = commit(committer, unit)
        again = naming(after(unit), "re_1", "re_2", "re_2")
        commit(committer, again)
        assert committer.commit([unit]) == [Committed(answer.positions, found=True)]
        assert journal.referenced(TENANT, "stripe", "re_1") == stream_of(unit)
        assert journal.referenced(TENANT, "stripe", "re_2") == stream_of(unit)

    def test_what_stands_for_older_events_drops_them(
        self, journal: Journal, committer: Committer
    ) -> None:
        """In one transaction: what is left is read the same by stream, by position and by head."""
        unit, other = a_unit(a_change(events=3)), a_unit(a_change(events=2))
        commit(committer, unit, other)
        purge = purging(after(unit, 2))
        (answer,) = commit(committer, purge)
        assert answer.positions == ((6, 7),)
        left = journal.events(TENANT, stream_of(unit))
        assert [event.originator_version for event in left] == [4, 5]
        assert journal.streams([(TENANT, stream_of(unit))]) == {stream_of(unit): left}
        assert journal.events(TENANT, stream_of(unit), after=4) == left[1:]
        assert [event.position for event in everything(journal)] == [4, 5, 6, 7]
        assert [event.position for event in journal.read(0, 3).events] == [4, 5, 6]
        head = journal.head(TENANT, stream_of(unit))
        assert head is not None and head.version == 5
        assert committer.commit([purge]) == [Committed(answer.positions, found=True)]
        (going_on,) = commit(committer, after(purge))
        assert going_on.positions == ((8,),)
        again = a_unit(a_change(stream_of(unit)))
        assert committer.commit([again]) == [Exists(stream_of(unit), 6)]

    def test_a_purge_that_loses_drops_nothing(self, journal: Journal, committer: Committer) -> None:
        """Stale, refused by a guard, or of a kind that stands for nothing: every event is there."""
        journal.set_ceiling(TENANT, "budget", 1)
        unit = a_unit(a_change(events=3))
        commit(committer, unit)
        late = purging(a_unit(a_change(stream_of(unit), 2)))
        dear = replace(purging(after(unit)), guards=(_reserve(2),))
        plain = replace(after(unit).changes[0], drops_older=True)
        new = purging(a_unit())
        answers = committer.commit([late])
        answers += committer.commit([dear])
        answers += committer.commit([a_unit(plain), new])
        assert _names(answers) == ["Stale", "Refused", "Invalid", "Invalid"]
        assert [event.originator_version for event in everything(journal)] == [1, 2, 3]

    def test_purges_in_a_group_drop_each_their_own(
        self, journal: Journal, committer: Committer
    ) -> None:
        """Also where a server has stopped planning each execution anew, and beside a tenant."""
        units = [a_unit(a_change(events=n % 3 + 1)) for n in range(40)]
        same = stream_of(units[0])
        twin = a_unit(a_change(same, events=2, tenant="globex"), tenant="globex")
        commit(committer, *units, twin)
        for _ in range(14):
            units = [purging(after(unit)) for unit in units]
            commit(committer, *units)
        assert len(everything(journal)) == 40 + 2
        for unit in units:
            (left,) = journal.events(TENANT, stream_of(unit))
            assert left.originator_version == unit.changes[0].last
        assert len(journal.events("globex", same)) == 2

    def test_tenants_do_not_meet(self, journal: Journal, committer: Committer) -> None:
        """The same stream id, guard and lane of two tenants are two of each."""
        stream = uuid4()
        journal.set_ceiling(TENANT, "budget", 1)
        commit(committer, a_unit(a_change(stream)))
        other = a_unit(a_change(stream, tenant="globex"), tenant="globex")
        commit(committer, other)
        assert [e.tenant for e in journal.events(TENANT, stream)] == [TENANT]
        assert [e.tenant for e in journal.events("globex", stream)] == ["globex"]
        refused = a_unit(tenant="globex", guards=[_reserve(1)])
        assert committer.commit([refused]) == [Refused("budget", 0)]
        assert journal.guard("globex", "budget") is None


class JoinRules(JournalRules):
    """Appending in a caller's own transaction, which commits or rolls back with it."""

    def test_what_joined_is_there_after_the_commit_alone(
        self, store: Store, journal: Journal
    ) -> None:
        """An intent without its order row, or the reverse, is what this exists to rule out."""
        kept, undone = a_unit(a_change(events=2)), a_unit()
        with store.transaction() as connection:
            answer = journal.join(connection, kept)
            assert isinstance(answer, Committed)
            assert journal.events(TENANT, stream_of(kept)) == []
        assert [e.position for e in everything(journal)] == list(answer.positions[0])
        with pytest.raises(Undone), store.transaction() as connection:
            assert isinstance(journal.join(connection, undone), Committed)
            raise Undone
        assert journal.head(TENANT, stream_of(undone)) is None
        assert len(everything(journal)) == 2

    def test_a_join_is_judged_like_any_other_unit(
        self, store: Store, journal: Journal, committer: Committer
    ) -> None:
        """What lost leaves the caller's transaction usable, with nothing of the unit in it."""
        journal.set_ceiling(TENANT, "budget", 10)
        unit = naming(a_unit(), "re_1")
        commit(committer, unit)
        with store.transaction() as connection:
            assert journal.join(connection, a_unit(a_change(stream_of(unit)))) == Exists(
                stream_of(unit), 1
            )
            assert journal.join(connection, a_unit(guards=[_reserve(11)])) == Refused("budget", 10)
            beyond = [GuardChange("budget", "recount", (1 << 62) - 1)] * 3
            assert isinstance(journal.join(connection, a_unit(guards=beyond)), Invalid)
            assert isinstance(journal.join(connection, Unit(TENANT, ())), Invalid)
            rival = naming(a_unit(guards=[_reserve(1)]), "re_1")
            assert journal.join(connection, rival) == ReferenceTaken(
                "stripe", "re_1", stream_of(unit)
            )
            again = journal.join(connection, unit)
            assert isinstance(again, Committed)
            assert again.found
            assert isinstance(journal.join(connection, after(unit)), Committed)
        assert [e.originator_version for e in everything(journal)] == [1, 2]
        assert _balance(journal) == (0, 0)

    def test_only_an_open_transaction_can_be_joined(self, store: Store, journal: Journal) -> None:
        """Without one the unit would be durable by itself, which is not what was asked for."""
        with store.transaction() as connection:
            pass
        with pytest.raises(SettledError):
            journal.join(connection, a_unit())
        with pytest.raises(SettledError):
            journal.join("not a connection", a_unit())
        assert everything(journal) == []
