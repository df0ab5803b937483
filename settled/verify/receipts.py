"""A projection as an accountant would ask for it: receipts by provider, kept for a while.

It lies in a schema of its own, so that those who read it see nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from settled import Event, RecordedEvent, Rows
from settled.domain.operation.events import Intended, Reversed, Succeeded

KEPT = timedelta(days=90)


@dataclass(frozen=True)
class Receipts:
    """A row for each operation that was intended; its receipt once it is there."""

    version: int = 1
    keep: timedelta = KEPT
    schema: str = "accounts"
    name: str = "receipts"
    topics: tuple[str, ...] = ("settled.operation.",)

    @property
    def table(self) -> str:
        """What its one table is called."""
        return f"receipts_{self.version}"

    def tables(self, dialect: str) -> Sequence[str]:
        """Return the statement that makes it."""
        moment = "text" if dialect == "sqlite" else "timestamptz"
        return [
            f"CREATE TABLE {self.table} (tenant text NOT NULL, stream text NOT NULL,"
            f" provider text NOT NULL, operation_id text NOT NULL, reference text,"
            f" received_at {moment}, taken_back integer NOT NULL, PRIMARY KEY (tenant, stream))"
        ]

    def in_version(self, version: int) -> Receipts:
        """Return the same view in a table of another version."""
        return replace(self, version=version)

    def contents(self) -> Mapping[str, str]:
        """Return what has to be equal in two versions: everything."""
        return {"receipts": f"SELECT * FROM {self.table}"}

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        """Fold one event of an operation."""
        key = {"tenant": record.tenant, "stream": str(record.stream)}
        where = "WHERE tenant = :tenant AND stream = :stream"
        match event:
            case Intended():
                rows.execute(
                    f"INSERT INTO {self.table} (tenant, stream, provider, operation_id, taken_back)"
                    " VALUES (:tenant, :stream, :provider, :operation_id, 0)"
                    " ON CONFLICT (tenant, stream) DO NOTHING",
                    provider=event.provider,
                    operation_id=event.identity,
                    **key,
                )
            case Succeeded():
                # The first receipt says how long it is kept: a later one must not prolong that.
                rows.execute(
                    f"UPDATE {self.table} SET reference = :reference,"
                    f" received_at = COALESCE(received_at, :at) {where}",
                    reference=event.reference,
                    at=record.recorded_at,
                    **key,
                )
            case Reversed():
                rows.execute(f"UPDATE {self.table} SET taken_back = 1 {where}", **key)
            case _:
                pass

    def forget(self, before: datetime, rows: Rows) -> int:
        """Remove what was received before then."""
        return rows.execute(f"DELETE FROM {self.table} WHERE received_at < :before", before=before)


receipts = Receipts()
