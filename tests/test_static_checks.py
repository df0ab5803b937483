"""Style, types and layers are tests: what `make check` runs, `make test` runs too.

A check that runs only where somebody remembered it is a check that does not run; and one that looks
at fewer files than there are is worse, as it passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "domain", "infrastructure", "processes", "projections", "settled", "tests")

CHECKS = {
    "ruff format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "ruff check": [sys.executable, "-m", "ruff", "check", "."],
    "mypy": [sys.executable, "-m", "mypy"],
    # The project is named: pyright would rather take a pyrightconfig.json of some folder above.
    "pyright": [
        *(sys.executable, "-m", "pyright", "--stats"),
        *("--project", "pyproject.toml", "--pythonpath", sys.executable),
    ],
    "import-linter": [str(Path(sys.executable).with_name("lint-imports"))],
}


def count_modules() -> int:
    """Return how many Python files there are, each once whatever links lead to it."""
    return len({path.resolve() for name in FOLDERS for path in (ROOT / name).rglob("*.py")})


@pytest.mark.parametrize("check", CHECKS)
def test_check(check: str) -> None:
    """The tool finds nothing; what it found is the message."""
    done = subprocess.run(
        CHECKS[check], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        pytest.fail(f"{check} (exit {done.returncode})\n{done.stdout}", pytrace=False)
    if check in ("mypy", "pyright"):
        (looked_at,) = re.findall(r"(\d+) source files", done.stdout)
        assert int(looked_at) == count_modules()
