"""Runs by a worker in this process, on both databases: what is asked once, what wakes, what ends.

Real processes that die are in the battery; here is each promise by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import settled
from settled import (
    ActiveRun,
    App,
    BudgetExceeded,
    CallFailed,
    DeadlineOver,
    DecisionRefused,
    FullJitter,
    InvalidInput,
    InvalidKind,
    ModelReply,
    Money,
    NotFound,
    NotPossible,
    ParametersChanged,
    Params,
    PermissionDenied,
    Principal,
    RunBudget,
    RunKind,
    RunView,
    TooLarge,
    Usage,
    WorkerSettings,
    presets,
)

AGENT = Principal("acme", "support-agent")
GRACE = Principal("acme", "grace", frozenset({"approver"}))
SECONDS = 20
QUICK = FullJitter(0.01, 0.02, 3)


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


@settled.kind("refund", contract=presets.smtp, hand_over_to="payments-oncall")
def refund(call: settled.Call, params: RefundParams) -> settled.Reply:
    """Perform at once."""
    return settled.Reply.performed({"id": "re_1"})


@settled.kind(
    "decided",
    contract=presets.smtp,
    hand_over_to="payments-oncall",
    approvers=frozenset({"approver"}),
)
def decided(call: settled.Call, params: RefundParams) -> settled.Reply:
    """Perform once it is approved."""
    return settled.Reply.performed({"id": "re_2"})


THIRTY = {"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}
Function = Callable[[ActiveRun], Awaitable[Any]]
Play = Callable[..., "Stagehand"]


class Stagehand:
    """An application with one run kind and a worker, and what its function noted."""

    def __init__(self, url: str, function: Function, *, worker: bool = True, **policy: Any) -> None:
        policy.setdefault("retry", QUICK)
        self.app = App(
            url,
            kinds=[refund, decided],
            runs=[RunKind("support", function, **policy)],
            migrate=True,
            require_fsync=False,
        )
        if worker:
            self.app.start_worker(WorkerSettings(idle_seconds=0.02))

    def start(self, run_id: str = "run-1", input: Any = None) -> RunView:
        return self.app.runs.start("support", run_id, by=AGENT, input=input)

    def ended(self, run: RunView) -> RunView:
        return self.app.runs.wait(run, timeout_seconds=SECONDS)

    def waiting(self, run: RunView) -> RunView:
        return self.app.runs.wait(run, timeout_seconds=SECONDS, states=("waiting",))

    def names(self, run: RunView) -> list[str]:
        return [entry.name for entry in self.app.runs.history(run, by=AGENT)]


@pytest.fixture
def play(store_url: str) -> Any:
    """Make applications on one store, and close them."""
    made: list[Stagehand] = []

    def make(function: Function, **policy: Any) -> Stagehand:
        made.append(Stagehand(store_url, function, **policy))
        return made[-1]

    yield make
    for one in made:
        one.app.close()


def counting(asked: list[str], name: str = "asked") -> Callable[[], Awaitable[int]]:
    """Return a call that counts how often it was made."""

    async def ask() -> int:
        asked.append(name)
        return len(asked)

    return ask


def test_what_returned_is_given_back_after_a_wait(play: Play) -> None:
    """A run that waits is run again from its first line: reused and retried calls are not made."""
    asked: list[str] = []

    async def support(run: ActiveRun) -> Any:
        plan = await run.model("plan", counting(asked, "model"), on_recovery="reuse")
        read = await run.tool("read", counting(asked, "tool"), on_recovery="retry")
        look = await run.lookup("rate", counting(asked, "lookup"), on_recovery="fresh")
        answer = await run.input("answer")
        return [plan, read, look, answer]

    stage = play(support)
    run = stage.start()
    stage.waiting(run)
    stage.app.runs.answer(run, "answer", "yes", by=AGENT)
    done = stage.ended(run)
    assert done.result == [1, 2, 4, "yes"] and asked == ["model", "tool", "lookup", "lookup"]
    assert (done.state, done.epoch) == ("completed", 2)
    looked = [e for e in stage.app.runs.history(run, by=AGENT) if e.name == "LookupReturned"]
    assert all(e.fields["as_of"] <= e.at.isoformat().replace("+00:00", "Z") for e in looked)


def test_an_operation_is_bound_waited_for_and_told(play: Play) -> None:
    """The wait ends because the settling commit told, not because time passed."""

    async def support(run: ActiveRun) -> Any:
        done = await run.operation(
            *("call-1", refund, "refund-request-9", THIRTY),
            model_call_id="toolu_01",
            rpc_id="rpc-7",
        )
        return [done.state, done.reference]

    stage = play(support)
    run = stage.ended(stage.start())
    assert run.result[0] == "succeeded" and run.operations == (("refund", "refund-request-9"),)
    history = stage.app.runs.history(run, by=AGENT)
    requested = next(e.fields for e in history if e.name == "ToolCallRequested")
    assert (requested["call_id"], requested["model_call_id"], requested["rpc_id"]) == (
        *("call-1", "toolu_01", "rpc-7"),
    )
    operation = stage.app.operations.get("refund", "refund-request-9", by=AGENT)
    intended = stage.app.operations.history(operation, by=AGENT)[0].fields
    assert intended["origin"] == {
        **{"run": "run-1", "call": "call-1"},
        **{"model_call_id": "toolu_01", "rpc_id": "rpc-7"},
    }


def test_a_wait_that_nobody_told_of_is_looked_at(play: Play) -> None:
    """Whoever settles an operation may die before it tells: the run's own row goes on."""

    async def support(run: ActiveRun) -> Any:
        return (await run.operation("call-1", refund, "refund-request-9", THIRTY)).state

    stage = play(support)
    stage.app.ledger.committed = None
    run = stage.ended(stage.start())
    assert run.result == "succeeded" and "OperationSeen" in stage.names(run)


