"""What only PostgreSQL has: foreign locks, plans that age, deadlocks, and callers' transactions.

Goal: no other session's open transaction, and no plan the server keeps, changes what a commit does.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from settled.domain.errors import InvalidInput, StoreReadOnly
from settled.domain.journal.judge import next_group
from settled.domain.journal.unit import (
    Answer,
    Busy,
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
from settled.infrastructure.journal.postgres import reading
from settled.infrastructure.journal.postgres.address import Texts
from settled.infrastructure.journal.postgres.journal import PostgresJournal
from settled.infrastructure.testing.journal_store import Processes, Store, postgres_store
from settled.infrastructure.testing.journal_units import (
    TENANT,
    a_change,
    a_head,
    a_unit,
    after,
    commit,
    everything,
    naming,
    stream_of,
)

PLANS = ("auto", "force_generic_plan", "force_custom_plan")
RESERVE = GuardChange("budget", "reserve", 1)


def rows(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = settled")
        return connection.execute(query.encode(), values or None).fetchall()


def audit(journal: PostgresJournal) -> None:
    """Check that versions are contiguous, ascend with positions, and agree with the heads."""
    versions: Counter[UUID] = Counter()
    for event in everything(journal):
        versions[event.stream] += 1
        assert event.originator_version == versions[event.stream]
    heads = {row.stream: row.version for row in journal.heads(limit=1_000_000)}
    assert heads == dict(versions)


@contextmanager
def foreign(url: str) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
    """Open somebody else's transaction, which the test ends by itself."""
    with closing(psycopg.connect(url)) as connection:
        yield connection


def test_foreign_locks_delay_nobody(migrated_url: str, postgres: PostgresJournal) -> None:
    """Somebody's open transaction on heads, new streams, guards, references holds up no others."""
    postgres.set_ceiling(TENANT, "budget", 100)
    committer = postgres.committer()
    old = [a_unit() for _ in range(50)]
    commit(committer, *old)
    coming = naming(a_unit(), "re_1")
    with foreign(migrated_url) as other:
        other.execute(
            "SELECT FROM settled.agenda WHERE stream = %s FOR UPDATE", (stream_of(old[7]),)
        )
        other.execute("SELECT FROM settled.guard FOR UPDATE")
        assert isinstance(postgres.join(other, coming), Committed)
        rival, spender = a_unit(a_change(stream_of(coming))), a_unit(guards=[RESERVE])
        units = [*map(after, old), rival, spender, namesake := naming(a_unit(), "re_1")]
        began = time.perf_counter()
        answers = committer.commit(units)
        took = time.perf_counter() - began
        busy = [n for n, answer in enumerate(answers) if isinstance(answer, Busy)]
        assert busy == [7, 50, 51, 52]
        assert sum(isinstance(answer, Committed) for answer in answers) == 49
        assert took < 1.0, "waiting would end after the lock timeout of two seconds"
        other.commit()
    *late, taken = committer.commit([units[7], rival, spender, namesake])
    assert [type(answer) for answer in late] == [Committed, Exists, Committed]
    assert taken == ReferenceTaken("stripe", "re_1", stream_of(coming))
    audit(postgres)


@pytest.mark.parametrize("mode", PLANS)
def test_positions_ascend_under_every_plan(migrated_url: str, mode: str) -> None:
    """A generic plan that hashes the events gives streams descending positions."""
    settings = {"plan_cache_mode": mode}
    chance = random.Random(mode)
    with closing(PostgresJournal(migrated_url, require_fsync=False, settings=settings)) as journal:
        committer = journal.committer()
        units = [a_unit(a_change(events=chance.randint(1, 4))) for _ in range(100)]
        for _ in range(14):
            chance.shuffle(units)
            flat = [
                position
                for answer in commit(committer, *(units[:50])) + commit(committer, *(units[50:]))
                for positions in answer.positions
                for position in positions
            ]
            assert flat == list(range(flat[0], flat[0] + len(flat)))
            units = [after(unit, chance.randint(1, 4)) for unit in units]
        audit(journal)


@pytest.mark.parametrize("mode", PLANS)
def test_plans_made_for_small_tables_do_not_scan_large_ones(migrated_url: str, mode: str) -> None:
    """A join planned while its table was new reads the whole table until the next ANALYZE."""
    counts = (
        "SELECT sum(seq_scan), sum(seq_tup_read) FROM pg_stat_user_tables"
        " WHERE relname IN ('agenda', 'events', 'guard')"
    )
    settings = {"plan_cache_mode": mode}
    with closing(PostgresJournal(migrated_url, require_fsync=False, settings=settings)) as journal:
        journal.set_ceiling(TENANT, "budget", 1_000_000)
        committer, member = journal.committer(), journal.enrol("worker", 60)

        def work() -> None:
            mine = [a_unit(guards=[RESERVE]) for _ in range(10)]
            commit(committer, *mine)
            commit(committer, *map(after, mine))
            committer.commit(mine)
            claimed = committer.claim(epoch=member.epoch, kinds=["refund"], want=8, reader=1)
            assert len(claimed) == 8
            committer.release(epoch=member.epoch, rows=claimed)

        for _ in range(12):  # past the executions after which the server may keep a plan
            work()
        for _ in range(10):
            commit(committer, *(a_unit() for _ in range(1000)))
        flush(committer)
        before = rows(migrated_url, counts)
        work()
        flush(committer)
        assert rows(migrated_url, counts) == before


