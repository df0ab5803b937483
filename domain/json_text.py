"""JSON text from outside, read without losing anything that it said.

A parser that keeps the last of two equal keys lets two readers see two requests in one text, so
duplicates are refused. Numbers with a fraction or an exponent become floats here and are refused
with their path by `settled.domain.canonical.problems`, which every value passes.
"""

from __future__ import annotations

import json
from typing import cast

from settled.domain.canonical import LIMIT_BYTES, LIMIT_DEPTH
from settled.domain.errors import InvalidParams, TooLarge

NUMBER_HINT = 'Write amounts and decimals as text, such as "30.00".'

_LONGEST_INTEGER = 20  # What 64 bits hold, with a sign; int() of a thousand digits takes time.


def read_object(text: bytes | str) -> dict[str, object]:
    """Return the JSON object in a text.

    Raises `TooLarge` over 64 KiB before anything is parsed, and `InvalidParams` for text that is
    not UTF-8, not JSON, not an object, or gives a key twice.
    """
    if len(text) > LIMIT_BYTES:
        raise TooLarge(
            f"The text is over {LIMIT_BYTES // 1024} KiB.",
            hint="Store the content elsewhere and pass its address and its hash.",
        )
    try:
        value: object = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            object_pairs_hook=_without_duplicates,
            parse_int=_short_integer,
        )
    except UnicodeDecodeError as error:
        raise InvalidParams("The text is not UTF-8.", hint="Encode it as UTF-8.") from error
    except json.JSONDecodeError as error:
        raise InvalidParams(
            f"The text is not JSON: {error.msg} at character {error.pos}.",
            hint="Pass one JSON object, such as an agent's tool arguments.",
        ) from error
    except RecursionError as error:
        raise InvalidParams(
            f"The text is nested more than {LIMIT_DEPTH} deep.", hint="Flatten it."
        ) from error
    if not isinstance(value, dict):
        raise InvalidParams("The text is not a JSON object.", hint='Pass one: {"order": "…"}.')
    return cast(dict[str, object], value)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise InvalidParams(
                f"The key {ascii(name):.80} is given twice.", hint="Give each key once."
            )
        fields[name] = value
    return fields


def _short_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise InvalidParams(f"{text[:20]}… is an integer past 64 bits.", hint="Write it as text.")
    return int(text)
