"""How parameters become the body of a request, and the key a part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from settled.domain.canonical import problems
from settled.domain.errors import InvalidContract, InvalidParams
from settled.domain.money import Money
from settled.domain.params import Params, freeze, is_remark

Body = Callable[[Any], "Mapping[str, Any] | bytes"]
"""Parameters -> the JSON object that is sent, or bytes that are sent as they are."""


def flat_body(params: Params) -> dict[str, Any]:
    """Return the parameters as most JSON APIs take them.

    A field is named as it is declared; remarks and fields without a value are left out. Money
    becomes two fields: `amount` gives `"amount": "30.00", "currency": "USD"`, and any other name,
    such as `fee`, gives `"fee": "1.00", "fee_currency": "USD"`. Decimals, dates and UUIDs are
    text.
    """
    stored: dict[str, Any] = orjson.loads(freeze(params))
    body: dict[str, Any] = {}
    for name, field in type(params).model_fields.items():
        value = getattr(params, name)
        if value is None or is_remark(field):
            continue
        if not isinstance(value, Money):
            body[name] = stored[name]
            continue
        currency = "currency" if name == "amount" else f"{name}_currency"
        if currency in type(params).model_fields:
            raise InvalidParams(
                f"{type(params).__name__}.{name} is sent with its currency as {currency}, and "
                "there is a field of that name.",
                hint="Pass body= to HttpProvider: a function from parameters to what is sent.",
            )
        body[name] = stored[name]["amount"]
        body[currency] = stored[name]["currency"]
    return body


def sealed_body(made: Mapping[str, Any] | bytes, written: Mapping[str, str]) -> bytes:
    """Return the bytes of a body, with `written` (path -> value) put into it.

    Raises `InvalidParams` for floats and other inexact values, `InvalidContract` if something is
    to be written into a body that is bytes already, or over something that is there.
    """
    if isinstance(made, bytes):
        if written:
            raise InvalidContract(
                f"The body is made as bytes, and {', '.join(written)} has to be written into it.",
                hint="Let body= return a mapping, or carry the key in a header.",
            )
        return made
    document = dict(made)
    for path, value in written.items():
        _write(document, path, value)
    for path, text in problems(document):
        raise InvalidParams(f"The body's {path} {text}.", hint="Let body= return exact values.")
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def _write(document: dict[str, Any], path: str, value: str) -> None:
    *parents, name = path.split(".")
    inside = document
    for parent in parents:
        there = inside.get(parent, {})
        if not isinstance(there, Mapping):
            raise _taken(path)
        inside[parent] = inside = dict(cast(Mapping[str, Any], there))
    if name in inside:
        raise _taken(path)
    inside[name] = value


def _taken(path: str) -> InvalidContract:
    return InvalidContract(
        f"The body has something at {path}, where the key or our reference belongs.",
        hint="Leave it out of what body= returns.",
    )
