"""The conformance suite of the journal: what every store behind the port has to do.

    class TestMyJournal(JournalSuite):
        @pytest.fixture
        def store(self, tmp_path):
            url = f"sqlite:///{tmp_path / 'settled.db'}"
            open_journal(url, migrate=True).close()
            return sqlite_store(tmp_path / "settled.db", partial(open_journal, url))

It starts real processes and kills some of them; with two processors it takes about a minute.
"""

from __future__ import annotations

from settled.infrastructure.testing.journal_claim_rules import ClaimRules
from settled.infrastructure.testing.journal_commit_rules import CommitRules, JoinRules
from settled.infrastructure.testing.journal_process_rules import ProcessRules, WorkerRules
from settled.infrastructure.testing.journal_read_rules import ReadRules
from settled.infrastructure.testing.journal_store import Store, postgres_store, sqlite_store

__all__ = ["JournalSuite", "Store", "postgres_store", "sqlite_store"]


class JournalSuite(CommitRules, JoinRules, ReadRules, ClaimRules, ProcessRules, WorkerRules):
    """Every rule. A subclass overrides the fixture `store` with a fresh store for each test."""
