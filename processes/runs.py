"""Takes runs that are due: resumes them, looks at what they wait for, and lets deadlines pass."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, cast

from settled.domain.clock import Stamp
from settled.domain.errors import CallFailed, InvalidInput, NotPossible, UnknownKind
from settled.domain.machine.machine import StateMachine
from settled.domain.operation.operation import Operation
from settled.domain.run import events as ev
from settled.domain.run.kind import RunKind
from settled.domain.run.records import Seen, checkpoint, text_of
from settled.domain.run.run import Run
from settled.processes.active_run import ActiveRun, Acts
from settled.processes.ledger import Ledger
from settled.processes.log import logger
from settled.processes.manager import Decision, Perform, Position, Record, Rest, Work
from settled.processes.owned_run import (
    GivenUp,
    Interrupted,
    Overtaken,
    Parked,
    Withdrawn,
    source_of,
)
from settled.processes.runner import ShutDown

FIRST_WITHHELD = timedelta(seconds=10)
LONGEST_WITHHELD = timedelta(hours=1)
"""How soon a run of another state version is looked at again: other code may be there by then."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run's function returned, as JSON text."""

    result: str


@dataclass(frozen=True)
class RunManager:
    """Gives a run that is due to its function, under the next owner epoch."""

    kinds: Mapping[str, RunKind]
    ledger: Ledger
    acts: Acts
    name: str = "runs"

    def interested(self, machine: StateMachine) -> bool:
        """Runs that have not ended."""
        return isinstance(machine, Run) and not machine.settled

    def decide(self, machine: Run, stamp: Stamp, position: Position) -> Decision:
        """Resume it, or look, or let it expire. Its row is due, or its worker is gone."""
        if stamp.at >= machine.started.session_until:
            machine.expire(stamp)
            return Record()
        if machine.cancel_requested:
            machine.record(ev.Cancelled, stamp, reason=machine.last_reason)
            return Record()
        if position.draining:
            return Rest()
        wait = machine.wait
        if machine.state == "waiting" and wait is not None and not machine.is_over(wait, stamp.at):
            if wait.operation is not None:
                return Perform(
                    Work.LOOKUP, machine.kind, partial(self._look, machine), self._looked
                )
            if stamp.at < wait.until:
                return Rest()
            machine.pass_deadline(stamp, wait.level, wait.key, wait.until)
        return self._take(machine, stamp, position)

    def _take(self, run: Run, stamp: Stamp, position: Position) -> Decision:
        kind = self._kind(run)
        if run.state_version != kind.state_version:
            if kind.migrate is None:
                self._withhold(run, kind, stamp)
                return Record()
            self._migrate(run, kind, stamp)
        run.claim(stamp, worker=position.worker, membership=position.epoch)
        epoch = run.epoch
        return Perform(
            Work.CALL,
            run.kind,
            lambda: self._run(run, kind, position.epoch),
            lambda machine, result, stamp: self._conclude(machine, result, stamp, epoch),
        )

    def _kind(self, run: Run) -> RunKind:
        try:
            return self.kinds[run.kind]
        except KeyError:
            raise UnknownKind(
                f"No run kind {run.kind} is declared here.", hint="settled.open(…, runs=[…])"
            ) from None

    def _withhold(self, run: Run, kind: RunKind, stamp: Stamp) -> None:
        pause = min(FIRST_WITHHELD * (1 << min(run.withheld, 20)), LONGEST_WITHHELD)
        run.record(
            ev.Suspended,
            stamp,
            reason=f"its state has version {run.state_version}, and the code here serves"
            f" {kind.state_version}",
            due_at=stamp.at + pause,
            failed=False,
        )

    def _migrate(self, run: Run, kind: RunKind, stamp: Stamp) -> None:
        assert kind.migrate is not None, "asked before"
        moved = run.checkpoint
        if moved is not None:
            state = kind.migrate(moved.value, run.state_version)
            moved = checkpoint(moved.boundary, state, moved.references)
        run.record(
            ev.Migrated,
            stamp,
            from_version=run.state_version,
            to_version=kind.state_version,
            checkpoint=moved,
        )

    # Resuming.

    async def _run(self, run: Run, kind: RunKind, membership: int) -> object:
        """Call the function, and return what it came to, as a value to conclude from."""
        source = await asyncio.to_thread(source_of, self.ledger, run)
        active = ActiveRun(run, kind, self.ledger, self.acts, membership, source)
        until, epoch = run.started.session_until, run.epoch
        seconds = (until - self.ledger.clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                result = await kind.resume(active)
            return Ended(text_of("What the run returned", result))
        except Interrupted as interrupted:
            return interrupted
        except BaseExceptionGroup as group:
            if (inner := _interrupted(group)) is None:
                raise
            return inner
        except Exception as error:
            logger("settled.runs").warning(
                "run_failed", run=run.run_id, kind=kind.name, epoch=epoch, error=repr(error)
            )
            raise
        finally:
            await active.close()

    def _conclude(self, run: Run, result: Any, stamp: Stamp, epoch: int) -> None:
        if run.state != "running" or run.epoch != epoch or isinstance(result, Overtaken):
            return
        if stamp.at >= run.started.session_until:
            run.expire(stamp)
        elif isinstance(result, Ended):
            run.record(ev.Completed, stamp, result=result.result)
        elif isinstance(result, GivenUp):
            run.record(ev.Failed, stamp, reason=str(result))
        elif isinstance(result, Withdrawn) or run.cancel_requested:
            run.record(ev.Cancelled, stamp, reason=run.last_reason)
        elif isinstance(result, Parked):
            run.record(ev.Waits, stamp, wait=result.wait)
        elif isinstance(result, ShutDown):
            run.record(ev.OwnerReleased, stamp)
        else:
            self._failed(run, result, stamp)

    def _failed(self, run: Run, error: BaseException, stamp: Stamp) -> None:
        """Try again later what may go better then; a refusal stays one."""
        retry = self._kind(run).retry
        reason = f"{type(error).__name__}: {error}"[:1000]
        refused = isinstance(error, InvalidInput | NotPossible)
        final = refused and not isinstance(error, CallFailed)
        number = run.failures + 1
        if final or number >= retry.attempts:
            run.record(ev.Failed, stamp, reason=reason)
            return
        pause = retry.delay(number, self.ledger.clock.uniform())
        run.record(ev.Suspended, stamp, reason=reason, due_at=stamp.at + pause, failed=True)

    # Looking, where nobody told.

    async def _look(self, run: Run) -> Seen | None:
        assert run.wait is not None and run.wait.operation is not None, "it waits for one"
        bound = run.wait.operation
        machine = await asyncio.to_thread(self.ledger.load, run.tenant, bound.stream)
        return seen_of(machine) if isinstance(machine, Operation) else None

    def _looked(self, run: Run, result: Any, stamp: Stamp) -> None:
        if isinstance(result, ShutDown) or run.wait is None or run.wait.operation is None:
            return
        wait, bound = run.wait, run.wait.operation
        if isinstance(result, BaseException):
            logger("settled.runs").warning("not_looked", run=run.run_id, error=repr(result))
        if isinstance(result, Seen) and wait.is_over_in(result):
            run.see(stamp, bound, result)
        if run.is_told(wait):
            return
        if stamp.at < wait.until:
            run.record(ev.StillWaiting, stamp)
        elif wait.call_id is not None:
            run.time_out(stamp, run.calls[wait.call_id])


def _interrupted(group: BaseExceptionGroup[BaseException]) -> Interrupted | None:
    """Return what interrupted a task of a group: it ends the whole function."""
    within: tuple[BaseException, ...] = group.exceptions
    for error in within:
        if isinstance(error, Interrupted):
            return error
        if isinstance(error, BaseExceptionGroup):
            inner = _interrupted(cast("BaseExceptionGroup[BaseException]", error))
            if inner is not None:
                return inner
    return None


def seen_of(operation: Operation) -> Seen:
    """Return what a run is told of an operation."""
    return Seen(
        state=operation.state,
        settled=operation.settled,
        proposal_version=operation.proposal_version,
    )
