"""Taking over a store that was copied, restored, or lost commits in a failover.

Between the moment that such a store shows and now, another one may have gone on: what is ready
here may have been sent from there. So nothing that looks unsent is believed to be. Each such
operation becomes outcome_unknown, where only its contract and evidence lead out; then the store is
bound to where it is now, and workers may work on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

from settled.domain.clock import Stamp
from settled.domain.errors import NotFound
from settled.domain.journal.port import AgendaRow, Journal
from settled.domain.journal.unit import Answer, Committed
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.processes.faults import FaultPoint, reach
from settled.processes.ledger import Ledger, last_event

LOOKS_UNSENT = ("ready", "claimed")
"""The states that claim that nothing is out. A claim is given back and sent again, so it counts."""

_PAGE = 500


def adopt(ledger: Ledger, actor: str) -> int:
    """Treat everything that looks unsent as possibly sent, then bind the store to where it is.

    Returns how many operations became outcome_unknown. Safe to repeat: when it ends half-way,
    nothing is bound, and the next call does the rest. Raises StoreTooNew for a stream that this
    code cannot read, because it cannot be made safe.
    """
    ledger.clock.refresh()
    stamp = ledger.stamp(actor)
    count = sum(_treat_as_sent(ledger, rows, stamp) for rows in _pages(ledger.journal))
    ledger.journal.adopt()
    return count


def _pages(journal: Journal) -> Iterator[list[AgendaRow]]:
    after = None
    while rows := journal.heads(states=LOOKS_UNSENT, after=after, limit=_PAGE):
        yield rows
        after = rows[-1].tenant, rows[-1].stream


def _treat_as_sent(ledger: Ledger, rows: list[AgendaRow], stamp: Stamp) -> int:
    """Append to many streams at once; who was overtaken is judged again as it is then."""
    waiting: list[tuple[AgendaRow, str, Future[Answer]]] = []
    for row, machine in ledger.load_rows(rows):
        if isinstance(machine, Exception):
            raise machine
        # A state machine of the user's may call one of its states ready, and sends nothing.
        if isinstance(machine, Operation) and _record(machine, stamp):
            unit = ledger.unit(machine)
            name = last_event(unit)
            reach(FaultPoint.BEFORE_COMMIT, name)
            waiting.append((row, name, ledger.queue.submit(unit)))
    count = 0
    for row, name, waits in waiting:
        answer = waits.result()
        reach(FaultPoint.AFTER_COMMIT, name)
        if isinstance(answer, Committed):
            count += 1
        else:
            count += _one(ledger, row, stamp)
    return count


def _one(ledger: Ledger, row: AgendaRow, stamp: Stamp) -> bool:
    def command(operation: Operation) -> bool:
        return _record(operation, stamp)

    _, recorded = ledger.execute(row.tenant, row.stream, command, missing=NotFound)
    return recorded


def _record(operation: Operation, stamp: Stamp) -> bool:
    if operation.state not in LOOKS_UNSENT:
        return False
    operation.record(
        ev.OutcomeUnknown,
        stamp,
        cause="adopted",
        reason="the store was adopted, and this may have been sent from where it was before",
        rule="adopted",
        sender_reported=False,
        waited=False,
        attempt_out=True,
        next_at=stamp.at,
    )
    return True
