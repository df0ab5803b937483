"""Loading machines from the journal and committing what they recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from settled.domain.budget import amount_in_words
from settled.domain.clock import Clock, Stamp
from settled.domain.errors import (
    BudgetExceeded,
    DeclarationError,
    NotFound,
    NotPossible,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import AgendaRow, Committer, Journal
from settled.domain.journal.unit import (
    Answer,
    Busy,
    Change,
    Committed,
    Exists,
    GuardChange,
    Head,
    Invalid,
    Reference,
    ReferenceTaken,
    Refused,
    Stale,
    Unit,
)
from settled.domain.machine.machine import StateMachine
from settled.domain.machine.tombstone import Tombstone
from settled.processes.faults import FaultPoint, reach
from settled.processes.log import logger

M = TypeVar("M", bound=StateMachine)
T = TypeVar("T")


class CommitQueue(Protocol):
    """What groups units into transactions, on a thread of its own."""

    def submit(self, unit: Unit) -> Future[Answer]:
        """Queue a unit for the next group."""
        ...

    def submit_soon(self, unit: Unit) -> asyncio.Future[Answer]:
        """Queue a unit from the running loop, with all others of this turn of the loop."""
        ...

    def run(self, work: Callable[[Committer], T]) -> Future[T]:
        """Run `work` with the committer on the committer's thread, between two groups."""
        ...


class ForeignReference(Exception):
    """The provider's object is known under another stream, so nothing was written."""

    def __init__(self, provider: str, reference: str) -> None:
        super().__init__(f"{provider}'s {reference} belongs to another stream")


class Ledger:
    """What a service and a worker have in common: load, command, append."""

    def __init__(
        self, journal: Journal, queue: CommitQueue, mapper: EventMapper, clock: Clock
    ) -> None:
        self.journal = journal
        self.queue = queue
        self.mapper = mapper
        self.clock = clock
        self.committed: Callable[[Unit], None] | None = None
        """Told of each unit that was committed here; it must neither block nor raise."""

    def load(self, tenant: str, stream: UUID) -> StateMachine | None:
        """Fold a stream; None when there is none."""
        return self.mapper.fold(self.journal.events(tenant, stream))

    def load_rows(
        self, rows: Sequence[AgendaRow]
    ) -> Iterator[tuple[AgendaRow, StateMachine | Exception]]:
        """Fold the streams of several agenda rows, read in one query.

        A stream that this code cannot read yields its error and spoils no other.
        """
        streams = self.journal.streams([(row.tenant, row.stream) for row in rows])
        for row in rows:
            try:
                machine = self.mapper.fold(streams.get(row.stream, []))
                assert machine is not None, "an agenda row has a stream"
            except Exception as error:
                yield row, error
            else:
                yield row, machine

    def unit(self, *machines: StateMachine, fence: int | None = None) -> Unit:
        """Turn the pending events of machines of one tenant into a unit.

        `fence` is the epoch that must still own the row of the first machine.
        """
        changes: list[Change] = []
        references: list[Reference] = []
        guards: list[GuardChange] = []
        for machine in machines:
            pending = list(machine.pending_events)
            if not pending:
                continue
            progress = any(event.progress for event in pending)  # type: ignore[attr-defined]
            drops_older = isinstance(pending[0], Tombstone)
            events = self.mapper.seal(machine, self.clock.new_ids)
            changes.append(
                Change(
                    stream=machine.id,
                    expected=machine.version - len(events),
                    events=events,
                    head=head_of(machine, progress),
                    fence=fence if machine is machines[0] else None,
                    drops_older=drops_older,
                )
            )
            references += [
                Reference(provider, reference, machine.id)
                for provider, reference in machine.new_references
            ]
            machine.new_references.clear()
            guards += machine.new_guards
            machine.new_guards.clear()
        return Unit(machines[0].tenant, tuple(changes), tuple(guards), tuple(references))

    def append(self, unit: Unit) -> Answer:
        """Commit a unit and wait for the answer."""
        name = last_event(unit)
        reach(FaultPoint.BEFORE_COMMIT, name)
        answer = self.queue.submit(unit).result()
        if uncounted := _uncounted(unit, answer):
            answer = self.queue.submit(uncounted).result()
        reach(FaultPoint.AFTER_COMMIT, name)
        self._tell(unit, answer)
        return answer

    async def append_durably(self, unit: Unit, retry_seconds: float = 1.0) -> Answer:
        """Commit a unit, however long the store is away: the same unit, until it is answered."""
        name = last_event(unit)
        reach(FaultPoint.BEFORE_COMMIT, name)
        while True:
            try:
                answer = await self.queue.submit_soon(unit)
            except StoreError as error:
                logger("settled.ledger").warning("not_committed", error=str(error))
                await asyncio.sleep(retry_seconds)
                continue
            if uncounted := _uncounted(unit, answer):
                unit = uncounted
            elif not isinstance(answer, Busy):
                reach(FaultPoint.AFTER_COMMIT, name)
                self._tell(unit, answer)
                return answer

    def _tell(self, unit: Unit, answer: Answer) -> None:
        if self.committed is not None and isinstance(answer, Committed):
            self.committed(unit)

    def begin(self, machine: M, connection: Any = None) -> M:
        """Commit a new stream; where it exists already, return it as it stands.

        Whoever began it: two that begin the same stream at once meet here. With `connection`, a
        psycopg or sqlite3 connection in an open transaction, the stream commits or rolls back with
        it. Raises NotPossible when that transaction has begun the stream already.
        """
        unit = self.unit(machine)
        if connection is None:
            answer = self.append(unit)
        else:
            answer = self._join(connection, unit)
        if isinstance(answer, Committed):
            return machine
        if not isinstance(answer, Exists):
            raise self.refusal(unit, answer)
        existing = self.load(machine.tenant, machine.id)
        if existing is None:
            raise NotPossible(
                f"{machine.kind} {machine.identity} was begun in this transaction already.",
                hint="Commit first; the same call afterwards returns it.",
            )
        assert isinstance(existing, type(machine)), "a stream's id says whose it is"
        return existing

    def _join(self, connection: Any, unit: Unit) -> Answer:
        name = last_event(unit)
        reach(FaultPoint.BEFORE_JOIN, name)
        answer = self.journal.join(connection, unit)
        reach(FaultPoint.AFTER_JOIN, name)
        return answer

    def execute(
        self,
        tenant: str,
        stream: UUID,
        command: Callable[[Any], T],
        missing: Callable[[], Exception] | None = None,
    ) -> tuple[Any, T]:
        """Load a stream, give it a command and commit; once more whenever somebody was faster.

        Returns the machine and what the command returned. A command that records nothing commits
        nothing. Raises what the command raises, and `missing()` (by default NotFound) when there is
        no such stream.
        """
        while True:
            machine = self.load(tenant, stream)
            if machine is None:
                raise missing() if missing else NotFound(f"{tenant} has no stream {stream}.")
            result = command(machine)
            if not machine.pending_events:
                return machine, result
            unit = self.unit(machine)
            answer = self.append(unit)
            if isinstance(answer, Committed):
                return machine, result
            if not isinstance(answer, Stale):
                raise self.refusal(unit, answer)

    def refusal(self, unit: Unit, answer: Answer) -> Exception:
        """Return the error for an answer that means that nothing was written."""
        if not isinstance(answer, Refused):
            return unanswered(answer)
        if self.journal.guard(unit.tenant, answer.key) is None:
            return BudgetExceeded(
                f"Nobody has said what the budget {answer.key} allows.",
                hint=f"settled budgets allow {answer.key!r} …, or app.budgets.allow(…).",
            )
        left = amount_in_words(answer.key, answer.remaining)
        wanted = sum(one.amount for one in unit.guards if one.key == answer.key)
        return BudgetExceeded(
            f"The budget {answer.key} has {left} left, and this needs "
            f"{amount_in_words(answer.key, wanted)}.",
            hint="Nothing was written. What others have reserved comes back when they fail.",
        )

    def stamp(
        self, actor: str, correlation: str | None = None, causation: UUID | None = None
    ) -> Stamp:
        """Return a stamp of now."""
        return Stamp(self.clock.now(), actor, correlation, causation)


