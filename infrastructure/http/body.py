"""How parameters become the body of a request, and the key a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, cast
from urllib.parse import urlencode

import orjson

from settled.domain.canonical import problems
from settled.domain.errors import InvalidContract, InvalidParams
from settled.domain.money import Money
from settled.domain.params import Params, freeze, is_remark

Body = Callable[[Any], Mapping[str, Any]]
"""Parameters -> the JSON-like object that is sent."""

Encoding = Literal["json", "form"]
"""How the object becomes bytes: as JSON, or as a form whose nested fields are written
`metadata[order]=order-72`."""

CONTENT_TYPES: Mapping[Encoding, str] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
}


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


def sealed_body(
    made: Mapping[str, Any], written: Mapping[str, str], encoding: Encoding = "json"
) -> bytes:
    """Return the bytes of a body, with `written` (path -> value) put into it.

    Raises `InvalidParams` for floats and other inexact values, `InvalidContract` if something is
    to be written over something that is there.
    """
    document = dict(made)
    for path, value in written.items():
        _write(document, path, value)
    for path, text in problems(document):
        raise InvalidParams(f"The body's {path} {text}.", hint="Let body= return exact values.")
    if encoding == "json":
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return urlencode(sorted(_form_fields("", document))).encode()


def _form_fields(name: str, value: object) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in cast(Mapping[str, object], value).items():
                yield from _form_fields(f"{name}[{key}]" if name else key, inner)
        case list() | tuple():
            items = cast(list[object] | tuple[object, ...], value)
            for index, inner in enumerate(items):
                yield from _form_fields(f"{name}[{index}]", inner)
        case bool():
            yield name, "true" if value else "false"
        case None:
            yield name, ""
        case _:
            yield name, str(value)


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
