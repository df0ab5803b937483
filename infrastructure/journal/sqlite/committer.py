"""The SQLite committer: read, judge, write, one transaction a group, one writer at a time.

BEGIN IMMEDIATE is the lock of everything, so every row is free to the one who is inside, and the
order of commits is the order of positions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from settled.domain.errors import InvalidInput, StoreUnsafe
from settled.domain.journal.judge import (
    Balance,
    Balances,
    Holding,
    Holdings,
    Seen,
    Streams,
    commit_group,
    invalid,
    judge,
)
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import (
    SHARD,
    Answer,
    Busy,
    Change,
    Committed,
    Invalid,
    RecordedEvent,
    Unit,
)
from settled.infrastructure.journal.sqlite.claims import Claims, release
from settled.infrastructure.journal.sqlite.database import (
    Database,
    Writer,
    is_busy,
    translating,
)
from settled.infrastructure.journal.sqlite.rows import EVENT, Row, optional_text, to_text

_POISON = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)
"""What SQLite and its driver raise about a value, never about the database."""

_FILE = "the database file"

_READ_HEAD = "SELECT version, owner FROM agenda WHERE tenant = ? AND shard = ? AND stream = ?"
_READ_EVENTS = (
    "SELECT event_id, position FROM events WHERE tenant = ? AND shard = ? AND stream = ?"
    " AND version > ? AND version <= ? ORDER BY version"
)
_READ_GUARD = (
    "SELECT ceiling, reserved, consumed FROM guard WHERE tenant = ? AND shard = ? AND key = ?"
)
_READ_REFERENCE = (
    "SELECT stream FROM reference WHERE tenant = ? AND shard = ? AND provider = ? AND reference = ?"
)
_READ_LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"

_CREATE_HEAD = (
    "INSERT INTO agenda (state, due_at, lane, priority, min_reader, version,"
    " tenant, shard, stream, kind, identity) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADVANCE_HEAD = (
    "UPDATE agenda SET state = ?, due_at = ?, lane = ?, priority = ?, min_reader = ?, version = ?,"
    " owner = CASE WHEN ? THEN owner END, takes = CASE WHEN ? THEN 0 ELSE takes END,"
    " parked_at = NULL WHERE tenant = ? AND shard = ? AND stream = ?"
)
_WRITE_GUARD = (
    "UPDATE guard SET reserved = ?, consumed = ? WHERE tenant = ? AND shard = ? AND key = ?"
)
_WRITE_EVENT = (
    f"INSERT INTO events ({EVENT}, shard)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DROP_OLDER = "DELETE FROM events WHERE tenant = ? AND shard = ? AND stream = ? AND version <= ?"
_WRITE_REFERENCE = (
    "INSERT INTO reference (tenant, shard, provider, reference, stream) VALUES (?, ?, ?, ?, ?)"
)
_WRITE_LANE = "INSERT OR IGNORE INTO lane (lane) VALUES (?)"


class SqliteCommitter:
    """A connection of its own that writes; used by one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = Writer(database)
        self._claims = Claims(database.clock)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that writes, for who has to look at it or to set a limit on it."""
        return self._writer.connection

    def commit(self, units: Sequence[Unit]) -> list[Answer]:
        """Commit a group in one transaction; one answer a unit, in order."""
        return commit_group(self._attempt, units, _POISON)

    def claim(
        self,
        *,
        epoch: int,
        kinds: Sequence[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take due rows for a worker, fair over lanes, in one transaction."""
        with self._writer.transaction() as connection:
            return self._claims.take(
                connection,
                epoch=epoch,
                kinds=frozenset(kinds),
                want=want,
                reader=reader,
                leave=leave,
            )

    def release(self, *, epoch: int, rows: Sequence[AgendaRow], counted: bool = True) -> None:
        """Free rows that were taken and on which nothing was appended."""
        with self._writer.transaction() as connection:
            release(connection, epoch, rows, counted)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _attempt(self, units: Sequence[Unit]) -> list[Answer]:
        try:
            if not self._writer.begin():
                return [Busy(_FILE)] * len(units)
            written = False
            try:
                answers = append(self._writer.connection.cursor(), units)
                written = any(isinstance(a, Committed) and not a.found for a in answers)
            finally:
                self._writer.end(commit=written)
        except _POISON:
            raise
        except sqlite3.Error:
            with translating(self._database.path):
                raise
        return answers


