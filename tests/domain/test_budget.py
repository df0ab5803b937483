"""What operations hold of budgets: every step of the lifecycle, and what a kind may declare.

A budget that is given back too early is overspent, and one that is never given back blocks honest
work; both would go unnoticed for a long time.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from settled import Budget, InvalidInput, InvalidKind, Money, Params
from settled.domain.budget import Reservation, act_of, amount_in_words, key_of
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.operation import HOLDS


class RefundParams(Params):
    """A refund of a part of a payment."""

    payment: str
    amount: Money
    seats: int = 0


def test_every_step_of_the_lifecycle_does_to_budgets_what_its_event_means() -> None:
    """Written out by event: only these change a budget, and each always in the same way."""
    acts: defaultdict[str, set[str | None]] = defaultdict(set)
    for arrow in LIFECYCLE.arrows:
        for state in arrow.sources:
            after = HOLDS[arrow.target or state]
            acts[arrow.event].add(
                act_of(HOLDS[state], after, by_evidence=arrow.event == "Contradicted")
            )
    assert {event: found for event, found in acts.items() if found != {None}} == {
        "Intended": {"reserve"},
        "Reissued": {"reserve"},
        "Contradicted": {"recount"},
        "Succeeded": {"consume"},
        "Failed": {"release"},
        "Cancelled": {"release", None},  # of a proposal, which holds nothing
        "Expired": {"release"},
        "ApprovalRevoked": {"release"},
        "Revised": {"release", None},
    }


def test_nothing_is_used_that_was_not_reserved() -> None:
    """A step from nothing to used would pass by the only row that can refuse."""
    for arrow in LIFECYCLE.arrows:
        for state in arrow.sources:
            assert (HOLDS[state], HOLDS[arrow.target or state]) != ("nothing", "consumed")


def test_money_of_each_currency_has_a_budget_of_its_own() -> None:
    """Thirty dollars are no part of what was captured in euros."""
    budget = Budget("captured:{payment}", amount="amount")
    fields = {"payment": "payment-7", "amount": Money("30.00", "USD")}
    assert budget.draw(fields) == Reservation(key="captured:payment-7 USD", amount=3000)
    fields["amount"] = Money("30", "JPY")
    assert budget.draw(fields) == Reservation(key="captured:payment-7 JPY", amount=30)


def test_pieces_are_counted_and_nothing_is_not_reserved() -> None:
    """A whole number counts pieces; what takes nothing has no row to change."""
    budget = Budget("seats", amount="seats")
    assert budget.draw({"seats": 2}) == Reservation(key="seats", amount=2)
    assert budget.draw({"seats": 0}) is None


@pytest.mark.parametrize("amount", [-1, True, "3", None])
def test_what_cannot_be_counted_is_refused(amount: object) -> None:
    """It says what would do instead."""
    with pytest.raises(InvalidInput, match="no budget can count"):
        Budget("seats", amount="seats").draw({"seats": amount})


@pytest.mark.parametrize("name", ["", "two words", "x" * 201, "line\n"])
def test_names_that_cannot_be_told_apart_are_refused(name: str) -> None:
    """A space separates the currency, so that no name can pass for another one's key."""
    with pytest.raises(InvalidInput, match="cannot name a budget"):
        key_of(name, "USD")


@pytest.mark.parametrize("budget", [Budget("of:{order}", "amount"), Budget("all", "sum")])
def test_a_budget_of_parameters_that_are_not_there_is_refused(budget: Budget) -> None:
    """At import, and not at the first intent."""
    with pytest.raises(InvalidKind, match="RefundParams does not have"):
        budget.check("refund", RefundParams)


def test_amounts_are_told_as_people_write_them() -> None:
    """What is overdrawn too, which no Money can be."""
    assert amount_in_words("captured:payment-7 USD", 4000) == "40.00 USD"
    assert amount_in_words("captured:payment-7 USD", -4000) == "-40.00 USD"
    assert amount_in_words("seats", 3) == "3"
