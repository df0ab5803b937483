"""A simulated process: the unmodified ledger, managers and worker, with what stands around them.

In the place of threads, the commit queue's and the heart's too, stand callbacks of the scheduler;
in the place of the store's connection stands one that may be cut. When the process dies, nothing of
it runs again, and what it still tries raises Died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from settled.domain.errors import NotFound, StoreUnavailable
from settled.domain.inbox import KIND as EVIDENCE
from settled.domain.journal.judge import next_group
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import Committer, Installation
from settled.domain.journal.unit import Answer, Busy, Unit
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.notifier import Notifier
from settled.domain.operation.operation import Operation
from settled.infrastructure.testing.manual_clock import START
from settled.infrastructure.testing.memory_journal import MemoryJournal
from settled.infrastructure.testing.memory_tables import MemoryStore
from settled.operations import Operations
from settled.processes import blocking, faults, operations, worker
from settled.processes.dispatcher import Dispatcher
from settled.processes.escalation import Escalation
from settled.processes.expiry import Expiry
from settled.processes.joiner import Joiner
from settled.processes.ledger import Ledger
from settled.processes.manager import ProcessManager
from settled.processes.operations import Desk
from settled.processes.reconciler import Reconciler
from settled.processes.worker import Heart, Worker, WorkerSettings
from tests.simulation.loop import IDLE_SECONDS, SimulatedLoop
from tests.simulation.scheduler import DEEPEST, Died, Scheduler, Strand

T = TypeVar("T")


class Surroundings(Protocol):
    """What a process meets: faults, and somebody who watches."""

    scheduler: Scheduler
    world: Strand
    store: MemoryStore
    store_away: bool

    def fate(self, units: int) -> str:
        """Return what becomes of a commit: done, lost (done, unheard), away or busy."""
        ...

    def committed(self, process: Process) -> None:
        """Hear that something may have been committed."""
        ...


class SimulatedClock:
    """The clock port on the scheduler's time. `ahead_seconds` is what the process is ahead by."""

    def __init__(self, scheduler: Scheduler, ahead_seconds: float = 0.0) -> None:
        self._scheduler = scheduler
        self._ahead_seconds = ahead_seconds
        self._chance = scheduler.chance

    def now(self) -> datetime:
        return START + timedelta(seconds=self._scheduler.now + self._ahead_seconds)

    def refresh(self, older_than_seconds: float = 0.0) -> None:
        pass

    def monotonic(self) -> float:
        return self._scheduler.now

    def new_ids(self, count: int) -> list[UUID]:
        return [UUID(int=self._chance.getrandbits(128), version=4) for _ in range(count)]

    def uniform(self) -> float:
        return self._chance.random()


class SimulatedJournal(MemoryJournal):
    """A connection to the store that is away at times, and gone with its process."""

    def __init__(self, process: Process, store: MemoryStore, installation: Installation) -> None:
        self._process = process
        super().__init__(store, installation=installation)

    def check(self) -> None:
        if self._process.dead:
            raise Died
        if self._process.away or self._process.around.store_away:
            raise StoreUnavailable("The store is away.")


