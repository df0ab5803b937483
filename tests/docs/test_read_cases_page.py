"""The table of the read side's cases names tests that exist, and every test of a case."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "projections.md").read_text(encoding="utf-8")
CASES = 12


def rows() -> Iterator[tuple[int, str]]:
    """Yield number and what shows it, of each row."""
    for line in PAGE.splitlines():
        if found := re.fullmatch(r"\| (\d+) \| .+? \| (.+) \|", line):
            yield int(found[1]), found[2]


def named() -> Iterator[tuple[int, str, str]]:
    """Yield case, file and function of each test that the page names."""
    file = ""
    for number, shown in rows():
        for word in re.findall(r"`([^` ]+)`", shown):
            if word.endswith(".py"):
                file = word
            else:
                yield number, file, word


def functions_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_case_has_its_row_and_a_test() -> None:
    """None is left out because nothing was written for it."""
    assert [number for number, _ in rows()] == list(range(1, CASES + 1))
    assert {number for number, _, _ in named()} == set(range(1, CASES + 1))


@pytest.mark.parametrize(("number", "file", "name"), list(named()))
def test_what_the_page_names_is_there(number: int, file: str, name: str) -> None:
    """A test that was renamed or removed shows nothing any more."""
    assert name in functions_in(ROOT / file)
    case = re.match(r"test_read_case_(\d\d)_", name)
    assert case is None or int(case[1]) == number


def test_every_test_of_a_case_is_on_the_page() -> None:
    """Whoever looks for a case finds all that was written about it."""
    file = "tests/projections/test_read_cases.py"
    written = {name for name in functions_in(ROOT / file) if name.startswith("test_")}
    assert written == {name for _, of, name in named() if of == file}