def test_a_decision_wakes_by_version_and_digest_alone(play: Play) -> None:
    """A run's name permits nothing; the first decision stands, and the run goes on with it."""

    async def support(run: ActiveRun) -> Any:
        proposal = await run.operation(
            "call-1", "decided", "refund-request-9", THIRTY, until="decided"
        )
        await run.mark("approval_decided", {"by": proposal.approved_by})
        return (await run.operation("call-1", "decided", "refund-request-9", THIRTY)).state

    stage = play(support)
    run = stage.start()
    waiting = stage.waiting(run)
    assert waiting.waits_for == "a decision on version 1 of decided refund-request-9"
    runs = stage.app.runs
    proposal = stage.app.operations.get("decided", "refund-request-9", by=AGENT)
    other = stage.app.operations.intend("refund", "refund-request-10", THIRTY, by=AGENT)
    this: dict[str, Any] = {"proposal_version": 1, "digest": proposal.digest}
    with pytest.raises(DecisionRefused, match="waits on no refund refund-request-10"):
        runs.resume(run, other, **this, by=GRACE)
    with pytest.raises(PermissionDenied):
        runs.resume(run, proposal, **this, by=AGENT)
    with pytest.raises(PermissionDenied):
        runs.resume(run, proposal, **this, by=Principal("other", "eve", frozenset({"approver"})))
    wrongs: list[dict[str, Any]] = [{"digest": "0" * 64}, {"proposal_version": 2}]
    for wrong in wrongs:
        with pytest.raises(DecisionRefused):
            runs.resume(run, proposal, **(this | wrong), by=GRACE)
    assert stage.app.runs.get("support", "run-1", by=AGENT).state == "waiting"
    first = runs.resume(run, proposal, **this, by=GRACE)
    again = runs.resume(run, proposal, **this, by=GRACE)
    assert first.approved_by == again.approved_by == "grace"
    done = stage.ended(run)
    assert done.result == "succeeded" and done.boundaries == ("approval_decided",)


def test_a_declined_proposal_wakes_too(play: Play) -> None:
    """No is an answer."""

    async def support(run: ActiveRun) -> Any:
        return (await run.operation("call-1", "decided", "refund-request-9", THIRTY)).state

    stage = play(support)
    run = stage.start()
    stage.waiting(run)
    proposal = stage.app.operations.get("decided", "refund-request-9", by=AGENT)
    this: dict[str, Any] = {"proposal_version": 1, "digest": proposal.digest, "by": GRACE}
    stage.app.runs.decline(run, proposal, **this, reason="no receipt")
    assert stage.ended(run).result == "rejected"


