"""The commit queue: many callers, one committer, groups as large as what waits just then.

No group is held back to fill up: under light load a unit is committed alone and at once, under
heavy load the units that came in during one commit share the next.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from settled.domain.errors import StoreUnavailable
from settled.domain.journal.judge import next_group
from settled.domain.journal.port import Committer
from settled.domain.journal.unit import Answer, Busy, Unit
from settled.infrastructure.clock import chance
from settled.processes.log import logger

GROUP_SIZE = 200
BUSY_PATIENCE_SECONDS = 10.0
"""How long a unit is tried again while somebody else holds what it needs."""

STORE_PATIENCE_SECONDS = 30.0
"""How long a store that cannot be reached is tried again with the very same units."""

_LOOKED_AT = 4 * GROUP_SIZE
_FIRST_PAUSE_SECONDS = 0.005
_LAST_PAUSE_SECONDS = 0.2

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Waiting:
    unit: Unit
    future: Future[Answer] | asyncio.Future[Answer]
    streams: frozenset[UUID]
    loop: asyncio.AbstractEventLoop | None = None
    """Whose future it is; None for one that a thread waits for."""
    give_up_at: float = 0.0
    not_before: float = 0.0
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Task:
    work: Callable[[Committer], Any]
    future: Future[Any]


class CommitQueue:
    """A thread that owns a committer. Everything else here may be called from any thread.

    `groups` and `units` count what was committed or refused in how many transactions.
    """

    def __init__(
        self, committer: Committer, *, store_patience_seconds: float = STORE_PATIENCE_SECONDS
    ) -> None:
        self._committer = committer
        self._store_patience_seconds = store_patience_seconds
        self._changed = threading.Condition()
        self._units: deque[_Waiting] = deque()
        self._tasks: deque[_Task] = deque()
        self._soon: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        self._closing = False
        self.groups = 0
        self.units = 0
        self._thread = threading.Thread(target=self._run, name="settled-commit", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> Future[Answer]:
        """Queue a unit. Its future gets the answer, or the StoreError that prevented one.

        After StoreUnavailable it is not known whether the unit is in; the same unit, submitted
        again, tells. Busy is answered only when what it needs was held for too long.
        """
        future: Future[Answer] = Future()
        self._add([_Waiting(unit, future, _streams(unit))])
        return future

    def submit_soon(self, unit: Unit) -> asyncio.Future[Answer]:
        """Queue a unit from a loop, together with all others of this turn of the loop.

        As `submit`, for a future of the running loop: a loop that carries hundreds of streams
        hands their units over at once, and hears of a whole group at once.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        batch = self._soon.get(loop)
        if batch is None:
            for ended in [other for other in self._soon if other.is_closed()]:
                del self._soon[ended]  # closed before its turn was over: nobody waits in it
            batch = self._soon[loop] = []
            loop.call_soon(self._hand_over, loop)
        batch.append(_Waiting(unit, future, _streams(unit), loop))
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._soon.pop(loop)
        try:
            self._add(batch)
        except StoreUnavailable as error:
            _tell([(waiting.future, error) for waiting in batch])

    def _add(self, batch: Sequence[_Waiting]) -> None:
        with self._changed:
            self._refuse_when_closed()
            self._units.extend(batch)
            self._changed.notify()

    def run(self, work: Callable[[Committer], T]) -> Future[T]:
        """Run a function, such as a claim, in the committer's thread, between two groups."""
        future: Future[T] = Future()
        with self._changed:
            self._refuse_when_closed()
            self._tasks.append(_Task(work, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Answer everything that waits, then end the thread and close the committer."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise StoreUnavailable("The commit queue was closed.", hint="Open the store again.")

    def _run(self) -> None:
        try:
            while True:
                tasks, group = self._next()
                if not tasks and not group:
                    return
                for task in tasks:
                    _complete(task, self._committer)
                if group:
                    self._commit(group)
        finally:
            self._committer.close()

    def _next(self) -> tuple[list[_Task], list[_Waiting]]:
        """Wait for something to do; nothing at all means the end."""
        with self._changed:
            while True:
                now = time.monotonic()
                tasks = list(self._tasks)
                self._tasks.clear()
                group = self._take_group(now)
                if tasks or group or (self._closing and not self._units):
                    return tasks, group
                pauses = (w.not_before for w in self._units if w.not_before > now)
                wake_at = min(pauses, default=None)
                self._changed.wait(None if wake_at is None else max(0.0, wake_at - now))

    def _take_group(self, now: float) -> list[_Waiting]:
        """Take the next group off the queue; units on one stream never overtake each other."""
        looked_at = [self._units.popleft() for _ in range(min(_LOOKED_AT, len(self._units)))]
        held: set[UUID] = set()
        ready: list[_Waiting] = []
        for waiting in looked_at:
            if waiting.not_before > now or not held.isdisjoint(waiting.streams):
                held |= waiting.streams
            else:
                ready.append(waiting)
        chosen, _ = next_group([waiting.unit for waiting in ready], GROUP_SIZE)
        group: list[_Waiting] = []
        for waiting in ready:
            if len(group) < len(chosen) and waiting.unit is chosen[len(group)]:
                group.append(waiting)
        taken = set(map(id, group))
        self._units.extendleft(w for w in reversed(looked_at) if id(w) not in taken)
        return group

    def _commit(self, group: Sequence[_Waiting]) -> None:
        now = time.monotonic()
        live: list[_Waiting] = []
        for waiting in group:
            if waiting.tries or _is_wanted(waiting.future):
                waiting.give_up_at = waiting.give_up_at or now + BUSY_PATIENCE_SECONDS
                live.append(waiting)
        if not live:
            return
        try:
            answers = self._commit_patiently([waiting.unit for waiting in live])
        except Exception as error:  # whatever it is, the callers have to hear of it
            _deliver((waiting, error) for waiting in live)
            return
        self.groups += 1
        busy: list[_Waiting] = []
        answered: list[tuple[_Waiting, Answer]] = []
        for waiting, answer in zip(live, answers, strict=True):
            if isinstance(answer, Busy) and time.monotonic() < waiting.give_up_at:
                busy.append(waiting)
            else:
                answered.append((waiting, answer))
        self.units += len(answered)
        _deliver(answered)
        if busy:
            self._put_back(busy)

    def _put_back(self, busy: Sequence[_Waiting]) -> None:
        """Try busy units again after a random pause that grows, so that rivals fall out of step."""
        for waiting in busy:
            waiting.tries += 1
            longest = min(_LAST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(waiting.tries, 9))
            waiting.not_before = time.monotonic() + chance() * longest
        with self._changed:
            self._units.extendleft(reversed(busy))

    def _commit_patiently(self, units: Sequence[Unit]) -> list[Answer]:
        give_up_at = time.monotonic() + self._store_patience_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._committer.commit(units)
            except StoreUnavailable:
                if time.monotonic() + pause_seconds >= give_up_at:
                    raise
            time.sleep(pause_seconds)
            pause_seconds = min(_LAST_PAUSE_SECONDS, pause_seconds * 2)


def _streams(unit: Unit) -> frozenset[UUID]:
    return frozenset([change.stream for change in unit.changes])


def _is_wanted(future: Future[Answer] | asyncio.Future[Answer]) -> bool:
    """Tell whether a unit shall still be committed: a thread may have given it up meanwhile.

    One that a loop has submitted is committed even if its waiter was cancelled, as it would have
    been a moment later.
    """
    return not isinstance(future, Future) or future.set_running_or_notify_cancel()


Told = tuple["Future[Answer] | asyncio.Future[Answer]", "Answer | Exception"]


def _deliver(answered: Iterable[tuple[_Waiting, Answer | Exception]]) -> None:
    """Give the answers of a group to who waits: to each loop all of its own in one call."""
    here: list[Told] = []
    elsewhere: dict[asyncio.AbstractEventLoop, list[Told]] = {}
    for waiting, answer in answered:
        told = here if waiting.loop is None else elsewhere.setdefault(waiting.loop, [])
        told.append((waiting.future, answer))
    _tell(here)
    for loop, told in elsewhere.items():
        try:
            loop.call_soon_threadsafe(_tell, told)
        except RuntimeError:  # the loop is closed, and nobody waits in it any more
            logger("settled.queue").debug("answers_unheard", units=len(told))


def _tell(told: Iterable[Told]) -> None:
    for future, answer in told:
        if future.done():
            continue  # who waited in the loop was cancelled
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _complete(task: _Task, committer: Committer) -> None:
    if not task.future.set_running_or_notify_cancel():
        return
    try:
        result = task.work(committer)
    except Exception as error:  # the caller gets it, whatever it is
        task.future.set_exception(error)
    else:
        task.future.set_result(result)
