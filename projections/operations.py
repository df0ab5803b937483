"""The operations view: a row for each operation, and counts by state.

Two tables, changed together. An event whose number a row has reached already changes nothing, so
that a page folded again leaves counts as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import orjson

from settled.projections import search
from settled.projections.operation_row import BODIES, COLUMNS, FORMS, OperationRow
from settled.projections.projection import LoggedEvent, Policy, Row, Rows, Table
from settled.projections.reading import fields_of

PREFIX = "settled.operation."
FOLD_VERSION = 1
"""Raised whenever the columns or the meaning of a fold change."""


@dataclass(frozen=True)
class OperationsProjection:
    """The projection `operations`. A stream that it cannot fold is set aside; the others go on."""

    version: int = FOLD_VERSION
    part: int = 0
    name: str = field(default="operations", init=False)
    topics: tuple[str, ...] = field(default=(PREFIX,), init=False)
    on_poison: ClassVar[Policy] = "park"
    bodies: ClassVar[frozenset[str]] = BODIES

    @property
    def operations(self) -> Table:
        """One row for each operation."""
        return Table(f"operations_{self.version}", COLUMNS, key=("tenant", "stream"))

    @property
    def counts(self) -> Table:
        """How many operations are in a state; the sum over `part`, of which each builder has one.

        So builders never wait for each other to count.
        """
        columns = {"tenant": "text", "kind": "text", "state": "text"}
        columns |= {"part": "number", "number": "number"}
        key = ("tenant", "kind", "state", "part")
        return Table(f"operations_counts_{self.version}", columns, key=key)

    def tables(self, dialect: str) -> list[str]:
        """Return the statements that make the two tables."""
        return [table.create(dialect) for table in (self.operations, self.counts)]

    def indexes(self, dialect: str) -> list[str]:
        """Return the statements that make what lists and searches walk."""
        table = self.operations.name
        return [
            f"CREATE INDEX {table}_state ON {table} (state, tenant, since)",
            f"CREATE INDEX {table}_held ON {table} (epoch) WHERE epoch IS NOT NULL",
            *search.indexes(table, dialect),
        ]

    def in_version(self, version: int) -> OperationsProjection:
        """Return the same view in tables of another version."""
        return replace(self, version=version)

    def in_part(self, part: int) -> OperationsProjection:
        """Return what the builder of this number folds with."""
        return replace(self, part=part)

    def contents(self) -> Mapping[str, str]:
        """Return what has to be equal in two versions."""
        return {
            "operations": f"SELECT {', '.join(COLUMNS)} FROM {self.operations.name}",
            "counts": "SELECT tenant, kind, state, CAST(sum(number) AS bigint) AS number"
            f" FROM {self.counts.name} GROUP BY tenant, kind, state HAVING sum(number) <> 0",
        }

    def fold(self, events: Sequence[LoggedEvent], rows: Rows) -> None:
        """Fold a page of operations' events."""
        # Numbers are compared sooner than identifiers, which matters for millions of events.
        keys = {event.stream.int: (event.tenant, event.stream) for event in events}
        found = rows.get(self.operations, list(keys.values()))
        known = {row.stream.int: row for row in map(OperationRow.stored, found)}
        new: list[Row] = []
        changed: list[Row] = []
        counts: Counter[tuple[str, str, str]] = Counter()
        for row in _fold(events, known):
            (new if row.before is None else changed).append(row.values())
            if row.state != row.before:
                counts[row.tenant, row.kind, row.state] += 1
                if row.before is not None:
                    counts[row.tenant, row.kind, row.before] -= 1
        rows.put(self.operations, new, changed)
        self._count(counts, rows)

    def _count(self, counts: Mapping[tuple[str, str, str], int], rows: Rows) -> None:
        # In one order, so that two that count at once cannot wait for each other.
        for (tenant, kind, state), number in sorted(counts.items()):
            if number:
                rows.execute(
                    f"INSERT INTO {self.counts.name} AS c (tenant, kind, state, part, number)"
                    " VALUES (:tenant, :kind, :state, :part, :number)"
                    " ON CONFLICT (tenant, kind, state, part)"
                    " DO UPDATE SET number = c.number + excluded.number",
                    tenant=tenant,
                    kind=kind,
                    state=state,
                    part=self.part,
                    number=number,
                )


def _fold(events: Sequence[LoggedEvent], known: dict[int, OperationRow]) -> list[OperationRow]:
    """Fold events into the rows that are known, and return those that changed."""
    changed: dict[int, OperationRow] = {}
    loads = orjson.loads
    for event in events:
        stream, number = event.stream.int, event.originator_version
        row = known.get(stream)
        if row is not None and number <= row.version:
            continue  # folded before
        form = FORMS[event.topic]
        if number != (row.version + 1 if row else 1) and not form.whole:
            raise ValueError(f"event {number} of {event.stream} follows {row and row.version}")
        if form.has_body or event.schema_version != form.schema_version:
            fields = fields_of(event, BODIES)
        else:
            fields = loads(event.state)  # most events: worth the shorter way
        if row is None:
            row = known[stream] = OperationRow.first(event, fields)
        if form.whole:
            row.take_remains(event, fields)  # what was before it may have been dropped unread
        else:
            row.take(event, form, fields)
        changed[id(row)] = row
    return list(changed.values())
