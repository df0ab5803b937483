"""A store with a history, its auditor, and somebody who writes its tables, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from settled.domain.journal.anchors import AuditKey
from settled.domain.journal.audit import Breach
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.audit.auditor import AuditReport, anchor, verify
from settled.infrastructure.audit.keys import make_key
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.seeding import seed
from tests.audit.raw import Intruder

OPERATIONS = 30


@dataclass
class Audited:
    """A store that was anchored. `edit` writes its tables."""

    url: str
    journal: Journal
    edit: Intruder
    anchors: Path
    key: AuditKey

    def anchor(self) -> None:
        """Anchor what is new."""
        anchor(self.journal, self.url, self.anchors, self.key)

    def verify(self, *, anchored: bool = True) -> AuditReport:
        """Audit the store."""
        against, key = (self.anchors, self.key) if anchored else (None, None)
        return verify(self.journal, self.url, against=against, key=key)

    def breaches(self, *, anchored: bool = True) -> tuple[Breach, ...]:
        """Audit the store, and return what is wrong."""
        return self.verify(anchored=anchored).breaches

    def longest(self, tenant: str = "acme") -> list[RecordedEvent]:
        """Return the longest of a tenant's streams."""
        rows = self.journal.heads(tenant, limit=1000)
        row = max(rows, key=lambda row: (row.version, row.identity))
        return self.journal.events(tenant, row.stream)


def place(event: RecordedEvent) -> tuple[str, UUID, int]:
    """Return where an event stands, as statements take it."""
    return event.tenant, event.stream, event.originator_version


@pytest.fixture
def audited(store_url: str, tmp_path: Path) -> Iterator[Audited]:
    """Thirty operations of two tenants, anchored."""
    key = make_key(tmp_path / "auditor.key")
    with closing(open_journal(store_url, migrate=True)) as journal:
        seed(journal, OPERATIONS)
        store = Audited(store_url, journal, Intruder(store_url), tmp_path / "anchors", key)
        store.anchor()
        yield store
