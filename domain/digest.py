"""Whether two starts ask for the same thing, answered without keeping what they asked.

The digest outlives the parameters: after a purge it is what a late duplicate is judged by. It is
keyed, because amounts and order numbers are few enough to be guessed from a plain hash.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

import orjson

from settled.domain.canonical import canonical
from settled.domain.errors import InvalidInput
from settled.domain.params import (
    Params,
    as_json,
    freeze,
    is_remark,
    meaning,
    parse,
    semantic,
    under_version,
)

Mode = Literal["live", "dry-run"]
"""Whether the provider is to act; part of the digest, so a rehearsal never stands for the act."""

ALGORITHM = "hmac-sha256/rfc8785"
MIN_KEY_BYTES = 32
_MODES = get_args(Mode)
_ABSENT = "nothing"
LONGEST_SHOWN = 80
"""Characters of a value that a message quotes."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A keyed digest and what is needed to compute it again.

    `value` is 64 hexadecimal digits, `params_version` the version of the kind's parameters it was
    taken under, `key_id` names the tenant's key.
    """

    algorithm: str
    value: str
    kind: str
    params_version: int
    key_id: str


class Difference(NamedTuple):
    """One field in which two starts differ, as text for a message."""

    name: str
    stored: str
    given: str


def digest(params: Params, kind: str, mode: Mode, key: bytes, key_id: str) -> Digest:
    """Return the digest of what these parameters ask for.

    `key` is the tenant's secret of at least 32 bytes. Equal for another key order, NFC or NFD
    text, a default left out or given; different for another amount, currency, text, kind or mode.
    """
    if mode not in _MODES:
        raise InvalidInput(f"{mode!r} is not a mode.", hint='Use "live" or "dry-run".')
    if len(key) < MIN_KEY_BYTES:
        raise InvalidInput(
            f"A digest key of {len(key)} bytes can be guessed.",
            hint=f"Use {MIN_KEY_BYTES} random bytes.",
        )
    version = type(params).PARAMS_VERSION
    covered = {
        "algorithm": ALGORITHM,
        "kind": kind,
        "mode": mode,
        "params_version": version,
        "fields": semantic(params),
    }
    value = hmac.digest(key, canonical(covered), hashlib.sha256).hex()
    return Digest(ALGORITHM, value, kind, version, key_id)


def same_request(stored: Digest, given: Params, mode: Mode, key: bytes) -> bool:
    """Tell whether a start asks for what an operation with this digest was started with.

    `key` is the secret named by `stored.key_id`. What was given is judged under the stored params
    version. Raises `InvalidParams` if this code has no class for that version.
    """
    params = under_version(given, stored.params_version)
    if params is None:
        return False
    again = digest(params, stored.kind, mode, key, stored.key_id)
    return again.algorithm == stored.algorithm and hmac.compare_digest(again.value, stored.value)


def differing_fields(
    stored: Params | Mapping[str, object], given: Params | Mapping[str, object]
) -> list[Difference]:
    """Return the fields that differ, remarks apart, in the order of their names.

    A mapping is a JSON body. It is read as the other side's class where that can be; where it
    cannot, as for a stored version whose class is gone, the two are compared as JSON.
    """
    ours, theirs = _alike(stored, given), _alike(given, stored)
    exact = isinstance(ours, Params) and isinstance(theirs, Params)
    left, right = _fields(ours, exact), _fields(theirs, exact)
    return [
        Difference(name, _shown(left, name), _shown(right, name))
        for name in sorted((left.keys() | right.keys()) - _remarks(ours) - _remarks(theirs))
        if (name in left) != (name in right)
        or canonical(meaning(left[name])) != canonical(meaning(right[name]))
    ]


def _alike(
    side: Params | Mapping[str, object], other: Params | Mapping[str, object]
) -> Params | Mapping[str, object]:
    if isinstance(side, Params) or not isinstance(other, Params):
        return side
    try:
        return parse(type(other), side)
    except InvalidInput:  # Of another version, then: what differs is found in the JSON.
        return side


def _fields(side: Params | Mapping[str, object], exact: bool) -> Mapping[str, object]:
    if not isinstance(side, Params):
        return side
    return vars(side) if exact else cast(dict[str, object], orjson.loads(freeze(side)))


def _remarks(side: Params | Mapping[str, object]) -> set[str]:
    if not isinstance(side, Params):
        return set()
    return {name for name, field in type(side).model_fields.items() if is_remark(field)}


def _shown(fields: Mapping[str, object], name: str) -> str:
    if name not in fields:
        return _ABSENT
    match orjson.loads(as_json(fields[name])):
        case {"amount": str(amount), "currency": str(currency), **rest} if not rest:
            shown = f"{amount} {currency}"
        case str(text):
            shown = text
        case value:
            shown = as_json(value).decode()
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 1]}…"
