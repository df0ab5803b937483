"""What a policy asks of a proposal, and what a declaration of one must not say.

A policy that is read wrongly lets the wrong person move money, and nobody would see it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from settled import Above, Approval, Call, InvalidKind, Kind, Money, Params, PermissionDenied, Reply
from settled.domain.contract import presets
from settled.infrastructure.function_provider import FunctionProvider

LEAD, FINANCE = frozenset({"support-lead"}), frozenset({"finance-lead", "head-of-finance"})


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


def usd(amount: str) -> Money:
    return Money(amount, "USD")


def refund(amount: str, currency: str = "USD") -> RefundParams:
    return RefundParams(order="order-72", amount=Money(amount, currency))


LIMITED = Approval(
    LEAD,
    above=(Above(usd("100.00"), FINANCE), Above(usd("1000.00"), FINANCE, count=2)),
    auto_below=(usd("10.00"),),
    four_eyes=True,
    valid_for=timedelta(hours=2),
    version=7,
)


@pytest.mark.parametrize(
    ("amount", "roles", "count"),
    [
        ("0.01", LEAD, 1),
        ("100.00", LEAD, 1),
        ("100.01", FINANCE, 1),
        ("1000.00", FINANCE, 1),
        ("1000.01", FINANCE, 2),
        ("999999.00", FINANCE, 2),
    ],
)
def test_the_highest_limit_that_is_exceeded_counts(
    amount: str, roles: frozenset[str], count: int
) -> None:
    """At the limit the lower rule counts, one cent above it the higher one."""
    asked = LIMITED.asks(refund(amount))
    assert (asked.roles, asked.count) == (tuple(sorted(roles)), count)
    assert (asked.four_eyes, asked.policy_version, asked.valid_seconds) == (True, 7, 7200.0)


@pytest.mark.parametrize(("amount", "by_itself"), [("9.99", True), ("10.00", False)])
def test_less_than_the_limit_is_approved_by_the_policy(amount: str, by_itself: bool) -> None:
    """Below means below."""
    assert LIMITED.approves(refund(amount)) is by_itself


def test_a_currency_that_no_limit_is_in_is_refused() -> None:
    """Ten thousand yen are not ten thousand dollars, and neither the low nor the high rule fits."""
    with pytest.raises(PermissionDenied, match="none is in JPY"):
        LIMITED.asks(refund("10000", "JPY"))
    assert not LIMITED.approves(refund("5.00", "EUR"))


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Approval(frozenset()), "nobody"),
    (lambda: Approval(frozenset({""})), "nobody"),
    (lambda: Approval("lead"), "nobody"),  # type: ignore[arg-type]
    (lambda: Approval(LEAD, count=0), "0 people"),
    (lambda: Approval(LEAD, valid_for=timedelta()), "longer than nothing"),
    (lambda: Approval(LEAD, above=(Above(usd("1.00"), frozenset()),)), "nobody"),
    (lambda: Approval(LEAD, above=(Above(usd("1.00"), LEAD),) * 2), "the same limit"),
    (lambda: Approval(LEAD, auto_below=(usd("1.00"), usd("2.00"))), "two limits"),
    (
        lambda: Approval(LEAD, above=(Above(usd("1.00"), LEAD),), auto_below=(usd("2.00"),)),
        "overlap",
    ),
]


@pytest.mark.parametrize(("declare", "saying"), WRONG, ids=[saying for _, saying in WRONG])
def test_a_wrong_policy_is_refused_where_it_is_declared(
    declare: Callable[[], object], saying: str
) -> None:
    """At import, and not at the first proposal that it is asked about."""
    with pytest.raises(InvalidKind, match=saying):
        declare()


class NoteParams(Params):
    """Nothing with an amount."""

    text: str


def test_limits_need_an_amount() -> None:
    """A limit on a field that is not there would never be exceeded."""

    def note(call: Call, params: NoteParams) -> Reply:
        return Reply.unknown("never called here")

    def declare(approvers: Approval, **policy: Any) -> Kind[Any]:
        provider = FunctionProvider("notes", presets.generic_http, note)
        return Kind("note", NoteParams, provider, "support-lead", approvers=approvers, **policy)

    assert declare(Approval(LEAD)).policy.roles == LEAD
    with pytest.raises(InvalidKind, match="amount is not"):
        declare(LIMITED)
    with pytest.raises(InvalidKind, match="revalidate_after"):
        declare(Approval(LEAD), revalidate_after=timedelta(seconds=-1))
