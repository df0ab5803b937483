"""One history: operations, the people and processes around them, and what goes wrong, by a seed.

    History(72).run()

returns when everything has come to rest; `violations` and `trace` say what happened. The same seed
gives the same trace, to the letter.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from settled.domain.errors import StoreError
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import AgendaRow, Installation
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.money import Money
from settled.domain.notifier import NotDelivered, Notice
from settled.domain.retry import FullJitter
from settled.infrastructure.testing.manual_clock import START
from settled.infrastructure.testing.memory_journal import MemoryJournal
from settled.infrastructure.testing.memory_tables import MemoryStore
from settled.processes.faults import FaultPoint
from tests.simulation.chances import draw
from tests.simulation.contracts import CONDUCTS, Conduct, RefundParams
from tests.simulation.people import People
from tests.simulation.process import Process, SimulatedClock, threadless
from tests.simulation.provider import Effect, Request, SimulatedProvider
from tests.simulation.scheduler import INFINITY, Died, Scheduler, Strand
from tests.simulation.watch import Watch

MOST_STEPS = 400_000
"""A history that has not come to rest after so many steps never does."""

INSTALLATION = Installation(UUID(int=7), b"s" * 32, START, None)


class History:
    """Runs one history. It is what its processes, its provider and its people meet."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = self.chance = Random(seed)
        self.chances = draw(chance)
        self.scheduler = Scheduler(chance)
        self.world = Strand("world")
        self.scheduler.begin(self.world)
        self.store = MemoryStore(SimulatedClock(self.scheduler))
        self.store_away = False
        self.calm = False
        self.over = False
        self.trace: list[str] = []
        self.tally: Counter[str] = Counter()
        self.providers = {
            name: SimulatedProvider(name, CONDUCTS[name], self) for name in self.chances.kinds
        }
        self.kinds = [self._kind(provider) for provider in self.providers.values()]
        self.watch = Watch(self.store, self.providers, self.say)
        self.workers: list[Process] = []
        self.services: list[Process] = []
        self.dead: list[Process] = []
        self.people = People(self)
        self._names = 0
        self._nobody_before = 0.0

    @property
    def violations(self) -> list[str]:
        """What did not hold."""
        return self.watch.violations

    def run(self) -> History:
        """Run until everything has come to rest, or something does not hold."""
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        scheduler = self.scheduler
        scheduler.between, scheduler.when_idle = self._between, self._when_idle
        try:
            with threadless(scheduler, self._reached):
                self._begin()
                while not self.over and not self.violations:
                    if not scheduler.step():
                        self._violated("nothing is left to run")
                    elif scheduler.steps > MOST_STEPS:
                        self._violated(f"not at rest after {MOST_STEPS} steps")
                if not self.violations:
                    self.watch.look_back(EventMapper(DerivedKeys(INSTALLATION.secret)))
        finally:
            scheduler.rest()
            self._bury()
            logging.disable(level)
        return self

    def say(self, what: str) -> None:
        """Write a line of the trace."""
        strand = self.scheduler.strand
        self.trace.append(f"{self.scheduler.now:12.4f} {strand.name if strand else '-':16} {what}")

    def _violated(self, how: str) -> None:
        self.watch.violations.append(how)
        self.say(f"VIOLATED {how}")

    # The beginning.

    def _kind(self, provider: SimulatedProvider) -> Kind[RefundParams]:
        conduct = provider.conduct
        return Kind(
            provider.name,
            RefundParams,
            provider,
            "payments-oncall",
            retry=FullJitter(1, 120, 6),
            within=conduct.within,
            call_timeout=timedelta(seconds=10),
            approvers=conduct.approvers,
            decide_within=timedelta(minutes=30),
            second_owner="head-of-payments",
            revalidate=self._revalidate if self.chance.random() < 0.3 else None,
        )

    def _begin(self) -> None:
        for _ in range(self.chances.workers):
            self._start_worker()
        for _ in range(self.chances.services):
            self._start_service()
        self.people.begin()
        self._draw_next_fault()
        self.scheduler.after(self.chances.span_seconds, self.world, self._calm_down)

    def _start_worker(self) -> None:
        process = self._process("worker")
        self.workers.append(process)
        process.work(self.chances.lease_seconds, self.chances.concurrency, self._ended)

    def _start_service(self) -> None:
        self.services.append(self._process("service"))

    def _process(self, role: str) -> Process:
        self._names += 1
        return Process(f"{role}-{self._names}", self, self.kinds, INSTALLATION, self)

    def _ended(self, process: Process, error: BaseException | None) -> None:
        """A worker has ended by itself: told to, or because the store was away when it began."""
        if process not in self.workers:
            return  # it was killed in that very moment
        self.say(f"{process.name} ended: {error!r}")
        if error is not None and not isinstance(error, StoreError):
            self._violated(f"{process.name} ended with {error!r}")
        self._lose(process)

    # What the processes meet.

    def fate(self, units: int) -> str:
        """Return what becomes of a commit."""
        fate = "done" if self.calm else self.chances.commit()
        if fate != "done":
            self._count(f"commit {fate}")
        return fate

    def committed(self, process: Process) -> None:
        """Look at what was committed."""
        self.watch.look()

    def plan(self, conduct: Conduct) -> str:
        """Return the fate of a request."""
        plan = "performed" if self.calm else self.chances.plan()
        if plan != "performed":
            self._count(plan)
        return plan

    def lookup_plan(self, conduct: Conduct) -> str:
        """Return the fate of a question."""
        plan = "found" if self.calm else self.chances.lookup_plan()
        if plan != "found":
            self._count(f"look-up {plan}")
        return plan

    def requested(self, process: Process, provider: SimulatedProvider, request: Request) -> None:
        """See a request leave."""
        call = request.call
        self.say(f"{call.identity.operation_id} request {call.attempt}: {request.plan}")
        self.watch.requested(provider, request)

    def happened(self, provider: SimulatedProvider, effect: Effect) -> None:
        """See an object appear or change, and let the provider tell of it."""
        self.say(f"{effect.identity.operation_id} {effect.name} is {effect.status}")
        self.watch.happened(provider, effect)
        self.people.told_by_provider(provider, effect)

    def notify(self, notice: Notice) -> None:
        """Be told of what was handed over; at times nobody is reached."""
        if not self.calm and self.chance.random() < 0.1:
            raise NotDelivered("nobody answers")

    def _revalidate(self, params: RefundParams) -> str | RefundParams | None:
        drawn = self.chance.random()
        if not self.calm and drawn < 0.05:
            raise OSError("the order service is away")
        if 0.96 < drawn <= 0.98:
            return RefundParams(order=params.order, amount=Money("25.00", "USD"))
        return "no longer wanted" if drawn > 0.98 else None

    # What goes wrong.

    def _count(self, fault: str) -> None:
        self.tally[fault] += 1

    def _draw_next_fault(self) -> None:
        mean = self.chances.steps_between_faults
        pause = self.chance.expovariate(1 / mean)
        self.scheduler.between_from = self.scheduler.steps + 1 + pause

    def _between(self) -> None:
        if self.calm:
            self.scheduler.between_from = INFINITY
            return
        self._draw_next_fault()
        fault = self.chances.fault()
        self._count(fault)
        self.say(fault)
        processes = self.services if fault == "kill a service" else self.workers
        if not processes:
            return
        process = processes[int(self.chance.random() * len(processes))]
        seconds = self.chance.random() ** 3 * self.chances.longest_down_seconds
        match fault:
            case "kill a worker" | "kill a service":
                self._kill(process)
            case "kill every worker for long":
                self._nobody_before = self.scheduler.now + self.chance.random() ** 2 * 4000
                for each in list(self.workers):
                    self._kill(each)
            case "freeze a worker" | "freeze a loop":
                self._freeze(process, seconds, wholly=fault == "freeze a worker")
            case "stop a worker":
                process.stop()
            case "cut a process off":
                process.away = True
                self.scheduler.after(min(seconds, 60.0), self.world, self._join_again, process)
            case _:
                self.store_away = True
                self.scheduler.after(min(seconds / 3, 60.0), self.world, self._store_is_back)

    def _reached(self, point: FaultPoint, detail: str) -> None:
        """Die, or stand still, at a fault point."""
        if self.calm:
            return
        chances, drawn = self.chances, self.chance.random()
        if drawn >= chances.dies_at_point + chances.freezes_at_point:
            return
        strand = self.scheduler.strand
        assert strand is not None
        process: Process = strand.of
        if drawn < chances.dies_at_point:
            self._count(f"killed {point}")
            self.say(f"dies {point} {detail}")
            self._kill(process)
            raise Died
        self._count(f"frozen {point}")
        self.say(f"freezes {point} {detail}")
        seconds = self.chance.random() ** 2 * min(self.chances.longest_down_seconds, 60.0)
        self._freeze(process, seconds, wholly=drawn * 1000 % 1 < 0.5)

    def _kill(self, process: Process) -> None:
        left = process.queue.left()
        process.kill()
        self._lose(process)
        for unit in left:
            if self.chance.random() < 0.3:  # it had reached the server
                self._count("commit outlives its process")
                seconds = self.chance.random() ** 2 * 5
                self.scheduler.after(seconds, self.world, self._commit_alone, unit)

    def _commit_alone(self, unit: Any) -> None:
        MemoryJournal(self.store).committer().commit([unit])
        self.watch.look()

    def _lose(self, process: Process) -> None:
        """Forget a process that has ended; another one takes its place after a while."""
        if not process.dead:
            process.kill()
        worker = process in self.workers
        (self.workers if worker else self.services).remove(process)
        self.dead.append(process)
        longest = self.chances.longest_down_seconds if worker else 20.0
        seconds = self.chance.random() ** 3 * longest
        at = self.scheduler.now + seconds
        if worker:
            self.scheduler.at(max(at, self._nobody_before), self.world, self._start_worker)
        else:
            self.scheduler.at(at, self.world, self._start_service)
        self.people.lost(process)

    def _freeze(self, process: Process, seconds: float, *, wholly: bool) -> None:
        process.freeze(wholly=wholly)
        self.scheduler.after(seconds, self.world, process.thaw)

    def _join_again(self, process: Process) -> None:
        process.away = False

    def _store_is_back(self) -> None:
        self.store_away = False

    def _calm_down(self) -> None:
        self.say("from here on nothing goes wrong")
        self.calm = True
        self.store_away = False
        for process in (*self.workers, *self.services):
            process.away = False
            process.thaw()
        self.people.calm_down()

    # The passing of time.

    def _when_idle(self) -> None:
        """Skip to where something may happen; end where nothing will."""
        scheduler = self.scheduler
        horizon = min(scheduler.next_timer(), self._next_due())
        if horizon - scheduler.now <= 0.15:
            scheduler.look_again_at = max(horizon, scheduler.now + 0.05)
        else:
            seconds = horizon - scheduler.now - 0.02
            if horizon == INFINITY or (self.calm and self._at_rest()):
                self.over = True
                return
            scheduler.skip(seconds)
            for process in self.workers:
                if process.reachable:
                    process.lease_goes_on(seconds)

    def _next_due(self) -> float:
        """Return the moment at which a row falls due or a lease that nobody renews ends."""
        now, tables = self.scheduler.now, self.store.tables
        alive = [process for process in self.workers if process.reachable and process.epoch]
        epochs = {process.epoch for process in alive}
        moments = [INFINITY]
        for place in tables.workers.values():
            if place.epoch not in epochs and place.lease_until > now:
                swept_soon = bool(alive) and not place.locked
                moments.append(now if swept_soon else place.lease_until)
        if not all(process.full for process in alive):
            moments += [self._due(row) for row in tables.heads.values()]
        return min(moments)

    def _due(self, row: AgendaRow) -> float:
        if row.due_at is None or row.parked_at is not None:
            return INFINITY
        if row.owner is not None:
            place = self.store.tables.workers.get(row.owner)
            lapsed = place is None or place.lease_until <= self.scheduler.now
            return self.scheduler.now if lapsed else INFINITY
        return (row.due_at - START).total_seconds()

    def _at_rest(self) -> bool:
        """Say whether nobody has anything left to do; people may find something."""
        heads = self.store.tables.heads.values()
        return (
            self.people.are_done()
            and self.scheduler.next_timer() == INFINITY
            and all(row.parked_at is None and self.watch.at_rest(row) for row in heads)
        )

    def _bury(self) -> None:
        """Unwind what the dead have left, now that nothing of it is seen any more."""
        for process in (*self.workers, *self.services):
            process.kill()
            self.dead.append(process)
        for process in self.dead:
            process.loop.unwind()
