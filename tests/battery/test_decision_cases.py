"""Cases 23 to 26 from the field: decisions that came twice, late, or for something else.

What a run adds to them (its own approvals, budgets and deadlines) comes with the runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import settled
from settled import DecisionRefused, OperationView, ParametersChanged, SettledError
from settled.verify.checks_changes import approved, proposed, revised
from settled.verify.stage import AGENT, APPROVER, Stage
from tests.battery.deciders import deciders

HERE = Path(__file__).parent


@pytest.mark.parametrize("second", ["approve-ada", "reject-ada"])
def test_case_23_two_decide_at_once(stage: Stage, second: str) -> None:
    """Case 23: two processes decide at one moment: one decision, which both are told."""
    proposal = proposed(stage)
    told = _decide_together(stage, proposal, "approve-grace", second)
    names = stage.names(proposal)
    assert names.count("Approved") + names.count("Rejected") == 1
    stage.worker()
    if second == "approve-ada":
        done = stage.wait(proposal, "succeeded")
        assert [one["approved_by"] for one in told] == [done.approved_by] * 2
    elif "Approved" in names:
        done = stage.wait(proposal, "succeeded")
        assert "approved by approve-grace" in told[1]["refused"]
        assert told[1]["decision"] == told[0]["decision"] == ["approved", "approve-grace"]
    else:
        done = stage.get(proposal)
        assert told[1]["state"] == done.state == "rejected"
        assert "rejected by reject-ada" in told[0]["refused"]
        assert told[0]["decision"] == told[1]["decision"] == ["rejected", "reject-ada"]
    dispatched = names.count("Approved")
    assert stage.names(done).count("Dispatching") == dispatched
    assert (stage.requests(), stage.effects()) == (dispatched, dispatched)


def test_case_24_an_approval_is_for_what_was_approved(stage: Stage) -> None:
    """Case 24: approved for 10 and used; the same task with 999999 is refused, by any way in."""
    operations = stage.app.operations
    small = {"order": "order-72", "amount": settled.Money("10.00", "USD")}
    large = {"order": "order-72", "amount": settled.Money("999999.00", "USD")}
    proposal = operations.propose("decided", "refund-request-9", small, by=AGENT)
    approved(stage, proposal)
    stage.worker()
    done = stage.wait(proposal, "succeeded")
    with pytest.raises(ParametersChanged, match=r"stored 10\.00 USD, given 999999"):
        operations.propose("decided", "refund-request-9", large, by=AGENT)
    with pytest.raises(SettledError):
        operations.revise(done, large, by=AGENT)
    assert approved(stage, proposal).version == done.version, "used up: it dispatches nothing more"
    assert (stage.requests(), stage.effects()) == (1, 1)
    (effect,) = stage.simulator.effects()
    assert effect.fields["amount"] == "10.00"


ASKED: dict[str, Any] = {
    "order": "order-72",
    "amount": {"amount": "30.00", "currency": "USD"},
    "parcels": "7",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"amount": {"amount": "30.01", "currency": "USD"}},
        {"amount": {"amount": "30.00", "currency": "EUR"}},
        {"order": "order-73"},
        {"parcels": 8},
    ],
    ids=["amount", "currency", "order", "parcels"],
)
def test_case_25_the_same_approval_for_the_same_thing(
    stage: Stage, changed: dict[str, Any]
) -> None:
    """Case 25: written in another way it is what was approved; changed, it needs a new decision."""
    from tests.battery.decided_kinds import parcel  # it reads where the provider is

    again = ASKED | {"parcels": 7, "express": False, "note": "as agreed on the telephone"}
    with settled.open(stage.url, kinds=[parcel]) as app:
        operations = app.operations
        proposal = operations.propose(parcel, "parcel-1", ASKED, by=AGENT)
        resumed = operations.propose(parcel, "parcel-1", again, by=AGENT)
        assert (resumed.version, resumed.digest) == (proposal.version, proposal.digest)
        with pytest.raises(ParametersChanged):
            operations.propose(parcel, "parcel-1", ASKED | changed, by=AGENT)
        second = operations.revise(proposal, ASKED | changed, by=AGENT)
        assert second.proposal_version == 2 and second.digest != proposal.digest
        with pytest.raises(DecisionRefused):
            operations.approve(proposal, proposal_version=1, digest=proposal.digest, by=APPROVER)
        stage.worker(environment={"SETTLED_KINDS": str(HERE / "decided_kinds.py")})
        operations.approve(second, proposal_version=2, digest=second.digest, by=APPROVER)
        operations.wait(second, timeout_seconds=20)
    (effect,) = stage.simulator.effects()
    assert stage.requests() == 1
    amount = (ASKED | changed)["amount"]
    assert (effect.fields["amount"], effect.fields["currency"]) == tuple(amount.values())


def test_case_26_declined_is_declined_by_every_way_in(stage: Stage) -> None:
    """Case 26: sent again, edited or intended outright, what was declined is not performed."""
    operations = stage.app.operations
    proposal = proposed(stage)
    declined = operations.reject(
        proposal, proposal_version=1, digest=proposal.digest, by=APPROVER, reason="too much"
    )
    stage.worker()
    assert proposed(stage).version == declined.version, "the same again is told how it ended"
    edited = {"order": "order-72", "amount": settled.Money("29.99", "USD")}
    for way in (operations.propose, operations.intend):
        with pytest.raises(SettledError):
            way("decided", "refund-request-9", edited, by=AGENT)
    with pytest.raises(DecisionRefused):
        approved(stage, declined)
    assert stage.get(proposal).version == declined.version
    second = revised(stage, declined, "29.99")
    assert (second.state, second.proposal_version) == ("proposed", 2), "it needs its own decision"
    with pytest.raises(DecisionRefused):
        approved(stage, declined)
    other = stage.wait(stage.intend(), "succeeded")  # the worker had its chance
    assert stage.effects() == 1 and other.kind == "refund"
    assert stage.get(proposal).state == "proposed"


def _decide_together(stage: Stage, proposal: OperationView, *what: str) -> list[dict[str, Any]]:
    """Have as many processes decide at one moment, and return what each was told."""
    with deciders(stage, *what) as people:
        about: dict[str, Any] = {
            "version": proposal.proposal_version,
            "digest": proposal.digest,
        }
        for person in people:
            person.press(person.name.partition("-")[0], proposal.operation_id, **about)
        return [person.told() for person in people]
