"""A purge takes the details of a settled operation and leaves its answers, on both databases.

It is the one thing here that destroys what was recorded, so everything that has to survive it is
asked afterwards: duplicates, late evidence, the record of the purge, a kill at any point.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import settled
from settled import (
    App,
    Identity,
    NotFound,
    NotPossible,
    OperationView,
    ParametersChanged,
    PermissionDenied,
    Principal,
    TransitionRefused,
)
from settled.domain.journal.unit import RecordedEvent
from settled.domain.operation.operation import Operation
from settled.domain.purges import Purges
from settled.infrastructure.audit.auditor import verify
from settled.processes.purging import recorded
from settled.processes.replay import historical, what_if
from tests.processes.purged_kinds import KINDS, Money, RefundParams

ROOT = Path(__file__).resolve().parents[2]
AGENT = Principal("acme", "support-agent")
ADA = Principal("acme", "ada", frozenset({"operator"}))
NAME = "refund-request-9"
DETAILS = (b"order-72", b"Jane", b"30.00", b"run-7")
"""What nobody is to read any more after a purge of `done`."""


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with settled.open(store_url, kinds=KINDS, migrate=True, require_fsync=False) as opened:
        yield opened


def intend(app: App, name: str = NAME, *, order: str = "order-72", **given: Any) -> OperationView:
    kind, amount = given.get("kind", "refund"), given.get("amount", "30.00")
    params = RefundParams(order=order, amount=Money(amount, "USD"))
    return app.operations.intend(kind, name, params, by=AGENT, origin={"run": "run-7"})


def done(app: App, name: str = NAME, **given: Any) -> OperationView:
    """Return an operation that a worker has settled."""
    begun = intend(app, name, **given)
    app.start_worker()
    return app.operations.wait(begun, timeout_seconds=30)


def purge(app: App, operation: OperationView) -> OperationView:
    return app.operations.purge(operation, by=ADA, reason="thirty days are over")


def stream(app: App, operation: OperationView) -> list[RecordedEvent]:
    return app.journal.events("acme", Operation.stream(operation.identity))


def said(app: App) -> bytes:
    """Return everything that is in the log."""
    events = app.journal.read(0, 1000).events
    return b"".join(event.state + (event.body or b"") for event in events)


def tell(app: App, answered: str, reference: str | None, event: str = "evt_1") -> OperationView:
    told = app.operations.record_evidence(
        by=Principal("acme", "webhook"),
        provider="psp",
        answered=answered,
        kind="refund",
        operation_id=NAME,
        reference=reference,
        receipt={"id": reference, "amount": "30.00"},
        event_id=event,
    )
    assert told is not None
    return told


def test_the_details_are_gone_and_the_outcome_is_not(app: App) -> None:
    """One event is left, with the outcome; no parameter, receipt or word of anybody is anywhere."""
    before = done(app)
    assert all(detail in said(app) for detail in DETAILS)
    number = before.version
    left = purge(app, before)
    (only,) = stream(app, before)
    assert (only.originator_version, left.version) == (number + 1, number + 1)
    assert not any(detail in said(app) for detail in DETAILS[1:])
    assert b'"order-72"' not in said(app) and b"for order-72" not in said(app)
    kept = ("state", "reference", "provider_key", "digest", "attempts", "rule", "since", "provider")
    assert [getattr(left, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (left.params, left.receipt, left.reason) == (None, None, None)
    assert left.purged_at == only.recorded_at and only.actor == "ada"
    head = app.journal.head("acme", only.stream)
    assert head is not None and (head.version, head.due_at) == (number + 1, None)


def test_a_late_duplicate_gets_the_outcome(app: App) -> None:
    """Also after the purge: the same again is the same operation, and another amount is refused."""
    before = done(app)
    left = purge(app, before)
    assert intend(app) == left
    with pytest.raises(ParametersChanged, match="its details have been erased"):
        intend(app, amount="35.00")
    assert len(stream(app, before)) == 1
    assert app.journal.referenced("acme", "psp", "re_order-72") == stream(app, before)[0].stream


def test_a_late_decision_gets_the_first_one(app: App) -> None:
    """Who approves once more is answered, and what was rejected can be proposed anew."""
    lead = Principal("acme", "grace", frozenset({"approver"}))
    params = RefundParams(order="order-72", amount=Money("30.00", "USD"))
    proposal = app.operations.propose("decided", NAME, params, by=AGENT)
    decision: dict[str, Any] = {"proposal_version": 1, "digest": proposal.digest, "by": lead}
    rejected = app.operations.reject(proposal, **decision, reason="no receipt of Jane Roe")
    left = purge(app, rejected)
    assert left.state == "rejected" and b"Jane" not in said(app)
    assert app.operations.reject(left, **decision, reason="again") == left
    revised = app.operations.revise(left, params, by=AGENT)
    assert (revised.state, revised.proposal_version) == ("proposed", 2)
    decision |= {"proposal_version": 2, "digest": revised.digest}
    app.operations.approve(revised, **decision)
    app.start_worker()
    ended = app.operations.wait(revised, timeout_seconds=30)
    assert ended.state == "succeeded"
    assert app.operations.approve(purge(app, ended), **decision).state == "succeeded"


def test_late_evidence_lands(app: App) -> None:
    """A reversal reverses, what is known changes nothing, and another object brings a person in."""
    left = purge(app, done(app))
    assert left.reference == "re_order-72"
    again = tell(app, "performed", left.reference)
    assert again.state == "succeeded"
    assert tell(app, "performed", left.reference).version == again.version, "kept once"
    assert tell(app, "reversed", left.reference, "evt_2").state == "reversed"
    odd = tell(app, "performed", "re_other", "evt_3")
    assert (odd.state, odd.owner) == ("handed_over", "payments-oncall")
    ended = app.operations.settle(
        odd, outcome="succeeded", evidence={"statement": "line 7"}, by=ADA, reason="seen"
    )
    assert purge(app, ended).state == "succeeded"
    assert len(stream(app, ended)) == 1


def test_evidence_that_only_names_the_object_finds_it(app: App) -> None:
    """Webhooks mostly know the provider's name alone; the reference outlives the details."""
    left = purge(app, done(app))
    told = app.operations.record_evidence(
        by=Principal("acme", "webhook"),
        provider="psp",
        answered="reversed",
        reference="re_order-72",
    )
    assert told is not None and (told.identity, told.state) == (left.identity, "reversed")


