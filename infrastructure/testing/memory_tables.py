"""What a journal in memory keeps, and how it appends: the tables, the writer's turn, the claims.

The rules are those of the databases: units are judged by `settled.domain.journal.judge`, nothing is
written for a loser, and rows are claimed in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from settled.domain.clock import Clock
from settled.domain.journal.judge import (
    Balance,
    Balances,
    Holding,
    Holdings,
    Seen,
    Streams,
    judge,
)
from settled.domain.journal.port import AgendaRow, GuardRow, Installation
from settled.domain.journal.unit import Answer, Change, Committed, RecordedEvent, Unit
from settled.domain.route import serves
from settled.infrastructure.journal.sqlite.claims import TAKES_LIMIT

LANE_CAP = 8
"""How many rows one lane gives in a round, so that a long lane does not starve the others."""

PATIENCE_SECONDS = 10.0
"""How long a writer waits for a transaction that is open."""

_LARGEST = (1 << 63) - 1
"""The largest number that a database keeps."""

Key = tuple[str, UUID]
"""A stream: (tenant, id)."""


@dataclass(slots=True)
class WorkerPlace:
    """One worker: its lease in the clock's monotonic seconds, and whether its process lives."""

    epoch: int
    name: str
    started_at: datetime
    lease_seconds: float
    lease_until: float
    serves: tuple[str, ...] = ()
    locked: bool = True


@dataclass(slots=True)
class Tables:
    """Every row. Rows are never changed, only replaced, so a copy of the tables is cheap.

    `events` are by their positions, and in their order.
    """

    events: dict[int, RecordedEvent] = field(default_factory=dict[int, RecordedEvent])
    streams: dict[Key, tuple[RecordedEvent, ...]] = field(
        default_factory=dict[Key, "tuple[RecordedEvent, ...]"]
    )
    heads: dict[Key, AgendaRow] = field(default_factory=dict[Key, AgendaRow])
    guards: dict[tuple[str, str], GuardRow] = field(
        default_factory=dict["tuple[str, str]", GuardRow]
    )
    references: dict[tuple[str, str, str], UUID] = field(
        default_factory=dict["tuple[str, str, str]", UUID]
    )
    lanes: dict[str, bool] = field(default_factory=dict[str, bool])
    workers: dict[int, WorkerPlace] = field(default_factory=dict[int, WorkerPlace])
    last_position: int = 0
    last_epoch: int = 0
    installation: Installation | None = None

    def copy(self) -> Tables:
        """Return tables of their own with the same rows."""
        return Tables(
            dict(self.events),
            dict(self.streams),
            dict(self.heads),
            dict(self.guards),
            dict(self.references),
            dict(self.lanes),
            self.workers,
            self.last_position,
            self.last_epoch,
            self.installation,
        )


class MemoryStore:
    """The tables that several journals may be open on, in the threads of one process.

    Time is the given clock's. It survives nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tables = Tables()
        self.watchers: dict[object, Callable[[], None]] = {}  # in the order in which they began
        self._mutex = threading.RLock()
        self._turn = threading.Lock()

    @contextmanager
    def reading(self) -> Generator[Tables]:
        """Give the tables as the last commit left them."""
        with self._mutex:
            yield self.tables

    @contextmanager
    def writing(self, patience_seconds: float = PATIENCE_SECONDS) -> Generator[Tables | None]:
        """Give the tables to the one who writes; None where another one did not end in time."""
        if not self._turn.acquire(timeout=patience_seconds):
            yield None
            return
        try:
            with self._mutex:
                yield self.tables
        finally:
            self._turn.release()

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Open a caller's own transaction, which commits at its end unless something is raised."""
        with self._turn:
            transaction = Transaction(self, self.tables.copy())
            try:
                yield transaction
                with self._mutex:
                    self.tables = transaction.tables
            finally:
                transaction.open = False

    def now(self, tables: Tables) -> datetime:
        """Return the store's time: the clock's, but never before the last recorded event."""
        now = self.clock.now()
        last = tables.events.get(tables.last_position)
        return now if last is None else max(now, last.recorded_at)

    def lapsed(self, place: WorkerPlace) -> bool:
        """Say whether a worker's lease has ended."""
        return not self.clock.monotonic() < place.lease_until

    def lapsed_epochs(self, tables: Tables) -> list[int]:
        """Return the workers whose leases have ended, oldest first."""
        now = self.clock.monotonic()
        return [place.epoch for place in tables.workers.values() if not now < place.lease_until]

    def forget(self, tables: Tables) -> None:
        """Drop the lapsed workers that own nothing any more. Their epochs are not given again."""
        lapsed = self.lapsed_epochs(tables)
        if not lapsed:
            return
        owners = {row.owner for row in tables.heads.values()}
        for epoch in lapsed:
            if epoch not in owners:
                del tables.workers[epoch]