def join(database: Database, connection: sqlite3.Connection, unit: Unit) -> Answer:
    """Append inside the caller's open transaction, in a savepoint of its own."""
    _check_caller(database, connection)
    if reason := invalid(unit):
        return Invalid(reason)
    cursor = connection.cursor()
    cursor.row_factory = None
    cursor.execute("SAVEPOINT settled_join")
    try:
        # Takes the right to write before anything is read: a statement that changes no row.
        cursor.execute("DELETE FROM guard WHERE 0")
        (answer,) = append(cursor, [unit])
    except BaseException as error:
        # A full disk ends the caller's transaction, and the savepoint with it.
        if connection.in_transaction:
            cursor.execute("ROLLBACK TO settled_join")
            cursor.execute("RELEASE settled_join")
        if isinstance(error, _POISON):
            return Invalid(f"{type(error).__name__}: {error}")
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            return _busy_caller(error)
        with translating(database.path):
            raise
    cursor.execute("RELEASE settled_join")
    return answer


def _busy_caller(error: sqlite3.OperationalError) -> Busy:
    if error.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT:
        raise InvalidInput(
            "This transaction has read an older state than the one it would have to write to.",
            hint="Begin it with BEGIN IMMEDIATE, or write before you read.",
        ) from error
    return Busy(_FILE)


def _check_caller(database: Database, connection: sqlite3.Connection) -> None:
    if not _is_in_transaction(connection):
        raise InvalidInput(
            "The connection is not inside a transaction that an intent could join.",
            hint="Execute BEGIN IMMEDIATE on it first, and commit it yourself.",
        )
    cursor = connection.cursor()
    cursor.row_factory = None
    path = next(row[2] for row in cursor.execute("PRAGMA database_list") if row[0] == 0)
    name = path.decode() if isinstance(path, bytes) else path
    if not name or not database.path.samefile(name):
        raise InvalidInput(
            f"The connection is to {name or 'a database in memory'}, not to {database.path}.",
            hint="Only a transaction on the journal's own file can commit together with it.",
        )
    (synchronous,) = cursor.execute("PRAGMA synchronous").fetchone()
    if synchronous < 2:
        raise StoreUnsafe(
            "This connection does not wait for the disk, so an intent in it could be lost.",
            hint="Execute PRAGMA synchronous = FULL on it before the transaction begins.",
        )


def _is_in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # it was closed
        return False


def append(cursor: sqlite3.Cursor, units: Sequence[Unit]) -> list[Answer]:
    """Read, judge and write a group inside the open write transaction of a cursor."""
    streams: Streams = {
        change.stream: _seen(cursor, unit.tenant, change)
        for unit in units
        for change in unit.changes
    }
    balances = _balances(cursor, units)
    holdings = _holdings(cursor, units)
    verdicts = [judge(unit, streams, balances, holdings) for unit in units]
    admitted = [unit for unit, verdict in zip(units, verdicts, strict=True) if verdict is None]
    positions = iter(_write(cursor, admitted, balances, holdings) if admitted else ())
    return [Committed(next(positions)) if verdict is None else verdict for verdict in verdicts]


def _seen(cursor: sqlite3.Cursor, tenant: str, change: Change) -> Seen:
    key = tenant, SHARD, change.stream.bytes
    row = cursor.execute(_READ_HEAD, key).fetchone()
    if row is None:
        return Seen(free=True, version=0)
    version, owner = row
    if version <= change.expected:
        return Seen(free=True, version=version, owner=owner)
    events = cursor.execute(_READ_EVENTS, (*key, change.expected, change.last)).fetchall()
    return Seen(
        free=True,
        version=version,
        owner=owner,
        events=[(UUID(bytes=event_id), position) for event_id, position in events],
    )


