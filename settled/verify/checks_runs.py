"""A21, A31: runs that are killed, replaced, forked and planned again, with their time running."""

from __future__ import annotations

import importlib
import select
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import settled
from settled import RunView
from settled.infrastructure.clock import elapsed_seconds
from settled.verify import run_kinds
from settled.verify.check import check, check_each
from settled.verify.stage import AGENT, Stage
from settled.verify.worker import WorkerProcess

RUN_KINDS = "settled.verify.run_kinds"
WAIT_SECONDS = 30.0
LIMIT_SECONDS = 8.0
"""How long a call, a turn or a session of seconds may take."""


@dataclass
class Agents:
    """Agents on a stage: `app` starts and asks runs, workers of the stage run them."""

    stage: Stage
    app: settled.App

    def worker(self, name: str = "worker", **settings: Any) -> WorkerProcess:
        """Start a worker that serves runs too."""
        return self.stage.worker(name, environment={"SETTLED_KINDS": RUN_KINDS}, **settings)

    def start(self, *steps: dict[str, Any], run_id: str = "run-1", kind: str = "agent") -> RunView:
        """Start a run that does these steps."""
        return self.app.runs.start(kind, run_id, by=AGENT, input=list(steps))

    def ended(self, run: RunView) -> RunView:
        """Wait until a run has ended."""
        return self.app.runs.wait(run, timeout_seconds=WAIT_SECONDS)

    def waiting_on(self, run: RunView, call: str) -> RunView:
        """Wait until a run waits with this call made."""
        deadline = elapsed_seconds() + WAIT_SECONDS
        while True:
            view = self.app.runs.get(run.kind, run.run_id, by=AGENT)
            if view.state == "waiting" and call in view.calls:
                return view
            assert elapsed_seconds() < deadline, view
            select.select([], [], [], 0.01)

    def fields(self, run: RunView, name: str) -> list[dict[str, Any]]:
        """Return the fields of each event of one name."""
        history = self.app.runs.history(run, by=AGENT)
        return [dict(entry.fields) | {"at": entry.at} for entry in history if entry.name == name]

    def asked(self, what: str) -> int:
        """Return how often the provider's side was asked this."""
        return sum(seen.query.get("order") == what for seen in self.stage.simulator.log().lookups())


@contextmanager
def agents(stage: Stage) -> Generator[Agents]:
    """Open the stage's store with the battery's run kinds."""
    from settled.verify import kinds

    if run_kinds.patient is not kinds.patient:
        importlib.reload(run_kinds)  # its kinds are those of another simulator
    with settled.open(stage.url, kinds=run_kinds.KINDS, runs=run_kinds.RUNS) as app:
        yield Agents(stage, app)


