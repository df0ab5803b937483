"""The PostgreSQL committer: lock, read, judge, write, one transaction a group.

Nothing is drawn from the sequence of positions before the judgement, so a unit that loses burns
none. The group form waits for no row: it cannot deadlock, and nobody's open transaction holds it
up. The waiting form is for when an answer was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

import psycopg

from settled.domain.errors import StoreUnavailable
from settled.domain.journal.judge import commit_group, judge
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import Answer, Busy, Change, Refused, Unit
from settled.infrastructure.journal.postgres import statements
from settled.infrastructure.journal.postgres.address import Texts
from settled.infrastructure.journal.postgres.claims import Claims
from settled.infrastructure.journal.postgres.errors import IN_THE_WAY, POISON, translating
from settled.infrastructure.journal.postgres.group import (
    Group,
    Statement,
    committed,
    pipeline,
    plain,
    positions_of,
    writes,
)
from settled.infrastructure.journal.postgres.session import Session

_BEGIN: Statement = (statements.BEGIN, {})
_COMMIT: Statement = ("COMMIT", {})


class PostgresCommitter:
    """A connection of its own that writes; used by one thread."""

    def __init__(self, session: Session, texts: Texts, notify: Callable[[], None]) -> None:
        """`notify` is called after a commit that made something due."""
        self._session = session
        self._notify = notify
        self._texts = texts
        self._claims = Claims(texts)
        self._lanes: set[str] = set()
        self._unsure: list[AgendaRow] = []

    def commit(self, units: Sequence[Unit]) -> list[Answer]:
        """Commit a group in one transaction; one answer a unit, in order.

        Raises StoreUnavailable when the server cannot be reached: whether the units are in is not
        known then, and the very same units again will tell. Raises StoreReadOnly with nothing
        written.
        """
        return commit_group(self._attempt, units, POISON)

    def claim(
        self,
        *,
        epoch: int,
        kinds: Sequence[str],
        want: int,
        reader: int,
        leave: Collection[UUID] = (),
    ) -> list[AgendaRow]:
        """Take due rows for a worker, fair over lanes. A worker without a lease gets none.

        Rows whose taking was not confirmed, because the connection broke just then, come with the
        next claim: they are owned by a live worker, so nobody else could ever take them.
        """
        with translating():
            if self._session.lost:
                self._session.reconnect()
            try:
                return self._confirmed(epoch) or self._claim(epoch, kinds, want, reader, leave)
            except IN_THE_WAY:
                return []  # undone as a whole: whoever holds the table is not there for ever
            finally:
                self._session.reset()

    def release(self, *, epoch: int, rows: Sequence[AgendaRow], counted: bool = True) -> None:
        """Free rows that were taken and on which nothing was appended; their takes stay counted.

        Without `counted` the last take is taken back. Only rows that `epoch` still owns at the
        version it took them at are touched, so that it may be done twice.
        """
        if not rows:
            return
        uncounted = int(not counted)
        with translating():
            if not self._session.lost:
                try:
                    return self._claims.release(self._session.connection, epoch, rows, uncounted)
                except psycopg.Error:
                    if not self._session.lost:
                        raise
            self._session.reconnect()
            self._claims.release(self._session.connection, epoch, rows, uncounted)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _attempt(self, units: Sequence[Unit]) -> list[Answer]:
        with translating():
            try:
                group = Group(units)
                if self._session.lost:
                    return self._after_loss(group, units)
                try:
                    return self._transaction(group, units, wait=False)
                except psycopg.Error:
                    if not self._session.lost:
                        raise
                return self._after_loss(group, units)
            except POISON:
                raise
            except IN_THE_WAY as error:
                return [Busy(str(error).splitlines()[0])] * len(units)
            finally:
                self._session.reset()

    def _transaction(self, group: Group, units: Sequence[Unit], *, wait: bool) -> list[Answer]:
        connection, texts = self._session.connection, self._texts
        self._make_lanes(units)
        _, *locked = pipeline(connection, texts, _BEGIN, *group.locks(wait=wait))
        seen = group.seen(locked, plain(connection, texts, group.read()))
        verdicts = [judge(unit, *seen) for unit in units]
        admitted = [unit for unit, verdict in zip(units, verdicts, strict=True) if verdict is None]
        if not admitted:
            connection.execute("ROLLBACK")
            return [verdict for verdict in verdicts if verdict is not None]
        *_, appended, _ = pipeline(connection, texts, *writes(admitted, *seen), _COMMIT)
        if any(_makes_work(change) for unit in admitted for change in unit.changes):
            self._notify()
        positions = positions_of(appended)
        return [
            verdict or committed(unit, positions)
            for unit, verdict in zip(units, verdicts, strict=True)
        ]

    def _after_loss(self, group: Group, units: Sequence[Unit]) -> list[Answer]:
        """Run units whose fate is not known once more: they are in, may come in, or never will.

        Their event ids tell, once the backend that had them is out of its transaction. Committed,
        Exists, Stale and ReferenceTaken are final at once. A guard's refusal is not while the first
        try can still land: it would be the answer to a unit that then commits.
        """
        deadline = time.monotonic() + self._session.patience_seconds
        while True:
            alone = self._session.reconnect()
            try:
                answers = self._transaction(group, units, wait=True)
            except psycopg.Error as error:
                if not self._session.lost:
                    raise
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        "The connection to PostgreSQL breaks again and again.",
                        hint="The same units may be submitted again: they are written once.",
                    ) from error
                continue
            return [
                Busy(answer.key) if isinstance(answer, Refused) and not alone else answer
                for answer in answers
            ]

    def _make_lanes(self, units: Sequence[Unit]) -> None:
        """Make the rows of lanes before their first unit, so that none is held back with it."""
        lanes = due_lanes(units) - self._lanes
        if lanes:
            text = self._texts[statements.WRITE_LANES]
            self._session.connection.execute(text, {"lane": sorted(lanes)})
            self._lanes |= lanes
            self._claims.forget()

    def _claim(
        self, epoch: int, kinds: Sequence[str], want: int, reader: int, leave: Collection[UUID]
    ) -> list[AgendaRow]:
        # A transaction around the one statement: were it to commit by itself and its answer be
        # lost, its rows would belong to a live worker that knows nothing of them.
        connection = self._session.connection
        self._claims.refresh(connection)
        connection.execute(statements.BEGIN.encode())
        rows = self._claims.take(
            connection, epoch=epoch, kinds=kinds, want=want, reader=reader, leave=leave
        )
        try:
            connection.execute("COMMIT")
        except psycopg.Error:
            self._unsure += rows
            raise
        return rows

    def _confirmed(self, epoch: int) -> list[AgendaRow]:
        """Return the rows of a claim whose COMMIT got no answer, as far as they are ours."""
        if not self._unsure or not self._session.reconnect():
            return []
        rows = self._claims.held(self._session.connection, epoch, self._unsure)
        self._unsure.clear()
        return rows


def _makes_work(change: Change) -> bool:
    """Tell whether a worker can take the stream as soon as the change is in."""
    due_at = change.head.due_at
    return due_at is not None and not change.head.held and due_at <= change.events[-1].recorded_at


def due_lanes(units: Sequence[Unit]) -> set[str]:
    """Return the lanes in which units put something that is due."""
    return {
        change.head.lane
        for unit in units
        for change in unit.changes
        if change.head.due_at is not None
    }