@dataclass
class Transaction:
    """A caller's open transaction: what joins it is seen by nobody until it commits."""

    store: MemoryStore
    tables: Tables
    open: bool = True


# Appending.


class Conflict(Exception):
    """What a database itself refuses in a group of units: it is found by halving."""


def append(tables: Tables, units: Sequence[Unit]) -> list[Answer]:
    """Judge a group and write what was admitted.

    Raises Conflict, and writes nothing, where a database would find a key twice, or a number that
    is too large to keep.
    """
    streams: Streams = {
        change.stream: _seen(tables, unit.tenant, change)
        for unit in units
        for change in unit.changes
    }
    balances: Balances = {}
    holdings: Holdings = {}
    for unit in units:
        for guard in unit.guards:
            row = tables.guards.get((unit.tenant, guard.key))
            if row is not None:
                balances[unit.tenant, guard.key] = Balance(
                    True, row.ceiling, row.reserved, row.consumed
                )
        for named in unit.references:
            key = unit.tenant, named.provider, named.reference
            holdings[key] = Holding(True, tables.references.get(key))
    verdicts = [judge(unit, streams, balances, holdings) for unit in units]
    admitted = [unit for unit, verdict in zip(units, verdicts, strict=True) if verdict is None]
    changed = [change.stream for unit in admitted for change in unit.changes]
    if len(set(changed)) < len(changed):
        raise Conflict("a version is written twice")
    if any(max(b.reserved, b.consumed) > _LARGEST for b in balances.values()):
        raise Conflict("a guard holds more than a database keeps")
    answers: list[Answer] = []
    for unit, verdict in zip(units, verdicts, strict=True):
        answers.append(verdict if verdict is not None else _write(tables, unit))
    for (tenant, key_name), balance in balances.items():
        if balance.touched:
            tables.guards[tenant, key_name] = GuardRow(
                tenant, key_name, balance.ceiling, balance.reserved, balance.consumed
            )
    for reference, holding in holdings.items():
        if holding.touched and holding.stream is not None:
            tables.references[reference] = holding.stream
    return answers


def _seen(tables: Tables, tenant: str, change: Change) -> Seen:
    row = tables.heads.get((tenant, change.stream))
    if row is None:
        return Seen(free=True, version=0)
    behind = tables.streams[tenant, change.stream] if row.version > change.expected else ()
    events = [
        (event.event_id, event.position or 0)
        for event in behind
        if change.expected < event.originator_version <= change.last
    ]
    return Seen(free=True, version=row.version, owner=row.owner, events=events)


def _write(tables: Tables, unit: Unit) -> Committed:
    given: list[tuple[int, ...]] = []
    for change in unit.changes:
        key = unit.tenant, change.stream
        first = tables.last_position + 1
        written = [_stored(event, first + n) for n, event in enumerate(change.events)]
        tables.events.update({event.position or 0: event for event in written})
        tables.last_position += len(written)
        older = tables.streams.get(key, ())
        if change.drops_older:
            for event in older:
                del tables.events[event.position or 0]
            older = ()
        tables.streams[key] = (*older, *written)
        tables.heads[key] = _head(tables.heads.get(key), unit.tenant, change)
        if change.head.due_at is not None:
            tables.lanes.setdefault(change.head.lane, False)
        given.append(tuple(range(first, first + len(written))))
    return Committed(tuple(given))


