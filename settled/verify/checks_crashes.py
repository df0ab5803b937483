"""A1 to A7: workers killed at each boundary, and replies lost on the wire."""

from __future__ import annotations

from settled import Identity, InvalidEvidence, OperationView, PermissionDenied
from settled.verify.check import check, check_each, refused
from settled.verify.intending import IntendingProcess
from settled.verify.stage import AGENT, OPERATOR, Stage


def killed_then_recovered(stage: Stage, kind: str, fault: str) -> OperationView:
    """Intend, let the first worker die at the fault, and return what the second makes of it."""
    operation = stage.intend(kind=kind)
    stage.worker("first", fault=f"{fault}=kill").wait_killed()
    stage.worker("second")
    return stage.wait(operation, "succeeded", "handed_over")


def performed_and_killed(stage: Stage, *operations: OperationView) -> None:
    """Let a worker die when the provider has performed them all and answered none."""
    stage.simulator.fault(hold_after=True, times=len(operations))
    worker = stage.worker("first")
    stage.simulator.wait(held=len(operations))
    worker.kill()
    stage.simulator.release()


@check("A1", "committed, and its process killed")
def a1_an_intent_whose_process_died_is_found(stage: Stage) -> None:
    """The intent is committed and its process dies; a worker finds it in the agenda."""
    with IntendingProcess(stage, "refund-request-9") as service:
        service.wait_ready()
        service.go()
        assert service.answer()["version"] == 1
        service.kill()
    stage.worker()
    done = stage.wait(Identity("acme", "refund", "refund-request-9"), "succeeded")
    stage.expect(requests=1, effects=1)
    assert done.receipt is not None and done.reference == "re_1"
    stage.check_invariant(done, unsent=0)


@check_each(
    "A2",
    "killed with a claim, at {}",
    ["after_claim", "after_commit:Claimed", "before_commit:Dispatching"],
)
def a2_killed_after_the_claim_and_before_dispatching(stage: Stage, fault: str) -> None:
    """Owned and not sent: released, and dispatched once by another; nothing is unknown."""
    done = killed_then_recovered(stage, "checked", fault)
    assert done.state == "succeeded"
    names = stage.names(done)
    assert names.count("Dispatching") == 1 and "OutcomeUnknown" not in names
    if fault != "after_claim":
        assert names[:4] == ["Intended", "Claimed", "Released", "Claimed"]
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check_each(
    "A3",
    "killed before the request leaves, at {}",
    ["after_commit:Dispatching", "before_call:refund"],
)
def a3_killed_before_the_request_leaves(stage: Stage, fault: str) -> None:
    """Dispatching is durable, so the request may be out: unknown, then by contract."""
    done = killed_then_recovered(stage, "refund", fault)
    names = stage.names(done)
    assert done.state == "succeeded" and names.count("Dispatching") == 2
    assert stage.fields(done, "OutcomeUnknown")[0]["cause"] == "owner_gone"
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=1)


@check_each(
    "A4",
    "performed, and killed before the reply is recorded, at {}",
    ["after_call:refund", "before_commit:Succeeded"],
)
def a4_killed_before_the_reply_is_recorded(stage: Stage, fault: str) -> None:
    """The effect exists and its receipt does not; another worker resends the same request."""
    done = killed_then_recovered(stage, "refund", fault)
    names = stage.names(done)
    assert done.state == "succeeded" and names.count("Dispatching") == 2
    assert stage.fields(done, "OutcomeUnknown")[0]["cause"] == "owner_gone"
    stage.expect(requests=2, effects=1)
    assert done.receipt is not None and done.reference == "re_1"
    assert stage.fields(done, "Succeeded")[0]["replayed"] is True
    stage.check_invariant(done, unsent=0)


@check("A4", "performed, and killed while the reply is on its way")
def a4_killed_from_outside_while_the_provider_performs(stage: Stage) -> None:
    """As above, without a fault point: SIGKILL while the reply is on its way."""
    operation = stage.intend()
    performed_and_killed(stage, operation)
    stage.worker("second")
    done = stage.wait(operation, "succeeded")
    assert stage.names(done).count("Dispatching") == 2 and "OutcomeUnknown" in stage.names(done)
    stage.expect(requests=2, effects=1)
    assert done.receipt is not None
    stage.check_invariant(done, unsent=0)


@check("A4", "killed once the receipt is durable")
def a4_killed_once_the_receipt_is_durable(stage: Stage) -> None:
    """After the commit of Succeeded nothing is left to do: no event, no request."""
    done = killed_then_recovered(stage, "refund", "after_commit:Succeeded")
    assert stage.names(done) == ["Intended", "Claimed", "Dispatching", "Succeeded"]
    stage.expect(requests=1, effects=1)


@check("A5", "performed, and the reply is lost in five ways")
def a5_replies_lost_on_the_wire(stage: Stage) -> None:
    """Performed, and the reply is lost in each way that a wire has; no crash is involved."""
    ways = ("close", "reset", "cut_status_line", "cut_body", "garbage")
    operations = [stage.intend(way) for way in ways]
    for operation, way in zip(operations, ways, strict=True):
        stage.simulator.fault(key=operation.provider_key, reply=way)
    stage.worker()
    for operation in operations:
        done = stage.wait(operation, "succeeded")
        assert [len(stage.simulator.log().calls(done.provider_key))] == [2], done.operation_id
        assert stage.fields(done, "OutcomeUnknown")[0]["cause"] == "reply_lost"
        assert done.receipt is not None
    assert stage.effects() == len(ways)
    stage.check_invariant(*operations, unsent=0)


@check("A6", "performed and killed, without key and lookup")
def a6_without_key_and_lookup_nothing_is_sent_again(stage: Stage) -> None:
    """As A4, and nobody can be asked: handed over, and settled by a person with evidence."""
    stage.simulator.conduct(key="none")
    operation = stage.intend(kind="nothing")
    performed_and_killed(stage, operation)
    stage.worker("second")
    handed = stage.wait(operation, "handed_over")
    assert handed.owner == "payments-oncall" and handed.reason
    stage.expect(requests=1, effects=1)
    settle = stage.app.operations.settle
    seen = {"statement": "line 7 of 2026-11-30"}
    with refused(PermissionDenied):
        settle(
            handed, outcome="succeeded", evidence=seen, by=AGENT, reason="it is on the statement"
        )
    with refused(InvalidEvidence):
        settle(
            handed, outcome="succeeded", evidence={}, by=OPERATOR, reason="it is there, I am sure"
        )
    done = settle(
        handed,
        outcome="succeeded",
        evidence=seen,
        by=OPERATOR,
        reason="it is on the statement",
        reference="re_1",
    )
    assert done.state == "succeeded" and done.reference == "re_1"
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check("A7", "performed and killed, the window of the key over")
def a7_window_over_it_is_looked_up_or_handed_over(stage: Stage) -> None:
    """As A4, and the provider has forgotten the keys: a resend would perform it again."""
    stage.simulator.conduct(retention_seconds=0)
    looked_up, blind = (
        stage.intend("72", kind="lookup-only"),
        stage.intend("73", kind="window-over"),
    )
    performed_and_killed(stage, looked_up, blind)
    stage.worker("second")
    done, handed = stage.wait(looked_up, "succeeded"), stage.wait(blind, "handed_over")
    assert stage.fields(done, "Succeeded")[0]["via"] == "lookup"
    assert done.receipt is not None and handed.owner == "payments-oncall"
    stage.expect(requests=2, effects=2)
    stage.check_invariant(done, handed, unsent=0)
