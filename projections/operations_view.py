"""Asking the operations view: lists, counts, search, and waiting for one's own commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from settled.domain.clock import Clock
from settled.domain.errors import (
    DeclarationError,
    InvalidInput,
    NotFound,
    StoreNotMigrated,
    WaitTimeout,
)
from settled.domain.identity import Identity
from settled.domain.operation.operation import Operation
from settled.projections import register, search
from settled.projections.operation_view import OperationView
from settled.projections.operations import OperationsProjection
from settled.projections.projection import Rows
from settled.projections.projector import Projector
from settled.projections.reading import text_of

T = TypeVar("T")

LOOK_SECONDS = 0.01
"""How often a caller that waits looks whether its commit is in."""

LISTS: Mapping[str, str] = {
    "outcome_unknown": "state = 'outcome_unknown'",
    "retrying": "state = 'ready' AND attempts > 0",
    "waits_for_approval": "state = 'proposed'",
    "lapsed_lease": "epoch IS NOT NULL",
    "handed_over": "state = 'handed_over'",
    "failed_today": "state = 'failed' AND since >= :midnight",
}
"""The ready-made lists: what an operator looks at. Of "lapsed_lease" the workers decide, too."""

NEXT_ACTIONS: Mapping[str, str] = {
    "proposed": "somebody decides on it, or it expires",
    "ready": "a worker sends it",
    "claimed": "its worker sends it",
    "dispatching": "its worker concludes the call",
    "accepted": "the provider is asked how it went",
    "outcome_unknown": "it is looked up or sent again, as its contract allows",
    "handed_over": "its owner is told again",
}
"""What happens next in an open state, at the line's `next_at` at the latest."""

_COLUMNS = (
    "tenant, kind, operation_id, state, since, changed_at, label, provider, provider_key, version,"
    " attempts, concern, reason, rule, owner, worker, next_at, reference, cancel_requested"
)


@dataclass(frozen=True, slots=True)
class OperationLine:
    """One operation as the view has it, which may be a moment behind its stream.

    `since` is when its state was entered, `changed_at` the time of its last event. `concern` is one
    word for what is wrong: contradicted, disputed, or why its outcome is unknown. `next_action`
    happens at `next_at` at the latest; both are None once it is settled.
    """

    tenant: str
    kind: str
    operation_id: str
    state: str
    since: datetime
    changed_at: datetime
    label: str
    provider: str
    provider_key: str
    version: int
    attempts: int
    concern: str | None
    reason: str | None
    rule: str | None
    owner: str | None
    worker: str | None
    next_at: datetime | None
    next_action: str | None
    reference: str | None
    cancel_requested: bool

    @property
    def identity(self) -> Identity:
        """Tenant, kind and operation id together."""
        return Identity(self.tenant, self.kind, self.operation_id)


@dataclass(frozen=True, slots=True)
class Count:
    """How many operations of a tenant and a kind are in a state."""

    tenant: str
    kind: str
    state: str
    number: int


