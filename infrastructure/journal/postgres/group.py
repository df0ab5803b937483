"""The units of one transaction, in the form in which the statements take and give them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from settled.domain.journal.judge import Balance, Balances, Holding, Holdings, Seen, Streams
from settled.domain.journal.unit import SHARD, Change, Committed, Unit
from settled.infrastructure.journal.postgres import statements
from settled.infrastructure.journal.postgres.address import Row, Texts

Statement = tuple[str, dict[str, Any]]
"""A text and its parameters; one without parameters is not worth preparing."""

_HEAD = ("kind", "identity", "state", "due_at", "lane", "priority", "min_reader")
_EVENT = (
    *("event_id", "topic", "schema_version", "min_reader", "recorded_at", "actor"),
    *("correlation", "causation", "key_id", "previous_hash", "hash", "state", "body"),
    "body_digest",
)
_head_values = attrgetter(*_HEAD)
_event_values = attrgetter(*_EVENT)


class Group:
    """What a group of units locks, reads and writes, sorted so that all who wait queue alike."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.changes = sorted(
            ((unit.tenant, change) for unit in units for change in unit.changes),
            key=lambda pair: lock_order(pair[1].stream),
        )
        if len({change.stream for _, change in self.changes}) < len(self.changes):
            # The reads are kept by stream, so a second change would be judged by the first one's.
            # It is what the server says of a row written twice: the group is halved for it.
            raise psycopg.errors.CardinalityViolation("a stream appears twice in one group")
        self._new = [pair for pair in self.changes if not pair[1].expected]
        self._old = [pair for pair in self.changes if pair[1].expected]
        self._guards = sorted({(unit.tenant, guard.key) for unit in units for guard in unit.guards})
        named = {(unit.tenant, r.provider, r.reference) for unit in units for r in unit.references}
        self._references = sorted(named, key=_reference_key)

    def locks(self, *, wait: bool) -> list[Statement | None]:
        """Return what takes the locks and reads guards and references; None where not needed."""
        new = {
            "key": [_lock_key(change.stream) for _, change in self._new],
            "space": statements.CREATIONS,
        }
        taken = {
            "key": [_reference_key(reference) for reference in self._references],
            "space": statements.REFERENCES,
        }
        old = columns(("tenant", "stream"), [(t, change.stream) for t, change in self._old])
        guards = columns(("tenant", "key"), self._guards)
        references = columns(("tenant", "provider", "reference"), self._references)
        lock_keys = statements.WAIT_KEYS if wait else statements.LOCK_KEYS
        lock_heads = statements.WAIT_HEADS if wait else statements.LOCK_HEADS
        lock_guards = statements.WAIT_GUARDS if wait else statements.LOCK_GUARDS
        return [
            (lock_keys, new) if self._new else None,
            (lock_heads, old) if self._old else None,
            (lock_guards, guards) if self._guards else None,
            (lock_keys, taken) if self._references else None,
            (statements.READ_GUARDS, guards) if self._guards else None,
            (statements.READ_REFERENCES, references) if self._references else None,
        ]

    def read(self) -> Statement:
        """Return what reads the streams, to be run when the locks are held."""
        rows = [(t, change.stream, change.expected, change.last) for t, change in self.changes]
        return statements.READ_STREAMS, columns(("tenant", "stream", "expected", "last"), rows)

    def seen(
        self, locked: Sequence[list[Row]], streams: list[Row]
    ) -> tuple[Streams, Balances, Holdings]:
        """Return what the statements of `locks` and of `read` have found."""
        new, old, guards, taken, balances, references = locked
        ours = {self._new[n][1].stream for n in _indices(new)}
        ours |= {self._old[n][1].stream for n in _indices(old)}
        held = {self._guards[n] for n in _indices(guards)}
        found: Streams = {}
        for index, (_, version, owner, ids, positions) in zip(
            _indices(streams), streams, strict=True
        ):
            stream = self.changes[index][1].stream
            events = tuple(zip(ids or (), positions or (), strict=True))
            found[stream] = Seen(stream in ours, version, owner, events)
        known: Balances = {}
        for index, (_, ceiling, reserved, consumed) in zip(
            _indices(balances), balances, strict=True
        ):
            key = self._guards[index]
            known[key] = Balance(key in held, ceiling, reserved, consumed)
        ours_to_give = set(_indices(taken))
        holdings = {key: Holding(free=n in ours_to_give) for n, key in enumerate(self._references)}
        for index, (_, stream) in zip(_indices(references), references, strict=True):
            holdings[self._references[index]].stream = stream
        return found, known, holdings


