"""Budgets over a real store and a real worker: never overspent, and given back when nothing came.

The row that guards a budget changes in the commit of the operation's events; what it says is
compared with the streams themselves.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

import settled
from settled import (
    Approval,
    Budget,
    BudgetExceeded,
    Money,
    NotFound,
    Params,
    PermissionDenied,
    Principal,
)
from settled.domain.contract import ProviderContract
from settled.domain.operation.operation import HOLDS, Operation
from settled.infrastructure.journal.opening import sqlite_path
from settled.infrastructure.simulator.contract import simulator_contract
from settled.infrastructure.testing.journal_units import eventually
from settled.projections.budgets import BudgetsProjection

AGENT = Principal("acme", "agent")
OPERATOR = Principal("acme", "ada", frozenset({"operator", "approver"}))
NAME = "captured:payment-7"
KEY = f"{NAME} USD"
CONTRACT: ProviderContract = simulator_contract()


class RefundParams(Params):
    """A refund of a part of a payment."""

    payment: str
    amount: Money


class Provider:
    """Performs, refuses, or leaves open, as the operation's id says."""

    def __init__(self) -> None:
        self.performed: list[Money] = []
        self.mutex = threading.Lock()

    def __call__(self, call: settled.Call, params: RefundParams) -> settled.Reply:
        name = call.identity.operation_id
        if name.startswith("refused"):
            return settled.Reply.refused("declined")
        if name.startswith("unknown"):
            return settled.Reply.unknown("no answer")
        with self.mutex:
            self.performed.append(params.amount)
        return settled.Reply.performed({"id": f"re_{name}"}, reference=f"re_{name}")


@pytest.fixture
def provider() -> Provider:
    """A provider that enforces nothing."""
    return Provider()


@pytest.fixture
def kinds(provider: Provider) -> list[settled.Kind[RefundParams]]:
    """A kind that is intended at once, and one that somebody approves."""
    given: dict[str, Any] = {
        "params": RefundParams,
        "provider": settled.FunctionProvider("psp", CONTRACT, provider),
        "hand_over_to": "payments-oncall",
        "budgets": (Budget("captured:{payment}", amount="amount"),),
    }
    approved = frozenset({"approver"})
    by_itself = Approval(approved, auto_below=(Money("1000.00", "USD"),))

    def all_of_it(params: RefundParams) -> RefundParams:
        return RefundParams(payment=params.payment, amount=Money("70.00", "USD"))

    return [
        settled.Kind("refund", **given),
        settled.Kind("big", approvers=approved, **given),
        settled.Kind("grown", approvers=by_itself, revalidate=all_of_it, **given),
    ]


@pytest.fixture
def app(store_url: str, kinds: list[settled.Kind[RefundParams]]) -> Generator[settled.App]:
    """The service's side, without a worker, and with 100.00 USD captured."""
    with settled.open(store_url, kinds=kinds, migrate=True, require_fsync=False) as app:
        app.budgets.allow(NAME, Money("100.00", "USD"), by=OPERATOR, reason="captured")
        yield app


def intend(app: settled.App, name: str, amount: str, kind: str = "refund") -> settled.OperationView:
    params = {"payment": "payment-7", "amount": Money(amount, "USD")}
    return app.operations.intend(kind, name, params, by=AGENT)


def held(app: settled.App) -> tuple[int, int]:
    view = app.budgets.get(KEY, by=AGENT)
    return view.reserved, view.consumed


def test_reserved_by_the_intent_and_used_by_success(app: settled.App) -> None:
    """An intent that would overspend writes nothing, and says what is left."""
    first = intend(app, "refund-1", "60.00")
    with pytest.raises(BudgetExceeded, match=r"has 40\.00 USD left, and this needs 60\.00 USD"):
        intend(app, "refund-2", "60.00")
    with pytest.raises(NotFound):
        app.operations.get("refund", "refund-2", by=AGENT)
    assert held(app) == (6000, 0)
    assert intend(app, "refund-1", "60.00").version == first.version, "it attaches, also now"
    app.start_worker()
    app.operations.wait(first, timeout_seconds=30)
    assert held(app) == (0, 6000)