def flush(committer: Any) -> None:
    """Have the committer's server process publish what it has counted."""
    committer._session.connection.execute("SELECT pg_stat_force_next_flush()")


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"tenant": TENANT},
        {"tenant": TENANT, "after": (TENANT, UUID(int=0))},
        {"after": (TENANT, UUID(int=0))},
        {"states": ["handed_over", "outcome_unknown"]},
        {"tenant": TENANT, "states": ["handed_over"]},
        {"parked": True},
        {"tenant": TENANT, "overdue_at": a_head().due_at},
    ],
    ids=str,
)
def test_heads_are_found_by_an_index(
    migrated_url: str, postgres: PostgresJournal, filters: dict[str, Any]
) -> None:
    """A console that asks what is handed over must not read a million settled streams."""
    rows(
        migrated_url,
        "INSERT INTO agenda (tenant, shard, stream, kind, identity, version, state, lane,"
        " priority, min_reader) SELECT 'acme', 0, gen_random_uuid(), 'refund', 'r', 1,"
        " 'succeeded', 'acme/refund/stripe', 1, 1 FROM generate_series(1, 20000) RETURNING 1",
    )
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("ANALYZE settled.agenda")
        none: dict[str, Any] = dict.fromkeys(
            ("tenant", "kind", "lane", "overdue_at", "parked", "after")
        )
        every: dict[str, Any] = none | {"states": (), "limit": 100} | filters
        text, values = reading.heads(**every)
        plan = connection.execute(
            b"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + Texts("settled")[text], values
        ).fetchall()
    told = "\n".join(line for (line,) in plan)
    assert "Seq Scan on agenda" not in told, told
    assert "Sort Key: a.tenant" not in told or "s.sought" in told, told


def _clash(store: Store, journal: Any, number: int) -> Counter[str]:
    """Overlapping creations and advances in random order; sometimes a join, a claim, a release."""
    chance = random.Random(number)
    committer, member = journal.committer(), journal.enrol(f"worker {number}", 60)
    versions: dict[UUID, int] = {}
    tally: Counter[str] = Counter()
    began = time.monotonic()
    while (passed := time.monotonic() - began) < 4:
        window = int(passed * 40)
        streams = [uuid5(NAMESPACE_OID, str(window + n)) for n in range(60)]
        units: list[Unit] = []
        for _ in range(chance.choice([1, 5, 30])):
            some = chance.sample(streams, chance.choice([1, 1, 2, 3]))
            counted = [GuardChange("budget", "recount", 1)] if chance.random() < 0.1 else []
            changes = [a_change(s, versions.get(s, 0), chance.choice([1, 2])) for s in some]
            names = chance.sample(range(window, window + 60), chance.choice([0, 0, 1, 2]))
            units.append(naming(a_unit(*changes, guards=counted), *(f"re_{n}" for n in names)))
        group, _ = next_group(units, 30)
        way = chance.random()
        answers: list[Answer] = []
        if way < 0.8:
            answers = committer.commit(group)
        elif way < 0.9:
            with store.transaction() as connection:
                answers = [journal.join(connection, group[0])]
        else:
            claimed = committer.claim(epoch=member.epoch, kinds=["refund"], want=8, reader=1)
            committer.release(epoch=member.epoch, rows=claimed)
        for unit, answer in zip(group, answers, strict=False):
            tally[type(answer).__name__] += 1
            if isinstance(answer, Committed):
                versions |= {change.stream: change.last for change in unit.changes}
            elif isinstance(answer, Exists | Stale):
                versions[answer.stream] = answer.version
            else:
                assert isinstance(answer, Busy | ReferenceTaken), answer
    return tally


def test_rivals_never_deadlock(migrated_url: str, postgres: PostgresJournal) -> None:
    """Group, waiting form, claims and releases take their locks in an order that cannot circle."""
    postgres.set_ceiling(TENANT, "budget", 10)
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    store = postgres_store(
        migrated_url, partial(PostgresJournal, migrated_url, require_fsync=False)
    )
    tally = sum(Processes(store, _clash, 5).results(), Counter[str]())
    assert tally["Committed"] > 100 and tally["Stale"] > 0 and tally["ReferenceTaken"] > 0, tally
    assert rows(migrated_url, deadlocks) == [(0,)]
    audit(postgres)