def writes(
    admitted: Sequence[Unit], streams: Streams, balances: Balances, holdings: Holdings
) -> list[Statement | None]:
    """Return what writes the admitted units; the last one answers with the positions."""
    heads: list[Row] = []
    events: list[Row] = []
    dropped: list[Row] = []
    for unit in admitted:
        for change in unit.changes:
            heads.append(_head_row(unit.tenant, change, streams[change.stream]))
            events += _event_rows(unit.tenant, change)
            if change.drops_older:
                dropped.append((unit.tenant, change.stream, change.expected))
    guards = [
        (*key, balance.ceiling, balance.reserved, balance.consumed)
        for key, balance in balances.items()
        if balance.touched
    ]
    references = [(*key, holding.stream) for key, holding in holdings.items() if holding.touched]
    guard_names = ("tenant", "key", "ceiling", "reserved", "consumed")
    reference_names = ("tenant", "provider", "reference", "stream")
    return [
        (
            statements.WRITE_HEADS,
            columns(("tenant", "stream", "version", *_HEAD, "owner", "takes"), heads),
        ),
        (statements.WRITE_GUARDS, columns(guard_names, guards)) if guards else None,
        (statements.WRITE_REFERENCES, columns(reference_names, references)) if references else None,
        (statements.DROP_OLDER, columns(("tenant", "stream", "version"), dropped))
        if dropped
        else None,
        (statements.WRITE_EVENTS, columns(("tenant", "stream", "version", *_EVENT), events)),
    ]


Positions = dict[tuple[UUID, int], int]
"""Positions by (stream, version)."""


def positions_of(appended: Iterable[Row]) -> Positions:
    """Return what the server said about the events that it appended."""
    return {(stream, version): position for stream, version, position in appended}


def committed(unit: Unit, positions: Positions) -> Committed:
    """Return the answer to a unit that was written."""
    return Committed(
        tuple(
            tuple(positions[change.stream, n] for n in range(change.expected + 1, change.last + 1))
            for change in unit.changes
        )
    )


def pipeline(
    connection: psycopg.Connection[Any], texts: Texts, *parts: Statement | None
) -> list[list[Row]]:
    """Run statements in one round trip; None has no rows. Return the rows of each.

    The cursors are psycopg's own, whatever the connection prefers: it may be a caller's.
    """
    cursors = [part and psycopg.Cursor(connection, row_factory=tuple_row) for part in parts]
    with connection.pipeline():
        for cursor, part in zip(cursors, parts, strict=True):
            if cursor and part:
                text, values = part
                cursor.execute(texts[text], values or None, prepare=True if values else False)
    return [cursor.fetchall() if cursor and cursor.description else [] for cursor in cursors]


def plain(connection: psycopg.Connection[Any], texts: Texts, part: Statement) -> list[Row]:
    """Run one statement outside a pipeline: always the last one before we think.

    A pipeline ends with a Flush, and that disarms idle_in_transaction_session_timeout: a process
    that is stopped here would hold its locks for ever.
    """
    text, values = part
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    return cursor.execute(texts[text], values, prepare=True).fetchall()


def columns(names: Sequence[str], rows: Sequence[Row]) -> dict[str, Any]:
    """Turn rows into one array a column; the shard goes with them."""
    values: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    return dict(zip(names, values or [[] for _ in names], strict=True)) | {"shard": SHARD}


def _head_row(tenant: str, change: Change, seen: Seen) -> Row:
    head = change.head
    owner = seen.owner if head.held else None
    counted = change.expected > 0 and not head.progress
    return tenant, change.stream, change.last, *_head_values(head), owner, int(counted)


def _event_rows(tenant: str, change: Change) -> list[Row]:
    return [
        (tenant, change.stream, version, *_event_values(event))
        for version, event in enumerate(change.events, change.expected + 1)
    ]


def _indices(rows: Iterable[Row]) -> list[int]:
    """Return where the elements that rows are about stand: SQL counts from one."""
    return [row[0] - 1 for row in rows]


def lock_order(stream: UUID) -> tuple[int, bytes]:
    """Return what all who wait for heads sort them by."""
    return _lock_key(stream), stream.bytes


def _lock_key(stream: UUID) -> int:
    return int.from_bytes(stream.bytes[:4], "big", signed=True)


def _reference_key(reference: tuple[str, str, str]) -> int:
    """Return 32 bits of a reference, the same in each process that may want it."""
    digest = hashlib.blake2b("\0".join(reference).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big", signed=True)