class Waited(Future[T]):
    """A future whose result can be waited for, as a thread waits: the others go on meanwhile."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            self._scheduler.wait(self.done)
        return super().result(0)


class SimulatedQueue:
    """The commit queue: groups of drawn sizes, answers that come late, or not at all."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._scheduler = process.around.scheduler
        self._committer = process.journal.committer()
        self._units: list[tuple[Unit, Future[Answer]]] = []
        self._tasks: list[tuple[Callable[[Committer], Any], Future[Any]]] = []
        self._coming = False

    def submit(self, unit: Unit) -> Future[Answer]:
        future: Future[Answer] = Waited(self._scheduler)
        self._units.append((unit, future))
        self._come()
        return future

    def submit_soon(self, unit: Unit) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Answer] = loop.create_future()

        def answered(future: Future[Answer]) -> None:
            loop.call_soon_threadsafe(_tell, told, future)

        self.submit(unit).add_done_callback(answered)
        return told

    def run(self, work: Callable[[Committer], T]) -> Future[T]:
        future: Future[T] = Waited(self._scheduler)
        self._tasks.append((work, future))
        self._come()
        return future

    def left(self) -> list[Unit]:
        """Return the units that nobody has committed."""
        return [unit for unit, _ in self._units]

    def _come(self) -> None:
        if self._process.dead:
            raise Died
        if not self._coming:
            self._coming = True
            pause = self._scheduler.chance.random() ** 4 * 0.05
            self._scheduler.after(pause, self._process.threads, self._turn)

    def _turn(self) -> None:
        self._coming = False
        tasks, self._tasks = self._tasks, []
        for work, future in tasks:
            if future.set_running_or_notify_cancel():
                self._do(work, future)
        if self._units:
            self._commit()
        if self._units:
            self._come()

    def _do(self, work: Callable[[Committer], Any], future: Future[Any]) -> None:
        try:
            result = work(self._committer)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _commit(self) -> None:
        size = 1 + int(self._scheduler.chance.random() ** 2 * 8)
        chosen, _ = next_group([unit for unit, _ in self._units], size)
        wanted = set(map(id, chosen))
        group = [pair for pair in self._units if id(pair[0]) in wanted]
        self._units = [pair for pair in self._units if id(pair[0]) not in wanted]
        group = [pair for pair in group if pair[1].set_running_or_notify_cancel()]
        if not group:
            return
        units = [unit for unit, _ in group]
        fate = self._process.around.fate(len(units))
        answers: list[Answer] | None = None
        if fate == "busy":
            answers = [*[Busy("a row")] * len(units)]
        elif fate != "away":
            try:
                answers = self._committer.commit(units)
            except StoreUnavailable:
                answers = None
            self._process.around.committed(self._process)
        if fate == "lost":
            answers = None
        pause = self._scheduler.chance.random() ** 6 * 0.1
        self._scheduler.after(pause, self._process.threads, _answer, group, answers)


def _answer(group: list[tuple[Unit, Future[Answer]]], answers: list[Answer] | None) -> None:
    for number, (_, future) in enumerate(group):
        if answers is None:
            future.set_exception(StoreUnavailable("The answer to the commit did not come."))
        else:
            future.set_result(answers[number])


def _tell(told: asyncio.Future[Answer], future: Future[Answer]) -> None:
    if told.done():
        return  # who waited was cancelled
    error = future.exception()
    if error is None:
        told.set_result(future.result())
    else:
        told.set_exception(error)


