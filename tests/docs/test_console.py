"""Every console block of the docs is run, command by command, and prints what the page says.

`…` on a page stands for what differs from run to run; a line of it alone, for any lines. The Python
of a page is in `shop.py` then, as the page says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").glob("*.md"))
    if BLOCK.search(path.read_text(encoding="utf-8"))
}
MARK = "-- the next command --"


def steps(page: str) -> list[tuple[str, str]]:
    """Return each command of a page, with what it is said to print."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def pattern(printed: str) -> str:
    lines = [
        r"(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*")
        for line in printed.splitlines(keepends=True)
    ]
    return "".join(lines)


def test_the_pages_are_found() -> None:
    """A pattern that matches nothing would make every page hold."""
    assert {"audit.md", "contracts.md"} <= set(PAGES)
    assert all(len(steps(page)) > 2 for page in PAGES.values())


@pytest.mark.parametrize("name", PAGES)
def test_console(name: str, tmp_path: Path) -> None:
    """One shell runs the page from top to bottom, as a reader does."""
    for program, words in (("settled", "-m settled "), ("python", "")):
        shim = tmp_path / "bin" / program
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "shop.py").write_text("\n".join(PYTHON.findall(PAGES[name])), encoding="utf-8")
    wanted = steps(PAGES[name])
    script = "\n".join(f"{command}\necho '{MARK}'" for command, _ in wanted)
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=folder,
        env={
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SETTLED_STATE_DIR": str(tmp_path / "state"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    printed = done.stdout.split(f"{MARK}\n")[:-1]
    assert len(printed) == len(wanted), done.stderr
    for (command, expected), actual in zip(wanted, printed, strict=True):
        assert re.fullmatch(pattern(expected), actual), f"$ {command}\n{actual}\n{done.stderr}"
