"""The event loop of a simulated process: asyncio's tasks and futures on the scheduler's time.

Only what the processes use is there; anything else fails loudly. A function that is given to a
thread runs as a callback of the process's threads, a drawn while later, and may wait there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import CodeType
from typing import Any, TypeVar, cast

from settled.processes import worker
from tests.simulation.scheduler import DEEPEST, Died, Handle, Scheduler, Strand

T = TypeVar("T")

IDLE_SECONDS = 1.0
"""The longest pause between two looks of an idle worker."""

_IDLE: frozenset[CodeType] = frozenset({worker.Worker.run.__code__, vars(worker)["_beat"].__code__})
"""The tasks whose short pauses only pass the time."""


class SimulatedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory."""

    def __init__(self, number: int, coro: Any, loop: SimulatedLoop, **named: Any) -> None:
        self._number = number
        super().__init__(coro, loop=loop.port, **named)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop:
    """One process's event loop: what asyncio's own tasks, futures and functions ask of one."""

    def __init__(self, scheduler: Scheduler, strand: Strand, threads: Strand) -> None:
        self._scheduler = scheduler
        self._strand = strand
        self._threads = threads
        self._count = 0
        self.tasks: list[SimulatedTask] = []
        strand.loop = self.port

    @property
    def port(self) -> asyncio.AbstractEventLoop:
        """Itself, for asyncio, which asks for nothing else."""
        return cast(asyncio.AbstractEventLoop, self)

    def time(self) -> float:
        return self._scheduler.now

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self._strand.dead

    def is_running(self) -> bool:
        return True

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self._scheduler.soon(self._strand, callback, *args, within=context)

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        return self.call_at(self._scheduler.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        idle = when - self._scheduler.now < IDLE_SECONDS + 0.001 and self._in_idle_task()
        return self._scheduler.at(when, self._strand, callback, *args, within=context, idle=idle)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.port)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._count += 1
        if self._count % 64 == 0:
            self.tasks = [task for task in self.tasks if not task.done()]
        task = SimulatedTask(self._count, coro, self, name=name or "task", context=context)
        self.tasks.append(task)
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if self._scheduler.depth >= DEEPEST:
                self._scheduler.after(0.01, self._threads, run)
                return
            result, error = None, None
            try:
                result = func(*args)
            except Exception as caught:
                error = caught
            self.call_soon(give, result, error)

        def give(result: Any, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._scheduler.after(self._pause(), self._threads, run)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing: an error that nobody asked for any more belongs to who was cut short."""

    def unwind(self) -> None:
        """End the coroutines of a dead process, one after the other, with nothing left to touch."""
        asyncio.events._set_running_loop(self.port)
        try:
            for task in self.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _end(task.get_coro())
        finally:
            asyncio.events._set_running_loop(None)

    def _pause(self) -> float:
        """Return how long a thread takes to begin: mostly nothing, at times long."""
        drawn = self._scheduler.chance.random()
        return drawn**8 * 0.2

    def _in_idle_task(self) -> bool:
        task = asyncio.current_task(self.port)
        return task is not None and getattr(task.get_coro(), "cr_code", None) in _IDLE


def _end(coroutine: Any) -> None:
    """Raise Died wherever a coroutine waits, until it has ended."""
    for _ in range(100):
        try:
            coroutine.throw(Died())
        except (Died, StopIteration, RuntimeError):
            return
    raise AssertionError(f"{coroutine} does not end")
