"""From `--kinds` and `--projections` to what a module declares."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard, cast

from settled.domain.errors import InvalidInput, InvalidKind, SettledError
from settled.domain.kind import Kind
from settled.domain.run.kind import RunKind
from settled.projections.projection import Projecting


def load_projections(source: str) -> list[Projecting]:
    """Return the projections that a module holds, or that one name in it does, as `load_kinds`.

    A projection is an object that has a name, a version, topics and tables; of a class, an object
    is made. Raises InvalidInput when there is no such module or it holds none.
    """
    found: list[Projecting] = []
    for value in _values(source):
        made = value() if _is_projection_class(value) else value
        if isinstance(made, Projecting) and not isinstance(made, type):
            found += [] if any(made is one for one in found) else [made]
    if not found:
        raise InvalidInput(
            f"{source} holds no projection.",
            hint="A projection has name, version, topics, tables, and apply or fold.",
        )
    return found


def load_kinds(source: str) -> list[Kind[Any]]:
    """Return the kinds of operations that `load_declared` finds."""
    return load_declared(source)[0]


def load_declared(source: str) -> tuple[list[Kind[Any]], list[RunKind]]:
    """Return the kinds, and the run kinds, that `package.module`, `path/file.py`, or one name in
    them declares.

    Without a name, all that the module holds, in the order in which it holds them. Raises
    InvalidKind when there is no such module or it declares neither, and what the module itself
    raises of settled's errors.
    """
    values = list(_values(source))
    kinds = _kinds_in(values)
    runs: list[RunKind] = []
    for value in values:
        if isinstance(value, RunKind) and not any(value is run for run in runs):
            runs.append(value)
    if not kinds and not runs:
        raise InvalidKind(
            f"{source} declares no kind.",
            hint="A kind is settled.Kind(…), or a function under @settled.kind(…).",
        )
    return kinds, runs


def load_machines(source: str) -> None:
    """Import what a module declares, so that streams of its state machines can be read.

    Raises InvalidKind when there is no such module, and what the module itself raises.
    """
    _values(source)


def _values(source: str) -> Iterable[object]:
    """Return what a module holds, or what one name in it stands for."""
    place, name = source, ""
    if not source.endswith(".py") and ":" in source:
        place, _, name = source.rpartition(":")
    module = _import(place)
    return list(vars(module).values()) if not name else _named(module, name)


def _is_projection_class(value: object) -> TypeGuard[type[Projecting]]:
    """Say whether a class is a projection's; protocols and what is imported from here are none."""
    names = ("name", "version", "topics", "tables")
    return (
        isinstance(value, type)
        and not getattr(value, "_is_protocol", False)
        and all(hasattr(value, name) for name in names)
    )


def _import(place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _import_file(Path(place))
        # As `python -m` does: modules beside the user are found.
        if "" not in sys.path:
            sys.path.insert(0, "")
        return import_module(place)
    except SettledError:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidKind(
            f"{place} cannot be imported: {type(error).__name__}: {error}"
            f" ({where.filename}, line {where.lineno}).",
            hint="--kinds takes package.module or path/file.py, and :name behind it.",
        ) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file")
    sys.path.insert(0, str(path.parent))  # as `python path/file.py` does
    name = f"kinds_in_{path.stem}"  # a file may be called json.py, and must not become json
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "the name ends in .py"
    module = module_from_spec(spec)
    # Annotations are looked up in the module of this name when a function becomes a kind.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _named(module: ModuleType, name: str) -> list[object]:
    if not hasattr(module, name):
        raise InvalidKind(
            f"{module.__name__} has no {name}.",
            hint="Name a Kind of the module or a list of kinds, or leave the name out.",
        )
    value: object = getattr(module, name)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(cast(Iterable[object], value))
    return [value]


def _is_kind(value: object) -> TypeGuard[Kind[Any]]:
    return isinstance(value, Kind)


def _kinds_in(values: Iterable[object]) -> list[Kind[Any]]:
    kinds: list[Kind[Any]] = []
    for value in values:
        # A module may name one twice.
        if _is_kind(value) and not any(value is kind for kind in kinds):
            kinds.append(value)
    return kinds
