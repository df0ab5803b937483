"""The pages that are made from the code say what the code says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import generate

PAGES = generate.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_makes_of_it(path: Path) -> None:
    """A picture of another lifecycle, or an example that is not the one that runs, misleads."""
    if path.read_text(encoding="utf-8") != PAGES[path]:
        pytest.fail(f"{path.name} is old: run `python docs/generate.py`", pytrace=False)


def test_the_blocks_are_found() -> None:
    """A pattern that matches nothing would leave every page as it is."""
    page = PAGES[generate.DOCS / "state-machines.md"]
    example = (generate.DOCS / "examples" / "deployment.py").read_text(encoding="utf-8")
    assert example.rstrip() in page
    assert "waiting --> rolling: StageStarted" in page
    assert "ready --> claimed: Claimed" in PAGES[generate.DOCS / "lifecycle.md"]
