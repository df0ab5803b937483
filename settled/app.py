"""Wiring: from a URL and declared kinds to a running application."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from settled.budgets import Budgets
from settled.domain.errors import NotFound
from settled.domain.inbox import KIND as EVIDENCE
from settled.domain.journal.mapper import EventMapper
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.notifier import Notifier
from settled.domain.operation.operation import Operation
from settled.domain.run.kind import RunKind
from settled.infrastructure.clock import StoreClock
from settled.infrastructure.journal.copies import refuse_to_work
from settled.infrastructure.journal.opening import is_sqlite, open_journal
from settled.infrastructure.journal.queue import CommitQueue
from settled.infrastructure.notify import LogNotifier
from settled.infrastructure.views.opening import open_views
from settled.operations import Operations
from settled.processes.dispatcher import Dispatcher
from settled.processes.escalation import Escalation
from settled.processes.expiry import Expiry
from settled.processes.joiner import Joiner
from settled.processes.ledger import Ledger
from settled.processes.log import logger
from settled.processes.manager import ProcessManager
from settled.processes.operations import Desk
from settled.processes.reconciler import Reconciler
from settled.processes.runs import RunManager
from settled.processes.unserved import must_be_served
from settled.processes.wakeups import WakeUps
from settled.processes.worker import Worker, WorkerSettings
from settled.projections.operations_view import OperationsView
from settled.projections.projector import Projector
from settled.projections.runs import RunsView
from settled.runs import RunActs, Runs, run_kinds

Managers = Callable[[Ledger], Sequence[ProcessManager]]


class App:
    """An open store with its declared kinds. Close it, or use it in a `with` block."""

    def __init__(
        self,
        url: str,
        *,
        kinds: Iterable[Kind[Any]] = (),
        runs: Iterable[RunKind] = (),
        machines: Iterable[str] = (),
        managers: Managers | None = None,
        notifier: Notifier | None = None,
        migrate: bool | None = None,
        require_fsync: bool = True,
    ) -> None:
        """Open the store. See `settled.open`."""
        self.kinds = Kinds.of(kinds)
        self.run_kinds = run_kinds(runs, taken=self.kinds.by_name)
        self._url = url
        self.journal = open_journal(
            url,
            migrate=is_sqlite(url) if migrate is None else migrate,
            require_fsync=require_fsync,
        )
        installation = self.journal.installation()
        self.installation = installation
        self.clock = StoreClock(self.journal.time)
        keys = DerivedKeys(installation.secret)
        self.queue = CommitQueue(self.journal.committer())
        self.ledger = Ledger(self.journal, self.queue, EventMapper(keys), self.clock)
        desk = Desk(self.kinds, self.clock, installation.secret, self._execute)
        joiner = Joiner(desk, self.ledger)
        self.operations = Operations(self.ledger, self.kinds, keys, installation, joiner)
        self.budgets = Budgets(self.ledger, self.projector)
        self.runs = Runs(self.ledger, self.run_kinds, self.operations)
        self._wakeups = WakeUps(self.ledger)
        self.ledger.committed = self._wakeups.committed if self.run_kinds else None
        self._managers: list[ProcessManager] = [
            Dispatcher(desk),
            Reconciler(desk),
            Expiry(),
            Escalation(desk, notifier or LogNotifier()),
            joiner,
            RunManager(self.run_kinds, self.ledger, RunActs(self.operations)),
            *(managers(self.ledger) if managers else ()),
        ]
        self.served = (*self.kinds.routes, EVIDENCE, *self.run_kinds, *machines)
        self._background: BackgroundWorker | None = None
        self._projector: Projector | None = None
        self._mutex = threading.Lock()

    def _execute(self, operation: Operation, command: Callable[[Operation], None]) -> None:
        self.ledger.execute(operation.tenant, operation.id, command, NotFound)

    def worker(self, settings: WorkerSettings) -> Worker:
        """Return a worker for this application's kinds, to be run in an asyncio loop.

        Raises InstallationChanged for a copy that `settled import` made: nothing dispatches there.
        Raises UnknownKind where something is open in a kind or version that is not declared here
        and that no running worker serves, unless the settings leave it to others.
        """
        refuse_to_work(self.installation.copy_of)
        if not settings.leave_to_others:
            must_be_served(self.journal, self.served)
        return Worker(
            self.ledger,
            self._managers,
            replace(settings, kinds=settings.kinds or self.served),
        )

    def start_worker(self, settings: WorkerSettings | None = None) -> None:
        """Run a worker on a thread of this process until the application is closed."""
        if self._background is None:
            settings = settings or WorkerSettings(name="embedded")
            background = BackgroundWorker(lambda: self.worker(settings), self._run)
            background.start()
            self._background = background

    def run_worker(self, settings: WorkerSettings | None = None) -> None:
        """Run a worker in this process, on the main thread, until SIGTERM or SIGINT.

        The first of them lets running calls end; the second ends the process at once.
        """
        asyncio.run(self._work(self.worker(settings or WorkerSettings())))

    async def _work(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)

        def stop() -> None:
            worker.stop()
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)  # whoever asks twice does not want to wait

        for number in numbers:
            loop.add_signal_handler(number, stop)
        await self._run(worker)

    async def _run(self, worker: Worker) -> None:
        """Run a worker to its end, and close what its providers have opened in its loop."""
        try:
            await worker.run()
        finally:
            providers = [kind.provider for kind in self.kinds.versions.values()]
            for provider in {id(one): one for one in providers}.values():
                await _close(provider)

    def projector(self) -> Projector:
        """Return what folds the log into projections, and reads their tables.

        The store of views is made where it is new: beside an SQLite file, or as a schema of its own
        in PostgreSQL, which the role has to be allowed to make.
        """
        with self._mutex:
            if self._projector is None:
                views = open_views(self._url)
                self._projector = Projector(self.journal, self.ledger.mapper, views)
            return self._projector

    @property
    def views(self) -> ReadViews:
        """What can be asked of the views: operations and runs. Raises as `projector` does."""
        projector = self.projector()
        return ReadViews(OperationsView(projector, self.clock), RunsView(projector))

    def close(self) -> None:
        """Drain the worker, if one runs here, and close the store."""
        background, self._background = self._background, None
        try:
            if background is not None:
                background.stop()
        finally:
            self._wakeups.close()
            self.queue.close()
            if self._projector is not None:
                self._projector.views.close()
            self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ReadViews:
    """The views that settled brings with it. Somebody has to run their projections."""

    operations: OperationsView
    runs: RunsView


async def _close(provider: object) -> None:
    """Close what a provider has open, where it says how; its trouble with that is only told."""
    close: Callable[[], object] | None = getattr(provider, "aclose", None)
    if close is None:
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except Exception as error:
        logger("settled.worker").warning("provider_not_closed", error=repr(error))


class BackgroundWorker(threading.Thread):
    """A worker with a loop of its own, on a thread."""

    def __init__(
        self, make: Callable[[], Worker], run_worker: Callable[[Worker], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(name="settled-worker", daemon=True)
        self._make = make
        self._run_worker = run_worker
        self._loop = asyncio.new_event_loop()
        self._worker: Worker | None = None
        self._enrolled = threading.Event()
        self._failed: BaseException | None = None

    def start(self) -> None:
        """Start, and return once the worker is enrolled; raises what kept it from that."""
        super().start()
        self._enrolled.wait()
        if self._failed is not None:
            raise self._failed

    def run(self) -> None:
        """Run the worker to its end; what ended it is logged, and raised by `stop`."""
        try:
            self._loop.run_until_complete(self._work())
        except Exception as error:
            self._failed = error
            if self._enrolled.is_set():
                logger("settled.worker").exception("embedded_worker_ended")
        finally:
            self._enrolled.set()
            self._loop.close()

    async def _work(self) -> None:
        self._worker = self._make()
        working = asyncio.ensure_future(self._run_worker(self._worker))
        enrolling = asyncio.ensure_future(self._worker.enrolled.wait())
        await asyncio.wait({working, enrolling}, return_when=asyncio.FIRST_COMPLETED)
        enrolling.cancel()
        if not working.done():
            self._enrolled.set()
        await working

    def stop(self) -> None:
        """Drain and end; raises what the worker failed with."""
        if self.is_alive() and self._worker is not None:
            with suppress(RuntimeError):  # the loop is closed: the worker has ended by itself
                self._loop.call_soon_threadsafe(self._worker.stop)
        self.join()
        if self._failed is not None:
            raise self._failed


def open(
    url: str,
    *,
    kinds: Iterable[Kind[Any]] = (),
    worker: bool = False,
    runs: Iterable[RunKind] = (),
    machines: Iterable[str] = (),
    managers: Managers | None = None,
    notifier: Notifier | None = None,
    migrate: bool | None = None,
    require_fsync: bool = True,
) -> App:
    """Open a store and wire the application around it.

    `url` is sqlite:///file.db or postgresql://…; `kinds` are the declared kinds, and with
    `worker=True` a worker for them runs on a thread of this process. `runs` are the declared run
    kinds. `machines` names the kinds of
    your own state machines, `managers` makes their process managers from the ledger. `migrate`
    brings the tables up to this version first; by default that is done for SQLite, and left to
    `settled migrate` for PostgreSQL. `require_fsync=False` takes a PostgreSQL server that may lose
    commits: one that is thrown away after a test.

    Raises InvalidStoreUrl, StoreUnavailable, StoreNotMigrated, StoreTooNew, UnknownKind.
    """
    app = App(
        url,
        kinds=kinds,
        runs=runs,
        machines=machines,
        managers=managers,
        notifier=notifier,
        migrate=migrate,
        require_fsync=require_fsync,
    )
    if worker:
        app.start_worker()
    return app
