"""The simulated provider at work: it takes requests, follows its plan, and records what it does.

Every request is written to the log before it is acted on, every effect and every answer before it
goes out.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
import time
from pathlib import Path
from typing import IO

import httpx2

from settled.infrastructure.simulator.behaviour import Answer, SimulatedProvider, Status
from settled.infrastructure.simulator.plan import Fault, Plan, Webhooks
from settled.infrastructure.simulator.record import (
    AnswerLine,
    Collector,
    Effect,
    EffectLine,
    Line,
    RequestLine,
    ResetLine,
    SimulatorLog,
    WebhookLine,
)
from settled.infrastructure.simulator.wire import (
    Incoming,
    encoded,
    write_answer,
)

_COLLECTION = re.compile(r"/v1/(?!objects)[a-z]+", re.ASCII)
_ITEM = re.compile(r"/v1/[a-z]+/[^/]+", re.ASCII)
_OBJECT = re.compile(r"/v1/objects/[^/]+", re.ASCII)
_WEBHOOK_SECONDS = 10.0


class Simulator:
    """One provider: its state, its plan, its log, and the requests it holds back."""

    def __init__(self, plan: Plan, log: Path | None = None) -> None:
        self.first_plan = plan
        self.plan = plan
        self.provider = SimulatedProvider(plan.conduct)
        self.held: list[tuple[RequestLine, asyncio.Event]] = []
        self.changed = asyncio.Condition()
        self.collector = Collector()
        self._unsent: list[Effect] = []
        # Created, never appended to: request numbers begin anew, and two runs would be mixed up.
        self._file: IO[bytes] | None = log.open("xb", buffering=0) if log else None
        self._clock_offset_seconds = 0.0
        self._requests = 0

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()

    def now(self) -> float:
        """Return the simulator's time, in seconds since 1970."""
        return time.time() + self._clock_offset_seconds

    def advance(self, seconds: float) -> None:
        """Move the simulator's clock."""
        self._clock_offset_seconds += seconds

    def log(self) -> SimulatorLog:
        """Return what was seen and done since the last reset."""
        return self.collector.log()

    def set_plan(self, plan: Plan) -> None:
        """Use other switches from the next request on."""
        self.plan = plan
        self.provider.conduct = plan.conduct

    async def reset(self) -> None:
        """Forget everything, let go what is held, and go back to the first plan."""
        await self.release(None)
        self._clock_offset_seconds = 0.0
        self.plan = self.first_plan
        self.provider = SimulatedProvider(self.first_plan.conduct)
        self._unsent.clear()
        await self._write(ResetLine(at=self.now()))

    async def release(self, key: str | None) -> int:
        """Let held requests go on, all or those with one key; return how many."""
        let_go = [(request, event) for request, event in self.held if key in (None, request.key)]
        for held in let_go:
            self.held.remove(held)
            held[1].set()
        return len(let_go)

    async def settle(self, effect_id: str, status: Status) -> Effect | None:
        """Give an effect its final status and tell by webhook, if the plan says so."""
        effect = self.provider.settle(effect_id, status)
        if effect is not None:
            await self._record(effect)
            await self._tell("before_reply", "after_reply")
        return effect

    async def send_webhooks(self, webhooks: Webhooks, effect_id: str | None) -> int:
        """Send an event for the present state of each effect, or of one; return how many."""
        effects = [e for e in self.provider.effects.values() if effect_id in (None, e.id)]
        return await self._deliver(webhooks, effects)

    async def provide(
        self, incoming: Incoming, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        """Handle one request to the provider; return whether its connection is still good."""
        request = await self._arrived(incoming, connection)
        reads = incoming.method == "GET"
        fault, self.plan = self.plan.taken(reads=reads, key=request.key)
        fault = fault or Fault()
        answer, effect = await self._judged(request, fault, reads=reads)
        await self._tell("before_reply")
        if fault.hold_after:
            await self._hold(request)
        await asyncio.sleep(fault.delay_after_seconds)
        await self._write(
            AnswerLine(
                number=request.number,
                at=self.now(),
                status=answer.status,
                body=encoded(answer.body)[0].decode(),
                reply=fault.reply,
                effect=effect.id if effect else None,
            )
        )
        good = await write_answer(writer, answer.status, answer.headers, answer.body, fault.reply)
        await self._tell("after_reply")
        return good

    async def _judged(
        self, request: RequestLine, fault: Fault, *, reads: bool
    ) -> tuple[Answer, Effect | None]:
        if not _is_known(request):
            answer = Answer(404, {"error": {"code": "not_found", "message": "No such path."}})
            return answer, None
        provider, effect = self.provider, None
        known = None if reads else provider.arrive(request, self.now())
        if fault.hold_before:
            await self._hold(request)
        await asyncio.sleep(fault.delay_before_seconds)
        if reads:
            outcome = provider.read(request, self.now())
            if outcome.effect is not None:
                await self._record(outcome.effect)
            return _replaced(outcome.answer, fault), None
        if known is not None:
            return _replaced(known, fault), None
        answer = Answer(200, None)
        if fault.execute:
            answer, effect = provider.execute(request, self.now())
            if effect is not None:
                await self._record(effect)
        elif fault.status is None:
            provider.finish(request, None)
            return Answer(503, {"error": {"code": "not_executed", "message": "Planned."}}), None
        answer = _replaced(answer, fault)
        provider.finish(request, answer)
        return answer, effect

    async def _arrived(self, incoming: Incoming, connection: int) -> RequestLine:
        self._requests += 1
        body = incoming.body.decode(errors="backslashreplace")
        request = RequestLine(
            number=self._requests,
            at=self.now(),
            method=incoming.method,
            path=incoming.path,
            query=incoming.query,
            headers=incoming.headers,
            key=self.provider.key_of(incoming.headers, body),
            body=body,
            body_sha256=hashlib.sha256(incoming.body).hexdigest(),
            connection=connection,
        )
        await self._write(request)
        return request

    async def _hold(self, request: RequestLine) -> None:
        released = asyncio.Event()
        self.held.append((request, released))
        async with self.changed:
            self.changed.notify_all()
        await released.wait()

    async def _record(self, effect: Effect) -> None:
        self._unsent.append(effect)
        await self._write(EffectLine(at=self.now(), effect=effect))

    async def _write(self, line: Line) -> None:
        if self._file is not None:
            self._file.write(line.model_dump_json().encode() + b"\n")
        self.collector.add(line)
        async with self.changed:
            self.changed.notify_all()

    async def _tell(self, *when: str) -> None:
        webhooks = self.plan.conduct.webhooks
        if webhooks is None or webhooks.when not in when:
            return
        effects, self._unsent = self._unsent, []
        await self._deliver(webhooks, effects)

    async def _deliver(self, webhooks: Webhooks, effects: list[Effect]) -> int:
        if webhooks.newest_first:
            effects = effects[::-1]
        sent = 0
        # Receivers are tests on this host: no certificates are read, which would take a moment.
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        async with httpx2.AsyncClient(
            trust_env=False, verify=plain, timeout=_WEBHOOK_SECONDS
        ) as client:
            for effect in effects:
                # Copies have one id, and so has a repetition later: the event is the same.
                event = f"evt_{effect.id}_{effect.status}"
                payload = {
                    "id": event,
                    "type": f"{effect.resource.removesuffix('s')}.{effect.status}",
                    "key": effect.key,
                    "data": effect.shown(),
                }
                for _ in range(webhooks.copies):
                    try:
                        status = (await client.post(webhooks.url, json=payload)).status_code
                    except httpx2.HTTPError:
                        status = None  # Nobody listens: recorded, as a provider would.
                    sent += 1
                    await self._write(
                        WebhookLine(
                            at=self.now(),
                            url=webhooks.url,
                            event=event,
                            effect=effect.id,
                            status=status,
                        )
                    )
        return sent


def _is_known(request: RequestLine) -> bool:
    match request.method:
        case "GET":
            return bool(_COLLECTION.fullmatch(request.path) or _ITEM.fullmatch(request.path))
        case "POST" if _COLLECTION.fullmatch(request.path):
            return True
        case "POST" | "PUT":
            return bool(_OBJECT.fullmatch(request.path))
        case _:
            return False


def _replaced(answer: Answer, fault: Fault) -> Answer:
    headers = answer.headers | fault.headers
    if fault.status is None:
        return Answer(answer.status, answer.body, headers)
    return Answer(fault.status, fault.body, headers)
