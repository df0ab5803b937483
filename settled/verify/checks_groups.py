"""A39: groups of everything that can go wrong, from eight processes at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from uuid import NAMESPACE_OID, UUID, uuid5

from settled.domain.journal.port import Journal
from settled.domain.journal.unit import Answer, Busy, Committed, Exists, Invalid, Unit
from settled.infrastructure.journal.opening import sqlite_path
from settled.infrastructure.testing.journal_store import (
    Processes,
    Store,
    postgres_store,
    sqlite_store,
)
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_unit,
    commit,
    everything,
)
from settled.verify.check import POSTGRESQL, SQLITE, check, check_each
from settled.verify.stage import Stage

PROCESSES = 8
HELD = uuid5(NAMESPACE_OID, "held by somebody else")
TAKEN = uuid5(NAMESPACE_OID, "taken already")
ROUNDS = 14
"""More than the ten executions after which a server may keep one plan."""

GOOD = 10
"""How many units of a group have nothing against them."""


def commit_mixed(store: Store, journal: Journal, number: int, *, held: bool) -> list[UUID]:
    """Commit groups in which units lose for every reason; return the streams of the others."""
    kept: list[UUID] = []
    with closing(journal.committer()) as committer:
        for turn in range(ROUNDS):
            twice = uuid5(NAMESPACE_OID, f"process {number} round {turn}")
            good = [a_unit(a_change(events=1 + n % 3)) for n in range(GOOD)]
            losers: list[Unit] = [a_unit(a_change(actor="a\0b")), a_unit(a_change(TAKEN))]
            if held:
                losers.append(a_unit(a_change(HELD, 1)))
            group = [a_unit(a_change(twice)), *good[:5], *losers, *good[5:]]
            _judge(committer.commit([*group, a_unit(a_change(twice))]), twice, held)
            kept += [twice, *(unit.changes[0].stream for unit in good)]
    return kept


def _judge(answers: Sequence[Answer], twice: UUID, held: bool) -> None:
    poison, taken, *busy = answers[6 : 9 if held else 8]
    assert isinstance(poison, Invalid)
    assert taken == Exists(TAKEN, 1)
    assert all(isinstance(answer, Busy) for answer in busy)
    assert answers[-1] == Exists(twice, 1)
    others = [*answers[:6], *answers[8 + len(busy) : -1]]
    assert len(others) == 1 + GOOD
    assert all(isinstance(answer, Committed) for answer in others)


def _expect_others_kept(stage: Stage, store: Store, *, held: bool) -> None:
    """Run the processes; the others commit, and versions and positions ascend."""
    with closing(store.open()) as journal:
        results = Processes(store, partial(commit_mixed, held=held), PROCESSES).results()
        kept = [stream for streams in results for stream in streams]
        assert len(kept) == len(set(kept)) == PROCESSES * ROUNDS * (1 + GOOD)
        seen: dict[UUID, int] = {}
        position = 0
        for event in everything(journal):
            assert event.originator_version == seen.get(event.stream, 0) + 1
            assert event.position is not None and event.position > position
            seen[event.stream], position = event.originator_version, event.position
        expected = {TAKEN, *kept, *([HELD] if held else [])}
        assert seen.keys() == expected
        assert {row.stream: row.version for row in journal.heads(TENANT, limit=5000)} == seen


@check("A39", "SQLite: losers of every sort in each group, eight writers", databases=SQLITE)
def a39_losers_fail_no_other_under_sqlite(stage: Stage) -> None:
    """The same stream twice, a NUL and a conflict; a row is never busy alone here."""
    from settled.infrastructure.journal.sqlite.journal import SqliteJournal

    path = sqlite_path(stage.url)
    store = sqlite_store(path, partial(SqliteJournal, path))
    with closing(stage.app.journal.committer()) as committer:
        commit(committer, a_unit(a_change(TAKEN)))
    _expect_others_kept(stage, store, held=False)


@check_each(
    "A39",
    "losers of every sort in each group, eight writers, plan_cache_mode {}",
    ["auto", "force_generic_plan"],
    databases=POSTGRESQL,
)
def a39_losers_fail_no_other_under_postgresql(stage: Stage, mode: str) -> None:
    """The same stream twice, a NUL, a conflict and a busy row; the others do not even wait."""
    from settled.infrastructure.journal.postgres.address import Address
    from settled.infrastructure.journal.postgres.journal import PostgresJournal

    opening = partial(PostgresJournal, stage.url, settings={"plan_cache_mode": mode})
    address = Address.of(stage.url)
    with ExitStack() as stack:
        committer = stack.enter_context(closing(stage.app.journal.committer()))
        commit(committer, a_unit(a_change(HELD)), a_unit(a_change(TAKEN)))
        other = stack.enter_context(closing(address.connect({})))
        other.execute("BEGIN")
        other.execute("SELECT FROM agenda WHERE stream = %s FOR UPDATE", (HELD,))
        _expect_others_kept(stage, postgres_store(stage.url, opening), held=True)