def _balances(cursor: sqlite3.Cursor, units: Sequence[Unit]) -> Balances:
    balances: Balances = {}
    for tenant, key in {(unit.tenant, guard.key) for unit in units for guard in unit.guards}:
        row = cursor.execute(_READ_GUARD, (tenant, SHARD, key)).fetchone()
        if row is not None:
            balances[tenant, key] = Balance(True, *row)
    return balances


def _holdings(cursor: sqlite3.Cursor, units: Sequence[Unit]) -> Holdings:
    holdings: Holdings = {}
    for tenant, provider, reference in {
        (unit.tenant, named.provider, named.reference)
        for unit in units
        for named in unit.references
    }:
        row = cursor.execute(_READ_REFERENCE, (tenant, SHARD, provider, reference)).fetchone()
        holdings[tenant, provider, reference] = Holding(True, UUID(bytes=row[0]) if row else None)
    return holdings


def _write(
    cursor: sqlite3.Cursor, units: Sequence[Unit], balances: Balances, holdings: Holdings
) -> list[tuple[tuple[int, ...], ...]]:
    """Write the admitted units; return their positions, one tuple a change.

    Positions are given here, not by the database, because only the last one could be asked for.
    """
    row = cursor.execute(_READ_LAST).fetchone()
    position = row[0] if row else 0
    given: list[tuple[tuple[int, ...], ...]] = []
    created: list[Row] = []
    advanced: list[Row] = []
    events: list[Row] = []
    for unit in units:
        unit_positions: list[tuple[int, ...]] = []
        for change in unit.changes:
            head, key = change.head, (unit.tenant, SHARD, change.stream.bytes)
            values = (
                head.state,
                optional_text(head.due_at),
                head.lane,
                head.priority,
                head.min_reader,
                change.last,
            )
            if change.expected:
                advanced.append((*values, head.held, head.progress, *key))
            else:
                created.append((*values, *key, head.kind, head.identity))
            first = position + 1
            for event in change.events:
                position += 1
                events.append(_event_row(event, position))
            unit_positions.append(tuple(range(first, position + 1)))
        given.append(tuple(unit_positions))
    cursor.executemany(_CREATE_HEAD, created)
    cursor.executemany(_ADVANCE_HEAD, advanced)
    cursor.executemany(_WRITE_EVENT, events)
    cursor.executemany(_WRITE_GUARD, _guard_rows(balances))
    cursor.executemany(_WRITE_REFERENCE, _reference_rows(holdings))
    cursor.executemany(_DROP_OLDER, _dropped_rows(units))
    lanes = {change.head.lane for unit in units for change in unit.changes if change.head.due_at}
    cursor.executemany(_WRITE_LANE, [(lane,) for lane in lanes])
    return given


def _event_row(event: RecordedEvent, position: int) -> Row:
    return (
        event.stream.bytes,
        event.originator_version,
        event.topic,
        event.state,
        event.tenant,
        event.event_id.bytes,
        event.schema_version,
        event.min_reader,
        to_text(event.recorded_at),
        event.actor,
        event.key_id,
        event.previous_hash,
        event.hash,
        event.correlation,
        None if event.causation is None else event.causation.bytes,
        event.body,
        event.body_digest,
        position,
        SHARD,
    )


def _dropped_rows(units: Sequence[Unit]) -> Iterable[Row]:
    return [
        (unit.tenant, SHARD, change.stream.bytes, change.expected)
        for unit in units
        for change in unit.changes
        if change.drops_older
    ]


def _guard_rows(balances: Balances) -> Iterable[Row]:
    return [
        (balance.reserved, balance.consumed, tenant, SHARD, key)
        for (tenant, key), balance in balances.items()
        if balance.touched
    ]


def _reference_rows(holdings: Holdings) -> Iterable[Row]:
    return [
        (tenant, SHARD, provider, reference, holding.stream.bytes)
        for (tenant, provider, reference), holding in holdings.items()
        if holding.touched and holding.stream
    ]