def _uncounted(unit: Unit, answer: Answer) -> Unit | None:
    """Return the unit without its guard rows, where what it says has happened all the same.

    Only a reservation can be refused. What became of an operation is recorded whatever the rows
    say; that they are out of step with the log (by hand, or because they are lost) is said aloud.
    """
    if not isinstance(answer, Refused) or any(one.act == "reserve" for one in unit.guards):
        return None
    logger("settled.ledger").error("budget_out_of_step", tenant=unit.tenant, budget=answer.key)
    return replace(unit, guards=())


def last_event(unit: Unit) -> str:
    """Return the name of a unit's last event in its first stream: what its points say."""
    return unit.changes[0].events[-1].topic.rpartition(".")[2]


def head_of(machine: StateMachine, progress: bool = True) -> Head:
    """Return the agenda row that a machine's events ask for: a function of the log alone."""
    due_at: datetime | None = machine.next_due()
    if (due_at is None) != machine.settled:
        raise DeclarationError(
            f"A {machine.kind} that is {machine.state} is due at {due_at}.",
            hint="next_due() names a moment in every open state, and None in a settled one.",
        )
    return Head(
        kind=machine.kind,
        identity=machine.identity,
        state=machine.state,
        due_at=due_at,
        lane=machine.lane,
        priority=machine.priority,
        min_reader=machine.min_reader,
        held=machine.held,
        progress=progress,
    )


def unanswered(answer: Answer) -> Exception:
    """Return the error for an answer that means that nothing was written."""
    if isinstance(answer, Invalid):
        return TooLarge(
            f"The database does not take this: {answer.reason}", hint="Nothing was written."
        )
    if isinstance(answer, ReferenceTaken):
        return ForeignReference(answer.provider, answer.reference)
    if isinstance(answer, Refused):
        return BudgetExceeded(
            f"The budget {answer.key} has {amount_in_words(answer.key, answer.remaining)} left.",
            hint="Nothing was written. What others have reserved comes back when they fail.",
        )
    if isinstance(answer, Busy):
        return StoreUnavailable(
            f"Somebody else held {answer.what} for too long.",
            hint="Nothing was written; try again.",
        )
    return StoreUnavailable(
        f"The journal answered {answer}.", hint="Nothing was written; try again."
    )