def test_an_answer_before_its_question_is_found(play: Play) -> None:
    """And the first one stands, whoever asks again."""

    async def support(run: ActiveRun) -> Any:
        return await run.input("answer")

    stage = play(support, worker=False)
    run = stage.start()
    stage.app.runs.answer(run, "answer", {"ok": True}, by=AGENT, rpc_id="elicit-1")
    stage.app.runs.answer(run, "answer", {"ok": False}, by=GRACE)
    stage.app.start_worker()
    done = stage.ended(run)
    assert done.result == {"ok": True} and done.epoch == 1 and "Waits" not in stage.names(run)
    stage.app.runs.answer(run, "answer", {"ok": True}, by=AGENT)
    with pytest.raises(NotPossible, match="takes nothing more"):
        stage.app.runs.answer(run, "another", 1, by=AGENT)
    with pytest.raises(TooLarge):
        stage.app.runs.answer(stage.start("run-2"), "answer", "x" * 70_000, by=AGENT)


def test_a_moment_comes_once(play: Play) -> None:
    """The moment is counted from when it was first asked for, not from the last resume."""

    async def support(run: ActiveRun) -> Any:
        await run.sleep("cool-off", timedelta(seconds=0.2))
        return run.epoch

    stage = play(support)
    run = stage.ended(stage.start())
    assert run.result == 2 and stage.names(run).count("Waits") == 1


def test_a_budget_is_refused_and_recorded(play: Play) -> None:
    """The call is not made, and a replacement has no more left."""
    asked: list[str] = []

    async def ask() -> ModelReply:
        asked.append("asked")
        return ModelReply("ok", Usage(tokens=60))

    async def support(run: ActiveRun) -> Any:
        for number in range(5):
            await run.model(f"turn-{number}", ask, on_recovery="retry", reserve=Usage(tokens=60))

    stage = play(support, budget=RunBudget(tokens=100))
    run = stage.ended(stage.start())
    assert run.state == "failed" and asked == ["asked"] and run.left == {"tokens": 40}
    assert run.last_reason is not None and "needs 60 tokens, and 40 are left" in run.last_reason
    assert stage.names(run)[-2:] == ["BudgetExceeded", "Failed"]
    other = stage.app.runs.replace(run, "run-2", by=AGENT, reason="the model was wrong")
    again = stage.app.runs.replace(run, "run-2", by=AGENT, reason="the model was wrong")
    assert again.run_id == other.run_id == "run-2" and other.parent == "run-1"
    ended = stage.ended(other)
    assert asked == ["asked"] and ended.left == {"tokens": 40} and ended.state == "failed"


def test_a_call_that_takes_too_long_is_a_recorded_state(play: Play) -> None:
    """Its own deadline first; and the same call again has no new time."""

    async def hang() -> None:
        await asyncio.Event().wait()

    async def support(run: ActiveRun) -> Any:
        said: list[str] = []
        for _ in range(2):
            try:
                await run.model("plan", hang, on_recovery="retry", within=timedelta(seconds=0.05))
            except DeadlineOver as error:
                said.append(error.message)
        return said

    stage = play(support)
    run = stage.ended(stage.start())
    assert len(run.result) == 2 and run.calls == {"plan": "timed_out"}
    names = stage.names(run)
    assert names.count("ModelCallRequested") == names.count("CallTimedOut") == 1
    assert names.count("DeadlinePassed") == 1


def test_a_turn_bounds_its_waits_and_a_session_the_run(play: Play) -> None:
    """Nobody answers: first the turn is over and the run may say so, then the session ends it."""

    async def support(run: ActiveRun) -> Any:
        try:
            async with run.turn("1", timedelta(seconds=0.1)):
                await run.input("answer")
        except DeadlineOver:
            await run.mark("milestone:unanswered", True)
        await run.input("another")

    stage = play(support, session=timedelta(seconds=1))
    run = stage.ended(stage.start())
    assert run.state == "expired" and run.boundaries == ("milestone:unanswered",)
    passed = [
        e.fields["level"]
        for e in stage.app.runs.history(run, by=AGENT)
        if e.name == "DeadlinePassed"
    ]
    assert passed == ["turn", "session"]


