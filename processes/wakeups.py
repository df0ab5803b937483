"""Tells runs of what they wait for, as soon as it is committed here.

It only makes them look sooner: whoever dies between a commit and this has a run that waits until
its next look, which is in its agenda row.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from settled.domain.journal.unit import Unit
from settled.domain.operation.operation import Operation
from settled.domain.run.events import WAITERS, place_of
from settled.domain.run.records import Bound
from settled.domain.run.run import Run
from settled.processes.ledger import Ledger
from settled.processes.log import logger
from settled.processes.runs import seen_of

_OPERATION = "settled.operation."
_DECIDED = frozenset(
    f"{_OPERATION}{name}" for name in ("Approved", "Rejected", "Revised", "ProposalExpired")
)


class WakeUps:
    """Looks at each commit, and tells the runs that are bound to an operation that it settled."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._telling = ThreadPoolExecutor(max_workers=1, thread_name_prefix="settled-wakeups")

    def committed(self, unit: Unit) -> None:
        """Take note of a commit. Never blocks and never raises."""
        for change in unit.changes:
            topics = [event.topic for event in change.events]
            if not topics[0].startswith(_OPERATION):
                continue
            if change.head.due_at is None or not _DECIDED.isdisjoint(topics):
                self._telling.submit(self._tell, unit.tenant, change.stream)

    def close(self) -> None:
        """Tell what is known by now, and stop."""
        self._telling.shutdown()

    def _tell(self, tenant: str, stream: UUID) -> None:
        try:
            operation: Operation | None = None
            for run in self._waiters(tenant, stream):
                if operation is None:
                    operation = self._operation(tenant, stream)
                self._tell_one(tenant, run, operation)
        except Exception as error:
            logger("settled.runs").warning("not_told", stream=str(stream), error=repr(error))

    def _tell_one(self, tenant: str, run: UUID, operation: Operation) -> None:
        bound = Bound(kind=operation.kind, operation_id=operation.operation_id, stream=operation.id)
        seen = seen_of(operation)
        stamp = self._ledger.stamp("runs")

        def command(machine: Run) -> None:
            machine.see(stamp, bound, seen)

        self._ledger.execute(tenant, run, command)

    def _operation(self, tenant: str, stream: UUID) -> Operation:
        machine = self._ledger.load(tenant, stream)
        assert isinstance(machine, Operation), "its events say so"
        return machine

    def _waiters(self, tenant: str, stream: UUID) -> Iterator[UUID]:
        """Yield the runs that are bound to an operation: places without a gap, from the first."""
        bound = Bound(kind="", operation_id="", stream=stream)
        place = 1
        while True:
            name = place_of(bound, place)
            run = self._ledger.journal.referenced(tenant, WAITERS, name)
            if run is None:
                return
            yield run
            place += 1
