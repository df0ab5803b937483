"""From `--kinds` to the kinds that a module declares."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard, cast

from settled.domain.errors import InvalidKind, SettledError
from settled.domain.kind import Kind


def load_kinds(source: str) -> list[Kind[Any]]:
    """Return the kinds that `package.module`, `path/file.py`, or one name in them declares.

    Without a name, every Kind that the module holds, in the order in which it holds them. Raises
    InvalidKind when there is no such module or it declares none, and what the module itself raises
    of settled's errors.
    """
    place, name = source, ""
    if not source.endswith(".py") and ":" in source:
        place, _, name = source.rpartition(":")
    module = _import(place)
    found = _kinds_in(vars(module).values() if not name else _named(module, name))
    if not found:
        raise InvalidKind(
            f"{source} declares no kind.",
            hint="A kind is settled.Kind(…), or a function under @settled.kind(…).",
        )
    return found


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