def test_a_session_ends_a_function_that_hangs(play: Play) -> None:
    """A function that awaits something of its own keeps no worker for good."""

    async def support(run: ActiveRun) -> Any:
        await asyncio.Event().wait()

    stage = play(support, session=timedelta(seconds=0.2))
    assert stage.ended(stage.start()).state == "expired"


def test_what_fails_is_tried_again_and_then_given_up(play: Play) -> None:
    """An exception may be over next time; a model's refusal is no such thing."""
    tried: list[int] = []

    async def support(run: ActiveRun) -> Any:
        tried.append(run.epoch)
        if run.given == "refuses":
            run.fail("the model refuses")
        raise ConnectionError("nobody there")

    stage = play(support)
    failed = stage.ended(stage.start())
    assert failed.state == "failed" and tried == [1, 2, 3]
    assert failed.last_reason == "ConnectionError: nobody there"
    tried.clear()
    refused = stage.ended(stage.start("run-2", "refuses"))
    assert (refused.state, refused.last_reason, tried) == ("failed", "the model refuses", [1])


def test_a_call_that_fails_follows_its_policy(play: Play) -> None:
    """Retried, it is made again by the next owner; reused, its failure is what was recorded."""
    asked: list[str] = []

    def failing(name: str) -> Callable[[], Awaitable[Any]]:
        async def ask() -> str:
            asked.append(name)
            if asked.count(name) < 2:
                raise ConnectionError("nobody there")
            return name

        return ask

    async def support(run: ActiveRun) -> Any:
        try:
            await run.tool("reused", failing("reused"), on_recovery="reuse")
        except CallFailed as error:
            assert "nobody there" in error.message
        return await run.tool("retried", failing("retried"), on_recovery="retry")

    stage = play(support)
    run = stage.ended(stage.start())
    assert run.result == "retried" and asked == ["reused", "retried", "retried"]
    assert run.calls == {"reused": "failed", "retried": "returned"}


