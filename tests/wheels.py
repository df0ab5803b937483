"""The wheel, built from a copy of the tree and without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("domain", "infrastructure", "processes", "projections")


def build_wheel(folder: Path) -> Path:
    """Build the wheel in an empty folder, and return it."""
    tree = folder / "tree"
    tree.mkdir()
    for name in ("settled", *LAYERS):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)],
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (built,) = folder.glob("*.whl")
    return built