def test_given_back_by_a_definitive_failure_and_reserved_again_by_a_reissue(
    app: settled.App,
) -> None:
    """A failure frees the share for others; who begins it anew has to find room again."""
    app.start_worker()
    failed = app.operations.wait(intend(app, "refused-1", "60.00"), timeout_seconds=30)
    assert (failed.state, held(app)) == ("failed", (0, 0))
    other = intend(app, "refund-2", "60.00")
    app.operations.wait(other, timeout_seconds=30)
    with pytest.raises(BudgetExceeded, match=r"40\.00 USD left"):
        app.operations.reissue(failed, by=OPERATOR, reason="once more")
    assert app.operations.get("refund", "refused-1", by=AGENT).state == "failed"
    assert held(app) == (0, 6000)


def test_kept_while_nobody_knows_and_settled_by_hand(app: settled.App) -> None:
    """What may have happened stays reserved until somebody knows."""
    first = intend(app, "unknown-1", "60.00")
    second = intend(app, "unknown-2", "40.00")
    app.start_worker()
    names = [first.operation_id, second.operation_id]
    eventually(lambda: all(app.operations.get("refund", name, by=AGENT).attempts for name in names))
    assert held(app) == (10000, 0)
    with pytest.raises(BudgetExceeded):
        intend(app, "refund-3", "0.01")


def test_cancelled_expired_and_revised_give_back(app: settled.App) -> None:
    """Whatever ends before anything was sent leaves the budget as it was."""
    cancelled = intend(app, "refund-1", "60.00")
    app.operations.cancel(cancelled, by=AGENT, reason="never mind")
    assert held(app) == (0, 0)
    revised = intend(app, "refund-2", "60.00")
    params = {"payment": "payment-7", "amount": Money("70.00", "USD")}
    proposal = app.operations.revise(revised, params, by=AGENT)
    assert held(app) == (0, 0), "a proposal holds nothing"
    app.operations.approve(
        proposal, proposal_version=proposal.proposal_version, digest=proposal.digest, by=OPERATOR
    )
    assert held(app) == (7000, 0), "what was approved is reserved, not what was asked for first"


def test_an_approval_that_would_overspend_is_refused(app: settled.App) -> None:
    """The person who approves is told, and the proposal still waits."""
    params = {"payment": "payment-7", "amount": Money("60.00", "USD")}
    proposals = [app.operations.propose("big", f"big-{n}", params, by=AGENT) for n in (1, 2)]

    def approve(proposal: settled.OperationView) -> settled.OperationView:
        return app.operations.approve(
            proposal, proposal_version=1, digest=proposal.digest, by=OPERATOR
        )

    approve(proposals[0])
    with pytest.raises(BudgetExceeded):
        approve(proposals[1])
    assert app.operations.get("big", "big-2", by=AGENT).state == "proposed"
    app.budgets.allow(NAME, Money("120.00", "USD"), by=OPERATOR, reason="captured the rest")
    assert approve(proposals[1]).state == "ready"


def test_terms_that_grow_beyond_the_budget_are_not_sent(
    app: settled.App, provider: Provider
) -> None:
    """A revalidation raises the amount, the policy would approve that, and not enough is left.

    It keeps what it has reserved, and is asked about again; once there is enough it may be sent.
    """
    params = {"payment": "payment-7", "amount": Money("20.00", "USD")}
    grown = app.operations.propose("grown", "refund-2", params, by=AGENT)
    intend(app, "unknown-1", "60.00")
    assert (grown.state, held(app)) == ("ready", (8000, 0))
    app.start_worker()

    def rests() -> bool:
        view = app.operations.get("grown", "refund-2", by=AGENT)
        return view.state == "ready" and "has 40.00 USD left" in str(view.reason)

    eventually(rests)
    assert held(app) == (8000, 0) and provider.performed == []


def test_evidence_counts_past_the_limit(app: settled.App) -> None:
    """A webhook says that a cancelled refund was paid: it is counted, whatever is left."""
    cancelled = intend(app, "refund-1", "60.00")
    app.operations.cancel(cancelled, by=AGENT, reason="never mind")
    intend(app, "refund-2", "80.00")
    app.operations.record_evidence(
        kind="refund",
        operation_id="refund-1",
        provider="psp",
        answered="performed",
        reference="re_9",
        receipt={"id": "re_9", "amount": 6000, "currency": "usd", "order": "order-72"},
        reason="webhook",
        by=AGENT,
    )
    assert app.operations.get("refund", "refund-1", by=AGENT).state == "handed_over"
    view = app.budgets.get(KEY, by=AGENT)
    assert (view.reserved, view.remaining) == (14000, -4000)


