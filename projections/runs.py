"""The run view: a row for each run, for lists and boards. It says nothing about effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from settled.domain.errors import StoreNotMigrated
from settled.domain.journal.unit import RecordedEvent
from settled.domain.run import events as ev
from settled.domain.run.lifecycle import LIFECYCLE
from settled.projections import register
from settled.projections.projection import Policy, Rows, Table
from settled.projections.projector import Projector
from settled.projections.reading import text_of
from settled.projections.run_view import awaited

COLUMNS: Mapping[str, str] = {
    "tenant": "text",
    "stream": "uuid",
    "kind": "text",
    "run_id": "text",
    "state": "text",
    "version": "number",
    "since": "text",
    "changed_at": "text",
    "reason": "text",
    "parent": "text?",
    "state_version": "number",
    "epoch": "number",
    "worker": "text?",
    "waits_for": "text?",
    "waits_until": "text?",
    "session_until": "text",
    "last_reason": "text?",
}
"""The columns of the view; times are UTC texts of one width."""

TARGETS = {arrow.event: arrow.target for arrow in LIFECYCLE.arrows}
"""Where each event leads, from wherever; None where it changes no state."""

FOLD_VERSION = 1


@dataclass(frozen=True)
class RunsProjection:
    """The projection `runs`. A stream that it cannot fold is set aside; the others go on."""

    version: int = FOLD_VERSION
    name: str = field(default="runs", init=False)
    topics: tuple[str, ...] = field(default=("settled.run.",), init=False)
    on_poison: ClassVar[Policy] = "park"

    @property
    def runs(self) -> Table:
        """One row for each run."""
        return Table(f"runs_{self.version}", COLUMNS, key=("tenant", "stream"))

    def tables(self, dialect: str) -> list[str]:
        """Return the statement that makes the table."""
        return [self.runs.create(dialect)]

    def indexes(self, dialect: str) -> list[str]:
        """Return the statement that makes what lists walk."""
        table = self.runs.name
        return [f"CREATE INDEX {table}_state ON {table} (state, tenant, since)"]

    def in_version(self, version: int) -> RunsProjection:
        """Return the same view in tables of another version."""
        return replace(self, version=version)

    def contents(self) -> Mapping[str, str]:
        """Return what has to be equal in two versions."""
        return {"runs": f"SELECT {', '.join(COLUMNS)} FROM {self.runs.name}"}

    def apply(self, event: Any, record: RecordedEvent, rows: Rows) -> None:
        """Fold one event into its run's row."""
        at = text_of(record.recorded_at)
        values: dict[str, Any] = {"version": record.originator_version, "changed_at": at}
        if (target := TARGETS[event.name()]) is not None:
            values |= {"state": target, "since": at, "worker": None}
            values |= {"waits_for": None, "waits_until": None}
        match event:
            case ev.Started():
                values |= {
                    "kind": event.kind,
                    "run_id": event.identity,
                    "reason": event.reason.value,
                    "parent": event.parent,
                    "state_version": event.state_version,
                    "epoch": 0,
                    "session_until": text_of(event.session_until),
                    "last_reason": None,
                }
            case ev.OwnerClaimed():
                values |= {"epoch": event.epoch, "worker": event.worker}
            case ev.Migrated():
                values["state_version"] = event.to_version
            case ev.Waits():
                values["waits_for"] = awaited(event.wait)
                values["waits_until"] = text_of(event.wait.until)
            case ev.Suspended() | ev.Failed() | ev.Cancelled() | ev.Replaced():
                values["last_reason"] = event.reason
            case ev.Expired():
                values["last_reason"] = ev.SESSION_OVER
            case _:
                pass
        self._write(event, record, values, rows)

    def _write(self, event: Any, record: RecordedEvent, values: dict[str, Any], rows: Rows) -> None:
        keys = {"tenant": record.tenant, "stream": record.stream}
        table, sets = self.runs.name, ", ".join(f"{name} = :{name}" for name in values)
        if isinstance(event, ev.Started):
            names = [*keys, *values]
            marks = ", ".join(f":{name}" for name in names)
            sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
            sql += f" ON CONFLICT (tenant, stream) DO UPDATE SET {sets}"
        else:
            sql = f"UPDATE {table} SET {sets} WHERE tenant = :tenant AND stream = :stream"
        rows.execute(sql, **keys, **values)


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run as the view has it, which may be a moment behind its stream."""

    tenant: str
    kind: str
    run_id: str
    state: str
    since: datetime
    changed_at: datetime
    version: int
    reason: str
    parent: str | None
    state_version: int
    epoch: int
    worker: str | None
    waits_for: str | None
    waits_until: datetime | None
    session_until: datetime
    last_reason: str | None


class RunsView:
    """Questions to the view `runs`. Somebody has to run its projection."""

    def __init__(self, projector: Projector) -> None:
        self._projector = projector

    def listed(
        self, tenant: str | None, *, state: str | None = None, limit: int = 100
    ) -> list[RunLine]:
        """Return runs, the longest in their state first; a tenant of None asks about all.

        Raises StoreNotMigrated where the view was never begun here.
        """
        projection = self._projector.live(RunsProjection())
        given = {"tenant": tenant, "state": state}
        asked = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in asked) or "1 = 1"
        names = ", ".join(name for name in COLUMNS if name != "stream")
        with self._projector.store(projection).reading() as rows:
            if register.standing(rows, projection) is None:
                raise StoreNotMigrated(
                    "Nobody has begun the view runs in this store.",
                    hint="Run `settled projections run runs`.",
                )
            found = rows.fetch(
                f"SELECT {names} FROM {projection.runs.name} WHERE {where}"
                " ORDER BY since, run_id LIMIT :limit",
                limit=limit,
                **asked,
            )
        return [_line(row) for row in found]


def _line(row: dict[str, Any]) -> RunLine:
    times = ("since", "changed_at", "waits_until", "session_until")
    read: dict[str, Any] = dict(row)
    for name in times:
        read[name] = None if row[name] is None else datetime.fromisoformat(row[name])
    return RunLine(**read)
