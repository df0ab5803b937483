"""Time and turns of the simulation: one thread, a queue of callbacks, and a clock that jumps.

Everything that runs is a callback on a *strand*: the event loop of a process, its threads, or the
world outside. Callbacks of one strand that are ready run in their order, as asyncio promises; which
strand has the next turn is drawn from the seed, and so is which of two timers rings first that ring
at the same moment. Time moves only when nothing is ready, and then to the next timer.

What a worker does only to pass the time (look at an empty agenda, renew its lease) is *idle*. While
nothing else is due, the scheduler skips those turns: they would change nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

INFINITY = float("inf")

DEEPEST = 6
"""How many threads may wait inside each other. See `Scheduler.wait`."""


class Died(BaseException):
    """Raised in whatever a dead process still tries to do."""


class Stuck(Exception):
    """Nothing is left to run, and somebody waits."""


class Strand:
    """A sequence of callbacks that run one after the other.

    `of` is what it belongs to: a process, or None for the world. A frozen strand keeps what becomes
    ready until it thaws; a dead one never runs again.
    """

    def __init__(self, name: str, of: Any = None) -> None:
        self.name = name
        self.of = of
        self.ready: deque[Handle] = deque()
        self.frozen = False
        self.dead = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop whose callbacks these are; None for threads."""


class Handle(asyncio.TimerHandle):
    """A callback that will run, unless it is cancelled."""

    __slots__ = ("arguments", "call", "idle", "off", "ring_at", "strand", "within")

    def __init__(
        self,
        strand: Strand,
        call: Callable[..., object],
        arguments: tuple[Any, ...],
        within: Context | None = None,
        ring_at: float = 0.0,
        idle: bool = False,
    ) -> None:
        self.strand = strand
        self.call = call
        self.arguments = arguments
        self.within = within
        self.ring_at = ring_at
        self.idle = idle
        self.off = False

    def cancel(self) -> None:
        """Keep the callback from running."""
        self.off = True

    def cancelled(self) -> bool:
        """Say whether it was cancelled."""
        return self.off

    def when(self) -> float:
        """Return the moment at which it becomes ready."""
        return self.ring_at


_Timers = list[tuple[float, float, int, Handle]]


class Scheduler:
    """Runs callbacks by seeded turns on simulated time. `now` is in seconds since the beginning."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now = 0.0
        self.steps = 0
        self.depth = 0
        self.strand: Strand | None = None
        """Whose callback runs just now."""
        self.between: Callable[[], None] = _nothing
        """Called before the step `between_from`: here anything may happen to anybody."""
        self.between_from = INFINITY
        self.when_idle: Callable[[], None] = _nothing
        """Called when an idle turn is next, from `look_again_at` on; may `skip`."""
        self.look_again_at = 0.0
        self._strands: list[Strand] = []
        self._timers: _Timers = []
        self._idle: _Timers = []
        self._skipped = 0.0
        self._count = 0

    def begin(self, strand: Strand) -> None:
        """Give a strand its turns."""
        self._strands.append(strand)

    def end(self, strand: Strand) -> None:
        """Take a strand's turns away for good."""
        strand.dead = True
        strand.ready.clear()
        if strand in self._strands:
            self._strands.remove(strand)

    def soon(
        self,
        strand: Strand,
        call: Callable[..., object],
        *arguments: Any,
        within: Context | None = None,
    ) -> Handle:
        """Make a callback ready; a dead strand takes none."""
        handle = Handle(strand, call, arguments, within, self.now)
        if not strand.dead:
            strand.ready.append(handle)
        return handle

    def at(
        self,
        moment: float,
        strand: Strand,
        call: Callable[..., object],
        *arguments: Any,
        within: Context | None = None,
        idle: bool = False,
    ) -> Handle:
        """Make a callback ready at a moment."""
        handle = Handle(strand, call, arguments, within, moment, idle)
        if not strand.dead:
            self._count += 1
            timers, shift = (self._idle, self._skipped) if idle else (self._timers, 0.0)
            tie = self.chance.random()
            heapq.heappush(timers, (max(moment, self.now) - shift, tie, self._count, handle))
        return handle

    def after(self, seconds: float, strand: Strand, call: Callable[..., object], *a: Any) -> Handle:
        """Make a callback ready after some time."""
        return self.at(self.now + seconds, strand, call, *a)

    def next_timer(self) -> float:
        """Return when the next timer rings that is not idle."""
        return _first(self._timers)

    def rest(self) -> None:
        """Let nobody have a turn any more."""
        self._turn(None)

    def skip(self, seconds: float) -> None:
        """Let time pass in which every idle turn would have changed nothing."""
        self.now += seconds
        self._skipped += seconds

    def step(self) -> bool:
        """Run one callback; False when there is none."""
        self.steps += 1
        if self.steps >= self.between_from:
            self.between()
        runnable = [s for s in self._strands if s.ready and not s.frozen]
        if runnable:
            turn = int(self.chance.random() * len(runnable)) if len(runnable) > 1 else 0
            handle = runnable[turn].ready.popleft()
        else:
            found = self._ring()
            if found is None:
                return False
            handle = found
        if not handle.off:
            self._run(handle)
        return True

    def wait(self, done: Callable[[], bool]) -> None:
        """Let everything else go on until something is done; for threads that block.

        The caller's callback stands still meanwhile. Threads wait inside each other, so that the
        last one to begin waiting goes on first: one of the orders that may happen.
        """
        strand = self.strand
        assert strand is not None and strand.loop is None, "an event loop must not block"
        self.depth += 1
        try:
            while not done() or (strand.frozen and not strand.dead):
                if strand.dead:
                    raise Died
                if not self.step():
                    raise Stuck
        finally:
            self.depth -= 1
            self._turn(strand)
        if strand.dead:
            raise Died

    def _ring(self) -> Handle | None:
        """Return the next timer's callback, with time moved to it; None when there is none."""
        while True:
            busy, idle = _first(self._timers), _first(self._idle) + self._skipped
            if idle <= busy and idle < INFINITY and self.now >= self.look_again_at:
                self.when_idle()
                busy, idle = _first(self._timers), _first(self._idle) + self._skipped
            if busy == INFINITY == idle:
                return None
            *_, handle = heapq.heappop(self._timers if busy < idle else self._idle)
            if handle.off or handle.strand.dead:
                continue
            self.now = max(self.now, min(busy, idle))
            if not handle.strand.frozen:
                return handle
            handle.strand.ready.append(handle)

    def _run(self, handle: Handle) -> None:
        self._turn(handle.strand)
        try:
            if handle.within is not None:
                handle.within.run(handle.call, *handle.arguments)
            else:
                handle.call(*handle.arguments)
        except Died:
            assert handle.strand.dead, "only a dead process raises Died"

    def _turn(self, strand: Strand | None) -> None:
        """Say whose turn it is, to asyncio too."""
        if strand is not self.strand:
            self.strand = strand
            asyncio.events._set_running_loop(strand.loop if strand is not None else None)


def _first(timers: _Timers) -> float:
    """Return when the first timer rings that is still on."""
    while timers:
        moment, _, _, handle = timers[0]
        if not (handle.off or handle.strand.dead):
            return moment
        heapq.heappop(timers)
    return INFINITY


def _nothing() -> None:
    """Do nothing."""
