"""A38: what the provider tells by itself, across our own steps."""

from __future__ import annotations

import select
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx2

from settled.domain.inbox import KIND as EVIDENCE
from settled.infrastructure.simulator.record import Effect
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.check import check
from settled.verify.receiver import perform_elsewhere, tell
from settled.verify.stage import AGENT, Stage

CROSSINGS = 150


def waiting(stage: Stage) -> int:
    """Return how many events wait for their operation."""
    return len(stage.app.journal.heads("acme", kind=EVIDENCE, states=["waiting"], limit=2000))


def still_open(stage: Stage) -> bool:
    """Tell whether an operation is not settled yet."""
    states = ("ready", "claimed", "dispatching", "outcome_unknown")
    return bool(stage.app.journal.heads("acme", kind="refund", states=states))


@check("A38", "webhook and intent cross in every order")
def a38_webhook_and_intent_cross_in_every_order(stage: Stage) -> None:
    """Each is joined and settled once, while a worker is at work."""
    cross_all(stage, CROSSINGS)


def cross_all(stage: Stage, crossings: int) -> None:
    """Let so many webhooks cross with their intents, in orders and at distances by chance."""
    names = [f"refund-request-{number}" for number in range(crossings)]
    with httpx2.Client() as client, ThreadPoolExecutor(8) as pool:
        performed = [pool.submit(perform_elsewhere, stage, name, client=client) for name in names]
    for done in performed:
        done.result()
    effects = {effect.fields["order"]: effect for effect in stage.simulator.effects()}
    assert len(effects) == crossings
    stage.worker(concurrency=50)
    early = _crossed(stage, effects)
    eventually(lambda: waiting(stage) == 0 and not still_open(stage), seconds=60)
    assert early[True] and early[False], early
    requests = Counter(request.key for request in stage.simulator.log().requests)
    for name in names:
        view = stage.app.operations.get("refund", name, by=AGENT)
        history = Counter(stage.names(view))
        assert (view.state, view.reference) == ("succeeded", effects[name].id), history
        assert history["Succeeded"] == 1
        assert history["Contradicted"] == history["HandedOver"] == 0
        assert requests[view.provider_key] - 1 <= history["Dispatching"]
    assert stage.effects() == crossings


def _crossed(stage: Stage, effects: dict[str, Effect]) -> Counter[bool]:
    """Hear and intend each; return how many webhooks were heard before their operation."""
    events = {
        name: {"id": f"evt_{effect.id}_succeeded", "data": effect.shown()}
        for name, effect in effects.items()
    }
    early = Counter[bool]()

    def hear(name: str) -> None:
        early[tell(stage, events[name]) is None] += 1

    def intend(name: str) -> None:
        stage.intend(name, order=name)

    def cross(plan: tuple[str, str, float]) -> None:
        name, order, gap_seconds = plan
        if order == "together":
            rival = threading.Thread(target=hear, args=(name,))
            rival.start()
            intend(name)
            rival.join()
            return
        first, second = (hear, intend) if order == "webhook first" else (intend, hear)
        first(name)
        select.select([], [], [], gap_seconds)
        second(name)

    orders = ("webhook first", "together", "intent first")
    plans = [
        (name, orders[number % 3], stage.chance.choice((0, 0.002, 0.01, 0.03)))
        for number, name in enumerate(sorted(effects))
    ]
    stage.chance.shuffle(plans)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(cross, plans))
    return early