def act(call: str, *, id: str = "refund-request-9", **more: Any) -> dict[str, Any]:
    """Return the step that has a refund of 30.00 done."""
    params = {"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}
    return {"do": "act", "call": call, "id": id, "params": params, **more}


def ask(call: str = "plan", policy: str = "retry", **more: Any) -> dict[str, Any]:
    """Return the step that asks the model."""
    return {"do": "ask", "call": call, "policy": policy, **more}


@check("A21", "planned again, forked and replaced while the provider works")
def a21_all_meet_one_operation(stage: Stage) -> None:
    """A call that timed out, a second one, a fork and a replacement: one request, one effect."""
    stage.simulator.fault(hold_after=True)
    with agents(stage) as on:
        on.worker()
        run = on.start(act("first", seconds=0.5), act("second"))
        stage.simulator.wait(held=1)
        again = on.waiting_on(run, "run-1-second")
        assert again.calls["run-1-first"] == "timed_out"
        fork = on.app.runs.fork(run, "run-2", by=AGENT)
        heir = on.app.runs.replace(run, "run-3", by=AGENT, reason="another model")
        on.waiting_on(fork, "run-2-second")
        on.waiting_on(heir, "run-3-second")
        assert stage.requests() == 1
        stage.simulator.release()
        for one in (fork, heir):
            done = on.ended(one)
            assert done.state == "completed" and done.result[-1] == "succeeded", done
            assert done.operations == (("patient", "refund-request-9"),)
        assert on.app.runs.get("agent", "run-1", by=AGENT).state == "replaced"
    operation = stage.app.operations.get("patient", "refund-request-9", by=AGENT)
    stage.expect(requests=1, effects=1)
    stage.check_invariant(operation, unsent=0)


_POINTS = [
    *("after_commit:OwnerClaimed", "after_commit:ToolCallBound", "after_commit:Intended"),
    *("after_call:patient", "before_commit:Waits", "after_commit:Waits"),
    *("after_commit:Succeeded", "before_commit:ToolCallReturned", "before_commit:Completed"),
]


@check_each("A21", "the run's worker killed at {}", _POINTS)
def a21_a_killed_run_meets_its_operation(stage: Stage, fault: str) -> None:
    """Whoever takes the run makes the same call again, and finds the operation that it made."""
    with agents(stage) as on:
        run = on.start(ask(), act("first"))
        on.worker("first", fault=f"{fault}=kill").wait_killed()
        on.worker("second")
        done = on.ended(run)
        assert done.result == ["model-plan", "succeeded"], done
        assert on.asked("model-plan") == 1
    operation = stage.app.operations.get("patient", "refund-request-9", by=AGENT)
    assert stage.effects() == 1 and stage.names(operation).count("Succeeded") == 1
    assert stage.requests() == (2 if fault == "after_call:patient" else 1)
    stage.check_invariant(operation)


@check_each("A31", "the {} running when the worker is killed", ["call", "turn", "session"])
def a31_what_is_left_is_inherited(stage: Stage, level: str) -> None:
    """Killed in a call, and resumed: the deadline is the one of before, and its end is recorded."""
    steps = {
        "call": ask(seconds=LIMIT_SECONDS),
        "turn": {"do": "turn", "call": "plan", "policy": "retry", "seconds": LIMIT_SECONDS},
        "session": ask(),
    }
    stage.simulator.fault(on="reads", hold_before=True, times=2)
    with agents(stage) as on:
        first = on.worker("first")
        run = on.start(steps[level], kind="agent-brief" if level == "session" else "agent")
        stage.simulator.wait(held=1)
        gate = stage.folder / "gate"
        on.worker("second", fault=f"before_claim=wait:{gate}")
        first.kill()
        (before,) = on.fields(run, "ModelCallRequested")
        until = datetime.fromisoformat(before["until"])
        assert before["level"] == level
        stage.wait_until(until - timedelta(seconds=LIMIT_SECONDS / 2))
        gate.touch()
        stage.simulator.wait(lookups=2)
        assert [one["until"] for one in on.fields(run, "ModelCallRequested")] == [
            before["until"],
            before["until"],
        ]
        done = on.ended(run)
        stage.simulator.release()
        passed = on.fields(run, "DeadlinePassed")
        assert [one["level"] for one in passed][0] == level
        assert all(until <= one["at"] < until + timedelta(seconds=LIMIT_SECONDS) for one in passed)
        if level == "session":
            assert done.state == "expired" and done.session_until == until
        else:
            assert done.result == ["over"] and done.calls == {"plan": "timed_out"}
            assert len(on.fields(run, "CallTimedOut")) == 1


@check("A31", "the call's deadline over before anybody resumes")
def a31_what_is_over_is_not_begun_again(stage: Stage) -> None:
    """Nobody was there when the deadline passed: the next worker records it, and asks no more."""
    stage.simulator.fault(on="reads", hold_before=True)
    with agents(stage) as on:
        first = on.worker("first")
        run = on.start(ask(seconds=1), ask("next"))
        stage.simulator.wait(held=1)
        first.kill()
        (before,) = on.fields(run, "ModelCallRequested")
        stage.wait_until(datetime.fromisoformat(before["until"]))
        on.worker("second")
        done = on.ended(run)
        stage.simulator.release()
        assert done.result == ["over", "model-next"] and on.asked("model-plan") == 1
        assert done.calls == {"plan": "timed_out", "next": "returned"}
        # What the lost try had reserved may have been used: a crash gives nothing back.
        assert done.used["tokens"] == 3 * run_kinds.MODEL_TOKENS


@check("A31", "the call over while its operation goes on")
def a31_a_timeout_leaves_the_operation_alone(stage: Stage) -> None:
    """The run's patience says nothing about the effect: its operation is settled all the same."""
    stage.simulator.fault(hold_after=True)
    with agents(stage) as on:
        on.worker()
        run = on.ended(on.start(act("first", seconds=0.5)))
        assert run.result == ["over"] and run.calls == {"run-1-first": "timed_out"}
        operation = stage.app.operations.get("patient", "refund-request-9", by=AGENT)
        assert operation.state == "dispatching"
        stage.simulator.release()
        done = stage.wait(operation, "succeeded")
        assert on.app.runs.get("agent", "run-1", by=AGENT).version == run.version
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)
