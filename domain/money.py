"""Exact amounts of money: a whole number of minor units in an ISO 4217 currency.

There is no rounding anywhere in this module. An amount either is a whole number of the
currency's minor units or is refused, because the sum a person approved and the sum a provider
moves must be the same sum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from settled.domain.currencies import DECIMALS
from settled.domain.errors import InvalidMoney

MAX_MINOR = 2**63 - 1
"""The largest amount in minor units: both stores keep it in a signed 64-bit integer."""

_PLAIN_AMOUNT = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?", re.ASCII)
_USUAL_AMOUNT = re.compile(r"([0-9]{1,14})(?:\.([0-9]{1,4}))?", re.ASCII)
_MONEY_KEYS: frozenset[object] = frozenset({"amount", "currency"})
_WRITE_AS_TEXT = 'Write the amount as text: Money("30.00", "USD").'


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Money:
    """An exact, non-negative amount in one currency.

    `minor` is the amount in the currency's smallest unit (3000 for 30.00 USD, 500 for 500 JPY).
    The amount is given as text, as a `Decimal`, or as a whole number of *major* units; minor
    units go through `of_minor`. Equal amounts of one currency are equal and hash alike; amounts
    are ordered within one currency only.
    """

    minor: int
    currency: str

    def __init__(self, amount: str | Decimal | int, currency: str) -> None:
        """Take an exact amount in major units.

        Raises `InvalidMoney` for floats, NaN, infinities, negative amounts, unknown currencies,
        and amounts with more decimals than the currency has.
        """
        decimals = _decimals_of(currency)
        usual = _USUAL_AMOUNT.fullmatch(amount) if type(amount) is str else None
        if usual is not None and len(fraction := usual[2] or "") <= decimals:
            _set(self, int(usual[1] + fraction.ljust(decimals, "0")), currency)
        else:
            _set(self, _minor_units(_exact(amount), decimals, currency), currency)

    @classmethod
    def of_minor(cls, minor: int, currency: str) -> Money:
        """Return the money of `minor` smallest units, such as 3000 for 30.00 USD."""
        _decimals_of(currency)
        money = object.__new__(cls)
        _set(money, _whole(minor), currency)
        return money

    @property
    def amount(self) -> Decimal:
        """The amount in major units, with all the decimals of its currency."""
        return Decimal(self._text)

    @property
    def _text(self) -> str:
        decimals = DECIMALS[self.currency]
        if not decimals:
            return str(self.minor)
        digits = str(self.minor).rjust(decimals + 1, "0")
        return f"{digits[:-decimals]}.{digits[-decimals:]}"

    def __str__(self) -> str:
        """Return the amount as people read it, such as 30.00 USD."""
        return f"{self._text} {self.currency}"

    def __repr__(self) -> str:
        """Return the expression that makes this money."""
        return f"Money('{self._text}', '{self.currency}')"

    def __lt__(self, other: Money) -> bool:
        return self.minor < self._comparable(other)

    def __le__(self, other: Money) -> bool:
        return self.minor <= self._comparable(other)

    def __gt__(self, other: Money) -> bool:
        return self.minor > self._comparable(other)

    def __ge__(self, other: Money) -> bool:
        return self.minor >= self._comparable(other)

    def _comparable(self, other: Money) -> int:
        if other.currency != self.currency:
            raise InvalidMoney(
                f"{self} and {other} cannot be ordered.",
                hint="Compare amounts of one currency; settled knows no exchange rates.",
            )
        return other.minor

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let a model field be declared as `Money`."""
        return core_schema.no_info_plain_validator_function(
            _validated,
            serialization=core_schema.plain_serializer_function_ser_schema(money_as_json),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the JSON form, which is also what a model is told to send."""
        return {
            "type": "object",
            "title": "Money",
            "description": "An exact amount, such as 30.00 USD. The amount is text, never a float.",
            "properties": {
                "amount": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"},
                "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
            },
            "required": ["amount", "currency"],
            "additionalProperties": False,
        }


def money_as_json(money: Money) -> dict[str, str]:
    """Return the JSON form, `{"amount": "30.00", "currency": "USD"}`."""
    amount, currency = str(money).split()
    return {"amount": amount, "currency": currency}


def _set(money: Money, minor: int, currency: str) -> None:
    object.__setattr__(money, "minor", minor)
    object.__setattr__(money, "currency", currency)


def _decimals_of(currency: object) -> int:
    decimals = DECIMALS.get(currency) if isinstance(currency, str) else None
    if decimals is not None:
        return decimals
    shown = f"{currency!r:.24}"
    if isinstance(currency, str) and currency.strip().upper() in DECIMALS:
        raise InvalidMoney(
            f"{shown} is not a currency code.",
            hint=f"Write it as ISO 4217 does: {currency.strip().upper()}.",
        )
    raise InvalidMoney(
        f"{shown} is not a currency that settled knows.",
        hint="Use a three-letter ISO 4217 code such as USD, EUR, JPY.",
    )


def _exact(amount: object) -> Decimal:
    """Return the decimal that was given, or refuse what is not exact or not an amount."""
    if isinstance(amount, Decimal):
        if not amount.is_finite():
            raise InvalidMoney(f"{amount} is not an amount.", hint=_WRITE_AS_TEXT)
        number = amount
    elif isinstance(amount, int) and not isinstance(amount, bool):
        number = Decimal(_whole(amount))
    elif isinstance(amount, str):
        if _PLAIN_AMOUNT.fullmatch(amount.removeprefix("-")) is None:
            raise InvalidMoney(f"{amount!r:.24} is not an amount.", hint=_WRITE_AS_TEXT)
        number = Decimal(amount)
    elif isinstance(amount, float):
        raise InvalidMoney(
            f"{amount!r} is a binary float, which is not exact.", hint=_WRITE_AS_TEXT
        )
    else:
        raise InvalidMoney(f"{type(amount).__name__} is not an amount.", hint=_WRITE_AS_TEXT)
    if number.is_signed():
        raise InvalidMoney(
            f"{number!s:.40} is negative.",
            hint="The direction is the kind's: declare a refund, not a negative payment.",
        )
    return number


def _minor_units(number: Decimal, decimals: int, currency: str) -> int:
    _, digits, exponent = number.as_tuple()
    # _exact() refused NaN and infinities, the only decimals whose exponent is a letter.
    shift = cast(int, exponent) + decimals
    if shift < 0:
        has = f"{decimals} decimals" if decimals else "no decimals"
        raise InvalidMoney(
            f"{number!s:.40} has more decimals than {currency}, which has {has}.",
            hint="Round it where the business rule is known: settled never rounds.",
        )
    # Judged before the power is taken: Decimal("1E+999999") would need a megabyte of digits.
    if any(digits) and len(digits) + shift > 40:
        raise _too_much()
    return _whole(int("".join(map(str, digits))) * (10**shift if any(digits) else 1))


def _whole(minor: object) -> int:
    if not isinstance(minor, int) or isinstance(minor, bool):
        raise InvalidMoney(
            f"{type(minor).__name__} is not a whole number of minor units.",
            hint='Write Money.of_minor(3000, "USD") for 30.00 USD.',
        )
    if minor < 0:
        raise InvalidMoney(
            "A negative number is not an amount.",
            hint="The direction is the kind's: declare a refund, not a negative payment.",
        )
    if minor > MAX_MINOR:
        raise _too_much()
    return int(minor)


def _too_much() -> InvalidMoney:
    return InvalidMoney(
        f"The amount is over {MAX_MINOR} minor units.", hint="Check the number of digits."
    )


def _validated(given: object) -> Money:
    if isinstance(given, Money):
        return given
    if not isinstance(given, Mapping):
        raise PydanticCustomError(
            "money", 'is not money: write {"amount": "30.00", "currency": "USD"}'
        )
    fields = cast(Mapping[object, Any], given)
    if _MONEY_KEYS.symmetric_difference(fields):
        raise PydanticCustomError("money", "needs exactly the keys amount and currency")
    try:
        return Money(fields["amount"], fields["currency"])
    except InvalidMoney as error:
        reason = f"{error.message} {error.hint}"
        raise PydanticCustomError("money", "{reason}", {"reason": reason}) from error
