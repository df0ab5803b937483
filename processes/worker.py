"""The worker: claims what is due, runs it, and keeps its place among the other workers.

One asyncio loop runs the process managers. The journal is written on the committer's thread, and
the lease is renewed by a heartbeat thread of its own, so that a busy loop does not look dead. It
does count as dead when it has not turned for a whole lease: a loop that stands still sends nothing
and concludes nothing, and others must be able to take over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from settled.domain.errors import (
    InstallationChanged,
    StoreError,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    UnknownKind,
)
from settled.domain.journal.mapper import READER
from settled.domain.journal.port import AgendaRow, Committer, Membership, Watch
from settled.domain.machine.machine import StateMachine
from settled.domain.route import Route
from settled.processes.faults import FaultPoint, reach
from settled.processes.ledger import Ledger
from settled.processes.log import logger
from settled.processes.manager import Position, ProcessManager
from settled.processes.runner import Runner
from settled.processes.unserved import unserved_lanes

ANCHOR_SECONDS = 1.0
"""How often it is noted outside the database how far the log has come."""

UNSERVED_SECONDS = 60.0
"""How often a worker looks for what is open and served by nobody."""

ENROL_RETRY_SECONDS = 0.5
"""How long a store that is away is left alone before a place among the workers is asked for."""

LONGEST_BACKOFF_SECONDS = 30.0
"""The longest that a row is kept back after its step failed."""

AGAIN_SECONDS = 0.001
"""How soon a worker that was woken and found nothing looks again; then twice as late each time."""

GATHER_SECONDS = 0.005
"""How long a worker that is nearly full waits for more places before it claims again."""

RECORD_SECONDS = 10.0
"""How long a stopping worker tries to record what it cut short."""

MOST_LEFT = 1_000
"""How many streams a worker leaves to others because it cannot read them, before it ends itself."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker behaves. Durations in seconds.

    `kinds` are the routes that it serves (`settled.domain.route`); none stands for all that the
    application declares. `leave_to_others` lets it start although something is open that neither
    its code nor a worker that is running knows. `concurrency` bounds the streams in work at once.
    `idle_seconds` is the longest pause between
    two looks at the agenda; what becomes due by a commit is looked for at once. `drain_seconds` is
    what running calls get after a stop was asked for.
    """

    name: str = "worker"
    concurrency: int = 100
    lease_seconds: float = 10.0
    idle_seconds: float = 0.25
    drain_seconds: float = 10.0
    kinds: tuple[str, ...] = ()
    leave_to_others: bool = False


class Heart(threading.Thread):
    """Renews the lease, ends the leases of workers that are gone, and anchors the log."""

    def __init__(
        self,
        ledger: Ledger,
        membership: Membership,
        lease_seconds: float,
        stir: Callable[[], None],
        served: Sequence[str] = (),
    ) -> None:
        """`stir` is called when a worker is gone: what it had is to be taken over at once.

        `served` are the routes of this worker: what is open on others is named now and then.
        """
        super().__init__(name="settled-heart", daemon=True)
        self._ledger = ledger
        self._membership = membership
        self._stir = stir
        self._served = served
        self._lease_seconds = lease_seconds
        self._ended = threading.Event()
        self._log = logger("settled.worker")
        self._acts: dict[Callable[[], None], float] = {
            self._renew: lease_seconds / 3,
            self._sweep: 0.0,
            self._anchor: ANCHOR_SECONDS,
            self._name_unserved: UNSERVED_SECONDS,
        }
        self._waited = dict.fromkeys(self._acts, 0.0)
        self._still_seconds = 0.0
        self.pause_seconds = min(lease_seconds / 5, 0.2)
        self.pulse = threading.Event()  # set by the loop each time it turns
        self.lost = threading.Event()

    def run(self) -> None:
        """Beat until stopped or the lease is lost. However it ends, the lease is not kept."""
        try:
            while not self._ended.wait(self.pause_seconds) and not self.lost.is_set():
                self.beat()
        finally:
            if not self._ended.is_set():
                self.lost.set()

    def beat(self) -> None:
        """Do what is due, one pause after the last beat.

        What fails is tried again at the next beat, and keeps nothing else from being done.
        """
        turned = self.pulse.is_set()
        self.pulse.clear()
        self._still_seconds = 0.0 if turned else self._still_seconds + self.pause_seconds
        if self._still_seconds > self._lease_seconds:
            return  # the loop stands still: let the lease run out
        for act, seconds in self._acts.items():
            self._waited[act] += self.pause_seconds
            if self._waited[act] >= seconds and self._did(act):
                self._waited[act] = 0.0

    def _did(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:
            self._log.warning("heartbeat_failed", act=act.__name__, error=repr(error))
            return False
        return True

    def _renew(self) -> None:
        if not self._membership.renew():
            self.lost.set()
        self._ledger.clock.refresh()

    def _sweep(self) -> None:
        if gone := self._membership.sweep():
            self._log.warning("workers_gone", epochs=list(gone))
            self._stir()

    def _anchor(self) -> None:
        self._ledger.journal.anchor()

    def _name_unserved(self) -> None:
        """Say what nobody works on any more: whoever did may have been stopped since."""
        lanes = unserved_lanes(self._ledger.journal, self._served)
        for route in sorted({str(Route.of_lane(lane)) for lane in lanes}):
            self._log.error("nobody_serves", route=route)

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
    enrolled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the worker has its place among the others and claims."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever there is a reason to look at the agenda, or at what was asked of the worker."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _resting: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _left: set[UUID] = field(default_factory=set[UUID])
    """Streams that this code cannot read, or does not act on: others have them."""

    def stop(self) -> None:
        """Stop claiming, drain, and end. Must be called from the loop's thread."""
        self._stopping.set()
        self._stirred.set()

    async def run(self) -> None:
        """Work until stopped. A lost lease ends the present membership and begins another.

        Raises InstallationChanged when the database is not where it was bound: nothing is
        dispatched from a copy until it is adopted. Raises StoreTooNew when more and more streams
        are written by newer code: this worker is in nobody's way once it has ended.
        """
        membership: Membership | None = await asyncio.to_thread(self._enrol)
        while membership is not None:
            self.enrolled.set()
            await self._serve(membership)
            if len(self._left) > MOST_LEFT:
                raise StoreTooNew(
                    f"Over {MOST_LEFT} streams that this worker serves are not known to its code.",
                    hint="Run the version of settled, and the module of kinds, that wrote them.",
                )
            membership = await self._enrol_again()

    def _enrol(self) -> Membership:
        """Take a place among the workers, where the database still is what it was bound to.

        Asked each time: a server that went away may come back restored to an earlier point.
        """
        journal, settings = self.ledger.journal, self.settings
        if changed := journal.installation().changed:
            raise InstallationChanged(
                f"This database is not where it was: {changed.rstrip('.')}.",
                hint="Make sure that no other copy is worked on, then run `settled adopt`.",
            )
        return journal.enrol(settings.name, settings.lease_seconds, settings.kinds)

    async def _enrol_again(self) -> Membership | None:
        """Take another place, however long the store is away; None when told to stop."""
        while not self._stopping.is_set():
            try:
                return await asyncio.to_thread(self._enrol)
            except (StoreUnavailable, StoreReadOnly) as error:
                logger("settled.worker").warning("enrol_failed", error=str(error))
                await self._pause(ENROL_RETRY_SECONDS)
        return None

    async def _serve(self, membership: Membership) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()

        def stir() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to look
                loop.call_soon_threadsafe(self._stirred.set)

        heart = Heart(self.ledger, membership, settings.lease_seconds, stir, settings.kinds)
        heart.start()

        def position() -> Position:
            return Position(settings.name, membership.epoch, self._stopping.is_set())

        runner = Runner(self.ledger, self.managers, position)
        log = logger("settled.worker").bind(worker=settings.name, epoch=membership.epoch)
        log.info("working", kinds=list(settings.kinds))
        pulse = asyncio.create_task(_beat(heart.pulse, heart.pause_seconds / 2))
        watching = asyncio.ensure_future(asyncio.to_thread(self._watch, stir))
        try:
            await self._loop(runner, membership.epoch, heart)
        finally:
            try:
                await self._drain(runner)
            finally:
                pulse.cancel()
                watch = await watching
                await asyncio.to_thread(self._end, watch, heart, membership)
                log.info("stopped", lost_lease=heart.lost.is_set())

    def _watch(self, stir: Callable[[], None]) -> Watch | None:
        """Have the worker woken by commits; without that, it looks at the agenda by itself."""
        try:
            return self.ledger.journal.watch(stir)
        except (StoreError, OSError) as error:
            logger("settled.worker").warning("not_woken", error=str(error))
            return None

    def _end(self, watch: Watch | None, heart: Heart, membership: Membership) -> None:
        if watch is not None:
            watch.close()
        heart.stop()
        self._leave(membership, heart.lost.is_set())

    def _leave(self, membership: Membership, lost: bool) -> None:
        """Give the place up. Where the store is away, the lease and the lock end by themselves."""
        try:
            if not lost:
                membership.leave()
            self.ledger.journal.anchor()
        except StoreError as error:
            logger("settled.worker").warning("leave_failed", error=str(error))

    async def _loop(self, runner: Runner, epoch: int, heart: Heart) -> None:
        settings = self.settings
        pause_seconds = 0.0
        while True:
            if 8 * (settings.concurrency - len(self._tasks)) < settings.concurrency:
                # Nearly full: places that become free one by one are not each worth a claim.
                await asyncio.sleep(GATHER_SECONDS)
            self._stirred.clear()
            if self._stopping.is_set() or heart.lost.is_set() or len(self._left) > MOST_LEFT:
                return
            free = settings.concurrency - len(self._tasks)
            rows = await self._claim(epoch, free) if free > 0 else []
            if rows:
                pause_seconds = 0.0
                await self._begin(runner, epoch, rows)
                continue
            pause_seconds = min(max(2 * pause_seconds, AGAIN_SECONDS), settings.idle_seconds)
            if await self._pause(pause_seconds):
                # By the store's clock, what was just committed may be due in a moment only.
                pause_seconds = 0.0

    async def _pause(self, seconds: float) -> bool:
        """Wait so long, or until something stirs: work, a place that became free, a stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._stirred.wait()
        return False

    async def _claim(self, epoch: int, want: int) -> list[AgendaRow]:
        left = tuple(self._left)

        def claim(committer: Committer) -> list[AgendaRow]:
            reach(FaultPoint.BEFORE_CLAIM)
            rows = committer.claim(
                epoch=epoch, kinds=self.settings.kinds, want=want, reader=READER, leave=left
            )
            if rows:
                reach(FaultPoint.AFTER_CLAIM)
            return rows

        try:
            return await asyncio.wrap_future(self.ledger.queue.run(claim))
        except Exception as error:
            logger("settled.worker").warning("claim_failed", error=repr(error))
            return []

    async def _begin(self, runner: Runner, epoch: int, rows: list[AgendaRow]) -> None:
        log = logger("settled.worker")
        for row in rows:
            if row.parked_at is not None:
                log.error("parked", kind=row.kind, identity=row.identity, takes=row.takes)
        mine = [row for row in rows if row.parked_at is None]
        try:
            loaded = await asyncio.to_thread(lambda: list(self.ledger.load_rows(mine)))
        except Exception as error:  # rows that were taken must not stay with nobody at work on them
            loaded = [(row, error) for row in mine]
        for row, machine in loaded:
            task = asyncio.create_task(self._one(runner, epoch, row, machine))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._stirred.set()

    async def _one(
        self, runner: Runner, epoch: int, row: AgendaRow, machine: StateMachine | Exception
    ) -> None:
        try:
            if isinstance(machine, Exception):
                raise machine
            if await runner.run(row, machine):
                return
        except (StoreTooNew, UnknownKind) as error:
            self._yield(row, error)
            await self._give_back(epoch, row, counted=False)
            return
        except Exception:
            log = logger("settled.worker").bind(kind=row.kind, identity=row.identity)
            log.exception("step_failed")
            await self._rest(min(2.0**row.takes, LONGEST_BACKOFF_SECONDS))
        await self._give_back(epoch, row)

    def _yield(self, row: AgendaRow, error: Exception) -> None:
        """Yield a stream that other code is for: nothing is appended, and nobody else is kept off.

        A take by this worker does not count, or the stream would be parked for those too who can
        read it, and it does not take the stream again.
        """
        self._left.add(row.stream)
        logger("settled.worker").error(
            "left_to_others",
            tenant=row.tenant,
            kind=row.kind,
            identity=row.identity,
            error=str(error),
        )

    async def _rest(self, seconds: float) -> None:
        """Keep a row on which a step failed: whoever takes it next is likely to fail as well.

        Meanwhile it takes up none of the places in which streams are worked on. Beyond as many
        rows as there are places, they are given back at once, and so are parked sooner.
        """
        task = asyncio.current_task()
        assert task is not None
        if len(self._resting) < self.settings.concurrency:
            self._tasks.discard(task)
            self._resting.add(task)
            task.add_done_callback(self._resting.discard)
            await asyncio.sleep(seconds)

    async def _give_back(self, epoch: int, row: AgendaRow, counted: bool = True) -> None:
        """Free the row as it is now, if it still is ours, however long the store is away."""
        while True:
            try:
                head = await asyncio.to_thread(self.ledger.journal.head, row.tenant, row.stream)
                if head is not None and head.owner == epoch:
                    release = partial(_release, epoch=epoch, rows=[head], counted=counted)
                    await asyncio.wrap_future(self.ledger.queue.run(release))
                return
            except StoreError as error:
                logger("settled.worker").warning("release_failed", error=str(error))
                await asyncio.sleep(ENROL_RETRY_SECONDS)

    async def _drain(self, runner: Runner) -> None:
        """Let running calls end; what still runs then is cut short and recorded as unknown."""
        for task in self._resting:
            task.cancel()  # its row is free when the place among the workers is given up
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.settings.drain_seconds)
        if not self._tasks:
            return
        runner.cut_short()
        await asyncio.wait(self._tasks, timeout=RECORD_SECONDS)
        # The store is away: what is held stays held, and whoever claims it next records it.
        for task in self._tasks:
            task.cancel()


def _release(committer: Committer, *, epoch: int, rows: Sequence[AgendaRow], counted: bool) -> None:
    committer.release(epoch=epoch, rows=rows, counted=counted)


async def _beat(pulse: threading.Event, pause_seconds: float) -> None:
    """Show the heartbeat thread that the loop turns."""
    while True:
        pulse.set()
        await asyncio.sleep(pause_seconds)