def test_a_read_only_server_is_told_apart(migrated_url: str, postgres: PostgresJournal) -> None:
    """After a failover to a standby the remedy is another URL, and nothing was written."""
    commit(postgres.committer(), old := a_unit())
    name = conninfo_to_dict(migrated_url)["dbname"]
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        with pytest.raises(StoreReadOnly, match="read-only"):
            postgres.committer().commit([a_unit()])
        with pytest.raises(StoreReadOnly, match="read-only"):
            postgres.committer().commit([after(old)])
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
    assert len(everything(postgres)) == 1


def test_readers_stop_in_front_of_a_join_and_nobody_else_does(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """A caller that keeps its transaction open delays the log, not the others' commits."""
    postgres.set_ceiling(TENANT, "budget", 100)
    committer = postgres.committer()
    for end in ("rollback", "commit"):
        before = len(everything(postgres))
        unit = a_unit(a_change(events=2), guards=[GuardChange("budget", "reserve", 30)])
        unit = naming(unit, "re_1")
        with foreign(migrated_url) as own:
            assert isinstance(postgres.join(own, unit), Committed)
            too_much = a_unit(guards=[GuardChange("budget", "reserve", 80)])
            assert postgres.join(own, too_much) == Refused("budget", 70)
            others = committer.commit([*(a_unit() for _ in range(50)), a_unit(guards=[RESERVE])])
            assert Counter(map(type, others)) == {Committed: 50, Busy: 1}
            assert len(everything(postgres)) == before
            getattr(own, end)()
        committed = end == "commit"
        assert len(everything(postgres)) == before + 50 + 2 * committed
        row = postgres.guard(TENANT, "budget")
        assert row is not None and row.reserved == 30 * committed
        owner = stream_of(unit) if committed else None
        assert postgres.referenced(TENANT, "stripe", "re_1") == owner
    audit(postgres)


def test_any_connection_of_the_caller_can_be_joined(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """Its row factory, cursors, search_path and durability are its own business."""
    options = "-c search_path=pg_catalog -c synchronous_commit=off"
    client_cursor: Any = psycopg.ClientCursor
    with psycopg.Connection[dict[str, Any]].connect(
        migrated_url, row_factory=dict_row, options=options
    ) as own:
        own.cursor_factory = client_cursor
        assert isinstance(postgres.join(own, a_unit()), Committed)
        assert own.execute("SHOW synchronous_commit").fetchone() == {"synchronous_commit": "on"}
        assert own.execute("SHOW search_path").fetchone() == {"search_path": "pg_catalog"}
        assert own.execute("SELECT count(*) FROM settled.events").fetchone() == {"count": 1}
    assert len(everything(postgres)) == 1


def test_a_join_that_fails_leaves_the_caller_its_transaction(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """The order row must not be lost to a unit that the database refuses."""
    postgres.set_ceiling(TENANT, "budget", 1)
    beyond = [GuardChange("budget", "recount", (1 << 62) - 1)] * 3
    held = a_unit()
    with foreign(migrated_url) as other, psycopg.connect(migrated_url) as own:
        postgres.join(other, held)
        own.execute("CREATE TABLE orders (id int)")
        own.execute("SET LOCAL lock_timeout = '50ms'")
        assert isinstance(postgres.join(own, a_unit(guards=beyond)), Invalid)
        assert isinstance(postgres.join(own, a_unit(a_change(stream_of(held)))), Busy)
        own.execute("INSERT INTO orders VALUES (72)")
    assert rows(migrated_url, "SELECT id FROM public.orders") == [(72,)]
    assert everything(postgres) == []


def test_only_a_read_committed_transaction_can_be_joined(
    migrated_url: str, postgres: PostgresJournal
) -> None:
    """An older snapshot would be judged by what it cannot see."""
    with psycopg.connect(migrated_url) as own:
        own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        own.execute("SELECT 1")
        with pytest.raises(InvalidInput, match="repeatable read"):
            postgres.join(own, a_unit())
    with psycopg.connect(migrated_url, autocommit=True) as own:
        with pytest.raises(InvalidInput, match="not inside a transaction"):
            postgres.join(own, a_unit())
    assert everything(postgres) == []


def test_a_fence_lets_only_the_owner_write(postgres: PostgresJournal) -> None:
    """Who lost a row may add evidence; a second dispatch by the old owner is what fences stop."""
    committer, member = postgres.committer(), postgres.enrol("worker", 30)
    commit(committer, unit := a_unit())
    committer.claim(epoch=member.epoch, kinds=["refund"], want=1, reader=1)
    held = a_head(held=True, progress=False)
    (answer,) = committer.commit([after(unit, head=held, fence=member.epoch + 1)])
    assert answer == Lost(stream_of(unit), member.epoch)
    commit(committer, after(unit, head=held, fence=member.epoch))
    row = postgres.head(TENANT, stream_of(unit))
    assert row is not None and (row.owner, row.takes, row.version) == (member.epoch, 1, 2)
    commit(committer, a_unit(a_change(stream_of(unit), 2)))
    row = postgres.head(TENANT, stream_of(unit))
    assert row is not None and (row.owner, row.takes) == (None, 0)