def test_nothing_is_sent_again_from_what_is_left(app: App) -> None:
    """A failed operation cannot be issued anew: nobody knows any more what it asked for."""
    refused = done(app, order="order-0")
    seen: Any = {"evidence": {"statement": "no line"}, "by": ADA, "reason": "Jane Roe said so"}
    failed = app.operations.settle(refused, outcome="failed", **seen)
    left = purge(app, failed)
    assert (left.state, b"Jane" in said(app)) == ("failed", False)
    with pytest.raises(TransitionRefused, match="details were purged"):
        app.operations.reissue(left, by=ADA, reason="once more")
    assert tell(app, "performed", "re_7").state == "handed_over"


def test_what_is_open_stays(app: App) -> None:
    """Its details are what it goes on with; nobody but an operator may purge at all."""
    operation = intend(app)
    with pytest.raises(TransitionRefused, match="It is open"):
        purge(app, operation)
    with pytest.raises(PermissionDenied):
        app.operations.purge(operation, by=AGENT, reason="curious")
    with pytest.raises(PermissionDenied, match="another tenant"):
        app.operations.purge(
            operation, by=Principal("globex", "ada", frozenset({"operator"})), reason="?"
        )
    with pytest.raises(NotFound):
        app.operations.purge(Identity("acme", "refund", "unknown"), by=ADA, reason="?")
    assert [event.originator_version for event in stream(app, operation)] == [1]


def test_what_may_be_needed_as_evidence_stays(app: App) -> None:
    """Until the provider has forgotten the key; the error says until when. What was never sent
    has nothing to wait for.
    """
    settled_one = done(app, kind="kept")
    with pytest.raises(NotPossible, match=r"may be needed as evidence until \d{4}-") as caught:
        purge(app, settled_one)
    assert "by the contract of psp" in caught.value.message
    assert stream(app, settled_one)[0].originator_version == 1
    app.operations.purge(
        app.operations.cancel(_proposed(app), by=AGENT, reason="not wanted"), by=ADA, reason="old"
    )


def _proposed(app: App) -> OperationView:
    params = RefundParams(order="order-72", amount=Money("30.00", "USD"))
    return app.operations.propose("decided", "proposal-1", params, by=AGENT)


