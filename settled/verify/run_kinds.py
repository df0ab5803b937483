"""Runs of the battery: an agent that does, step by step, what its input says.

Loaded by workers as a kinds module. A model is asked by a read at the simulated provider, which can
hold it back and writes it down, whoever asked.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2

from settled import (
    ActiveRun,
    DeadlineOver,
    FullJitter,
    InvalidInput,
    ModelReply,
    RunBudget,
    RunKind,
    Usage,
)
from settled.verify import kinds

patient, agent_refund, decided = kinds.patient, kinds.agent_refund, kinds.decided

MODEL_TOKENS = 100
"""What each answer of the model uses."""

MODEL_SECONDS = 60.0


async def follow(run: ActiveRun) -> list[Any]:
    """Do the steps of the input, one after the other, and return what each came to.

    A deadline that passes and a request that is refused are results too: an agent reads them, and
    goes on with its next step. Calls are named after the run: another run makes other calls.
    """
    said: list[Any] = []
    for step in run.given:
        what: str = step["do"]
        try:
            said.append(await _STEPS[what](run, **{k: v for k, v in step.items() if k != "do"}))
        except DeadlineOver:
            said.append("over")
        except InvalidInput as error:
            said.append(type(error).__name__)
    return said


async def _ask(run: ActiveRun, call: str, policy: str, seconds: float = 60) -> Any:
    """Ask the model, within so many seconds."""

    async def ask() -> ModelReply:
        return ModelReply(await _read(f"model-{call}"), Usage(tokens=MODEL_TOKENS))

    within, reserve = timedelta(seconds=seconds), Usage(tokens=2 * MODEL_TOKENS)
    return await run.model(call, ask, on_recovery=policy, reserve=reserve, within=within)


async def _look(run: ActiveRun, call: str, policy: str) -> Any:
    return await run.lookup(call, lambda: _read(f"lookup-{call}"), on_recovery=policy)


async def _act(
    run: ActiveRun, call: str, id: str, params: Any, kind: str = "patient", seconds: float = 60
) -> str:
    """Have something done, and wait for it so many seconds."""
    named, within = f"{run.run_id}-{call}", timedelta(seconds=seconds)
    done = await run.operation(named, kind, id, params, within=within)
    state: str = done.state
    return state


async def _turn(run: ActiveRun, call: str, policy: str, seconds: float) -> Any:
    """Ask the model in a turn that is so long."""
    async with run.turn("turn", timedelta(seconds=seconds)):
        return await _ask(run, call, policy)


async def _hear(run: ActiveRun, name: str) -> Any:
    return await run.input(name)


async def _mark(run: ActiveRun, boundary: str) -> None:
    await run.mark(boundary, {"left": dict(run.left)})


_STEPS: dict[str, Any] = {
    "ask": _ask,
    "look": _look,
    "act": _act,
    "turn": _turn,
    "hear": _hear,
    "mark": _mark,
}


async def _read(what: str) -> str:
    async with httpx2.AsyncClient(trust_env=False, timeout=MODEL_SECONDS) as client:
        response = await client.get(f"{kinds.PSP_URL}/v1/refunds", params={"order": what})
        response.raise_for_status()
    return what


_QUICK = FullJitter(0.05, 0.2, 5)

agent = RunKind("agent", follow, budget=RunBudget(tokens=1000), retry=_QUICK)
agent_brief = RunKind("agent-brief", follow, session=timedelta(seconds=8), retry=_QUICK)
"""As agent, with a session of seconds."""


RUNS = [agent, agent_brief]
KINDS = [patient, agent_refund, decided]
