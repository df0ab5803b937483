"""An amount that is off by one unit, or in another currency, is another act than was approved."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from settled.domain.currencies import DECIMALS
from settled.domain.errors import InvalidMoney
from settled.domain.money import MAX_MINOR, Money


@pytest.mark.parametrize(
    ("amount", "currency", "minor", "text"),
    [
        ("500", "JPY", 500, "500 JPY"),
        ("5800", "JPY", 5800, "5800 JPY"),
        ("1.234", "KWD", 1234, "1.234 KWD"),
        ("1.15", "USD", 115, "1.15 USD"),
        ("19.99", "USD", 1999, "19.99 USD"),
        ("30", "USD", 3000, "30.00 USD"),
        ("30.0", "USD", 3000, "30.00 USD"),
        (30, "USD", 3000, "30.00 USD"),
        (Decimal("30.00"), "USD", 3000, "30.00 USD"),
        (Decimal("3E+1"), "USD", 3000, "30.00 USD"),
        (Decimal("0E+999999"), "USD", 0, "0.00 USD"),
        ("0.05", "EUR", 5, "0.05 EUR"),
        ("0.0001", "CLF", 1, "0.0001 CLF"),
        ("92233720368547758.07", "USD", MAX_MINOR, "92233720368547758.07 USD"),
    ],
)
def test_exact_amounts_are_kept_exactly(
    amount: str | Decimal | int, currency: str, minor: int, text: str
) -> None:
    """Case 14: 1.15 is 115 and 19.99 is 1999, however the amount was written."""
    money = Money(amount, currency)
    assert (money.minor, str(money)) == (minor, text)
    assert money == Money.of_minor(minor, currency)


@pytest.mark.parametrize(
    ("amount", "currency"),
    [
        ("1.2345", "KWD"),
        ("1.234", "USD"),
        ("500.00", "JPY"),
        ("abc", "USD"),
        ("", "USD"),
        (" 1", "USD"),
        ("1_000", "USD"),
        ("1,00", "USD"),
        ("1e3", "USD"),
        ("١", "USD"),
        ("NaN", "USD"),
        ("-1", "USD"),
        ("9" * 1000, "USD"),
        ("92233720368547758.08", "USD"),
        (Decimal("NaN"), "USD"),
        (Decimal("sNaN"), "USD"),
        (Decimal("Infinity"), "USD"),
        (Decimal("-1"), "USD"),
        (Decimal("-0.0"), "USD"),
        (Decimal("1E-3"), "USD"),
        (Decimal("1E+999999"), "USD"),
        (-1, "USD"),
        (30.0, "USD"),
        (-0.0, "USD"),
        (float("nan"), "USD"),
        (True, "USD"),
        (None, "USD"),
        ("1.00", "usd"),
        ("1.00", "XXX"),
        ("1.00", "XAU"),
        ("1.00", ""),
        ("1.00", None),
    ],
)
def test_what_is_not_an_exact_amount_is_refused_with_a_hint(amount: Any, currency: Any) -> None:
    """Case 14: a clear refusal now is worth more than a wrong sum later."""
    with pytest.raises(InvalidMoney) as refused:
        Money(amount, currency)
    assert refused.value.hint
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("minor", [-1, 30.0, True, "3000", MAX_MINOR + 1])
def test_minor_units_are_whole_numbers(minor: Any) -> None:
    with pytest.raises(InvalidMoney):
        Money.of_minor(minor, "USD")


def test_a_code_in_small_letters_is_answered_with_the_code() -> None:
    with pytest.raises(InvalidMoney, match="Write it as ISO 4217 does: USD"):
        Money("1.00", "usd")


def test_the_table_holds_list_one_and_the_two_codes_that_are_kept() -> None:
    """A code that got lost in an edit would make stored money unreadable."""
    assert len(DECIMALS) == 165 + 2
    by_decimals = {n: sum(d == n for d in DECIMALS.values()) for n in (0, 2, 3, 4)}
    assert by_decimals == {0: 17, 2: 141, 3: 7, 4: 2}


MONEY = st.builds(Money.of_minor, st.integers(0, MAX_MINOR), st.sampled_from(sorted(DECIMALS)))


@given(MONEY, st.integers(1, 6))
def test_text_decimal_and_json_lead_back_to_the_same_money(money: Money, precision: int) -> None:
    """Whatever decimal context the caller's thread has, no digit is rounded away."""
    adapter = TypeAdapter(Money)
    with localcontext() as context:
        context.prec = precision
        amount, currency = str(money).split()
        assert Money(amount, currency) == Money(money.amount, currency) == money
        assert adapter.validate_json(adapter.dump_json(money)) == money
        assert eval(repr(money), {"Money": Money}) == money


def test_money_cannot_be_changed_and_can_be_a_key() -> None:
    money = Money("30.00", "USD")
    with pytest.raises(AttributeError):
        money.minor = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert {money: 1}[Money("30", "USD")] == 1
    assert pickle.loads(pickle.dumps(money)) == copy.deepcopy(money) == money


def test_amounts_are_ordered_within_a_currency_only() -> None:
    """30 dollars and 30 yen have no order, and no exchange rate is guessed."""
    small, large = Money("1.00", "USD"), Money("2.00", "USD")
    assert small < large
    assert small <= large
    assert large > small
    assert large >= small
    assert small != Money("1.00", "EUR")
    with pytest.raises(InvalidMoney, match="cannot be ordered"):
        assert small < Money("2.00", "EUR")


class Refund(BaseModel):
    """A model of a user's, as strict as ours."""

    model_config = ConfigDict(strict=True)

    amount: Money


def test_a_strict_model_takes_money_or_its_json_form() -> None:
    money = Money("30.00", "USD")
    assert Refund(amount=money).amount == money
    body = '{"amount":{"amount":"30.00","currency":"USD"}}'
    assert Refund.model_validate_json(body).amount == money
    assert Refund(amount=money).model_dump_json() == body


@pytest.mark.parametrize(
    "form",
    [
        "30.00",
        {"amount": "30.00"},
        {"amount": 30.0, "currency": "USD"},
        {"amount": "30.00", "currency": "USD", "rate": "1"},
    ],
)
def test_other_forms_name_the_field_and_the_reason(form: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Refund(amount=form)
    (error,) = refused.value.errors()
    assert (error["loc"], error["type"]) == (("amount",), "money")


def test_the_json_schema_says_that_the_amount_is_text() -> None:
    """An agent's tool description is made from it, and agents like to send floats."""
    schema = Refund.model_json_schema()["properties"]["amount"]
    assert schema["properties"]["amount"]["type"] == "string"
    assert schema["additionalProperties"] is False
