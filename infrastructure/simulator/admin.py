"""What a test, or a demonstration, asks of the simulated provider beside its API.

GET  /admin/plan        the switches as they are
POST /admin/plan        change them: a `Plan`
GET  /admin/log         every request, effect and webhook since the last reset
GET  /admin/effects     the effects alone
GET  /admin/wait        the log, once it holds so much: a `Wait` as query
POST /admin/release     let held requests go on: {"key": …} or {}
POST /admin/clock       {"advance_seconds": …}
POST /admin/settle      {"effect": …, "status": …}: finish or reverse an effect
POST /admin/webhooks    send events now: {"webhooks": {"url": …, …}, "effect": …}
POST /admin/reset       forget everything
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, ValidationError

from settled.infrastructure.simulator.behaviour import Answer
from settled.infrastructure.simulator.plan import Plan, Webhooks
from settled.infrastructure.simulator.simulator import Simulator
from settled.infrastructure.simulator.wire import Incoming


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wait(_Model):
    """What to wait for. With a key, only what belongs to it counts."""

    calls: int = 0
    """Requests that can have an effect."""
    lookups: int = 0
    answers: int = 0
    """Calls that were answered, or whose connection was broken."""
    effects: int = 0
    webhooks: int = 0
    held: int = 0
    """Requests that are held now."""
    key: str | None = None
    seconds: NonNegativeFloat = 10.0


class Release(_Model):
    """Which held requests to let go: all, or those with one key."""

    key: str | None = None


class Advance(_Model):
    """How far to move the clock."""

    advance_seconds: float


class Settle(_Model):
    """An effect and the status it gets."""

    effect: str
    status: Literal["succeeded", "failed", "reversed"]


class SendWebhooks(_Model):
    """How to send events now, and for which effect; for all if none is named."""

    webhooks: Webhooks
    effect: str | None = None


async def administer(simulator: Simulator, incoming: Incoming) -> Answer:
    """Do what was asked and answer it."""
    try:
        return await _administer(simulator, incoming)
    except ValidationError as error:
        return Answer(400, error.errors(include_url=False, include_context=False))


async def _administer(simulator: Simulator, incoming: Incoming) -> Answer:
    match incoming.method, incoming.path:
        case "GET", "/admin/plan":
            return _answer(simulator.plan)
        case "POST", "/admin/plan":
            simulator.set_plan(simulator.plan.changed(Plan.model_validate_json(incoming.body)))
            return _answer(simulator.plan)
        case "GET", "/admin/log":
            return _answer(simulator.log())
        case "GET", "/admin/effects":
            return Answer(200, [e.model_dump(mode="json") for e in simulator.log().effects])
        case "GET", "/admin/wait":
            return await _wait(simulator, Wait.model_validate_strings(incoming.query))
        case "POST", "/admin/release":
            released = await simulator.release(Release.model_validate_json(incoming.body).key)
            return Answer(200, {"released": released})
        case "POST", "/admin/clock":
            simulator.advance(Advance.model_validate_json(incoming.body).advance_seconds)
            return Answer(200, {"now": simulator.now()})
        case "POST", "/admin/settle":
            settle = Settle.model_validate_json(incoming.body)
            effect = await simulator.settle(settle.effect, settle.status)
            return Answer(404, None) if effect is None else _answer(effect)
        case "POST", "/admin/webhooks":
            send = SendWebhooks.model_validate_json(incoming.body)
            return Answer(200, {"sent": await simulator.send_webhooks(send.webhooks, send.effect)})
        case "POST", "/admin/reset":
            await simulator.reset()
            return Answer(200, {})
        case _:
            return Answer(404, {"error": f"There is no {incoming.method} {incoming.path}."})


async def _wait(simulator: Simulator, wait: Wait) -> Answer:
    """Answer with the log once it holds what was asked for, or with 408 and the log as it is."""
    try:
        async with asyncio.timeout(wait.seconds), simulator.changed:
            await simulator.changed.wait_for(lambda: _reached(simulator, wait))
    except TimeoutError:
        return Answer(408, simulator.log().model_dump(mode="json"))
    return _answer(simulator.log())


def _reached(simulator: Simulator, wait: Wait) -> bool:
    collected = simulator.collector
    seen = collected.requests.values()
    calls = [s for s in seen if not s.reads and wait.key in (None, s.key)]
    return (
        len(calls) >= wait.calls
        and sum(s.reads for s in seen) >= wait.lookups
        and sum(call.reply is not None for call in calls) >= wait.answers
        and sum(wait.key in (None, e.key) for e in collected.effects.values()) >= wait.effects
        and len(collected.webhooks) >= wait.webhooks
        and sum(wait.key in (None, request.key) for request, _ in simulator.held) >= wait.held
    )


def _answer(model: BaseModel) -> Answer:
    value: Any = json.loads(model.model_dump_json())
    return Answer(200, value)
