"""The nine edits of the package agent-memory-integrity, each of them found, on both databases.

Its attacks are somebody else's idea of what is done to a store at rest. They check themselves that
an edit has landed, and that the store passes before it and after being opened anew.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.audit.integrity_adapter import SettledAdapter

ATTACKS: list[Any] = import_module("agmi.attacks.at_rest").AT_REST_ATTACKS_WITH_SNAPSHOT


def test_there_are_nine() -> None:
    """A list that had become shorter would make everything below hold."""
    assert len(ATTACKS) == 9


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_edit_is_found(attack: Any, store_url: str, tmp_path: Path) -> None:
    """Detected, by a verdict that was sound before, and not by an error on the way."""
    result = attack().run(SettledAdapter(store_url, tmp_path))
    assert (result.error, getattr(result, "guard", None)) == (None, None)
    assert result.detected, result
