"""One sequence of bytes for one meaning: what digests are taken over.

The form is RFC 8785 (JSON Canonicalization Scheme) over a value in which every scalar but `true`,
`false` and `null` is text with a one-letter tag. Numbers are text because RFC 8785 writes them as
doubles, which stop being exact at 2^53; the tag keeps the number 7 and the text "7" apart. Text
is brought to NFC here and only here: what is stored and sent is what was given.
`docs/decisions/0001-canonical-form.md` says why.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

import orjson
import rfc8785
from pydantic import BaseModel

from settled.domain.errors import InvalidParams, TooLarge
from settled.domain.money import Money

LIMIT_BYTES = 64 * 1024
"""How much text one value may hold, counted as UTF-8: what a record may hold."""

LIMIT_DEPTH = 32
"""How many lists and objects may be nested in one another."""

_GLANCE_DEPTH = 4
_UNSETTLED = LIMIT_BYTES + 1
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_LIMIT_DECIMAL_PLACES = 40
_ALLOWED_CONTROLS = "\t\n\r"


def canonical(value: object) -> bytes:
    """Return the canonical bytes of a value.

    Equal meanings give equal bytes (another key order, NFC or NFD text, `Decimal("30.0")` or
    `Decimal("30.00")`, one instant in two time zones); other meanings give other bytes. An enum
    member counts as its value, a tuple as a list. Raises `InvalidParams` for a float and for
    anything else that `problems` names or that has no canonical form; `TooLarge` over the limits.
    """
    for path, text in problems(value):
        where = f"{path}: " if path else ""
        raise InvalidParams(f"{where}{text}.", hint="Only exact values have a digest.")
    tagged = _tagged(value)
    # Over ASCII the two agree: order by UTF-8 bytes is order by UTF-16 units there, escapes are the
    # same, and no number is left in what is tagged.
    compact = orjson.dumps(tagged, option=orjson.OPT_SORT_KEYS)
    return compact if compact.isascii() else rfc8785.dumps(tagged)


def problems(value: object) -> Iterator[tuple[str, str]]:
    """Yield (path, what is wrong) for all that no stored value may hold, wherever it is.

    These are floats, integers past 64 bits, decimals that are not finite or are longer than 40
    digits on either side, moments without a time zone, text with control characters (a tab and a
    line end are allowed) or lone surrogates, and keys that are not text or that only differ in
    their Unicode form. Raises `TooLarge` as soon as the value holds more than `LIMIT_BYTES`, so
    that ten megabytes cost no more to refuse than seventy kilobytes.
    """
    if _plain_bytes(value, 0) <= LIMIT_BYTES:
        return iter(())
    return _Walk().visit(value, "", 0)


def _plain_bytes(value: object, depth: int) -> int:
    """Return the bytes that a value counts for if a glance shows that nothing is wrong with it.

    Most values are shallow and of printable ASCII text, whole numbers and money. What a glance does
    not settle counts for more than the limit, so that the walk looks at it closely.
    """
    kind = type(value)
    if kind is str:
        text = cast(str, value)
        return len(text) + 2 if text.isascii() and text.isprintable() else _UNSETTLED
    if value is None or kind is bool or kind is Money:
        return 1
    if kind is int:
        return 1 if _MIN_INTEGER <= cast(int, value) <= _MAX_INTEGER else _UNSETTLED
    if depth >= _GLANCE_DEPTH:
        return _UNSETTLED
    size = 2
    if kind is list or kind is tuple:
        for item in cast(list[object] | tuple[object, ...], value):
            size += _plain_bytes(item, depth + 1)
            if size > LIMIT_BYTES:
                break
        return size
    if kind is not dict and not isinstance(value, BaseModel):
        return _UNSETTLED
    for key, item in cast(dict[object, object], value if kind is dict else vars(value)).items():
        if type(key) is not str:
            return _UNSETTLED
        size += _plain_bytes(key, depth) + _plain_bytes(item, depth + 1)
        if size > LIMIT_BYTES:
            break
    return size


class _Walk:
    """One pass over a value, which counts the bytes it has seen."""

    def __init__(self) -> None:
        self._left_bytes = LIMIT_BYTES

    def visit(self, value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
        if isinstance(value, str):
            yield from self._text(value, path)
        elif isinstance(value, Mapping):
            yield from self._mapping(cast(Mapping[object, object], value), path, depth)
        elif isinstance(value, BaseModel):
            yield from self._mapping(vars(value), path, depth)
        elif isinstance(value, list | tuple):
            self._enter(depth)
            for index, item in enumerate(cast(list[object] | tuple[object, ...], value)):
                yield from self.visit(item, f"{path}[{index}]", depth + 1)
        else:
            # One byte, the least that JSON needs: what `freeze` wrote is never too large here.
            self._count(len(value) if isinstance(value, bytes | bytearray) else 1)
            reason = _scalar_problem(value)
            if reason is not None:
                yield path, reason

    def _mapping(
        self, mapping: Mapping[Any, object], path: str, depth: int
    ) -> Iterator[tuple[str, str]]:
        self._enter(depth)
        seen: set[str] = set()
        for key, item in mapping.items():
            if not isinstance(key, str):
                yield path, f"has the key {key!r:.40}, which is not text"
                continue
            shown = (key if key.isprintable() else ascii(key))[:80]
            inner = f"{path}.{shown}" if path else shown
            yield from self._text(key, inner)
            folded = unicodedata.normalize("NFC", key)
            if folded in seen:
                yield inner, "is there twice, in two Unicode forms"
            seen.add(folded)
            yield from self.visit(item, inner, depth + 1)

    def _enter(self, depth: int) -> None:
        self._count(2)
        if depth >= LIMIT_DEPTH:
            raise InvalidParams(
                f"The value is nested more than {LIMIT_DEPTH} deep.", hint="Flatten it."
            )

    def _text(self, text: str, path: str) -> Iterator[tuple[str, str]]:
        self._count(len(text))  # Characters first: encoding ten megabytes takes time.
        try:
            self._count(len(text.encode()) - len(text) + 2)
        except UnicodeEncodeError:
            yield path, "holds half of a surrogate pair, which is not a character"
            return
        if not text.isprintable():
            for character in text:
                if unicodedata.category(character) == "Cc" and character not in _ALLOWED_CONTROLS:
                    yield path, f"holds the control character U+{ord(character):04X}"
                    return

    def _count(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise TooLarge(
                f"The value holds more than {LIMIT_BYTES // 1024} KiB.",
                hint="Store the content elsewhere and pass its address and its hash.",
            )


def _scalar_problem(value: object) -> str | None:
    match value:
        case float():
            return f"is the float {value!r}, which is binary and not exact; write it as text"
        case bool():
            return None
        case int() if not _MIN_INTEGER <= value <= _MAX_INTEGER:
            return "is an integer past 64 bits; declare a text field for it"
        case Decimal() if not value.is_finite():
            return f"{value} is not a number"
        case Decimal() if not _is_short(value):
            return f"has more than {_LIMIT_DECIMAL_PLACES} digits before or after the point"
        case datetime() if value.utcoffset() is None:
            return "is a moment without a time zone"
        case datetime() if not MINYEAR < value.year < MAXYEAR:
            return "is outside of the years 2 to 9998"
        case _:
            return None


def _is_short(number: Decimal) -> bool:
    exponent = cast(int, number.as_tuple().exponent)
    return exponent >= -_LIMIT_DECIMAL_PLACES and number.adjusted() < _LIMIT_DECIMAL_PLACES


def _tagged(value: object) -> Any:
    """Return the JSON-like value that RFC 8785 puts in order."""
    if type(value) is str:
        return "s:" + (value if value.isascii() else unicodedata.normalize("NFC", value))
    match value:
        case Enum():
            return _tagged(value.value)
        case None | bool():
            return value
        case str():
            return "s:" + unicodedata.normalize("NFC", value)
        case int():
            return f"i:{int(value)}"
        case Decimal():
            return "d:" + _shortest(value)
        case Money():
            return f"m:{value}"
        case datetime():
            return "t:" + value.astimezone(UTC).isoformat()
        case date():
            return f"D:{value.isoformat()}"
        case UUID():
            return f"u:{value}"
        case list() | tuple():
            return [_tagged(item) for item in cast(list[object] | tuple[object, ...], value)]
        case Mapping():
            fields = cast(Mapping[str, object], value)
            return {_key(name): _tagged(item) for name, item in fields.items()}
        case _:
            raise InvalidParams(
                f"A {type(value).__name__} has no canonical form.",
                hint="Use text, integers, decimals, money, dates, UUIDs, enums, lists, objects.",
            )


def _shortest(number: Decimal) -> str:
    """Return the number without trailing zeros, exactly: `normalize()` rounds to the context."""
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    stripped = text.rstrip("0")
    if not stripped:
        return "0"
    shifted = cast(int, exponent) + len(text) - len(stripped)
    return f"{'-' if sign else ''}{stripped}E{shifted}"


def _key(name: str) -> str:
    """Return a key as plain text: a member of a text enum is one by its value."""
    return unicodedata.normalize("NFC", str.__str__(name))
