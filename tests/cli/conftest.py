"""The command line on a fresh, migrated store of each of the two databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from settled.infrastructure.journal.migrate import migrate
from settled.infrastructure.journal.opening import open_target
from tests.cli.runner import CommandLine


@pytest.fixture
def settled_(store_url: str, tmp_path: Path) -> CommandLine:
    """Commands on a store with tables and nothing in them."""
    with open_target(store_url) as target:
        migrate(target)
    return CommandLine(store_url, tmp_path)


@pytest.fixture
def bare(store_url: str, tmp_path: Path) -> CommandLine:
    """Commands on a store without tables."""
    return CommandLine(store_url, tmp_path)
