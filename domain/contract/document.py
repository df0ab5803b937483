"""A provider's JSON, read strictly and exactly, and the values at a path in it.

Numbers with a fraction stay text, so that 30.10 remains 30.10. What two readers could understand
differently (a key given twice, NaN) counts as unreadable.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast


class _Missing(enum.Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""Nothing is there: not the same as a null."""


class Unreadable(ValueError):
    """The body is not one JSON document that everybody reads alike."""


def parse(body: bytes) -> Any:
    """Return the document in a body. Raises `Unreadable`, whatever is wrong with it."""
    try:
        document: Any = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_without_duplicates,
            parse_float=str,
            parse_constant=_refuse,
        )
        # A lone surrogate parses, and then cannot be stored as UTF-8 by anybody.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the body is not JSON: {error!s:.120}") from error
    return document


def at(document: Any, path: str) -> Any:
    """Return the value at a path such as `error.type` or `errors.0.code`, or `MISSING`.

    An empty path is the document itself.
    """
    value = document
    for step in path.split(".") if path else ():
        if isinstance(value, Mapping) and step in value:
            value = cast(Mapping[str, Any], value)[step]
        elif isinstance(value, list) and step.isdecimal():
            items = cast(Sequence[Any], value)
            if int(step) >= len(items):
                return MISSING
            value = items[int(step)]
        else:
            return MISSING
    return value


def text_at(document: Any, path: str) -> str | None:
    """Return the name or number at a path as text, or None where there is none."""
    value = at(document, path) if path else MISSING
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value) or None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is given twice")
    return fields


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")
