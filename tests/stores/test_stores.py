"""Stores that earlier versions wrote, with their own wheels, are at home in today's code.

Each folder here is one of them, made by `make.py` when that version was current, on SQLite and as
SQL of PostgreSQL. Nobody can let an event, a table or a fold become unreadable unnoticed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import settled
from settled import App, Money, ParametersChanged, Params, Principal, TransitionRefused
from settled.domain.kind import Kind
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.operation import Operation
from settled.infrastructure.audit.auditor import verify
from settled.infrastructure.journal.migrate import migrate
from settled.infrastructure.journal.opening import is_sqlite, open_target, sqlite_path
from settled.infrastructure.testing.journal_units import eventually
from settled.processes.replay import historical
from settled.projections.operations import OperationsProjection
from tests.projections.test_rebuild import rebuilt
from tests.stores import shop

HERE = Path(__file__).resolve().parent
STORES = sorted(path.parent for path in HERE.glob("*/store.json"))
BY = Principal("acme", "support-agent")
OPERATOR = Principal("acme", "ada", frozenset({"operator"}))

ENDS = {
    **{"ready": "succeeded", "claimed": "succeeded", "dispatching": "succeeded"},
    **{"accepted": "succeeded", "outcome_unknown": "succeeded"},
}
"""Where a worker of today brings what is open; everything else stays as it is."""


@dataclass(frozen=True)
class Opened:
    """A store that was written by an earlier version, and what was in it then."""

    app: App
    url: str
    states: dict[str, str]
    events: int


@pytest.fixture(params=STORES, ids=lambda folder: folder.name)
def opened(request: pytest.FixtureRequest, store_url: str) -> Iterator[Opened]:
    """One of the stores, put into a fresh database and brought up to today's tables."""
    folder: Path = request.param
    written: dict[str, Any] = json.loads((folder / "store.json").read_text(encoding="utf-8"))
    if is_sqlite(store_url):
        sqlite_path(store_url).write_bytes(gzip.decompress((folder / "store.db.gz").read_bytes()))
    else:
        text = gzip.decompress((folder / "store.sql.gz").read_bytes())
        with psycopg.connect(store_url, autocommit=True) as connection:
            connection.execute(text)
    with open_target(store_url) as target:
        migrate(target)
    with settled.open(store_url, kinds=shop.KINDS, require_fsync=False) as app:
        # It is where it was never before. Nobody else goes on with it, so nothing that is ready
        # may have been sent, as `settled adopt` would have to suppose.
        app.journal.adopt()
        yield Opened(app, store_url, written["states"], written["events"])


def test_there_are_stores() -> None:
    """A pattern that finds nothing would make every store readable."""
    assert STORES
    for folder in STORES:
        states = json.loads((folder / "store.json").read_text(encoding="utf-8"))["states"]
        assert set(LIFECYCLE.states) <= set(states.values()), folder.name
        assert sum(path.stat().st_size for path in folder.iterdir()) < 200_000


def test_every_stream_is_loaded(opened: Opened) -> None:
    """Each is what it was, by its events as by the agenda, and the chain of hashes holds."""
    app = opened.app
    rows = {f"{row.kind}/{row.identity}": row for row in app.journal.heads(limit=1_000)}
    assert {name: row.state for name, row in rows.items()} == opened.states
    loaded = {name: app.ledger.load(row.tenant, row.stream) for name, row in rows.items()}
    assert {name: machine and machine.state for name, machine in loaded.items()} == opened.states
    report = historical(app.journal, app.ledger.mapper)
    assert (report.oddities, report.events) == ((), opened.events)
    audit = verify(app.journal, opened.url)
    assert (audit.breaches, audit.events) == ((), opened.events)


def test_the_view_is_built(opened: Opened) -> None:
    """Folded live and built anew, it shows the same, and every operation."""
    projector, declared = opened.app.projector(), OperationsProjection()
    projector.catch_up(declared)
    table = declared.operations.name
    shown = projector.fetch(f"SELECT kind, operation_id, state FROM {table}")
    others = ("evidence/", "purges/")
    operations = {k: v for k, v in opened.states.items() if not k.startswith(others)}
    assert {f"{r['kind']}/{r['operation_id']}": r["state"] for r in shown} == operations
    assert rebuilt(opened.app, opened.url, declared).differences == ()


def test_a_worker_finishes_what_is_open(opened: Opened) -> None:
    """With the kinds in the versions that were authorised; nothing is parked or left."""
    app = opened.app
    app.start_worker(settled.WorkerSettings(name="today", idle_seconds=0.02))
    expected = {name: ENDS.get(state, state) for name, state in opened.states.items()}

    def states() -> dict[str, str]:
        return {f"{r.kind}/{r.identity}": r.state for r in app.journal.heads(limit=1_000)}

    eventually(lambda: states() == expected, seconds=60)
    assert not app.journal.heads(parked=True)
    first = app.operations.get("refund", "order-ready-1", by=BY)
    assert first.receipt is not None
    assert historical(app.journal, app.ledger.mapper).odd_count == 0


def test_people_go_on_with_it(opened: Opened) -> None:
    """Duplicates are recognised, decisions are made, and what is over stays over."""
    operations = opened.app.operations
    done = operations.intend(shop.refund_1, "order-of-version-1", params("of-version-1"), by=BY)
    assert done.state == "succeeded"
    with pytest.raises(ParametersChanged):
        operations.intend(shop.refund_1, "order-of-version-1", params("another"), by=BY)
    given = {**params("performed"), "reason": "damaged"}
    assert operations.intend("refund", "order-performed", given, by=BY).state == "succeeded"

    proposal = operations.get("decided", "order-proposed", by=BY)
    grace = Principal("acme", "grace", frozenset({"approver"}))
    version, digest = proposal.proposal_version, proposal.digest
    approved = operations.approve(proposal, proposal_version=version, digest=digest, by=grace)
    assert approved.state == "ready"

    handed = operations.get("blind", "order-handed-over", by=BY)
    evidence = {"statement": "line 7"}
    settled_ = operations.settle(
        handed, outcome="failed", evidence=evidence, by=OPERATOR, reason="not on the statement"
    )
    assert settled_.state == "failed"
    with pytest.raises(TransitionRefused):
        operations.cancel(done, by=BY, reason="too late")


def params(order: str) -> dict[str, Any]:
    return {"order": f"order-{order}", "amount": Money("30.00", "USD")}


def test_the_kinds_of_the_stores_are_a_release(opened: Opened) -> None:
    """Every operation in them has the version that it was authorised under here."""
    for row in opened.app.journal.heads(limit=1_000):
        machine = opened.app.ledger.load(row.tenant, row.stream)
        if isinstance(machine, Operation):
            kind: Kind[Any] | None = opened.app.kinds.known(machine)
            assert kind is not None and issubclass(kind.params, Params), row.identity