def _stored(event: RecordedEvent, position: int) -> RecordedEvent:
    return replace(event, position=position, recorded_at=event.recorded_at.astimezone(UTC))


def _head(before: AgendaRow | None, tenant: str, change: Change) -> AgendaRow:
    head = change.head
    due_at = head.due_at.astimezone(UTC) if head.due_at is not None else None
    takes = before.takes if before is not None and not head.progress else 0
    return AgendaRow(
        tenant=tenant,
        stream=change.stream,
        kind=before.kind if before is not None else head.kind,
        identity=before.identity if before is not None else head.identity,
        version=change.last,
        state=head.state,
        due_at=due_at,
        lane=head.lane,
        priority=head.priority,
        min_reader=head.min_reader,
        owner=before.owner if before is not None and head.held else None,
        takes=takes,
        parked_at=None,
    )


# Claiming.


class Claims:
    """One committer's claims. It remembers only which lane comes next."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._next_lane = ""

    def take(
        self,
        tables: Tables,
        *,
        epoch: int,
        kinds: frozenset[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take up to `want` rows; nothing for a worker whose own lease has ended."""
        lapsed = self._store.lapsed_epochs(tables)
        if epoch not in tables.workers or epoch in lapsed or want <= 0:
            return []
        lanes = self._lanes(tables, kinds)
        now = self._store.now(tables)
        rows = [
            row
            for row in tables.heads.values()
            if row.due_at is not None and row.min_reader <= reader and row.stream not in leave
        ]
        found = _left_behind(rows, lapsed, lanes)[:want]
        free = list(_free(rows, lanes, now, want - len(found)))
        if free:
            self._next_lane = free[-1].lane + "\0"
        return [_taken(tables, row, epoch, now) for row in (*found, *free)]

    def _lanes(self, tables: Tables, kinds: frozenset[str]) -> list[str]:
        """Return the open lanes of these kinds, from the one behind the last served on."""
        lanes = sorted(
            lane for lane, paused in tables.lanes.items() if not paused and serves(lane, kinds)
        )
        behind = [lane for lane in lanes if lane >= self._next_lane]
        return behind + lanes[: len(lanes) - len(behind)]


def _left_behind(
    rows: Sequence[AgendaRow], lapsed: Sequence[int], lanes: Sequence[str]
) -> list[AgendaRow]:
    if not lapsed:
        return []
    left = [row for row in rows if row.owner in lapsed and row.lane in lanes]
    return sorted(left, key=lambda row: (row.owner or 0, lanes.index(row.lane)))


def _free(
    rows: Iterable[AgendaRow], lanes: Sequence[str], now: datetime, want: int
) -> Iterator[AgendaRow]:
    """Give rounds over the lanes until nothing is left or enough was found."""
    waiting: dict[str, list[AgendaRow]] = {lane: [] for lane in lanes}
    for row in rows:
        due = row.due_at is not None and row.due_at <= now
        if due and row.owner is None and row.parked_at is None and row.lane in waiting:
            waiting[row.lane].append(row)
    for some in waiting.values():
        some.sort(key=lambda row: (row.priority, row.due_at))
    while want > 0 and any(waiting.values()):
        for lane in lanes:
            given = waiting[lane][: min(LANE_CAP, want)]
            del waiting[lane][: len(given)]
            want -= len(given)
            yield from given
            if want <= 0:
                return


def _taken(tables: Tables, row: AgendaRow, epoch: int, now: datetime) -> AgendaRow:
    parked = row.takes >= TAKES_LIMIT
    taken = replace(
        row,
        owner=None if parked else epoch,
        takes=row.takes + 1,
        parked_at=now if parked else None,
    )
    tables.heads[row.tenant, row.stream] = taken
    return taken


def release(tables: Tables, epoch: int, rows: Sequence[AgendaRow], counted: bool) -> None:
    """Free the rows that the worker still owns as it took them."""
    for row in rows:
        key = row.tenant, row.stream
        now = tables.heads.get(key)
        if now is not None and now.owner == epoch and now.version == row.version:
            takes = max(now.takes - (not counted), 0)
            tables.heads[key] = replace(now, owner=None, takes=takes)