def test_nobody_said_what_it_allows(app: settled.App) -> None:
    """Without a ceiling nothing may be spent, and the error says how to give one."""
    params = {"payment": "payment-8", "amount": Money("1.00", "USD")}
    with pytest.raises(BudgetExceeded, match="Nobody has said") as refused:
        app.operations.intend("refund", "refund-1", params, by=AGENT)
    assert "settled budgets allow" in str(refused.value)


def test_only_an_operator_says_what_it_allows_and_it_is_recorded(app: settled.App) -> None:
    """Who raised a limit, and why, is in the log like everything else."""
    with pytest.raises(PermissionDenied):
        app.budgets.allow(NAME, Money("900.00", "USD"), by=AGENT, reason="please")
    app.budgets.allow(NAME, Money("50.00", "USD"), by=OPERATOR, reason="partly disputed")
    assert app.budgets.get(KEY, by=AGENT).ceiling == 5000
    page = app.journal.read(0, 100)
    said = [event for event in page.events if event.topic == "settled.budget.Allowed"]
    assert [event.actor for event in said] == ["ada", "ada"]
    assert said[-1].body is not None and b"partly disputed" in said[-1].body
    assert [view.key for view in app.budgets.all(by=AGENT)] == [KEY]
    assert app.budgets.all(by=Principal("globex", "agent")) == []


def test_the_callers_rollback_reserves_nothing(app: settled.App, store_url: str) -> None:
    """The intent and its reservation are in the caller's transaction together."""
    params = {"payment": "payment-7", "amount": Money("60.00", "USD")}
    for end, reserved in (("rollback", 0), ("commit", 6000)):
        with closing(_begun(store_url)) as connection:
            app.operations.intend("refund", "refund-1", params, by=AGENT, connection=connection)
            getattr(connection, end)()
        assert held(app) == (reserved, 0)


def test_many_at_once_never_overspend(app: settled.App, provider: Provider) -> None:
    """Eight threads and a worker: what is held is what the streams say, never over the limit."""
    app.start_worker()
    chance = random.Random(7)
    names = [f"{chance.choice(('refund', 'refund', 'refused', 'unknown'))}-{n}" for n in range(60)]
    amounts = [f"{chance.randint(1, 30)}.00" for _ in names]
    refused: list[str] = []

    def one(name: str, amount: str) -> settled.OperationView | None:
        try:
            return intend(app, name, amount)
        except BudgetExceeded:
            refused.append(name)
            return None
        finally:
            view = app.budgets.get(KEY, by=AGENT)
            assert view.reserved + view.consumed <= view.ceiling

    with ThreadPoolExecutor(8) as pool:
        begun = [view for view in pool.map(one, names, amounts) if view is not None]
    for view in begun:
        if not view.operation_id.startswith("unknown"):
            app.operations.wait(view, timeout_seconds=60)
    assert refused and begun
    assert sum(amount.minor for amount in provider.performed) <= 10000
    assert held(app) == in_streams(app)


def _begun(store_url: str) -> sqlite3.Connection | psycopg.Connection[Any]:
    """Return a connection of the caller's own, in an open transaction."""
    if not store_url.startswith("sqlite"):
        return psycopg.connect(store_url)
    connection = sqlite3.connect(sqlite_path(store_url), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def in_streams(app: settled.App) -> tuple[int, int]:
    """Return what the streams themselves say is reserved and consumed."""
    sums = {"reserved": 0, "consumed": 0, "nothing": 0}
    for row in app.journal.heads("acme", limit=1000):
        machine = app.ledger.load("acme", row.stream)
        if isinstance(machine, Operation):
            sums[HOLDS[machine.state]] += sum(one.amount for one in machine.terms.reserves)
    return sums["reserved"], sums["consumed"]


def test_the_view_says_who_draws_on_it(app: settled.App) -> None:
    """As far as its projection has come, and equal to a view that is built anew."""
    app.start_worker()
    app.operations.wait(intend(app, "refund-1", "10.00"), timeout_seconds=30)
    app.operations.wait(intend(app, "refused-2", "20.00"), timeout_seconds=30)
    app.projector().catch_up(BudgetsProjection())
    assert [
        (one.identity.operation_id, one.amount, one.holds)
        for one in app.budgets.draws(KEY, by=AGENT)
    ] == [("refund-1", 1000, "consumed")]
