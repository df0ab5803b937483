"""The view of budgets: which operations draw on a budget, and what each of them holds now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from settled.domain.budget import Holds
from settled.domain.errors import StoreNotMigrated
from settled.domain.identity import Identity
from settled.domain.journal.unit import RecordedEvent
from settled.domain.machine.event import Event
from settled.domain.operation import events as ev
from settled.domain.operation.operation import HOLDS
from settled.projections import register
from settled.projections.projection import Policy, Rows, Table
from settled.projections.projector import Projector
from settled.projections.reading import text_of

_HOLDS_AFTER: Mapping[type[Event], Holds] = {
    ev.Reissued: HOLDS["ready"],
    ev.Contradicted: HOLDS["handed_over"],
    ev.Succeeded: HOLDS["succeeded"],
    ev.Failed: HOLDS["failed"],
    ev.Cancelled: HOLDS["cancelled"],
    ev.Expired: HOLDS["expired"],
    ev.Revised: HOLDS["proposed"],
    ev.ApprovalRevoked: HOLDS["proposed"],
}
"""The events that change what an operation holds, beside Intended, which begins it."""

_COLUMNS = {
    "tenant": "text",
    "budget": "text",
    "stream": "uuid",
    "kind": "text",
    "operation_id": "text",
    "amount": "number",
    "holds": "text",
    "since": "text",
    "version": "number",
}


@dataclass(frozen=True)
class BudgetsProjection:
    """The projection `budgets`: one row for each operation and budget."""

    version: int = 1
    name: str = field(default="budgets", init=False)
    topics: tuple[str, ...] = field(
        default=(ev.Intended.TOPIC, ev.Purged.TOPIC, *(kind.TOPIC for kind in _HOLDS_AFTER)),
        init=False,
    )
    on_poison: ClassVar[Policy] = "park"

    @property
    def draws(self) -> Table:
        """What each operation takes of each budget."""
        key = ("tenant", "budget", "stream")
        return Table(f"budgets_draws_{self.version}", _COLUMNS, key=key)

    def tables(self, dialect: str) -> list[str]:
        """Return the statements that make the table."""
        name = self.draws.name
        index = f"CREATE INDEX {name}_stream ON {name} (tenant, stream)"
        return [self.draws.create(dialect), index]

    def in_version(self, version: int) -> BudgetsProjection:
        """Return the same view in a table of another version."""
        return replace(self, version=version)

    def contents(self) -> Mapping[str, str]:
        """Return what has to be equal in two versions."""
        return {"draws": f"SELECT {', '.join(_COLUMNS)} FROM {self.draws.name}"}

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        """Fold one event."""
        since, version = text_of(record.recorded_at), record.originator_version
        if isinstance(event, ev.Purged):
            # It stands for all that the view has been told before, and may be all that there is.
            since, holds = text_of(event.left.since), HOLDS[event.left.state]
        elif isinstance(event, ev.Intended):
            holds = HOLDS["ready"]
        else:
            rows.execute(
                f"UPDATE {self.draws.name} SET holds = :holds, since = :since, version = :version"
                " WHERE tenant = :tenant AND stream = :stream AND version < :version",
                tenant=record.tenant,
                stream=record.stream,
                holds=_HOLDS_AFTER[type(event)],
                since=since,
                version=version,
            )
            return
        for one in event.reserves:
            rows.execute(
                f"INSERT INTO {self.draws.name} AS d ({', '.join(_COLUMNS)}) VALUES (:tenant,"
                " :budget, :stream, :kind, :operation_id, :amount, :holds, :since, :version)"
                " ON CONFLICT (tenant, budget, stream) DO UPDATE SET amount = excluded.amount,"
                " holds = excluded.holds, since = excluded.since, version = excluded.version"
                " WHERE d.version < excluded.version",
                tenant=record.tenant,
                budget=one.key,
                stream=record.stream,
                kind=event.kind,
                operation_id=event.identity,
                amount=one.amount,
                holds=holds,
                since=since,
                version=version,
            )


@dataclass(frozen=True, slots=True)
class Draw:
    """What one operation holds of a budget, in minor units or pieces, since a moment (UTC text)."""

    identity: Identity
    amount: int
    holds: str
    since: str


def draws_on(projector: Projector, tenant: str, key: str, limit: int = 1000) -> list[Draw]:
    """Return what operations hold of a budget, the oldest first, as far as the view has come.

    Raises StoreNotMigrated where nobody has begun the view.
    """
    projection = projector.live(BudgetsProjection())
    with projector.store(projection).reading() as rows:
        if register.standing(rows, projection) is None:
            raise StoreNotMigrated(
                "Nobody has begun the view budgets in this store.",
                hint="Run `settled projections run budgets`.",
            )
        found = rows.fetch(
            f"SELECT kind, operation_id, amount, holds, since FROM {projection.draws.name}"
            " WHERE tenant = :tenant AND budget = :budget AND holds <> 'nothing'"
            " ORDER BY since, kind, operation_id LIMIT :limit",
            tenant=tenant,
            budget=key,
            limit=limit,
        )
    return [
        Draw(
            Identity.recorded(tenant, row["kind"], row["operation_id"]),
            row["amount"],
            row["holds"],
            row["since"],
        )
        for row in found
    ]