class Process:
    """One process with its own clock, connection, queue, and application."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        kinds: Iterable[Kind[Any]],
        installation: Installation,
        notifier: Notifier,
    ) -> None:
        self.name = name
        self.around = around
        scheduler = around.scheduler
        self.dead = self.away = False
        self.main = Strand(name, self)
        self.threads = Strand(f"{name} threads", self)
        scheduler.begin(self.main)
        scheduler.begin(self.threads)
        self.loop = SimulatedLoop(scheduler, self.main, self.threads)
        self.clock = SimulatedClock(scheduler, scheduler.chance.random() * 0.4)
        self.journal = SimulatedJournal(self, around.store, installation)
        self.queue = SimulatedQueue(self)
        keys = DerivedKeys(installation.secret)
        self.ledger = Ledger(self.journal, self.queue, EventMapper(keys), self.clock)
        declared = Kinds.of(kinds)
        desk = Desk(declared, self.clock, installation.secret, self._execute)
        joiner = Joiner(desk, self.ledger)
        self.operations = Operations(self.ledger, declared, keys, installation, joiner)
        self._served = (*declared.routes, EVIDENCE)
        self._managers: list[ProcessManager] = [
            Dispatcher(desk),
            Reconciler(desk),
            Expiry(),
            Escalation(desk, notifier),
            joiner,
        ]
        self.worker: Worker | None = None

    @property
    def frozen(self) -> bool:
        """Whether its loop stands still."""
        return self.main.frozen

    @property
    def epoch(self) -> int | None:
        """Its place among the workers, where it has one."""
        memberships = self.journal.memberships
        return memberships[-1].epoch if memberships else None

    @property
    def reachable(self) -> bool:
        """Whether it lives, turns, and has the store at hand."""
        return not (self.dead or self.frozen or self.away or self.around.store_away)

    @property
    def full(self) -> bool:
        """Whether its worker has as many streams in work as it takes."""
        worker = self.worker
        return worker is None or len(vars(worker)["_tasks"]) >= worker.settings.concurrency

    def lease_goes_on(self, seconds: float) -> None:
        """Keep its lease over a time that was skipped, in which its heart would have renewed it."""
        tables = self.around.store.tables
        place = tables.workers.get(self.epoch or 0)
        if place is not None and place.lease_until > self.around.scheduler.now - seconds:
            place.lease_until += seconds

    def work(
        self,
        lease_seconds: float,
        concurrency: int,
        ended: Callable[[Process, BaseException | None], None],
    ) -> None:
        """Begin to work; `ended` hears of the end."""
        settings = WorkerSettings(
            self.name, concurrency, lease_seconds, IDLE_SECONDS, 2.0, self._served
        )
        self.worker = Worker(self.ledger, self._managers, settings)

        def tell(task: asyncio.Task[None]) -> None:
            self.around.scheduler.soon(self.around.world, ended, self, task.exception())

        def begin() -> None:
            assert self.worker is not None
            self.loop.create_task(self.worker.run()).add_done_callback(tell)

        self.around.scheduler.soon(self.main, begin)

    def thread(self, function: Callable[[], None]) -> None:
        """Run a function on a thread of this process."""
        SimulatedThread(function, self).start()

    def kill(self) -> None:
        """End it where it is. The system lets go of its locks; nothing else is said to anybody."""
        self.dead = True
        scheduler = self.around.scheduler
        scheduler.end(self.main)
        scheduler.end(self.threads)
        for membership in self.journal.memberships:
            membership.close()

    def freeze(self, *, wholly: bool) -> None:
        """Let its loop stand still, and its threads too where that is said."""
        self.main.frozen = True
        self.threads.frozen = wholly

    def stop(self) -> None:
        """Ask it to drain and end."""
        if self.worker is not None:
            self.around.scheduler.soon(self.main, self.worker.stop)

    def thaw(self) -> None:
        """Let it go on."""
        self.main.frozen = self.threads.frozen = False

    def _execute(self, operation: Operation, command: Callable[[Operation], None]) -> None:
        self.ledger.execute(operation.tenant, operation.id, command, NotFound)


class SimulatedThread:
    """What stands in the place of `threading.Thread`: a callback that may wait."""

    def __init__(self, target: Callable[[], None], process: Process) -> None:
        self._target = target
        self._process = process

    def start(self) -> None:
        """Begin, a drawn while later."""
        scheduler = self._process.around.scheduler
        scheduler.after(scheduler.chance.random() ** 6 * 0.1, self._process.threads, self._run)

    def _run(self) -> None:
        scheduler = self._process.around.scheduler
        if scheduler.depth >= DEEPEST:
            scheduler.after(0.01, self._process.threads, self._run)
        else:
            self._target()


class SimulatedHeart(Heart):
    """The heart without its thread: the scheduler lets it beat."""

    def __init__(self, process: Process, *given: Any) -> None:
        super().__init__(*given)
        self._process = process

    def start(self) -> None:
        scheduler = self._process.around.scheduler
        ring_at = scheduler.now + self.pause_seconds
        scheduler.at(ring_at, self._process.threads, self._turn, idle=True)

    def stop(self) -> None:
        self._ended.set()

    def _turn(self) -> None:
        if not self._ended.is_set() and not self.lost.is_set():
            self.beat()
            self.start()


@contextmanager
def threadless(scheduler: Scheduler, hook: faults.Hook) -> Generator[None]:
    """Let the processes' modules find the scheduler where they look for threads and for sleep."""

    def here() -> Process:
        assert scheduler.strand is not None
        process = scheduler.strand.of
        assert isinstance(process, Process)
        return process

    def thread(target: Callable[[], None], name: str = "", daemon: bool = True) -> SimulatedThread:
        return SimulatedThread(target, here())

    def heart(*given: Any) -> SimulatedHeart:
        return SimulatedHeart(here(), *given)

    def sleep(seconds: float) -> None:
        until = scheduler.now + seconds
        scheduler.at(until, Strand("nobody"), lambda: None)
        scheduler.wait(lambda: scheduler.now >= until)

    stand_ins: list[tuple[Any, str, Any]] = [
        (blocking, "threading", SimpleNamespace(Thread=thread)),
        (operations, "threading", SimpleNamespace(Thread=thread)),
        (operations, "time", SimpleNamespace(sleep=sleep)),
        (worker, "Heart", heart),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in stand_ins]
    try:
        for module, name, value in stand_ins:
            setattr(module, name, value)
        faults.set_hook(hook)
        yield
    finally:
        faults.set_hook(None)
        for module, name, value in before:
            setattr(module, name, value)