def test_cancelled_where_it_waits_and_where_it_runs(play: Play) -> None:
    """A run that a worker has ends at its next step, and records what it has just done before."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def ask() -> str:
        loops.append(asyncio.get_running_loop())
        begun.set()
        await go_on.wait()
        return "answered"

    async def support(run: ActiveRun) -> Any:
        if run.given == "waits":
            await run.input("answer")
        await run.model("plan", ask, on_recovery="retry")
        await run.model("never", ask, on_recovery="retry")

    stage = play(support)
    waiting = stage.start("run-1", "waits")
    stage.waiting(waiting)
    assert stage.app.runs.cancel(waiting, by=AGENT, reason="enough").state == "cancelled"
    run = stage.start("run-2")
    while not begun.is_set():
        stage.app.runs.get("support", "run-2", by=AGENT)
    asked = stage.app.runs.cancel(run, by=AGENT, reason="enough")
    assert (asked.state, asked.cancel_requested) == ("running", True)
    loops[0].call_soon_threadsafe(go_on.set)
    done = stage.ended(run)
    assert (done.state, done.last_reason) == ("cancelled", "enough")
    assert "never" not in done.calls


def test_fork_and_replay(play: Play) -> None:
    """A fork converges on the operation; a replay answers from records, and does nothing new."""
    asked: list[str] = []

    async def support(run: ActiveRun) -> Any:
        plan = await run.model("plan", counting(asked), on_recovery="reuse")
        await run.mark("after_model_decision", {"plan": plan})
        done = await run.operation(f"call-{plan}", refund, "refund-request-9", THIRTY)
        if run.run_id == "run-9":
            await run.model("new", counting(asked), on_recovery="retry")
        return done.reference

    stage = play(support)
    run = stage.ended(stage.start())
    fork = stage.ended(stage.app.runs.fork(run, "run-2", by=AGENT))
    assert run.result == fork.result and asked == ["asked"] * 2 and fork.reason == "fork"
    replay = stage.ended(stage.app.runs.replay(run, "run-3", by=AGENT))
    assert (replay.result, replay.calls, len(asked)) == (run.result, {}, 2)
    refused = stage.ended(stage.app.runs.replay(run, "run-9", by=AGENT))
    assert refused.state == "failed" and len(asked) == 2
    assert refused.last_reason is not None and "answers from records" in refused.last_reason
    with pytest.raises(NotPossible, match="There is a run run-2 already"):
        stage.app.runs.replay(run, "run-2", by=AGENT)


def test_another_state_version_is_left_alone_or_migrated(store_url: str, play: Play) -> None:
    """New code never takes an old state for its own; what is left is listed by name."""

    async def support(run: ActiveRun) -> Any:
        if run.state is None:
            await run.mark("milestone:begun", {"step": 1})
        state: dict[str, Any] = run.state or {}
        if "steps" in state:
            return state
        await run.input("answer")

    stage = play(support)
    run = stage.start()
    stage.waiting(run)
    stage.app.close()
    newer = play(support, state_version=2)
    newer.app.runs.answer(run, "answer", 1, by=AGENT)
    left = newer.app.runs.wait(run, timeout_seconds=SECONDS, states=("suspended",))
    assert left.last_reason == "its state has version 1, and the code here serves 2"
    old = newer.app.runs.listed(tenant=None, state_version=1)
    assert [one.run_id for one in old] == ["run-1"]
    assert newer.app.runs.listed(tenant="acme", state_version=2) == []
    newer.app.close()

    def migrate(state: Any, version: int) -> Any:
        return {"steps": [state["step"], version]}

    made = play(support, state_version=2, migrate=migrate)
    moved = made.app.runs.fork(run, "run-2", by=AGENT)
    done = made.ended(moved)
    assert done.result == {"steps": [1, 1]} and "Migrated" in made.names(done)


def test_refusals_name_what_is_wrong(store_url: str, play: Play) -> None:
    """What is asked under a used name, or of a run that is not there, is told."""
    said: list[str] = []

    async def support(run: ActiveRun) -> Any:
        await run.tool("read", counting([]), on_recovery="retry", request="a")
        for call in (
            lambda: run.tool("read", counting([]), on_recovery="retry", request="b"),
            lambda: run.operation("read", refund, "refund-request-9", THIRTY),
            lambda: run.tool("big", big, on_recovery="retry"),
            lambda: run.mark("nowhere", {}),
            lambda: run.operation("bad", refund, "refund-1", THIRTY | {"amount": 30.0}),
        ):
            try:
                await call()
            except InvalidInput as error:
                said.append(error.message)

    async def big() -> str:
        return "x" * 70_000

    stage = play(support)
    assert stage.ended(stage.start()).state == "completed"
    assert len(said) == 5 and "another request" in said[0] and "another operation" in said[1]
    assert "65536 are allowed" in said[2] and "no boundary" in said[3]
    with pytest.raises(NotFound):
        stage.app.operations.get("refund", "refund-1", by=AGENT)
    with pytest.raises(NotFound):
        stage.app.runs.get("support", "run-0", by=AGENT)
    with pytest.raises(ParametersChanged):
        stage.start(input="another")
    with pytest.raises(InvalidKind, match="Two kinds are called refund"):
        App(store_url, kinds=[refund], runs=[RunKind("refund", support)])
    assert BudgetExceeded.code == 206


def test_calls_side_by_side(play: Play) -> None:
    """Several calls may be in flight; a wait in a group ends the function, and loses nothing."""

    async def slow(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def support(run: ActiveRun) -> Any:
        found = await asyncio.gather(
            *(run.tool(f"t{n}", partial(slow, n), on_recovery="reuse") for n in range(5))
        )
        async with asyncio.TaskGroup() as group:
            one = group.create_task(run.operation("a", refund, "refund-1", THIRTY))
            two = group.create_task(run.operation("b", refund, "refund-2", THIRTY))
        return [*found, one.result().state, two.result().state]

    stage = play(support)
    run = stage.ended(stage.start())
    assert run.result == [0, 1, 2, 3, 4, "succeeded", "succeeded"]
