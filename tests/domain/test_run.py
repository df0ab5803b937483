"""What a run records and refuses, told as given, when, then.

Wherever one of these is wrong, an agent forgets what it spent, restarts its time, or goes on after
somebody else took over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from settled import (
    Identity,
    InvalidInput,
    Money,
    NotPossible,
    OnRecovery,
    RunBudget,
    Stamp,
    TooLarge,
    TransitionRefused,
    Usage,
)
from settled.domain.operation.operation import Operation
from settled.domain.run import events as ev
from settled.domain.run.records import (
    LIMIT_BYTES,
    Bound,
    CallRecord,
    Reason,
    Seen,
    Sort,
    Wait,
    checkpoint,
    text_of,
)
from settled.domain.run.recovery import Recovered, recovered
from settled.domain.run.run import FIRST_LOOK, LONGEST_LOOK, Run, descend
from settled.infrastructure.testing.manual_clock import START
from settled.testing import Given, given, happened

HOUR = timedelta(hours=1)
UNTIL = START + 10 * HOUR
BUDGET = RunBudget(tokens=1000, calls=3, money=Money("1.00", "USD"))
REFUND = Bound(
    kind="refund",
    operation_id="refund-request-9",
    stream=Operation.stream(Identity("acme", "refund", "refund-request-9")),
)
STARTED = happened(
    ev.Started,
    tenant="acme",
    kind="support",
    identity="run-1",
    reason=Reason.FRESH,
    agent_build="build-7",
    state_version=1,
    session_until=UNTIL,
    budget=BUDGET,
)


def claimed(epoch: int = 1) -> Any:
    reason = Reason.FRESH if epoch == 1 else Reason.RESUME
    return happened(ev.OwnerClaimed, epoch=epoch, worker="w", membership=epoch, reason=reason)


def running(*more: Any) -> Given[Run]:
    return given(Run, [STARTED, claimed(), *more])


def ask(call_id: str = "plan", **more: Any) -> Any:
    """Return the command that requests a model call."""

    def command(run: Run, stamp: Stamp) -> Any:
        wanted: dict[str, Any] = {
            "sort": Sort.MODEL,
            "called": "model",
            "on_recovery": OnRecovery.RETRY,
            "digest": "d",
            "until": UNTIL,
            "level": "session",
            "reserve": Usage(tokens=400),
        }
        return run.request(stamp, call_id=call_id, **(wanted | more))

    return command


def parked(**fields: Any) -> Any:
    wait: dict[str, Any] = {"on": "operation", "key": "refund", "operation": REFUND}
    wait.update({"until": UNTIL, "level": "session"})
    wait.update(fields)
    return happened(ev.Waits, wait=Wait(**wait))


def test_an_owner_claims_the_next_epoch() -> None:
    """A second owner has another number, so that the first one can be told from it."""
    run = given(Run, [STARTED])
    run.when(lambda run, stamp: run.claim(stamp, worker="w", membership=1)).then(claimed())
    run.when(lambda run, stamp: run.must_be_owned_by(1)).then()
    run.when(lambda run, stamp: run.claim(stamp, worker="w", membership=2)).then(claimed(2))
    run.when(lambda run, stamp: run.must_be_owned_by(1)).then_refused(NotPossible, "epoch 2")


def test_what_is_reserved_is_settled_with_what_was_used() -> None:
    """Two calls in flight cannot both count on the same tokens."""
    run = running()
    run.when(ask()).then(ev.ModelCallRequested)
    assert run.when(lambda run, stamp: run.left).returned == {
        "tokens": 600,
        "calls": 2,
        "USD": 100,
    }
    lack = run.when(ask("two", reserve=Usage(tokens=601))).then(ev.BudgetExceeded).returned
    assert (lack.unit, lack.wanted, lack.left) == ("tokens", 601, 600)
    done = happened(ev.ModelCallReturned, call_id="plan", result="1", used={"tokens": 100})
    left = run.when(lambda run, stamp: _record(run, stamp, done)).machine.left
    assert left == {"tokens": 900, "calls": 3, "USD": 100}


def test_a_lost_try_counts_as_used_when_it_is_repeated() -> None:
    """What a worker asked before it died may have been paid: a crash gives nothing back."""
    run = running()
    run.when(ask())
    again = run.when(ask()).then(ev.ModelCallRequested).machine
    assert again.used == {"tokens": 400, "calls": 1} and again.left["tokens"] == 200
    run.when(ask()).then(ev.BudgetExceeded)


def test_a_model_is_not_asked_when_nothing_is_left() -> None:
    """What a model uses is known afterwards, so it may not start with an empty purse."""
    used = happened(ev.CallFailed, call_id="x", lost=False, used={"tokens": 1200})
    lack = running(used).when(ask("plan", reserve=Usage())).then(ev.BudgetExceeded).returned
    assert (lack.unit, lack.left) == ("tokens", -200)
    tool = {"sort": Sort.TOOL, "reserve": Usage()}
    running(used).when(ask("read", **tool)).then(ev.ToolCallRequested)


def test_money_counts_by_its_currency() -> None:
    """A budget of dollars says nothing about yen, and loses no cent."""
    run = running()
    run.when(ask(reserve=Usage(money=Money("0.99", "USD")))).then(ev.ModelCallRequested)
    lack = run.when(ask("two", reserve=Usage(money=Money("0.02", "USD")))).returned
    assert (lack.unit, lack.wanted, lack.left) == ("USD", 2, 1)


def test_a_child_goes_on_with_count_deadline_and_checkpoint() -> None:
    """A replacement that began at zero would be a way around every budget."""
    run = running()
    run.when(ask())
    marked = checkpoint("after_result", {"turn": 2}, {})
    mark = happened(ev.CheckpointMarked, boundary="after_result", size_bytes=10, checkpoint=marked)
    parent = run.when(lambda run, stamp: _record(run, stamp, mark)).machine
    child = descend(
        parent,
        Stamp(START + 9 * HOUR, "ada"),
        "run-2",
        Reason.REPLACEMENT,
        agent_build="build-8",
        state_version=1,
    )
    assert child.left == parent.left == {"tokens": 600, "calls": 2, "USD": 100}
    assert child.started.session_until == UNTIL and child.checkpoint == marked
    assert not child.calls and child.started.parent == "run-1"
    with pytest.raises(InvalidInput):
        descend(
            *(parent, Stamp(START, "ada"), "run-1", Reason.FORK), agent_build="", state_version=1
        )


def test_inner_deadlines_end_with_the_outer_ones() -> None:
    """A call that outlives its session is answered to nobody."""
    run = running().when(lambda run, stamp: run.begin_turn(stamp, "1", 2 * HOUR)).machine
    now = START + HOUR
    assert run.deadline(now, timedelta(minutes=5), "1")[0].at == now + timedelta(minutes=5)
    assert run.deadline(now, 5 * HOUR, "1") == (run.deadline(now, None, "1")[0], "turn")
    assert run.deadline(now, 5 * HOUR, "1")[0].at == START + 2 * HOUR
    assert run.deadline(now, timedelta(days=1))[0].at == UNTIL


def test_a_turn_that_was_begun_keeps_its_deadline() -> None:
    """Resumed, its time is what is left of it."""
    run = running()
    run.when(lambda run, stamp: run.begin_turn(stamp, "1", HOUR)).then(ev.TurnStarted)
    run.clock.advance(timedelta(minutes=59))
    run.when(lambda run, stamp: run.begin_turn(stamp, "1", HOUR)).then()
    assert run.when(lambda run, stamp: run.turns).returned == {"1": START + HOUR}


def test_a_call_that_times_out_says_nothing_about_its_operation() -> None:
    """The deadline is recorded, and what it reserved may have been used."""
    run = running()
    run.when(ask(until=START + HOUR, level="call"))
    run.clock.advance(HOUR)
    told = run.when(lambda run, stamp: run.time_out(stamp, run.calls["plan"]))
    told.then(ev.DeadlinePassed, ev.CallTimedOut)
    assert told.machine.calls["plan"].state == "timed_out"
    assert told.machine.used == {"tokens": 400, "calls": 1} and not told.machine.reserved


def test_what_waits_is_looked_at_ever_later() -> None:
    """If nobody tells, it still goes on; and a wait of a week is no thousand events."""
    run = running(parked())
    due = run.when(lambda run, stamp: run.next_due()).returned
    assert due == START + FIRST_LOOK
    look = happened(ev.StillWaiting)
    for _ in range(30):
        run.clock.at = run.when(lambda run, stamp: run.next_due()).returned
        due = run.when(lambda run, stamp: _record(run, stamp, look)).machine.next_due()
    assert due == run.clock.at + LONGEST_LOOK


@pytest.mark.parametrize(
    ("seen", "operation", "approval"),
    [
        (Seen(state="proposed", settled=False, proposal_version=1), False, False),
        (Seen(state="proposed", settled=False, proposal_version=2), False, True),
        (Seen(state="ready", settled=False, proposal_version=1), False, True),
        (Seen(state="handed_over", settled=False, proposal_version=1), False, True),
        (Seen(state="succeeded", settled=True, proposal_version=1), True, True),
        (Seen(state="rejected", settled=True, proposal_version=1), True, True),
    ],
)
def test_news_wakes_who_waits_for_it(seen: Seen, operation: bool, approval: bool) -> None:
    """Woken for less, a run would spin; for more, it would sleep."""
    bound = happened(ev.ToolCallBound, call_id="refund", operation=REFUND, place=1)
    for on, wakes in (("operation", operation), ("approval", approval)):
        run = running(bound, parked(on=on, proposal_version=1), timedelta(minutes=1))
        told = run.when(lambda run, stamp: run.see(stamp, REFUND, seen))
        told.then(ev.OperationSeen)
        assert told.machine.is_told(told.machine.wait) is wakes  # type: ignore[arg-type]
        assert (told.machine.next_due() == run.clock.at) is wakes
        run.when(lambda run, stamp: run.see(stamp, REFUND, seen)).then()


def test_news_of_others_is_not_taken() -> None:
    """A run is told of what it is bound to, and of nothing else."""
    seen = Seen(state="succeeded", settled=True, proposal_version=0)
    running().when(lambda run, stamp: run.see(stamp, REFUND, seen)).then()


def test_a_signal_before_the_wait_is_found() -> None:
    """Somebody may answer before the run has come to its question."""
    run = running()
    assert run.when(lambda run, stamp: run.receive(stamp, "answer", '"yes"')).returned is True
    second = run.when(lambda run, stamp: run.receive(stamp, "answer", '"no"')).then()
    assert second.returned is False and second.machine.inputs == {"answer": '"yes"'}
    wait = parked(on="input", key="answer", operation=None)
    due = run.when(lambda run, stamp: _record(run, stamp, wait)).then_is("waiting").machine
    assert due.next_due() == START


def test_an_input_that_nobody_gives_is_due_at_the_deadline() -> None:
    """It costs nothing meanwhile."""
    wait = parked(on="input", key="answer", operation=None, until=START + HOUR, level="call")
    assert running(wait).when(lambda run, stamp: run.next_due()).returned == START + HOUR


def test_what_is_put_aside_is_left_alone_until_its_moment() -> None:
    """The deadline of what it had waited for would make it due all the time."""
    wait = parked(on="input", key="answer", operation=None, until=START + HOUR, level="call")
    later = START + 3 * HOUR
    aside = happened(ev.Suspended, reason="another version", due_at=later, failed=False)
    run = running(wait, 2 * HOUR).when(lambda run, stamp: _record(run, stamp, aside))
    run.then_is("suspended", due=later)


def test_cancelling_is_asked_of_an_owner_and_done_without_one() -> None:
    """A worker in the middle of a step is not cut off from what it has just done."""
    run = running()
    run.when(lambda run, stamp: run.cancel(stamp, "enough")).then(ev.CancelRequested)
    run.when(lambda run, stamp: run.cancel(stamp, "enough")).then()
    waiting = running(parked())
    waiting.when(lambda run, stamp: run.cancel(stamp, "enough")).then(ev.Cancelled)
    waiting.when(lambda run, stamp: run.cancel(stamp, "enough")).then()
    waiting.when(ask()).then_refused(TransitionRefused)


def test_a_session_that_is_over_is_recorded_and_ends_the_run() -> None:
    """Expired is a state with a cause, and no silence."""
    run = running(parked(), 10 * HOUR)
    run.when(lambda run, stamp: run.expire(stamp)).then(ev.DeadlinePassed, ev.Expired)


@pytest.mark.parametrize(
    ("state", "policy", "same", "later"),
    [
        ("absent", OnRecovery.REUSE, Recovered.ASK, Recovered.ASK),
        ("pending", OnRecovery.REUSE, Recovered.LOST, Recovered.LOST),
        ("pending", OnRecovery.RETRY, Recovered.ASK, Recovered.ASK),
        ("pending", OnRecovery.FRESH, Recovered.ASK, Recovered.ASK),
        ("returned", OnRecovery.REUSE, Recovered.RECORDED, Recovered.RECORDED),
        ("returned", OnRecovery.RETRY, Recovered.RECORDED, Recovered.RECORDED),
        ("returned", OnRecovery.FRESH, Recovered.RECORDED, Recovered.ASK),
        ("failed", OnRecovery.REUSE, Recovered.RECORDED, Recovered.RECORDED),
        ("failed", OnRecovery.RETRY, Recovered.ASK, Recovered.ASK),
        ("failed", OnRecovery.FRESH, Recovered.ASK, Recovered.ASK),
        ("lost", OnRecovery.REUSE, Recovered.RECORDED, Recovered.RECORDED),
        ("lost", OnRecovery.RETRY, Recovered.ASK, Recovered.ASK),
        ("lost", OnRecovery.FRESH, Recovered.ASK, Recovered.ASK),
        ("timed_out", OnRecovery.REUSE, Recovered.RECORDED, Recovered.RECORDED),
        ("timed_out", OnRecovery.RETRY, Recovered.RECORDED, Recovered.RECORDED),
        ("timed_out", OnRecovery.FRESH, Recovered.RECORDED, Recovered.RECORDED),
    ],
)
def test_what_a_resumed_run_gets(
    state: str, policy: OnRecovery, same: Recovered, later: Recovered
) -> None:
    """The whole table of reuse, retry and fresh, for the owner that asked and for the next."""
    call = None if state == "absent" else _call(state)
    assert (recovered(call, policy, 1), recovered(call, policy, 2)) == (same, later)


def test_checkpoints_are_small_and_at_boundaries() -> None:
    """What does not fit is kept elsewhere, by name: a checkpoint is no transcript."""
    assert checkpoint("milestone:triaged", {"a": 1}, {}).value == {"a": 1}
    checkpoint("after_result", "x" * (LIMIT_BYTES - 2), {})
    with pytest.raises(TooLarge, match="65537 bytes; 65536 are allowed"):
        checkpoint("after_result", "x" * (LIMIT_BYTES - 1), {})
    for boundary in ("somewhere", "milestone:", "milestone:Über"):
        with pytest.raises(InvalidInput, match="no boundary"):
            checkpoint(boundary, {}, {})
    with pytest.raises(InvalidInput, match="cannot be kept"):
        text_of("It", {"a": object()})


def _call(state: str) -> CallRecord:
    return CallRecord(
        *("plan", Sort.MODEL, "model", OnRecovery.RETRY, "d", UNTIL, "call", 1, 1), state=state
    )


def _record(run: Run, stamp: Stamp, what: Any) -> None:
    run.record(what.event_class, stamp, **what.fields)
