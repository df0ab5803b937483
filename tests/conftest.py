"""What every test may ask for, under short names: the fixtures of our own pytest plugin.

A test never sees another test's rows: each has a database of its own, on SQLite or on a real
PostgreSQL.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing import pytest_plugin

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("domain", "infrastructure", "processes", "projections")


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin where the tree is not installed, and nobody has announced it to pytest."""
    if not config.pluginmanager.has_plugin("settled"):
        config.pluginmanager.register(pytest_plugin, "settled")


@pytest.fixture
def simulator(settled_simulator: SimulatorClient) -> SimulatorClient:
    """The simulated provider, with an empty log."""
    return settled_simulator


@pytest.fixture
def postgres_url(settled_postgres_url: str) -> str:
    """The URL of a fresh PostgreSQL database, dropped after the test."""
    return settled_postgres_url


@pytest.fixture
def sqlite_url(settled_sqlite_url: str) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return settled_sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh database: the test runs once on each of the two."""
    url: str = request.getfixturevalue(f"settled_{request.param}_url")
    return url


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree."""
    folder = tmp_path_factory.mktemp("wheel")
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
