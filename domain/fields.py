"""What a parameter may be declared as, and how text becomes the declared type.

A parameter has to survive two journeys without loss: from a caller who may only have JSON, and
from the journal back to a worker. So the types are the ones whose text has exactly one reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import AwareDatetime, BaseModel

from settled.domain.money import Money

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENT = re.compile(
    _DATE.pattern + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def _integer(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("past 64 bits")
    return number


_READERS: dict[Any, tuple[re.Pattern[str], Callable[[str], object]]] = {
    int: (_INTEGER, _integer),
    Decimal: (_DECIMAL, Decimal),
    UUID: (_UUID, UUID),
    date: (_DATE, date.fromisoformat),
    datetime: (_MOMENT, datetime.fromisoformat),
    AwareDatetime: (_MOMENT, datetime.fromisoformat),
}
_LEAVES = frozenset({str, bool, Money, NoneType, *_READERS})


def normalised(declared: Any, value: object) -> object:
    """Return the value in the declared type if it says exactly that, else the value as it is.

    `"7"` becomes 7 for an integer and 30 or `"30.00"` becomes a decimal, for lists and objects
    item by item. What is left as it is meets strict validation next and is refused there, with
    the field's name.
    """
    if declared is str or declared is bool or declared is Money:
        return value
    declared = _bare(declared)
    arguments = get_args(declared)
    if _is_union(declared):
        return _normalised_option(arguments, value)
    match get_origin(declared) or declared, value:
        case container, list() | tuple() if container is list or container is tuple:
            items = cast(list[object] | tuple[object, ...], value)
            types = _item_types(declared, len(items))
            read = [normalised(t, item) for t, item in zip(types, items, strict=True)]
            return read if container is list else tuple(read)
        case container, dict() if container is dict and arguments:
            fields = cast(dict[str, object], value)
            return {key: normalised(arguments[1], item) for key, item in fields.items()}
        case kind, str() | int() if isinstance(kind, type) and issubclass(kind, Enum):
            same = [m for m in kind if m.value == value and type(m.value) is type(value)]
            return same[0] if same else value
        case kind, int() if kind is Decimal and not isinstance(value, bool):
            return Decimal(value)
        case kind, str() if kind in _READERS:
            return _read(kind, value)
        case _:
            return value


def unusable(declared: Any) -> str | None:
    """Return why a parameter cannot be declared so, or None if it can."""
    declared = _bare(declared)
    arguments, name = get_args(declared), _name_of(declared)
    if _is_union(declared):
        return _unusable_union(declared, [_bare(a) for a in arguments])
    origin = get_origin(declared)
    if origin is Literal:
        odd = [a for a in arguments if not isinstance(a, str | int | Enum)]
        return f"the literal {odd[0]!r} is not text or an integer" if odd else None
    if origin is list or origin is tuple:
        return next(_first_reasons(a for a in arguments if a is not Ellipsis), None)
    if origin is dict:
        if _bare(arguments[0]) is not str:
            return "the keys of an object are text: dict[str, …]"
        return unusable(arguments[1])
    if isinstance(declared, type) and issubclass(declared, Enum):
        odd = [m for m in declared if isinstance(m.value, bool) or not _is_name(m.value)]
        return f"{odd[0]} has a value that is not text or an integer" if odd else None
    if declared in _LEAVES or is_params(declared):
        return None
    return f"{name} has no single exact form as text"


def is_tag(declared: Any) -> bool:
    """Tell whether a field is a constant, such as `Literal["card"]`, that names its variant."""
    declared = _bare(declared)
    return get_origin(declared) is Literal and len(get_args(declared)) == 1


def is_params(declared: Any) -> bool:
    """Tell whether a type is a parameter model, which is checked where it is declared."""
    return (
        isinstance(declared, type)
        and issubclass(declared, BaseModel)
        and hasattr(declared, "PARAMS_VERSION")
    )


def _read(kind: Any, text: str) -> object:
    pattern, reader = _READERS[kind]
    if pattern.fullmatch(text) is None:
        return text
    try:
        return reader(text)
    except ValueError:  # 2026-02-30 only looks like a date; validation names the field.
        return text


def _normalised_option(options: tuple[Any, ...], value: object) -> object:
    for option in options:
        result = normalised(option, value)
        if result is not value:
            return result
    return value


def _item_types(declared: Any, length: int) -> list[Any]:
    arguments = [a for a in get_args(declared) if a is not Ellipsis] or [Any]
    if len(arguments) == length:
        return arguments
    return (arguments * length)[:length]


def _unusable_union(declared: Any, options: list[Any]) -> str | None:
    others = [option for option in options if option is not NoneType]
    if len(others) == 1:
        return unusable(others[0])
    if not all(is_params(option) for option in others):
        return f"{declared} can be read in more than one way; use one type, or that type | None"
    tags = [_tags(option) for option in others]
    for name in tags[0]:
        values = [tag.get(name) for tag in tags]
        if None not in values and len(set(values)) == len(values):
            return None
    return f'{declared} needs a tag in each variant, such as type: Literal["card"] = "card"'


def _tags(model: type[BaseModel]) -> dict[str, object]:
    fields = model.model_fields.items()
    return {n: get_args(_bare(f.annotation))[0] for n, f in fields if is_tag(f.annotation)}


def _first_reasons(declared: Iterator[Any]) -> Iterator[str]:
    return (reason for each in declared if (reason := unusable(each)) is not None)


def _name_of(declared: object) -> str:
    return str(getattr(declared, "__name__", declared))


def _is_name(value: object) -> bool:
    return isinstance(value, str | int)


def _is_union(declared: Any) -> bool:
    origin = get_origin(declared)
    return origin is Union or origin is UnionType


def _bare(declared: Any) -> Any:
    """Return the type without `Annotated`, a type alias or a `NewType` around it."""
    while True:
        if get_origin(declared) is Annotated:
            declared = get_args(declared)[0]
        elif hasattr(declared, "__value__"):
            declared = declared.__value__
        elif hasattr(declared, "__supertype__"):
            declared = declared.__supertype__
        else:
            return declared
