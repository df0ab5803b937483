"""Agents that plan again, that two workers have at once, and whose worker dies between a question
and its answer: judged by what the provider's side was really asked.
"""

from __future__ import annotations

from typing import Any

import pytest

from settled.verify.checks_runs import act, agents, ask
from settled.verify.stage import AGENT, Stage


def params(amount: Any, **more: Any) -> dict[str, Any]:
    return {"order": "order-72", "amount": {"amount": amount, "currency": "USD"}, **more}


def test_case_12_a_run_plans_again(stage: Stage) -> None:
    """Case 12: a call times out; the agent calls again, with a note, as a float, for more."""
    stage.simulator.fault(hold_after=True)
    refund: dict[str, Any] = {"id": "order-72", "kind": "agent-refund"}
    with agents(stage) as on:
        on.worker()
        run = on.start(
            act("call-1", **refund, seconds=0.5) | {"params": params("30.00")},
            act("call-2", **refund, seconds=0.5) | {"params": params("30.00", note="retry")},
            act("call-3", **refund) | {"params": params(30.0)},
            act("call-4", **refund) | {"params": params("35.00")},
            act("call-5", **refund) | {"params": params("30.00", note="and now?")},
        )
        waiting = on.waiting_on(run, "run-1-call-5")
        operation = stage.app.operations.get("agent-refund", "order-72", by=AGENT)
        assert stage.names(operation) == ["Intended", "Claimed", "Dispatching"]
        assert stage.requests() == 1
        assert waiting.calls == {
            "run-1-call-1": "timed_out",
            "run-1-call-2": "timed_out",
            "run-1-call-3": "failed",
            "run-1-call-4": "failed",
            "run-1-call-5": "pending",
        }
        stage.simulator.release()
        done = on.ended(run)
        assert done.result == ["over", "over", "InvalidParams", "ParametersChanged", "succeeded"]
        reasons = [one["reason"] for one in on.fields(run, "CallFailed")]
        assert "30.00 USD" in reasons[1] and "35.00" in reasons[1]
    stage.expect(requests=1, effects=1)
    stage.check_invariant(stage.get(operation), unsent=0)


def test_case_20_two_workers_have_the_same_run(stage: Stage) -> None:
    """Case 20: whoever lost the run stops before the call that depends on its last step."""
    gate = stage.folder / "gate"
    with agents(stage) as on:
        loser = on.worker(
            "loser", fault=f"before_commit:ModelCallReturned=wait:{gate}", lease_seconds=0.5
        )
        run = on.start(ask(), {"do": "hear", "name": "go"}, act("call-1"))
        stage.simulator.wait(lookups=1)
        on.worker("winner", lease_seconds=0.5)
        waiting = on.app.runs.wait(run, timeout_seconds=30, states=("waiting",))
        assert (waiting.epoch, on.asked("model-plan")) == (2, 2)
        gate.touch()
        stage.wait_log(loser, "overtaken")
        assert stage.requests() == 0, "the loser has gone on"
        on.app.runs.answer(run, "go", True, by=AGENT)
        done = on.ended(run)
        assert done.result == ["model-plan", True, "succeeded"]
        assert len(on.fields(run, "ModelCallReturned")) == 1
        claims = on.fields(run, "OwnerClaimed")
        assert [one["epoch"] for one in claims] == list(range(1, len(claims) + 1))
        assert [one["worker"] for one in claims][:2] == ["loser", "winner"]
    stage.expect(requests=1, effects=1)


@pytest.mark.parametrize("what", ["ask", "look"])
@pytest.mark.parametrize(
    ("policy", "fault", "asked", "failed"),
    [
        ("reuse", "after_call:plan", 1, True),
        ("retry", "after_call:plan", 2, False),
        ("fresh", "after_call:plan", 2, False),
        ("reuse", "answered", 1, False),
        ("retry", "answered", 1, False),
        ("fresh", "answered", 2, False),
    ],
)
def test_killed_between_the_question_and_its_answer(
    stage: Stage, what: str, policy: str, fault: str, asked: int, failed: bool
) -> None:
    """What is recorded is reused; what is not is lost, or asked again, as the call has declared.

    Killed behind the answer too: then it is recorded, and only what has to be fresh is asked again.
    """
    if fault == "answered":
        name = "ModelCallReturned" if what == "ask" else "LookupReturned"
        fault = f"after_commit:{name}"
    with agents(stage) as on:
        run = on.start({"do": what, "call": "plan", "policy": policy})
        on.worker("first", fault=f"{fault}=kill").wait_killed()
        on.worker("second")
        done = on.ended(run)
        expected = "model-plan" if what == "ask" else "lookup-plan"
        assert on.asked(expected) == asked
        if failed:
            assert done.state == "failed" and done.calls == {"plan": "lost"}
        else:
            assert done.result == [expected]
