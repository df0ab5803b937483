"""The worker: claims what is due, runs it, and keeps its place among the other workers.

One asyncio loop runs the process managers. The journal is written on the committer's thread, and
the lease is renewed by a heartbeat thread of its own, so that a busy loop does not look dead. It
does count as dead when it has not turned for a whole lease: a loop that stands still sends nothing
and concludes nothing, and others must be able to take over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from settled.domain.errors import (
    InstallationChanged,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from settled.domain.journal.mapper import READER
from settled.domain.journal.port import AgendaRow, Committer, Membership
from settled.domain.machine.machine import StateMachine
from settled.processes.faults import FaultPoint, reach
from settled.processes.ledger import Ledger
from settled.processes.manager import Position, ProcessManager
from settled.processes.runner import Runner

ANCHOR_SECONDS = 1.0
"""How often it is noted outside the database how far the log has come."""

ENROL_RETRY_SECONDS = 0.5
"""How long a store that is away is left alone before a place among the workers is asked for."""

RECORD_SECONDS = 10.0
"""How long a stopping worker tries to record what it cut short."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker behaves. Durations in seconds.

    `concurrency` bounds the streams in work at once. `idle_seconds` is the longest pause between
    two looks at the agenda. `drain_seconds` is what running calls get after a stop was asked for.
    """

    name: str = "worker"
    concurrency: int = 100
    lease_seconds: float = 10.0
    idle_seconds: float = 0.1
    drain_seconds: float = 10.0
    kinds: tuple[str, ...] = ()


class Heart(threading.Thread):
    """Renews the lease, ends the leases of workers that are gone, and anchors the log."""

    def __init__(self, ledger: Ledger, membership: Membership, lease_seconds: float) -> None:
        super().__init__(name="settled-heart", daemon=True)
        self._ledger = ledger
        self._membership = membership
        self._lease_seconds = lease_seconds
        self._ended = threading.Event()
        self._log = structlog.get_logger("settled.worker")
        self.pulse = threading.Event()  # set by the loop each time it turns
        self.lost = threading.Event()

    def run(self) -> None:
        """Beat until stopped, or until the lease is lost."""
        still_seconds = 0.0
        every = {self._renew: self._lease_seconds / 3, self._anchor: ANCHOR_SECONDS}
        waited = dict.fromkeys(every, 0.0)
        pause_seconds = min(self._lease_seconds / 5, 0.2)
        while not self._ended.wait(pause_seconds) and not self.lost.is_set():
            turned = self.pulse.is_set()
            self.pulse.clear()
            still_seconds = 0.0 if turned else still_seconds + pause_seconds
            if still_seconds > self._lease_seconds:
                continue  # the loop stands still: let the lease run out
            try:
                for act, seconds in every.items():
                    waited[act] += pause_seconds
                    if waited[act] >= seconds:
                        act()
                        waited[act] = 0.0
                if gone := self._membership.sweep():
                    self._log.warning("workers_gone", epochs=list(gone))
            except StoreError as error:
                # At the next beat: the lock may be gone with the connection.
                waited[self._renew] = self._lease_seconds
                self._log.warning("heartbeat_failed", error=str(error))

    def _renew(self) -> None:
        if not self._membership.renew():
            self.lost.set()
        self._ledger.clock.refresh()

    def _anchor(self) -> None:
        self._ledger.journal.anchor()

    def stop(self) -> None:
        """Stop beating and wait for the last beat."""
        self._ended.set()
        self.join()


@dataclass
class Worker:
    """Claims due streams of its kinds and runs them until told to stop."""

    ledger: Ledger
    managers: Sequence[ProcessManager]
    settings: WorkerSettings
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _cut: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def stop(self) -> None:
        """Stop claiming, drain, and end. Must be called from the loop's thread."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped. A lost lease ends the present membership and begins another.

        Raises InstallationChanged when the database is not where it was bound: nothing is
        dispatched from a copy until it is adopted.
        """
        membership: Membership | None = await asyncio.to_thread(self._enrol)
        while membership is not None:
            await self._serve(membership)
            membership = await self._enrol_again()

    def _enrol(self) -> Membership:
        """Take a place among the workers, where the database still is what it was bound to.

        Asked each time: a server that went away may come back restored to an earlier point.
        """
        journal, settings = self.ledger.journal, self.settings
        if changed := journal.installation().changed:
            raise InstallationChanged(
                f"This database is not where it was: {changed}.",
                hint="Make sure that no other copy is worked on, then run `settled adopt`.",
            )
        return journal.enrol(settings.name, settings.lease_seconds)

    async def _enrol_again(self) -> Membership | None:
        """Take another place, however long the store is away; None when told to stop."""
        while not self._stopping.is_set():
            try:
                return await asyncio.to_thread(self._enrol)
            except (StoreUnavailable, StoreReadOnly) as error:
                structlog.get_logger("settled.worker").warning("enrol_failed", error=str(error))
                await self._pause(ENROL_RETRY_SECONDS, full=False)
        return None

    async def _serve(self, membership: Membership) -> None:
        settings = self.settings
        self._cut.clear()
        heart = Heart(self.ledger, membership, settings.lease_seconds)
        heart.start()

        def position() -> Position:
            return Position(settings.name, membership.epoch, self._stopping.is_set())

        runner = Runner(self.ledger, self.managers, position, self._cut)
        log = structlog.get_logger("settled.worker").bind(
            worker=settings.name, epoch=membership.epoch
        )
        log.info("working", kinds=list(settings.kinds))
        pulse = asyncio.create_task(_beat(heart.pulse))
        try:
            await self._loop(runner, membership.epoch, heart)
        finally:
            await self._drain()
            pulse.cancel()
            await asyncio.to_thread(heart.stop)
            await asyncio.to_thread(self._leave, membership, heart.lost.is_set())
            log.info("stopped", lost_lease=heart.lost.is_set())

    def _leave(self, membership: Membership, lost: bool) -> None:
        """Give the place up. Where the store is away, the lease and the lock end by themselves."""
        try:
            if not lost:
                membership.leave()
            self.ledger.journal.anchor()
        except StoreError as error:
            structlog.get_logger("settled.worker").warning("leave_failed", error=str(error))

    async def _loop(self, runner: Runner, epoch: int, heart: Heart) -> None:
        pause_seconds = 0.0
        while not self._stopping.is_set() and not heart.lost.is_set():
            free = self.settings.concurrency - len(self._tasks)
            rows = await self._claim(epoch, free) if free > 0 else []
            if rows:
                pause_seconds = 0.0
                await self._begin(runner, epoch, rows)
                continue
            pause_seconds = min(max(2 * pause_seconds, 0.005), self.settings.idle_seconds)
            await self._pause(pause_seconds, full=free <= 0)

    async def _pause(self, seconds: float, full: bool) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        waiting: set[asyncio.Future[object]] = {stopping}  # type: ignore[arg-type]
        if full:
            waiting |= set(self._tasks)  # type: ignore[arg-type]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _claim(self, epoch: int, want: int) -> list[AgendaRow]:
        def claim(committer: Committer) -> list[AgendaRow]:
            reach(FaultPoint.BEFORE_CLAIM)
            rows = committer.claim(epoch=epoch, kinds=self.settings.kinds, want=want, reader=READER)
            if rows:
                reach(FaultPoint.AFTER_CLAIM)
            return rows

        try:
            return await asyncio.wrap_future(self.ledger.queue.run(claim))
        except StoreError as error:
            structlog.get_logger("settled.worker").warning("claim_failed", error=str(error))
            return []

    async def _begin(self, runner: Runner, epoch: int, rows: list[AgendaRow]) -> None:
        log = structlog.get_logger("settled.worker")
        for row in rows:
            if row.parked_at is not None:
                log.error("parked", kind=row.kind, identity=row.identity, takes=row.takes)
        mine = [row for row in rows if row.parked_at is None]
        try:
            loaded = await asyncio.to_thread(lambda: list(self.ledger.load_rows(mine)))
        except StoreError as error:
            log.warning("load_failed", error=str(error))
            await self._release(epoch, mine)
            return
        for row, machine in loaded:
            if isinstance(machine, Exception):
                log.error("unreadable", kind=row.kind, identity=row.identity, error=str(machine))
                await self._release(epoch, [row])
                continue
            task = asyncio.create_task(self._one(runner, epoch, row, machine))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, runner: Runner, epoch: int, row: AgendaRow, machine: StateMachine) -> None:
        try:
            appended = await runner.run(row, machine)
        except Exception:
            structlog.get_logger("settled.worker").exception(
                "step_failed", kind=row.kind, identity=row.identity
            )
            appended = False
        if not appended:
            await self._release(epoch, [row])

    async def _release(self, epoch: int, rows: Sequence[AgendaRow]) -> None:
        def release(committer: Committer) -> None:
            committer.release(epoch=epoch, rows=rows)

        try:
            await asyncio.wrap_future(self.ledger.queue.run(release))
        except StoreError as error:
            structlog.get_logger("settled.worker").warning("release_failed", error=str(error))

    async def _drain(self) -> None:
        """Let running calls end; what still runs then is cut short and recorded as unknown."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.settings.drain_seconds)
        if not self._tasks:
            return
        self._cut.set()
        await asyncio.wait(self._tasks, timeout=RECORD_SECONDS)
        # The store is away: what is held stays held, and whoever claims it next records it.
        for task in self._tasks:
            task.cancel()


async def _beat(pulse: threading.Event) -> None:
    """Show the heartbeat thread that the loop turns."""
    while True:
        pulse.set()
        await asyncio.sleep(0.05)
