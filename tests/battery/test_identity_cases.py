"""Which starts are one operation and which are two, seen from the provider's log."""

from __future__ import annotations

import math
import threading
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import orjson
import pytest

import settled
from settled import (
    BudgetExceeded,
    InvalidInput,
    InvalidMoney,
    InvalidParams,
    Money,
    ParametersChanged,
)
from settled.domain.identity import Identity
from settled.verify import kinds
from settled.verify.stage import AGENT, OPERATOR, Stage


def test_case_11_two_equal_partial_refunds_are_two(stage: Stage) -> None:
    """CASE 11: two refunds of 10.00, minutes apart, are two; a late redelivery is the first."""
    stage.worker()
    first = stage.wait(stage.intend("refund-1", amount="10.00"), "succeeded")
    stage.simulator.advance_clock(240)
    second = stage.wait(stage.intend("refund-2", amount="10.00"), "succeeded")
    again = stage.intend("refund-1", amount="10.00")
    assert (again.reference, again.version) == (first.reference, first.version)
    assert first.provider_key != second.provider_key
    assert {request.key for request in stage.simulator.log().calls()} == {
        first.provider_key,
        second.provider_key,
    }
    assert (stage.requests(), stage.effects()) == (2, 2)
    stage.check_invariant(first, second)


def test_case_12_an_agent_plans_again(stage: Stage) -> None:
    """CASE 12: after a timeout the agent calls again: one operation, whatever it calls its call."""
    operations = stage.app.operations
    asked: dict[str, Any] = {"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}
    stage.simulator.fault(hold_after=True)
    worker = stage.worker()
    first = operations.intend(
        "agent-refund", "order-72", asked, by=AGENT, origin={"tool_call": "call-1"}
    )
    stage.simulator.wait(held=1)
    worker.kill()
    told = operations.intend(
        "agent-refund",
        "order-72",
        {**asked, "note": "retry"},
        by=AGENT,
        origin={"tool_call": "call-2"},
    )
    assert told.version == stage.get(first).version
    with pytest.raises(InvalidParams):
        as_float = {"order": "order-72", "amount": {"amount": 30.0, "currency": "USD"}}
        operations.intend("agent-refund", "order-72", as_float, by=AGENT)
    with pytest.raises(ParametersChanged, match=r"35\.00"):
        other = {"order": "order-72", "amount": {"amount": "35.00", "currency": "USD"}}
        operations.intend("agent-refund", "order-72", other, by=AGENT)
    assert stage.get(first).version == told.version
    assert stage.requests() == 1
    stage.simulator.release()
    stage.worker("second")
    done = stage.wait(first, "succeeded")
    assert stage.effects() == 1
    stage.check_invariant(done)


NFC, NFD = unicodedata.normalize("NFC", "Zoë"), unicodedata.normalize("NFD", "Zoë")
BIG = 9007199254740993
SAME: list[Any] = [
    {"name": NFC, "count": BIG, "amount": Money("30.00", "USD"), "rate": Decimal("1.00")},
    {"amount": Money("30.00", "USD"), "count": BIG, "name": NFC},
    {"name": NFD, "count": str(BIG), "amount": {"amount": "30.00", "currency": "USD"}},
    {"name": NFC, "count": BIG, "amount": {"amount": Decimal("30.00"), "currency": "USD"}},
    {"name": NFC, "count": BIG, "amount": {"amount": 30, "currency": "USD"}, "rate": "1.00"},
    {"name": NFC, "count": BIG, "amount": Money("30.00", "USD"), "express": False, "seat": None},
    '{"amount":{"currency":"USD","amount":"30.00"},"count":9007199254740993,"name":"Zo\\u00eb"}',
]
"""One request, written in many ways."""

REFUSED: list[Any] = [
    {"name": "Zoë", "count": BIG, "amount": {"amount": 30.0, "currency": "USD"}},
    {"name": "Zoë", "count": float(BIG), "amount": Money("30.00", "USD")},
    {"name": "Zoë", "count": True, "amount": Money("30.00", "USD")},
    {"name": "Zoë", "count": BIG, "amount": Money("30.00", "USD"), "rate": -0.0},
    {"name": "Zoë", "count": BIG, "amount": Money("30.00", "USD"), "rate": math.nan},
    {"name": "Zoë", "count": BIG, "amount": Money("30.00", "USD"), "rate": Decimal("NaN")},
    {"name": "Zoë", "count": BIG, "amount": Money("30.00", "USD"), "colour": "red"},
    {"name": "Zoë", "count": None, "amount": Money("30.00", "USD")},
    {"name": "Zoë", "amount": Money("30.00", "USD")},
    '{"name":"Zo\\u00eb","count":1,"count":1,"amount":{"amount":"30.00","currency":"USD"}}',
    '{"name":"Zo\\u00eb","count":NaN,"amount":{"amount":"30.00","currency":"USD"}}',
    '{"name":"Zo\\u00eb","count":1,"amount":{"amount":30.00,"currency":"USD"}}',
]
"""What has no one exact meaning."""


def test_case_13_one_request_written_in_many_ways(stage: Stage) -> None:
    """CASE 13: key order, NFC and NFD, 2^53 + 1, text and decimals are one; others refused."""
    stage.worker()
    views = [stage.app.operations.intend("booking", "booking-1", given, by=AGENT) for given in SAME]
    assert len({view.digest for view in views}) == 1
    done = stage.wait(views[0], "succeeded")
    assert stage.names(done).count("Intended") == 1
    for given in REFUSED:
        with pytest.raises(InvalidInput):
            stage.app.operations.intend("booking", "booking-1", given, by=AGENT)
    with pytest.raises(ParametersChanged):
        other = {"name": NFC, "count": BIG - 1, "amount": Money("30.00", "USD")}
        stage.app.operations.intend("booking", "booking-1", other, by=AGENT)
    assert stage.get(done).version == done.version
    (request,) = stage.simulator.log().calls()
    sent = orjson.loads(request.body)
    assert (sent["count"], sent["amount"], sent["name"]) == (BIG, "30.00", NFC)


EXACT = [
    ("500", "JPY"),
    ("5800", "JPY"),
    ("1.234", "KWD"),
    ("1.15", "USD"),
    ("19.99", "USD"),
]


def test_case_14_money_is_exact_on_the_wire(stage: Stage) -> None:
    """CASE 14: what the provider holds is the amount to its last digit, in every currency."""
    stage.worker()
    operations = stage.app.operations
    for number, (amount, currency) in enumerate(EXACT):
        params = {"order": f"order-{number}", "amount": Money(amount, currency)}
        view = operations.intend("refund", f"refund-{number}", params, by=AGENT)
        stage.wait(view, "succeeded")
    held = [(e.fields["amount"], e.fields["currency"]) for e in stage.simulator.effects()]
    assert held == EXACT
    assert [Money(a, c).minor for a, c in EXACT] == [500, 5800, 1234, 115, 1999]
    for amount, currency in [("1.2345", "KWD"), ("abc", "USD"), ("NaN", "USD"), ("-1", "USD")]:
        given = {"order": "order-9", "amount": {"amount": amount, "currency": currency}}
        with pytest.raises((InvalidParams, InvalidMoney)):
            operations.intend("refund", "refund-9", given, by=AGENT)
    with pytest.raises(settled.NotFound):
        operations.get("refund", "refund-9", by=AGENT)
    assert stage.requests() == len(EXACT)


def test_case_15_fifty_starts_at_once(stage: Stage) -> None:
    """CASE 15: one Intended, 49 attach, one call; another's parameters leave the stored ones."""
    stage.worker()
    together = threading.Barrier(50)

    def start(_: int) -> str:
        together.wait(30)
        return stage.intend().provider_key

    with ThreadPoolExecutor(50) as pool:
        assert len(set(pool.map(start, range(50)))) == 1
    done = stage.wait(stage.intend(), "succeeded")
    assert Counter(stage.names(done))["Intended"] == 1
    stored = stage.get(done).params
    with pytest.raises(ParametersChanged):
        stage.intend(amount="31.00")
    assert stage.get(done).params == stored
    assert stage.get(done).version == done.version
    assert (stage.requests(), stage.effects()) == (1, 1)
    stage.check_invariant(done)


def test_case_31_a_second_refund_does_not_resend_an_unknown_first(stage: Stage) -> None:
    """CASE 31: the first is still unknown; what is added on the same order sends only itself."""
    stage.simulator.fault(hold_after=True)
    worker = stage.worker()
    first = stage.intend("refund-1", kind="nothing", amount="10.00")
    stage.simulator.wait(held=1)
    worker.kill()
    stage.simulator.release()
    second = stage.intend("refund-2", kind="nothing", amount="20.00")
    stage.worker("second")
    stage.wait(second, "succeeded")
    unknown = stage.wait(first, "handed_over")
    assert stage.names(unknown).count("Dispatching") == 1
    amounts = [orjson.loads(request.body)["amount"] for request in stage.simulator.log().calls()]
    assert amounts == ["10.00", "20.00"]
    assert stage.effects() == 2


def test_case_16_two_that_exceed_what_was_captured(stage: Stage) -> None:
    """CASE 16: two refunds of 60.00 of 100.00 at once: one is refused, with 40.00 left.

    The provider enforces nothing. One that fails for certain releases its share; what nobody knows
    the outcome of keeps it.
    """
    stage.app.budgets.allow("captured:order-72", Money("100.00", "USD"), by=OPERATOR, reason="paid")
    workers = [stage.worker("first"), stage.worker("second")]
    together = threading.Barrier(2)

    def start(name: str) -> str:
        with settled.open(stage.url, kinds=[kinds.captured], require_fsync=False) as app:
            params = {"order": "order-72", "amount": Money("60.00", "USD")}
            together.wait()
            try:
                app.operations.intend("captured", name, params, by=AGENT)
            except BudgetExceeded as error:
                return error.message
            return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(start, ("refund-1", "refund-2")))
    assert said[0] == "" and "40.00 USD left" in said[1]
    (first,) = [view for view in stage.app.journal.heads("acme", kind="captured")]
    done = stage.wait(Identity("acme", "captured", first.identity), "succeeded")
    stage.simulator.fault(execute=False, status=400, body={"error": {"code": "declined"}})
    failed = stage.wait(stage.intend("refund-3", kind="captured", amount="40.00"), "failed")
    stage.simulator.fault(reply="close")
    stage.simulator.fault(hold_after=True)
    held = stage.intend("refund-4", kind="captured", amount="40.00")
    stage.simulator.wait(held=1)
    with pytest.raises(BudgetExceeded, match=r"0\.00 USD left"):
        stage.intend("refund-5", kind="captured", amount="0.01")
    stage.simulator.release()
    held = stage.wait(held, "succeeded")
    view = stage.app.budgets.get("captured:order-72 USD", by=AGENT)
    assert (view.reserved, view.consumed) == (0, 10000)
    assert stage.effects() == 2 and all(worker.running for worker in workers)
    stage.check_invariant(done, failed, held)
