"""A provider whose log is the truth: what it was asked, and what it did.

Requests travel, are performed, and are answered on the simulation's time, each step with a fate of
its own: refused, lost on the way, slow, performed after the answer was given up, answered with an
error although it was performed, answered into nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from settled.domain.contract.echo import compare
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import PreExecution
from settled.domain.identity import Identity
from settled.domain.provider import (
    Answered,
    Call,
    Finding,
    Lookup,
    SealedRequest,
    Via,
)
from tests.simulation.contracts import Conduct, RefundParams, receipt_of
from tests.simulation.process import Process
from tests.simulation.scheduler import Scheduler, Strand

_SAID = {
    "pending": Answered.PENDING,
    "succeeded": Answered.PERFORMED,
    "failed": Answered.FAILED,
    "reversed": Answered.REVERSED,
}


@dataclass(eq=False)
class Effect:
    """An object at the provider. `status`: pending, succeeded, failed or reversed."""

    name: str
    key: str
    identity: Identity
    params: RefundParams
    status: str
    seen_from: float

    @property
    def counts(self) -> bool:
        """Whether it is, or will be, an effect: one that failed is none, a reversed one was."""
        return self.status != "failed"


@dataclass(eq=False)
class Request:
    """One request on its way. `open` while it may still have an effect."""

    call: Call
    body: bytes
    answer: Callable[[Finding], None]
    plan: str
    open: bool = True


@dataclass
class Kept:
    """What is remembered under a key: since when, and the answer once there is one."""

    since: float
    body: bytes
    finding: Callable[[], Finding] | None = None
    waiting: list[Request] = field(default_factory=list[Request])


class Outside(Protocol):
    """What a provider meets."""

    scheduler: Scheduler
    world: Strand

    def plan(self, conduct: Conduct) -> str:
        """Return the fate of a request."""
        ...

    def lookup_plan(self, conduct: Conduct) -> str:
        """Return the fate of a question."""
        ...

    def requested(self, process: Process, provider: SimulatedProvider, request: Request) -> None:
        """Hear that the first byte of a request is written."""
        ...

    def happened(self, provider: SimulatedProvider, effect: Effect) -> None:
        """Hear that an object appeared or changed."""
        ...


class SimulatedProvider:
    """Implements the provider port. Its log, `requests` and `effects`, is the truth."""

    def __init__(self, name: str, conduct: Conduct, outside: Outside) -> None:
        self._name = name
        self.conduct = conduct
        self._outside = outside
        self._scheduler = outside.scheduler
        self._kept: dict[str, Kept] = {}
        self.requests: dict[str, list[Request]] = {}
        self.effects: dict[str, list[Effect]] = {}
        self.named: dict[str, Effect] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def contract(self) -> ProviderContract:
        return self.conduct.contract

    def seal(self, identity: Identity, key: str, params: Any, secret: bytes) -> SealedRequest:
        body = f"{identity} {params!r}".encode()
        return SealedRequest("POST", f"sim://{self._name}", (), body, "simulated/1")

    # The adapter.

    async def send(self, call: Call) -> Finding:
        plan = self._outside.plan(self.conduct)
        if plan == "connects slowly":
            await asyncio.sleep(self._draw(8.0))
            plan = "performed"
        process = self._here()
        if refusal := call.permit.check(process.clock.monotonic()):
            return Finding(Answered.NOT_SENT, Via.REPLY, refusal)
        if plan == "refused connection":
            return Finding(Answered.NOT_SENT, Via.REPLY, "the connection was refused")
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Finding] = loop.create_future()

        def deliver(finding: Finding) -> None:
            if not reply.done():
                reply.set_result(finding)

        def answer(finding: Finding) -> None:
            if plan not in ("reply lost", "performed late", "lost on the way"):
                self._scheduler.after(self._draw(0.05), process.main, deliver, finding)

        request = Request(call, call.request.body, answer, plan)
        self.requests.setdefault(call.key, []).append(request)
        self._outside.requested(process, self, request)
        if plan == "lost on the way":
            request.open = False
        else:
            longest = call.timeout_seconds if plan == "performed late" else 0.05
            self._scheduler.after(self._draw(longest), self._outside.world, self._arrive, request)
        async with asyncio.timeout(call.timeout_seconds):
            return await reply

    async def look_up(self, lookup: Lookup) -> Finding:
        plan = self._outside.lookup_plan(self.conduct)
        await asyncio.sleep(self._draw(0.05))
        if plan == "lost":
            async with asyncio.timeout(lookup.timeout_seconds):
                await asyncio.get_running_loop().create_future()
        if plan == "server error":
            return Finding(Answered.SERVER_ERROR, Via.LOOKUP, "503")
        if plan == "rate limited":
            return Finding(Answered.RATE_LIMITED, Via.LOOKUP, "429")
        found = self._look(lookup)
        await asyncio.sleep(self._draw(lookup.timeout_seconds if plan == "slow" else 0.05) * 0.9)
        return found

    def _look(self, lookup: Lookup) -> Finding:
        if lookup.reference is not None and lookup.reference in self.named:
            return self._told(self.named[lookup.reference], lookup.intended, Via.LOOKUP)
        if not self.conduct.lookups:
            return Finding(Answered.LOST, Via.LOOKUP, "there is no look-up")
        now = self._scheduler.now
        seen = [e for e in self.effects.get(lookup.key, ()) if e.seen_from <= now]
        if not seen:
            return Finding(Answered.ABSENT, Via.LOOKUP, "nothing is listed")
        return self._told(seen[-1], lookup.intended, Via.LOOKUP)

    # The provider's side.

    def _arrive(self, request: Request) -> None:
        key, now = request.call.key, self._scheduler.now
        kept = self._kept.get(key)
        window = self.conduct.window_seconds
        if kept is not None and now - kept.since <= window:
            request.open = False
            return self._repeat(request, kept)
        if refusal := self._refusal(request.plan):
            request.open = False
            return request.answer(refusal)
        if window:
            self._kept[key] = Kept(now, request.body)
        if request.plan == "server error":
            request.open = False
            error = Finding(Answered.SERVER_ERROR, Via.REPLY, "500")
            if window:
                self._forget_or_keep(key, error)
            return request.answer(error)
        late = request.plan in ("performed late", "error, performed late")
        if request.plan == "error, performed late":
            request.answer(Finding(Answered.SERVER_ERROR, Via.REPLY, "504"))
        running = self._draw(self.conduct.running_seconds if late else 0.1)
        self._scheduler.after(running, self._outside.world, self._perform, request)

    def _repeat(self, request: Request, kept: Kept) -> None:
        if kept.body != request.body:
            return request.answer(Finding(Answered.KEY_MISMATCH, Via.REPLY, "other parameters"))
        if kept.finding is not None:
            return request.answer(kept.finding())
        if self.conduct.blocks:
            return kept.waiting.append(request)
        request.answer(Finding(Answered.IN_PROGRESS, Via.REPLY, "409, it is running"))

    def _refusal(self, plan: str) -> Finding | None:
        """Return a refusal before anything is done, which the contract has to allow as such."""
        known = self.contract.uncached_pre_execution
        if plan == "rejected" and PreExecution.VALIDATION in known:
            return Finding(Answered.REJECTED, Via.REPLY, "422")
        if plan == "rate limited" and PreExecution.RATE_LIMIT in known:
            return Finding(Answered.RATE_LIMITED, Via.REPLY, "429")
        if plan == "unauthorised" and PreExecution.AUTH in known:
            return Finding(Answered.UNAUTHORISED, Via.REPLY, "401")
        return None

    def _forget_or_keep(self, key: str, error: Finding) -> None:
        if self.conduct.keeps_errors:
            self._kept[key].finding = lambda: error
        else:
            del self._kept[key]

    def _perform(self, request: Request) -> None:
        call, chance = request.call, self._scheduler.chance
        status = "succeeded"
        if request.plan == "declined":
            status = "failed"
        elif chance.random() < self.conduct.pends:
            status = "pending"
        request.open = False
        effect = Effect(
            f"{self._name}_{len(self.named) + 1}",
            call.key,
            call.identity,
            call.params,
            status,
            self._scheduler.now + self._draw(self.conduct.unseen_seconds),
        )
        self.named[effect.name] = effect
        self.effects.setdefault(call.key, []).append(effect)
        self._outside.happened(self, effect)
        if status == "pending":
            self._scheduler.after(self._draw(3000), self._outside.world, self._end, effect)
        elif status == "succeeded":
            self._reverse_one_day(effect)
        self._answer(request, effect)

    def _answer(self, request: Request, effect: Effect) -> None:
        intended = request.call.intended
        marked = self.contract.replay_marker is not None
        kept = self._kept.get(request.call.key)
        if kept is not None:
            kept.finding = lambda: self._told(effect, intended, Via.REPLY, marked)
            for waiting in kept.waiting:
                waiting.answer(kept.finding())
        if request.plan == "error, performed late":
            return
        if request.plan == "error after":
            error = Finding(Answered.SERVER_ERROR, Via.REPLY, "502")
            if kept is not None and self.conduct.keeps_errors:
                kept.finding = lambda: error
            return request.answer(error)
        request.answer(self._told(effect, intended, Via.REPLY))

    def _end(self, effect: Effect) -> None:
        effect.status = "succeeded" if self._scheduler.chance.random() < 0.85 else "failed"
        self._outside.happened(self, effect)
        if effect.status == "succeeded":
            self._reverse_one_day(effect)

    def _reverse_one_day(self, effect: Effect) -> None:
        if self._scheduler.chance.random() < self.conduct.reverses:
            self._scheduler.after(self._draw(3000), self._outside.world, self._reverse, effect)

    def _reverse(self, effect: Effect) -> None:
        effect.status = "reversed"
        self._outside.happened(self, effect)

    def _told(
        self, effect: Effect, intended: Mapping[str, Any], via: Via, replayed: bool = False
    ) -> Finding:
        receipt = receipt_of(self.contract, effect.params, effect.name, effect.status)
        echo, differs_in = compare(self.contract.echo, receipt, intended)
        return Finding(
            _SAID[effect.status],
            via,
            effect.status,
            reference=effect.name,
            receipt=receipt,
            echo=echo,
            differs_in=differs_in,
            replayed=replayed,
        )

    def _here(self) -> Process:
        strand = self._scheduler.strand
        assert strand is not None
        process = strand.of
        assert isinstance(process, Process)
        return process

    def _draw(self, longest: float) -> float:
        """Return a drawn duration, mostly much shorter than the longest."""
        return float(self._scheduler.chance.random() ** 3 * longest)
