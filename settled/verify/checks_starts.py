"""A8 to A11: who starts the same business operation again, and who starts another one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from settled import Identity, Money, NotPossible, OperationView, ParametersChanged
from settled.domain.identity import provider_key
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.purge import evidence_window
from settled.infrastructure.audit.auditor import verify
from settled.verify.check import check, refused
from settled.verify.intending import IntendingProcess
from settled.verify.receiver import event_of, tell
from settled.verify.stage import AGENT, APPROVER, OPERATOR, Stage

PROCESSES = 8


@check("A8", "eight processes intend the same at once")
def a8_eight_processes_intend_the_same_at_once(stage: Stage) -> None:
    """Eight processes intend one identity at one moment: one operation, one request."""
    stage.worker()
    with ExitStack() as stack:
        started = [
            stack.enter_context(IntendingProcess(stage, "refund-request-9"))
            for _ in range(PROCESSES)
        ]
        for process in started:
            process.wait_ready()
        for process in started:
            process.go()
        answers = [process.answer() for process in started]
    assert len({answer["key"] for answer in answers}) == 1
    done = stage.wait(stage.intend(), "succeeded")
    retried = stage.fields(done, "RetryScheduled")
    assert stage.names(done) == ["Intended", "Claimed", "Dispatching", "Succeeded"], retried
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A9", "after success")
def a9_a_duplicate_start_after_success(stage: Stage) -> None:
    """It gets the recorded outcome, while a worker is at work; the stream is as it was."""
    stage.worker()
    done = stage.wait(stage.intend(), "succeeded")
    with IntendingProcess(stage, done.operation_id) as other:
        other.wait_ready()
        other.go()
        assert other.answer() == {"key": done.provider_key, "version": done.version}
    assert stage.intend() == done
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A9", "after its details were purged")
def a9_a_duplicate_start_after_a_purge(stage: Stage) -> None:
    """The same outcome from what is left; other parameters are refused; nothing is sent.

    Before that the purge is refused, as long as the provider may still have a use for the details.
    """
    stage.worker()
    operation = stage.intend("order-72", kind="forgetful")
    done = stage.wait(operation, "succeeded")
    stage.check_invariant(done, unsent=0)
    with refused(NotPossible, match="may be needed as evidence until"):
        _purge(stage, done)
    stage.wait_until(done.since + evidence_window(stage.app.kinds["forgetful"].provider.contract))
    left = _purge(stage, done)
    assert stage.names(left) == ["Purged"]
    log = stage.app.journal.read(0, 1000).events
    assert not [event.topic for event in log if b"30.00" in event.state + (event.body or b"")]
    late = stage.intend("order-72", kind="forgetful")
    assert late == left
    outcome = ("state", "reference", "provider_key", "digest", "since", "rule")
    assert [getattr(late, name) for name in outcome] == [getattr(done, name) for name in outcome]
    with refused(ParametersChanged, match="details have been erased"):
        stage.intend("order-72", kind="forgetful", amount="35.00")
    assert done.reference is not None
    known = tell(stage, event_of(stage, done.reference), kind="forgetful")
    assert known is not None and known.state == "succeeded"
    assert verify(stage.app.journal, stage.url).breaches == ()
    stage.expect(requests=1, effects=1)


def _purge(stage: Stage, operation: OperationView) -> OperationView:
    return stage.app.operations.purge(operation, by=OPERATOR, reason="its time is over")


@check("A10", "another amount, in each of the states")
def a10_a_duplicate_with_another_amount_in_every_state(stage: Stage) -> None:
    """Whatever state it is in, the stored parameters stand: refused, the stream untouched."""
    brought = {state: bring(stage) for state, bring in _unworked().items()}
    stage.worker()
    brought |= {state: bring(stage) for state, bring in _worked().items()}
    reached = {state: stage.wait(operation, state) for state, operation in brought.items()}
    assert set(reached) == set(LIFECYCLE.states)
    for state, operation in reached.items():
        before = stage.app.operations.history(operation, by=AGENT)
        seen = len(stage.simulator.log().calls(operation.provider_key or "none"))
        with refused(ParametersChanged, match="another amount: stored 30.00 USD, given 35"):
            _again(stage, operation, "35.00")
        same = _again(stage, operation, "30.00")
        assert (same.version, same.state) == (operation.version, state)
        assert same.receipt == operation.receipt
        after = stage.app.operations.history(operation, by=AGENT)
        assert [entry.hash for entry in after] == [entry.hash for entry in before], state
        assert len(stage.simulator.log().calls(operation.provider_key or "none")) == seen


@check("A11", "the same amount under a new identity")
def a11_a_second_partial_refund_is_another_operation(stage: Stage) -> None:
    """The same amount again under a new identity is meant: two effects, two keys."""
    stage.simulator.conduct(captured={"order-72": "100.00"})
    stage.worker()
    first = stage.wait(stage.intend("refund-request-9"), "succeeded")
    second = stage.wait(stage.intend("refund-request-10"), "succeeded")
    late = stage.intend("refund-request-9")
    assert late.reference == first.reference != second.reference
    stage.expect(requests=2, effects=2)
    assert first.provider_key != second.provider_key
    stage.check_invariant(first, second, unsent=0)


Bring = Callable[[Stage], OperationView]


def _again(stage: Stage, operation: OperationView, amount: str) -> OperationView:
    params = {"order": operation.operation_id, "amount": Money(amount, "USD")}
    kind = stage.app.kinds[operation.kind]
    start = stage.app.operations.propose if kind.approvers else stage.app.operations.intend
    return start(kind, operation.operation_id, params, by=AGENT)


def _propose(stage: Stage, operation_id: str, kind: str = "decided") -> OperationView:
    params = {"order": operation_id, "amount": Money("30.00", "USD")}
    return stage.app.operations.propose(kind, operation_id, params, by=AGENT)


def _unworked() -> dict[str, Bring]:
    """Return what comes about while no worker runs."""
    return {"cancelled": _cancelled, "expired": lambda stage: _propose(stage, "expired", "brief")}


def _worked() -> dict[str, Bring]:
    """Return how an operation comes into each of the other states, and stays there."""
    return {
        "succeeded": lambda stage: _intend(stage, "succeeded"),
        "failed": _failed,
        "reversed": _reversed,
        "proposed": lambda stage: _propose(stage, "proposed"),
        "rejected": _rejected,
        "ready": _ready,
        "claimed": _claimed,
        "dispatching": _dispatching,
        "outcome_unknown": _outcome_unknown,
        "handed_over": _handed_over,
        "accepted": _accepted,
    }


def _intend(stage: Stage, operation_id: str, kind: str = "refund") -> OperationView:
    return stage.intend(operation_id, kind=kind, order=operation_id)


def _cancelled(stage: Stage) -> OperationView:
    operation = _intend(stage, "cancelled")
    return stage.app.operations.cancel(operation, by=AGENT, reason="the customer kept it")


def _failed(stage: Stage) -> OperationView:
    stage.simulator.conduct(captured={"failed": "20.00"})
    return _intend(stage, "failed")


def _reversed(stage: Stage) -> OperationView:
    done = stage.wait(_intend(stage, "reversed"), "succeeded")
    told = stage.app.operations.record_evidence(
        by=AGENT, provider="simulator", answered="reversed", reference=done.reference
    )
    assert told is not None
    return told


def _rejected(stage: Stage) -> OperationView:
    proposal = _propose(stage, "rejected")
    return stage.app.operations.reject(
        proposal, proposal_version=1, digest=proposal.digest, by=APPROVER, reason="no receipt"
    )


def _ready(stage: Stage) -> OperationView:
    """The provider refuses the first request before it does anything, and asks to be left alone."""
    _plan(stage, "ready", execute=False, status=429, headers={"Retry-After": "300"})
    operation = _intend(stage, "ready")
    stage.wait_event(operation, "RetryScheduled")
    return operation


def _claimed(stage: Stage) -> OperationView:
    """What is asked before the dispatch is not answered."""
    stage.simulator.fault(on="reads", hold_before=True)
    operation = _intend(stage, "claimed", "asked")
    stage.simulator.wait(held=1)
    return operation


def _dispatching(stage: Stage) -> OperationView:
    _plan(stage, "dispatching", "patient", hold_after=True)
    return _intend(stage, "dispatching", "patient")


def _outcome_unknown(stage: Stage) -> OperationView:
    """The reply is lost, and the resend is refused with the wish to be left alone."""
    key = _plan(stage, "unknown", reply="close")
    headers = {"Retry-After": "300"}
    stage.simulator.fault(key=key, execute=False, status=429, headers=headers)
    operation = _intend(stage, "unknown")
    stage.wait_event(operation, "OutcomeUnknown", 2)
    return operation


def _handed_over(stage: Stage) -> OperationView:
    stage.simulator.fault(reply="close")  # of the next request, which has no key
    operation = stage.wait(_intend(stage, "handed", "patient-nothing"), "handed_over")
    stage.wait_event(operation, "OwnerNotified")  # and again in an hour
    return operation


def _accepted(stage: Stage) -> OperationView:
    stage.simulator.conduct(pending={})
    return _intend(stage, "accepted", "told")


def _plan(stage: Stage, operation_id: str, kind: str = "refund", **fault: object) -> str:
    """Plan a fault for an operation that is not yet intended."""
    identity = Identity("acme", kind, operation_id)
    key = provider_key(stage.app.installation.id, identity, 1)
    stage.simulator.fault(key=key, **fault)
    return key
