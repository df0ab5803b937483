"""The commit queue: many callers, one committer, groups as large as what waits just then.

No group is held back to fill up: under light load a unit is committed alone and at once, under
heavy load the units that came in during one commit share the next.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from settled.domain.errors import StoreUnavailable
from settled.domain.journal.judge import next_group
from settled.domain.journal.port import Committer
from settled.domain.journal.unit import Answer, Busy, Unit
from settled.infrastructure.clock import chance

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
    future: Future[Answer]
    streams: frozenset[UUID]
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
        waiting = _Waiting(unit, Future(), frozenset(change.stream for change in unit.changes))
        with self._changed:
            self._refuse_when_closed()
            self._units.append(waiting)
            self._changed.notify()
        return waiting.future

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
            if waiting.tries or waiting.future.set_running_or_notify_cancel():
                waiting.give_up_at = waiting.give_up_at or now + BUSY_PATIENCE_SECONDS
                live.append(waiting)
        if not live:
            return
        try:
            answers = self._commit_patiently([waiting.unit for waiting in live])
        except Exception as error:  # whatever it is, the callers have to hear of it
            for waiting in live:
                waiting.future.set_exception(error)
            return
        self.groups += 1
        busy: list[_Waiting] = []
        for waiting, answer in zip(live, answers, strict=True):
            if isinstance(answer, Busy) and time.monotonic() < waiting.give_up_at:
                busy.append(waiting)
            else:
                self.units += 1
                waiting.future.set_result(answer)
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


def _complete(task: _Task, committer: Committer) -> None:
    if not task.future.set_running_or_notify_cancel():
        return
    try:
        result = task.work(committer)
    except Exception as error:  # the caller gets it, whatever it is
        task.future.set_exception(error)
    else:
        task.future.set_result(result)
