"""What a check is, and how one is registered."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TypeVar

from settled.verify.stage import Stage

DATABASES = frozenset({"sqlite", "postgresql"})
"""The dialects of the journal, as a check names those that it applies to."""

SQLITE = frozenset({"sqlite"})
POSTGRESQL = frozenset({"postgresql"})

_MODULES = (
    *("crashes", "starts", "answers", "decisions", "changes", "terms", "stalls", "outages"),
    *("clocks", "disks", "load", "copies", "permits", "contradictions", "webhooks", "groups"),
    *("fairness", "audit", "survival", "replay", "rebuilds", "runs", "versions"),
)

Run = Callable[[Stage], None]
Value = TypeVar("Value")
Parametrised = Callable[[Stage, Value], None]


@dataclass(frozen=True)
class Check:
    """A function that raises when settled does not keep what it promises.

    Several checks may share the id of the promise that they are about. `own_server` says that it
    stops the database or fills its disk, which it may do to no server that is not its own.
    `package` is what it needs beyond what settled itself does, as it is imported.
    """

    id: str
    title: str
    run: Run
    databases: frozenset[str] = DATABASES
    own_server: bool = False
    package: str = ""


_registered: list[Check] = []


def check(
    id: str,
    title: str,
    *,
    databases: frozenset[str] = DATABASES,
    own_server: bool = False,
    package: str = "",
) -> Callable[[Run], Run]:
    """Register a function as a check of the promise with this id."""

    def register(run: Run) -> Run:
        _registered.append(Check(id, title, run, databases, own_server, package))
        return run

    return register


def check_each(
    id: str,
    title: str,
    values: Sequence[Value],
    *,
    databases: frozenset[str] = DATABASES,
    own_server: bool = False,
    package: str = "",
) -> Callable[[Parametrised[Value]], Parametrised[Value]]:
    """Register a function once for each value; `{}` in the title stands for the value."""

    def register(run: Parametrised[Value]) -> Parametrised[Value]:
        for value in values:
            given, named = _given(run, value), title.format(value)
            _registered.append(Check(id, named, given, databases, own_server, package))
        return run

    return register


def _given(run: Parametrised[Value], value: Value) -> Run:
    return lambda stage: run(stage, value)


def registered() -> tuple[Check, ...]:
    """Return every check there is, in the order of their numbers."""
    for name in _MODULES:
        import_module(f"settled.verify.checks_{name}")
    return tuple(sorted(_registered, key=lambda one: int(one.id[1:])))


@contextmanager
def refused(error: type[Exception], match: str = "") -> Generator[None]:
    """Expect the block to be refused with this error, in words that match a pattern."""
    try:
        yield
    except error as raised:
        assert re.search(match, str(raised)), f"{raised} does not say {match!r}"
        return
    raise AssertionError(f"it was not refused with {error.__name__}")
