"""The page of cases and the tests of cases say the same: what it names is there, and all of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BATTERY = ROOT / "tests" / "battery"
PAGE = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")

CASES = 32
LATER = {
    "Reading it back: projections, rebuilds, replay, audit",
    "Decisions and runs: approvals, deadlines, budgets, reactions, retention",
    "Retrieval memory that helps and cannot act, and LangGraph at home",
}
"""The titles of the work to come."""

ON_BOTH = {"stage", "store_url"}
"""What a test asks for that runs on each of the two databases."""


def rows() -> Iterator[tuple[int, str, str]]:
    """Yield number, situation and what shows it, of each row."""
    for line in PAGE.splitlines():
        if found := re.fullmatch(r"\| (\d+) \| (.+?) \| (.+) \|", line):
            yield int(found[1]), found[2], found[3]


def functions_in(file: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def named() -> Iterator[tuple[int, str, str]]:
    """Yield case, file and function of each test that the page names."""
    file = ""
    for number, _, shown in rows():
        for word in re.findall(r"`([^`]+)`", shown):
            if word.endswith(".py"):
                file = word
            else:
                yield number, file, word


def test_every_case_has_its_row() -> None:
    """None is left out because nothing was written for it."""
    assert [number for number, _, _ in rows()] == list(range(1, CASES + 1))


@pytest.mark.parametrize(("number", "file", "name"), list(named()))
def test_what_the_page_names_is_there(number: int, file: str, name: str) -> None:
    """A test that was renamed, or that runs on one database only, shows less than the page says."""
    test = functions_in(BATTERY / file)[name]
    assert name.startswith(f"test_case_{number:02}_")
    assert ON_BOTH & {argument.arg for argument in test.args.args}


def test_every_test_of_a_case_is_on_the_page() -> None:
    """Whoever looks for a case finds all that was written about it."""
    written = {
        (path.name, name)
        for path in BATTERY.glob("test_*.py")
        for name in functions_in(path)
        if name.startswith("test_case_")
    }
    assert written == {(file, name) for _, file, name in named()}


def test_what_comes_later_has_an_owner() -> None:
    """A row without a test names who brings it, by a title that exists."""
    for number, _, shown in rows():
        titles = set(re.findall(r'"([^"]+)"', shown))
        assert titles <= LATER, number
        assert titles or "test_case_" in shown, number
