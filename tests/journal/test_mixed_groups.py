"""A group of everything that can go wrong, from eight processes at once: A39 of the battery."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

import psycopg
import pytest

from settled.domain.journal.port import Journal
from settled.domain.journal.unit import Busy, Committed, Exists, Invalid
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.testing.journal_store import Processes, Store, postgres_store
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_unit,
    commit,
    everything,
)

HELD = uuid5(NAMESPACE_OID, "held by somebody else")
TAKEN = uuid5(NAMESPACE_OID, "taken already")
ROUNDS = 14
"""More than the ten executions after which a server may keep one plan."""


def commit_mixed(store: Store, journal: Journal, number: int) -> list[UUID]:
    """Commit groups in which five units lose for five reasons; return the streams of the others."""
    kept: list[UUID] = []
    with closing(journal.committer()) as committer:
        for _ in range(ROUNDS):
            twice = uuid4()
            good = [a_unit(a_change(events=1 + n % 3)) for n in range(10)]
            group = [
                a_unit(a_change(twice)),
                *good[:5],
                a_unit(a_change(actor="a\0b")),
                a_unit(a_change(TAKEN)),
                a_unit(a_change(HELD, 1)),
                *good[5:],
                a_unit(a_change(twice)),
            ]
            first, *answers = committer.commit(group)
            assert isinstance(first, Committed)
            poison, taken, held = answers[5:8]
            assert isinstance(poison, Invalid)
            assert taken == Exists(TAKEN, 1)
            assert isinstance(held, Busy)
            assert answers[-1] == Exists(twice, 1)
            assert all(isinstance(answer, Committed) for answer in answers[:5] + answers[8:-1])
            kept += [twice, *(unit.changes[0].stream for unit in good)]
    return kept


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
def test_a39_losers_of_every_sort_fail_no_other(postgres_url: str, mode: str) -> None:
    """A39: the same stream twice, a NUL, a conflict and a busy row in each group, eight writers.

    The others commit, versions and positions ascend, and nobody deadlocks.
    """
    settings = {"plan_cache_mode": mode}
    open_journal(postgres_url, migrate=True, require_fsync=False).close()
    opening = partial(PostgresJournal, postgres_url, require_fsync=False, settings=settings)
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with closing(opening()) as journal, psycopg.connect(postgres_url) as other:
        with closing(journal.committer()) as committer:
            commit(committer, a_unit(a_change(HELD)), a_unit(a_change(TAKEN)))
        other.execute("SELECT FROM settled.agenda WHERE stream = %s FOR UPDATE", (HELD,))
        results = Processes(postgres_store(postgres_url, opening), commit_mixed, 8).results()
        other.rollback()
        kept = [stream for streams in results for stream in streams]
        assert len(kept) == len(set(kept)) == 8 * ROUNDS * 11
        seen: dict[UUID, int] = {}
        for event in everything(journal):
            assert event.originator_version == seen.get(event.stream, 0) + 1
            seen[event.stream] = event.originator_version
        assert seen.keys() == {HELD, TAKEN, *kept}
        assert {row.stream: row.version for row in journal.heads(TENANT, limit=5000)} == seen
        assert other.execute(deadlocks).fetchone() == (0,)
