"""A run under one owner epoch: recording its steps, and ending where it is somebody else's.

Each step is committed under the fence of the worker's membership. Whoever lost the run learns it
at the next step, and the run's function ends there, before anything that depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from settled.domain.clock import Stamp
from settled.domain.identity import Identity
from settled.domain.journal.unit import Committed, Invalid, Lost, ReferenceTaken
from settled.domain.run.records import Wait
from settled.domain.run.run import Run
from settled.processes.ledger import Ledger, unanswered
from settled.processes.log import logger

T = TypeVar("T")


class Interrupted(BaseException):
    """Ends a run's function where it stands. Not an Exception, so that no handler keeps it."""


class Parked(Interrupted):
    """It waits."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.key)
        self.wait = wait


class Overtaken(Interrupted):
    """Another owner has it, or it is over: nothing more may be recorded here."""


class Withdrawn(Interrupted):
    """Somebody asked to cancel it."""


class GivenUp(Interrupted):
    """It ends as failed, for a reason that its function gave."""


class OwnedRun:
    """What records for one owner of a run."""

    def __init__(self, run: Run, ledger: Ledger, membership: int) -> None:
        """`membership` is the worker's place among the others, which has to own the row."""
        self._run = run  # the very object that the runner has, kept as the store has it
        self._ledger = ledger
        self._membership = membership
        self._epoch = run.epoch
        self._one_by_one = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Let nothing more be recorded here: the function has ended."""
        async with self._one_by_one:
            self._closed = True

    def _must_go_on(self) -> None:
        if self._closed:
            raise Overtaken()
        if self._run.epoch != self._epoch or self._run.state != "running":
            raise self._overtaken()
        if self._run.cancel_requested:
            raise Withdrawn()

    def _overtaken(self) -> Overtaken:
        logger("settled.runs").info("overtaken", run=self._run.run_id, epoch=self._epoch)
        return Overtaken()

    async def _do(self, command: Callable[[Run, Stamp], T]) -> T:
        """Record what a command records. Begun, it is done to its end, whatever is cancelled."""
        doing = asyncio.ensure_future(self._done(command))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            await asyncio.wait((doing,))
            if not doing.cancelled():
                doing.exception()  # it is told by the cancellation
            raise

    async def _done(self, command: Callable[[Run, Stamp], T]) -> T:
        async with self._one_by_one:
            while True:
                self._must_go_on()
                try:
                    result = command(self._run, self._ledger.stamp(self._run.kind))
                except Exception:
                    if self._run.pending_events:
                        await self._reload()
                    raise
                if not self._run.pending_events:
                    return result
                unit = self._ledger.unit(self._run, fence=self._membership)
                answer = await self._ledger.append_durably(unit)
                if isinstance(answer, Committed):
                    return result
                await self._reload()
                if isinstance(answer, Lost):
                    raise self._overtaken()
                if isinstance(answer, Invalid | ReferenceTaken):
                    raise unanswered(answer)

    async def _reload(self) -> None:
        """Bring the run up to what the store has, in place: its runner holds the same object."""
        run = self._run
        newer = await asyncio.to_thread(self._ledger.load, run.tenant, run.id)
        assert newer is not None, "a stream never goes away"
        vars(run).clear()
        vars(run).update(vars(newer))


def source_of(ledger: Ledger, run: Run) -> Run:
    """Return the run whose records answer: the parent's in a historical replay."""
    if run.started.reason != "historical_replay":
        return run
    assert run.started.parent is not None, "what is replayed has been"
    stream = Run.stream(Identity(run.tenant, run.kind, run.started.parent))
    parent = ledger.load(run.tenant, stream)
    assert isinstance(parent, Run), "a parent exists before its child"
    return parent
