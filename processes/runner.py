"""Runs what process managers decide for one stream, from its claim until it is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.errors import StoreError, StoreTooNew
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import Committed, Invalid, ReferenceTaken, Refused
from settled.domain.machine.machine import StateMachine
from settled.processes.faults import FaultPoint, reach
from settled.processes.ledger import ForeignReference, Ledger, unanswered
from settled.processes.log import logger
from settled.processes.manager import Perform, Position, ProcessManager, Record, Rest, Work

_POINTS = {
    Work.CALL: (FaultPoint.BEFORE_CALL, FaultPoint.AFTER_CALL),
    Work.LOOKUP: (FaultPoint.BEFORE_LOOKUP, FaultPoint.AFTER_LOOKUP),
    Work.NOTIFY: (FaultPoint.BEFORE_NOTIFY, FaultPoint.AFTER_NOTIFY),
}


RETRY_SECONDS = 1.0
"""How long a store that is away is left alone before it is asked again."""


class ShutDown(BaseException):
    """The result of work that was cut short because its worker stops."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A result that names an object of the provider which belongs to another stream."""

    result: Any


class Runner:
    """Drives one claimed stream: decide, commit, perform, conclude, commit."""

    def __init__(
        self,
        ledger: Ledger,
        managers: Sequence[ProcessManager],
        position: Callable[[], Position],
    ) -> None:
        self._ledger = ledger
        self._managers = managers
        self._position = position
        self._cut = False
        self._acting: set[asyncio.Future[Any]] = set()
        self._log = logger("settled.worker")

    def cut_short(self) -> None:
        """End what is being performed now, and what would begin later. From the loop's thread."""
        self._cut = True
        for acting in self._acting:
            acting.cancel()

    async def run(self, row: AgendaRow, machine: StateMachine) -> bool:
        """Go on until the stream is no longer held here. False when nothing was appended."""
        appended = False
        while True:
            position, before = self._position(), machine.version
            manager = self._manager(machine)
            if manager is None:
                return appended
            stamp = self._ledger.stamp(manager.name)
            decision = manager.decide(machine, stamp, position)
            match decision:
                case Rest():
                    return appended
                case Record():
                    going_on = await self._record(machine, position.epoch)
                case Perform():
                    going_on = await self._record(machine, position.epoch)
                    if going_on is machine:
                        going_on = await self._perform(machine, decision, manager, position.epoch)
            if going_on is None:
                return True
            machine = going_on
            appended = appended or machine.version > row.version
            if not machine.held:
                return appended
            if machine.version == before and (self._cut or isinstance(decision, Record)):
                return appended  # deciding again would only decide the same

    def _manager(self, machine: StateMachine) -> ProcessManager | None:
        return next((m for m in self._managers if m.interested(machine)), None)

    async def _record(self, machine: StateMachine, epoch: int) -> StateMachine | None:
        """Commit what the machine recorded and return it.

        When somebody was faster, return the stream as it is now where it is still held here, to
        decide anew; None where it is not.
        """
        if not machine.pending_events or await self._commit(machine, epoch):
            return machine
        return await self._still_held(machine, epoch)

    async def _perform(
        self, machine: StateMachine, decision: Perform, manager: ProcessManager, epoch: int
    ) -> StateMachine | None:
        """Do it and record what came of it. None when the stream has gone on without us."""
        before, after = _POINTS[decision.work]
        reach(before, decision.detail)
        result = said = await self._result(decision)
        reach(after, decision.detail)
        while True:
            try:
                decision.conclude(machine, said, self._ledger.stamp(manager.name))
                recorded = await self._record(machine, epoch)
            except Exception as error:
                if said is not result:
                    raise  # not even that it could not be recorded can be recorded
                said = self._instead(machine, result, error)
                recorded = await self._still_held(machine, epoch)
            else:
                if recorded is machine:
                    return machine
            if recorded is None:
                break
            machine = recorded  # a note came in between; what was performed is concluded on top
        if decision.late is not None:
            await self._late(machine, decision.late, said, manager)
        return None

    def _instead(self, machine: StateMachine, result: Any, error: Exception) -> Any:
        """Return what to conclude from when a result could not be recorded as it is.

        Whatever a provider answers, something of it is recorded: that the object belongs to
        another stream, or that the answer could not be kept.
        """
        self._log.error(
            "not_recorded", kind=machine.kind, identity=machine.identity, error=repr(error)
        )
        return Foreign(result) if isinstance(error, ForeignReference) else error

    async def _result(self, decision: Perform) -> Any:
        """Return what was performed, the exception it ended with, or that it was cut short.

        It runs in a task of its own: whatever an adapter does to the task it runs in, or however
        it ends, the stream goes on here, and an answer that is there is not thrown away by a cut.
        """
        if self._cut:
            return ShutDown()
        acting = asyncio.ensure_future(decision.act())
        self._acting.add(acting)
        try:
            await asyncio.wait((acting,))
        finally:
            self._acting.discard(acting)
            acting.cancel()  # does nothing to what is done: only where all of this is given up
        if acting.cancelled():
            # An adapter that cancels itself leaves open what it had done.
            return ShutDown() if self._cut else asyncio.CancelledError("it was cancelled")
        error = acting.exception()
        return acting.result() if error is None else error

    async def _commit(self, machine: StateMachine, epoch: int) -> bool:
        unit = self._ledger.unit(machine, fence=epoch)
        answer = await self._ledger.append_durably(unit)
        if isinstance(answer, Invalid | ReferenceTaken | Refused):
            raise await asyncio.to_thread(self._ledger.refusal, unit, answer)
        if not isinstance(answer, Committed):
            self._log.info(
                "overtaken", kind=machine.kind, identity=machine.identity, answer=str(answer)
            )
        return isinstance(answer, Committed)

    async def _late(
        self,
        machine: StateMachine,
        late: Callable[[Any, Any, Stamp], None],
        result: Any,
        manager: ProcessManager,
    ) -> None:
        """Give what came back to the stream as it is now, as evidence and without a fence."""
        said = result
        while True:
            newer, _ = await self._newest(machine)
            late(newer, said, self._ledger.stamp(manager.name))
            if not newer.pending_events:
                return
            answer = await self._ledger.append_durably(self._ledger.unit(newer))
            if isinstance(answer, Committed):
                return
            if isinstance(answer, Invalid | ReferenceTaken):
                if said is not result:
                    raise unanswered(answer)
                said = self._instead(machine, result, unanswered(answer))

    async def _still_held(self, machine: StateMachine, epoch: int) -> StateMachine | None:
        newer, owner = await self._newest(machine)
        return newer if owner == epoch and newer.held else None

    async def _newest(self, machine: StateMachine) -> tuple[StateMachine, int | None]:
        """Return the stream as it is now and who owns it, however long the store is away."""
        ledger = self._ledger
        while True:
            try:
                row = await asyncio.to_thread(ledger.journal.head, machine.tenant, machine.id)
                newer = await asyncio.to_thread(ledger.load, machine.tenant, machine.id)
            except StoreTooNew:
                raise  # however often it is read, this code does not know what others wrote to it
            except StoreError as error:
                self._log.warning("load_failed", kind=machine.kind, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            assert row is not None and newer is not None, "a stream never goes away"
            return newer, row.owner
