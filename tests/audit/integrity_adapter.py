"""The adapter through which agent-memory-integrity sees a store: one stream, and its columns.

Its nine attacks know no settled: they read and write rows through this, and ask for a verdict. The
auditor's anchors lie outside the store, so a snapshot of the store does not hold them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import settled
from settled import Identity, Kind, Money, Params, Principal, Reply, presets
from settled.domain.operation.operation import Operation
from settled.infrastructure.audit.auditor import anchor, verify
from settled.infrastructure.audit.keys import make_key
from settled.infrastructure.journal.opening import open_journal
from tests.audit.raw import Intruder, as_uuid

COLUMNS = (
    *("event_id", "topic", "schema_version", "min_reader", "recorded_at", "actor", "correlation"),
    *("causation", "key_id", "previous_hash", "hash", "state", "body", "body_digest"),
)
WHERE = "WHERE tenant = ? AND stream = ? AND version = ?"


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


@settled.kind(
    "refund",
    contract=presets.generic_http,
    hand_over_to="payments-oncall",
    label="Refund {amount} for {order}",
    approvers=frozenset({"lead"}),
)
def refund(call: settled.Call, params: RefundParams) -> Reply:
    """Nothing is ever approved, so nothing is ever sent."""
    return Reply.unknown("nobody approved it")


KINDS: list[Kind[Any]] = [refund]


@dataclass
class Record:
    """One event as the attacks see it: its place among those of its stream, and its columns."""

    seq: int
    fields: dict[str, Any]


class SettledAdapter:
    """Two proposals of two tenants, revised again and again; each revision is a record."""

    name = "settled"
    detection_point = "audit"
    supports_replay = True
    supports_metadata = True
    supports_snapshot = True

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.verify_detail: str | None = None

    def setup(self) -> None:
        """Open the store, in which nothing is, and an auditor outside it."""
        self._app = settled.open(self._url, kinds=KINDS, migrate=True)
        self._edit = Intruder(self._url)
        self._key = make_key(self._folder / "auditor.key")
        self._anchors = self._folder / "anchors"

    def teardown(self) -> None:
        """Close the store."""
        self._app.close()

    def reload(self) -> None:
        """Open the store anew."""
        self._app.close()
        self._app = settled.open(self._url, kinds=KINDS)

    def seed(self, n: int) -> None:
        """Record so many events through the public interface."""
        self._record("acme", n)

    def seed_other(self, n: int) -> None:
        """As above, for another tenant."""
        self._record("globex", n)

    def append_genuine(self) -> None:
        """Record one more."""
        self._record("acme", 1)

    def _record(self, tenant: str, n: int) -> None:
        by = Principal(tenant, "agent")
        identity = Identity(tenant, "refund", "refund-request-9")
        for _ in range(n):
            number = len(self._rows(tenant)) + 1
            params = {"order": f"order-{tenant}-{number}", "amount": Money("30.00", "USD")}
            if number == 1:
                self._app.operations.propose("refund", identity.operation_id, params, by=by)
            else:
                self._app.operations.revise(identity, params, by=by)
        with closing(open_journal(self._url)) as journal:
            anchor(journal, self._url, self._anchors, self._key)

    def verify(self) -> bool:
        """Audit the store against the anchors."""
        with closing(open_journal(self._url)) as journal:
            report = verify(journal, self._url, against=self._anchors, key=self._key)
        self.verify_detail = None
        for breach in report.breaches:
            self.verify_detail = f"{breach.wrong}: {breach.message}"
            return False
        return True

    def _stream(self, tenant: str) -> UUID:
        return Operation.stream(Identity(tenant, "refund", "refund-request-9"))

    def _rows(self, tenant: str) -> list[Record]:
        rows = self._edit(
            f"SELECT tenant, stream, version, {', '.join(COLUMNS)} FROM events"
            " WHERE tenant = ? AND stream = ? ORDER BY version",
            *(tenant, self._stream(tenant)),
        )
        names = ("tenant", "stream", "version", *COLUMNS)
        found: list[Record] = []
        for row in rows:
            fields = dict(zip(names, row, strict=True))
            fields["stream"] = str(as_uuid(fields["stream"]))
            found.append(Record(fields["version"] - 1, fields))
        return found

    def read_all_raw(self) -> list[Record]:
        """Return the rows of the first stream."""
        return self._rows("acme")

    def read_other_raw(self) -> list[Record]:
        """Return the rows of the other tenant's stream."""
        return self._rows("globex")

    def write_raw(self, record: Record) -> None:
        """Write a record's content to its place, which may be a new one at the end."""
        values = [record.fields[name] for name in COLUMNS]
        place = ("acme", self._stream("acme"), record.seq + 1)
        if record.seq < len(self._rows("acme")):
            columns = ", ".join(f"{name} = ?" for name in COLUMNS)
            self._edit(f"UPDATE events SET {columns} {WHERE}", *values, *place)
            return
        ((end,),) = self._edit("SELECT max(position) FROM events")
        names = ("tenant", "stream", "version", "shard", "position", *COLUMNS)
        marks = ", ".join("?" * len(names))
        self._edit(
            f"INSERT INTO events ({', '.join(names)}) VALUES ({marks})",
            *(*place, 0, end + 1, *values),
        )

    def delete_raw(self, seq: int) -> None:
        """Delete a row."""
        version = self._rows("acme")[seq].fields["version"]
        self._edit(f"DELETE FROM events {WHERE}", "acme", self._stream("acme"), version)

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        """Write a genuine record's content over another one's."""
        self.write_raw(Record(victim_seq, donor.fields))

    def mutate_payload(self, record: Record) -> Record:
        """Let it be about another order."""
        body = bytes(record.fields["body"]).replace(b"order-", b"0rder-")
        return Record(record.seq, record.fields | {"body": body})

    def forge_record(self, template: Record) -> Record:
        """Make a record behind the last one that names it as its predecessor."""
        fields = self.mutate_payload(template).fields
        return Record(template.seq + 1, fields | {"previous_hash": template.fields["hash"]})

    def read_meta(self, seq: int) -> dict[str, Any]:
        """Return who is said to have done it."""
        return {"actor": self._rows("acme")[seq].fields["actor"]}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        """Let it have been somebody else."""
        actor = f"{meta['actor']}{'-tampered' if meta.get('agmi_meta_tampered') else ''}"
        place = ("acme", self._stream("acme"), seq + 1)
        self._edit(f"UPDATE events SET actor = ? {WHERE}", actor, *place)

    def identity_of(self, record: Record) -> str:
        """Return its place."""
        return f"{record.fields['stream']}:{record.fields['version']}"

    def payload_of(self, record: Record) -> str:
        """Return what it says."""
        return f"{record.fields['state']!r}{record.fields['body']!r}"

    def owner_of(self, record: Record) -> str:
        """Return whose it is."""
        return str(record.fields["tenant"])

    def snapshot_store(self) -> object:
        """Return everything that the table of events holds."""
        return self._edit(f"SELECT {', '.join(self._all())} FROM events ORDER BY position")

    def restore_store(self, token: Any) -> None:
        """Put it back."""
        self._edit("DELETE FROM events")
        marks = ", ".join("?" * len(self._all()))
        for row in token:
            self._edit(f"INSERT INTO events ({', '.join(self._all())}) VALUES ({marks})", *row)

    def _all(self) -> tuple[str, ...]:
        return ("tenant", "stream", "version", "shard", "position", *COLUMNS)
