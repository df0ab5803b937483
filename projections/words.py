"""Words to search by: cut and written the same way on both databases, because it is done here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

MAX_LENGTH = 64
"""Of a longer word only the beginning counts."""

MAX_WORDS = 64
"""How many words one operation is found by; those of its name come first."""

_WORD = re.compile(r"[^\W_]+")
_BETWEEN = re.compile(r"[^\w\s]+|_+")
_PARTS = bytes(ord(chr(n).lower()) if n < 128 and chr(n).isalnum() else 32 for n in range(256))
_PUNCTUATION = bytes(n for n in range(33, 128) if not chr(n).isalnum())
"""The same for ASCII, but sooner: a table of what a byte becomes, and what is left out."""


def words_of(text: str) -> list[str]:
    """Return the words by which a text is found, each once, without case.

    They are its runs of letters and digits, and whole what stands between blanks: "order-72" is
    found by order, by 72 and by order72.
    """
    return list(dict.fromkeys(_cut(text)))


def _cut(text: str) -> list[str]:
    if text.isascii():
        encoded = text.encode()
        found = encoded.translate(_PARTS).decode().split()
        found += encoded.translate(_PARTS, _PUNCTUATION).decode().split()
    else:
        plain = _plain(text)
        found = _WORD.findall(plain) + _BETWEEN.sub("", plain).split()
    return found if len(text) <= MAX_LENGTH else [word[:MAX_LENGTH] for word in found]


def sought_words(query: str) -> list[str]:
    """Return the words that a query asks for: what stands between blanks, whole, each once.

    So "order-72" does not find an order that has a 72 somewhere else.
    """
    whole = _BETWEEN.sub("", _plain(query)).split()
    return list(dict.fromkeys(word[:MAX_LENGTH] for word in whole))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def more_words(words: str, texts: Iterable[str]) -> str:
    """Return words with a blank between them, and behind them those of further texts.

    The texts count one after the other, so it does not matter how many are added at once.
    """
    found = words.split()
    for text in texts:
        found += _cut(text)
    return " ".join(islice(dict.fromkeys(found), MAX_WORDS))


def texts_in(value: object) -> Iterator[str]:
    """Yield every text and whole number inside a JSON value, names of fields left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, Any]", value).values():
            yield from texts_in(each)
    elif isinstance(value, list | tuple):
        for each in cast("Iterable[Any]", value):
            yield from texts_in(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