def test_twice_is_once(app: App, store_url: str) -> None:
    """A purge that is repeated changes nothing; what has come since goes with the next one."""
    left = purge(app, done(app))
    assert purge(app, left) == left
    later = tell(app, "performed", left.reference)
    assert later.version == left.version + 1
    twice = purge(app, later)
    (only,) = stream(app, twice)
    assert only.originator_version == twice.version == left.version + 2
    (first, second) = _entries(app)
    assert (first.events, second.events) == (left.version - 1, 2)
    assert (second.version, second.hash) == (twice.version, only.hash.hex())
    assert verify(app.journal, store_url).breaches == ()


def _entries(app: App) -> list[Any]:
    """Return what the record of purges says, in order."""
    records = app.journal.events("acme", Purges.stream("acme"))
    events: list[Any] = [app.ledger.mapper.to_domain_event(record) for record in records]
    assert all(event.actor == "ada" and event.reason for event in events)
    return [entry for event in events for entry in event.purged]


def test_purges_at_once_are_all_recorded(app: App, store_url: str) -> None:
    """They meet at the tenant's record, where one after the other gets through."""
    operations = [done(app, f"refund-request-{n}", order=f"order-{n}") for n in range(1, 13)]
    with ThreadPoolExecutor(6) as pool:
        left = list(pool.map(partial(purge, app), operations))
    assert {one.state for one in left} == {"succeeded"}
    assert sorted(entry.identity for entry in _entries(app)) == sorted(
        one.operation_id for one in operations
    )
    record = recorded(app.ledger, "acme")
    assert record is not None and record.streams == 12
    assert verify(app.journal, store_url).breaches == ()


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_kill_leaves_all_or_nothing(app: App, store_url: str, point: str) -> None:
    """SIGKILL around the commit: the stream reads the same, and the next purge ends it."""
    before = done(app)
    reads = (before.state, before.reference, before.digest)
    code = "import os, sys; from settled.infrastructure.testing.faults import install;"
    code += "install(os.environ); from settled.cli import run; sys.exit(run(sys.argv[1:]))"
    kinds = ROOT / "tests" / "processes" / "purged_kinds.py"
    command = ["ops", "purge", NAME, "--tenant", "acme", "--kinds", f"{kinds}:KINDS"]
    command += ["--actor", "ada", "--reason", "thirty days are over", "--accept-unsafe-store"]
    environment = {"SETTLED_URL": store_url, "SETTLED_FAULT": f"{point}:Purged=kill"}
    killed = subprocess.run(
        [sys.executable, "-c", code, *command],
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    begins = stream(app, before)[0].originator_version
    assert begins == (1 if point == "before_commit" else before.version + 1)
    now = app.operations.get("refund", NAME, by=AGENT)
    assert (now.state, now.reference, now.digest) == reads
    assert verify(app.journal, store_url).breaches == ()
    left = purge(app, now)
    assert (left.state, left.reference, left.digest) == reads
    assert len(stream(app, left)) == len(_entries(app)) == 1
    assert verify(app.journal, store_url).breaches == ()


def test_what_is_left_is_explained_and_replayed(app: App) -> None:
    """History, why, replay and what-if say what is gone, and find nothing wrong."""
    left = purge(app, done(app))
    (entry,) = app.operations.history(left, by=AGENT)
    assert (entry.name, entry.fields["events"]) == ("Purged", left.version - 1)
    told = app.operations.why(left, by=AGENT)
    assert told.happened == "the provider performed it, receipt re_order-72"
    assert told.since == left.since and told.rule == left.rule
    assert any("purged at" in note and "thirty days are over" in note for note in told.notes)
    report = historical(app.journal, app.ledger.mapper)
    assert (report.odd_count, report.oddities, report.streams) == (0, (), 2)
    tell(app, "performed", left.reference)
    operation, decisions = what_if(stream(app, left), app.ledger.mapper, app.kinds)
    assert operation.purged_at == left.purged_at
    assert [decision.differs for decision in decisions] == [False]


def test_a_cancel_after_the_purge_is_refused_as_before(app: App) -> None:
    """What a settled operation refuses it still refuses, with the same error."""
    before = done(app)
    with pytest.raises(TransitionRefused) as first:
        app.operations.cancel(before, by=AGENT, reason="too late")
    left = purge(app, before)
    with pytest.raises(TransitionRefused) as second:
        app.operations.cancel(left, by=AGENT, reason="too late")
    assert first.value.message == second.value.message
