"""Whether what a provider repeats is what was intended. Exact: no rounding, no float, no guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from settled.domain.contract.document import MISSING, at
from settled.domain.contract.parts import EchoField
from settled.domain.contract.words import EchoAs
from settled.domain.errors import InvalidMoney
from settled.domain.money import Money
from settled.domain.provider import Echo


def compare(
    echoes: Sequence[EchoField], document: Any, intended: Mapping[str, Any]
) -> tuple[Echo, str]:
    """Return how the document compares with the intent, and in which fields it differs.

    EQUAL needs every declared field that the intent has: an equal reference beside a missing
    amount proves nothing about the amount, so it is NONE. One difference is DIFFERS, whatever
    else is missing.
    """
    declared = [echo for echo in echoes if echo.field in intended]
    verdicts = {echo.field: _same(echo, document, intended[echo.field]) for echo in declared}
    differing = [name for name, same in verdicts.items() if same is False]
    if differing:
        return Echo.DIFFERS, ", ".join(differing)
    if verdicts and all(verdicts.values()):
        return Echo.EQUAL, ""
    return Echo.NONE, ""


def _same(echo: EchoField, document: Any, intended: Any) -> bool | None:
    """Return whether one field is the same; None where there is nothing to compare."""
    value = at(document, echo.path)
    if value is MISSING or value is None:
        return None
    if echo.written is EchoAs.TEXT:
        return _same_text(value, intended)
    money = _money(intended)
    if money is None:
        return None
    number = _number(value)
    expected = Decimal(money.minor) if echo.written is EchoAs.MINOR_UNITS else money.amount
    if number is None or number != expected:
        return False
    if not echo.currency_path:
        return True
    currency = at(document, echo.currency_path)
    if currency is MISSING or currency is None:
        return None
    return isinstance(currency, str) and currency.upper() == money.currency


def _same_text(value: Any, intended: Any) -> bool | None:
    if intended is None or isinstance(intended, Money | Mapping | list | tuple):
        return None
    if isinstance(value, bool) or isinstance(intended, bool):
        return isinstance(intended, bool) and value is intended
    return isinstance(value, str | int) and str(value) == str(intended)


def _money(intended: Any) -> Money | None:
    """Return the money of an intent: as it is, or in its JSON form."""
    if isinstance(intended, Money):
        return intended
    if isinstance(intended, Mapping):
        fields = cast(Mapping[str, Any], intended)
        try:
            return Money(fields.get("amount", ""), fields.get("currency", ""))
        except InvalidMoney:
            return None  # Not an amount: nothing to compare with, which settles nothing.
    return None


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
