"""The stores of views beside one journal: which there are, and each opened once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from settled.domain.errors import StoreUnavailable

_BEHIND = re.compile(r"(?:_([a-z][a-z0-9_]{0,29}))?")


class Closable(Protocol):
    """What is closed with the views."""

    def close(self) -> None:
        """Close it."""
        ...


S = TypeVar("S", bound=Closable)


class Stores(Generic[S]):
    """Stores by their schema, opened when they are first asked for. Safe for several threads."""

    def __init__(self, opening: Callable[[str], S]) -> None:
        self._opening = opening
        self._opened: dict[str, S] = {}
        self._mutex = threading.Lock()
        self._closed = False

    def of(self, schema: str) -> S:
        """Return the store of a schema."""
        with self._mutex:
            if self._closed:
                raise StoreUnavailable("The views were closed.")
            if schema not in self._opened:
                self._opened[schema] = self._opening(schema)
            return self._opened[schema]

    def close(self) -> None:
        """Close every store that was opened."""
        with self._mutex:
            self._closed = True
            for store in self._opened.values():
                store.close()


def behind(schema: str) -> str:
    """Return what stands behind the name of the views for a schema: nothing for that of all."""
    return f"_{schema}" if schema else ""


def schemas_in(base: str, names: Iterable[str]) -> list[str]:
    """Return the schemas of which the stores have these names, `base` being that of all."""
    found = (_BEHIND.fullmatch(name, len(base)) for name in names if name.startswith(base))
    return sorted(match[1] or "" for match in found if match)
