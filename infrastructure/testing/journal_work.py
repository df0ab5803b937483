"""What several processes do to one journal at once, for the rules that have to hold then."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing, suppress
from typing import Literal
from uuid import UUID

from settled.domain.journal.port import Journal
from settled.domain.journal.unit import Answer, Committed, GuardChange, Refused, Unit
from settled.infrastructure.testing.journal_store import Store
from settled.infrastructure.testing.journal_units import (
    a_change,
    a_unit,
    commit,
    commit_all,
    naming,
    stream_of,
)


class Undone(Exception):
    """What a caller raises to have its transaction rolled back."""


AMOUNT = 7
"""What one reservation takes of the guard."""


def create(stream: UUID, store: Store, journal: Journal, number: int) -> Answer:
    """Create one stream that all the others create as well."""
    with closing(journal.committer()) as committer:
        return commit_all(committer, [a_unit(a_change(stream))])[0]


def name(store: Store, journal: Journal, number: int) -> list[tuple[str, UUID, Answer]]:
    """Create streams of which each takes a reference that all the others want just then.

    Most of them alone in their transaction, where no second try hides what came of the first.
    """
    chance, heard = random.Random(number), list[tuple[str, UUID, Answer]]()
    references = [f"re_{n}" for n in range(20)]
    with closing(journal.committer()) as committer:
        while references:
            size = chance.choice([1, 1, 1, 3])
            some, references = references[:size], references[size:]
            units = [naming(a_unit(), reference) for reference in some]
            answers = commit_all(committer, units)
            heard += zip(some, map(stream_of, units), answers, strict=True)
    return heard


def spend(store: Store, journal: Journal, number: int) -> Counter[str]:
    """Reserve from one guard again and again, and release or consume some of it."""
    chance, tally = random.Random(number), Counter[str]()
    with closing(journal.committer()) as committer:
        for _ in range(8):
            units = [a_unit(guards=[GuardChange("budget", "reserve", AMOUNT)]) for _ in range(5)]
            settling: list[Unit] = []
            for unit, answer in zip(units, commit_all(committer, units), strict=True):
                assert isinstance(answer, Committed | Refused), answer
                tally[type(answer).__name__] += 1
                if isinstance(answer, Committed) and chance.random() < 0.6:
                    act: Literal["release", "consume"]
                    act = "consume" if chance.random() < 0.3 else "release"
                    change = a_change(unit.changes[0].stream, 1)
                    settling.append(a_unit(change, guards=[GuardChange("budget", act, AMOUNT)]))
                    tally[act] += 1
            commit(committer, *settling)
    return tally


def write(store: Store, journal: Journal, number: int) -> list[int]:
    """Append in every way there is, with pauses and undone transactions; return the positions."""
    chance, positions = random.Random(number), list[int]()
    with closing(journal.committer()) as committer:
        for _ in range(30):
            units = [a_unit(a_change(events=chance.randint(1, 3))) for _ in range(3)]
            answers: list[Answer] = []
            if chance.random() < 0.5:
                answers = commit_all(committer, units)
            else:
                with suppress(Undone), store.transaction() as connection:
                    joined = journal.join(connection, units[0])
                    time.sleep(chance.uniform(0, 0.01))  # the caller's own work
                    if chance.random() < 0.5:
                        raise Undone
                    answers = [joined]
            for answer in answers:
                assert isinstance(answer, Committed), answer
                positions += [p for given in answer.positions for p in given]
    return positions


def claim(store: Store, journal: Journal, number: int) -> list[UUID]:
    """Claim until the store gives nothing more for a while."""
    taken: list[UUID] = []
    with closing(journal.committer()) as committer:
        membership = journal.enrol(f"claimer {number}", 60)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and len(taken) < 200:
            rows = committer.claim(epoch=membership.epoch, kinds=["refund"], want=9, reader=1)
            assert {row.owner for row in rows} <= {membership.epoch}
            taken += [row.stream for row in rows]
            deadline = time.monotonic() + 0.5 if rows else deadline
    return taken
