"""The fixtures that every part of the journal's conformance suite uses."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest

from settled.domain.journal.port import Committer, Journal
from settled.infrastructure.testing.journal_store import Store


class JournalRules:
    """Tests of one store; a subclass says which one."""

    @pytest.fixture
    def store(self) -> Store:
        """Return a fresh, migrated store."""
        raise NotImplementedError("a test class for a journal overrides the fixture `store`")

    @pytest.fixture
    def journal(self, store: Store) -> Generator[Journal]:
        """Give the store's journal."""
        with closing(store.open()) as journal:
            yield journal

    @pytest.fixture
    def committer(self, journal: Journal) -> Generator[Committer]:
        """Give a committer of the journal."""
        with closing(journal.committer()) as committer:
            yield committer
