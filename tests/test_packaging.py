"""What is installed is what is in the tree: every file, under the name it is imported by.

Nobody can add a folder that works in a checkout and is missing for those who install.
"""

from __future__ import annotations

import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import settled

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("domain", "infrastructure", "processes", "projections")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def files_under(folder: Path) -> list[Path]:
    """Return its files, without what Python leaves there and without following links."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and not in_link(path, folder)
    ]


def in_link(path: Path, top: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(top))


def installed_names() -> set[str]:
    face = {path.relative_to(ROOT).as_posix() for path in files_under(ROOT / "settled")}
    layers = {
        f"settled/{path.relative_to(ROOT).as_posix()}"
        for layer in LAYERS
        for path in files_under(ROOT / layer)
    }
    return face | layers


def test_every_folder_is_listed_as_a_package() -> None:
    """The map in pyproject.toml names each folder that holds a file, and no other."""
    folders = {str(Path(name).parent).replace("/", ".") for name in installed_names()}
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(folders - set(listed)) == [], "add these to tool.setuptools.packages"
    assert sorted(set(listed) - folders) == [], "remove these from tool.setuptools.packages"
    assert listed == sorted(listed)


def test_wheel_carries_every_file(wheel: Path) -> None:
    """The wheel has the tree's files, and tells pytest of the plugin."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (announced,) = [name for name in names if name.endswith("/entry_points.txt")]
        entry_points = archive.read(announced).decode()
    assert {name for name in names if ".dist-info/" not in name} == installed_names()
    plugin = PROJECT["project"]["entry-points"]["pytest11"]["settled"]
    assert f"[pytest11]\nsettled = {plugin}\n" in entry_points
    assert import_module(plugin)


@pytest.mark.parametrize("layer", LAYERS)
def test_link_points_at_the_layer(layer: str) -> None:
    """Editors and type checkers follow the links, so each has to be one, and relative."""
    assert (ROOT / "settled" / layer).readlink() == Path("..") / layer


def test_version_is_one() -> None:
    """The package and its metadata name the same version."""
    assert settled.__version__ == PROJECT["project"]["version"]


def test_types_are_published() -> None:
    """Without the marker, a user's type checker sees nothing of ours."""
    assert "settled/py.typed" in installed_names()
