"""The key as a provider takes it: shortened or rewritten where a contract says so."""

from __future__ import annotations

import hashlib

from settled.domain.contract import Key
from settled.domain.errors import InvalidContract

_SHORTEST = 22
"""Digits below which two keys could meet by chance: 22 decimal digits are 73 bits."""


def fitted(key: str, declared: Key) -> str:
    """Return the key in a form that the provider takes; the same one each time.

    Where the key itself does not fit, it is the key without hyphens, else a SHA-256 of the key in
    hexadecimal or in decimal digits, cut to the length. Raises `InvalidContract` where none fits
    or a fitting one would be too short to be unique.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    length = declared.max_len or len(digest)
    candidates = [key, key.replace("-", "")]
    if length >= _SHORTEST:
        candidates += [digest[:length], digest.upper()[:length], str(int(digest, 16))[:length]]
    for candidate in candidates:
        if declared.problem(candidate) is None:
            return candidate
    raise InvalidContract(
        f"{declared.problem(key)}, and there is no unique form of it that fits.",
        hint=f"A key needs at least {_SHORTEST} characters, of letters or digits.",
    )


def written(key: str, declared: Key) -> str:
    """Return the key as the value of its header: a quoted string if the contract says so."""
    return f'"{key}"' if declared.quoted else key
