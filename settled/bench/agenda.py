"""The claim, where a great many operations are open: one tenant has nearly all of them, due.

The floor is one UPDATE that takes as many rows of that tenant by the same index, and nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg

from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.meter import percentile
from settled.bench.raw_postgres import TAKE, connect
from settled.domain.journal.mapper import READER
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.postgres.address import Address, Texts
from settled.infrastructure.journal.postgres.claims import CLAIM

WANT = 64
"""How many rows a claim asks for."""

_SMALL_TENANTS = 100
_IN_SMALL = 10
_LEASE_SECONDS = 3_600.0
_KIND = "refund"
_BIG_LANE = "tenant-0/refund/function"

_FILL_LANES = """
INSERT INTO settled.lane (lane)
SELECT 'tenant-' || n || '/refund/function' FROM generate_series(0, %s) AS n"""

# The ids are spread as those of real streams are: their order says nothing about due times.
_FILL = """
INSERT INTO settled.agenda
       (tenant, shard, stream, kind, identity, version, state, due_at, lane, priority, min_reader)
SELECT t.tenant, 0, md5(t.tenant || n)::uuid, 'refund', 'refund-' || n, 1, 'ready',
       now() - interval '1 day' + n * interval '10 milliseconds', t.tenant || '/refund/function',
       1, 1
  FROM (SELECT 'tenant-' || %s AS tenant) AS t, generate_series(1, %s) AS n"""

_SCANS = """
SELECT pg_stat_get_numscans(c.oid) FROM pg_class AS c WHERE c.oid = 'settled.agenda'::regclass"""


@dataclass(frozen=True)
class Agenda:
    """A database with a great many open operations."""

    url: str

    def ask(self, text: str, *values: object) -> list[tuple[object, ...]]:
        """Run one statement on a connection of its own."""
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def seq_scans(self) -> int:
        """Return how often the agenda was read from its beginning to its end so far."""
        ((found,),) = self.ask(_SCANS)
        return int(str(found))


@experiment(
    "agenda",
    "Claims from a long agenda",
    Figure("claim", "Claim of 64 from a long agenda, p95", "p95_ms", "ms", 5, Better.LOWER),
    Figure(
        *("claim-scans", "… scans of the whole agenda, planned or done", "scans", ""),
        *(0, Better.LOWER),
        beside=None,
    ),
)
def agenda(lab: Lab) -> Contenders:
    """Fill one database, and claim from it in each round."""
    found = Agenda(lab.cleaning.enter_context(lab.postgres()))
    found.ask(_FILL_LANES, _SMALL_TENANTS)
    small = _SMALL_TENANTS * _IN_SMALL
    found.ask(_FILL, 0, max(1, lab.sizes.open_operations - small))
    for tenant in range(1, _SMALL_TENANTS + 1):
        found.ask(_FILL, tenant, _IN_SMALL)
    with psycopg.connect(found.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE settled.agenda")
    return {OURS: lambda: _ours(found, lab), RAW: lambda: _raw(found, lab)}


def _ours(found: Agenda, lab: Lab) -> Sample:
    before = found.seq_scans()
    with ExitStack() as stack:
        journal = open_journal(found.url)
        stack.callback(journal.close)
        membership = journal.enrol("bench", _LEASE_SECONDS)
        stack.callback(membership.leave)
        committer = journal.committer()
        stack.callback(committer.close)

        def claim() -> float:
            begun = elapsed_seconds()
            rows = committer.claim(epoch=membership.epoch, kinds=(_KIND,), want=WANT, reader=READER)
            assert len(rows) == WANT, f"{len(rows)} rows were claimed"
            return elapsed_seconds() - begun

        took = [claim() for _ in range(lab.sizes.claims)]
    scans = found.seq_scans() - before + _planned_scans(found)
    return {**_percentiles(took), "scans": float(scans)}


def _planned_scans(found: Agenda) -> int:
    """Return how often the plan of the claim reads the whole agenda."""
    address = Address.of(found.url)
    text = b"EXPLAIN " + Texts(address.schema)[CLAIM]
    lanes = [f"tenant-{n}/refund/function" for n in range(_SMALL_TENANTS + 1)]
    never = [datetime(1, 1, 1, tzinfo=UTC)] * len(lanes)
    arguments = {"lane": lanes, "floor_0": never, "floor_1": never, "floor_2": never}
    limits: dict[str, object] = {
        "epoch": 1,
        "leave": [],
        "want": WANT,
        "cap": WANT,
        "takes": 1_000,
        "reader": READER,
    }
    with closing(address.connect({})) as connection:
        plan = [line for (line,) in connection.execute(text, {**arguments, **limits})]
    assert any("agenda_free" in line for line in plan), plan
    return sum("Seq Scan on agenda" in line for line in plan)


def _raw(found: Agenda, lab: Lab) -> Sample:
    with connect(found.url) as connection:

        def claim() -> float:
            begun = elapsed_seconds()
            rows = connection.execute(TAKE, (_BIG_LANE, WANT), prepare=True).fetchall()
            connection.commit()
            assert len(rows) == WANT, f"{len(rows)} rows were claimed"
            return elapsed_seconds() - begun

        return _percentiles([claim() for _ in range(lab.sizes.claims)])


def _percentiles(took: list[float]) -> Sample:
    return {"p50_ms": percentile(took, 0.5) * 1e3, "p95_ms": percentile(took, 0.95) * 1e3}