class OperationsView:
    """Questions to the view `operations`. It answers from what is folded, and folds nothing itself.

    A tenant of None asks about all tenants, which is for operators. Every method raises
    StoreNotMigrated where the view was never begun here, or by other code.
    """

    def __init__(self, projector: Projector, clock: Clock) -> None:
        self._projector = projector
        self._clock = clock

    def listed(
        self,
        name: str,
        tenant: str | None,
        *,
        kind: str | None = None,
        limit: int = 100,
    ) -> list[OperationLine]:
        """Return one of the ready-made lists (`LISTS`), the longest in its state first.

        Raises InvalidInput for another name.
        """
        if name not in LISTS:
            raise InvalidInput(
                f"There is no list {name!r}.", hint=f"There are: {', '.join(LISTS)}."
            )
        values: dict[str, Any] = {}
        condition = LISTS[name]
        if name == "failed_today":
            now = self._projector.journal.time()
            values["midnight"] = text_of(now.replace(hour=0, minute=0, second=0, microsecond=0))
        elif name == "lapsed_lease":
            workers = self._projector.journal.workers()
            alive = ", ".join(str(worker.epoch) for worker in workers if not worker.lapsed)
            condition += f" AND epoch NOT IN ({alive})" if alive else ""
        return self._ask(
            lambda rows, projection: self._lines(
                rows, projection, condition, values, tenant, kind, limit, "since, operation_id"
            )
        )

    def find(
        self, query: str, tenant: str | None, *, kind: str | None = None, limit: int = 100
    ) -> list[OperationLine]:
        """Return operations that have every word of the query, or one that begins so, latest first.

        Words of ids, labels, references and receipts count, without case. Raises InvalidInput for
        a query without a word.
        """

        def question(rows: Rows, projection: OperationsProjection) -> list[OperationLine]:
            table, dialect = projection.operations.name, self._projector.views.dialect
            condition, values = search.condition(table, dialect, query, rows)
            order = "changed_at DESC, operation_id"
            return self._lines(rows, projection, condition, values, tenant, kind, limit, order)

        return self._ask(question)

    def get(self, identity: Identity) -> OperationLine:
        """Return one operation. Raises NotFound; an operation begun just now may not be in yet."""
        values = {"stream": Operation.stream(identity)}
        found = self._ask(
            lambda rows, projection: self._lines(
                rows, projection, "stream = :stream", values, identity.tenant, None, 1, "since"
            )
        )
        if not found:
            raise NotFound(
                f"The view has no {identity}.",
                hint="Wait for the position of its commit, or check its name.",
            )
        return found[0]

    def counts(self, tenant: str | None) -> list[Count]:
        """Return how many operations are in each state: kept with each change, never counted."""
        where = "" if tenant is None else " WHERE tenant = :tenant"
        found = self._ask(
            lambda rows, projection: rows.fetch(
                "SELECT tenant, kind, state, CAST(sum(number) AS bigint) AS number"
                f" FROM {projection.counts.name}{where} GROUP BY tenant, kind, state"
                " HAVING sum(number) <> 0 ORDER BY tenant, kind, state",
                **({} if tenant is None else {"tenant": tenant}),
            )
        )
        return [Count(**row) for row in found]

    def token(self, operation: OperationView | Identity) -> int:
        """Return the position of an operation's last event: what `wait` waits for.

        Raises NotFound where there is no such operation.
        """
        identity = operation if isinstance(operation, Identity) else operation.identity
        after = 0 if isinstance(operation, Identity) else operation.version - 1
        stream = Operation.stream(identity)
        events = self._projector.journal.events(identity.tenant, stream, after=after)
        if not events:
            raise NotFound(f"There is no {identity}.", hint="Check tenant, kind and operation id.")
        return events[-1].position or 0

    def wait(self, token: int, timeout_seconds: float = 5.0) -> None:
        """Wait until the view has considered everything up to a position.

        Raises WaitTimeout; somebody has to run the projection meanwhile.
        """
        give_up_at = self._clock.monotonic() + timeout_seconds
        pause = threading.Event()
        while True:
            reached = self._projector.position(self._live())
            if reached >= token:
                return
            if self._clock.monotonic() >= give_up_at:
                raise WaitTimeout(
                    f"The view operations is at {reached} and not yet at {token}.",
                    hint="`settled projections status` says whether anybody runs it.",
                )
            pause.wait(LOOK_SECONDS)

    def _ask(self, question: Callable[[Rows, OperationsProjection], T]) -> T:
        """Ask the tables that are live; once more where a rebuild has just dropped them."""
        while True:
            projection = self._live()
            try:
                with self._projector.store(projection).reading() as rows:
                    return question(rows, projection)
            except DeclarationError:
                if self._live() == projection:
                    raise

    def _live(self) -> OperationsProjection:
        projection = self._projector.live(OperationsProjection())
        with self._projector.store(projection).reading() as rows:
            if register.standing(rows, projection) is None:
                raise StoreNotMigrated(
                    "Nobody has begun the view operations in this store.",
                    hint="Run `settled projections run operations`.",
                )
        return projection

    def _lines(
        self,
        rows: Rows,
        projection: OperationsProjection,
        condition: str,
        values: Mapping[str, Any],
        tenant: str | None,
        kind: str | None,
        limit: int,
        order: str,
    ) -> list[OperationLine]:
        given = dict(values) | {"limit": limit}
        for name, value in (("tenant", tenant), ("kind", kind)):
            if value is not None:
                condition += f" AND {name} = :{name}"
                given[name] = value
        found = rows.fetch(
            f"SELECT {_COLUMNS} FROM {projection.operations.name} WHERE {condition}"
            f" ORDER BY {order} LIMIT :limit",
            **given,
        )
        return [_line(row) for row in found]


def _line(row: dict[str, Any]) -> OperationLine:
    next_at = None if row["next_at"] is None else datetime.fromisoformat(row["next_at"])
    read: dict[str, Any] = {
        "since": datetime.fromisoformat(row["since"]),
        "changed_at": datetime.fromisoformat(row["changed_at"]),
        "next_at": next_at,
        "next_action": NEXT_ACTIONS.get(row["state"]),
        "cancel_requested": bool(row["cancel_requested"]),
    }
    return OperationLine(**(row | read))
