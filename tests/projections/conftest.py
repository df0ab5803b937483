"""An application on a fresh database of each kind, for the tests of what is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import settled
from settled import App


@pytest.fixture
def app(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An application on a fresh database."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    with settled.open(store_url, migrate=True, require_fsync=False) as opened:
        yield opened
