"""People who decide at once, and one after the other with everything restarted in between.

They meet in the store alone: each of them is a process. However they meet, one version of a
proposal has one decision, everybody is told the same one, and nothing is sent without it.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from settled import Money, OperationView, Principal
from settled.infrastructure.clock import elapsed_seconds
from settled.verify.checks_changes import proposed
from settled.verify.stage import AGENT, Stage
from tests.battery.deciders import Decider, deciders

SECONDS = 60.0 if os.environ.get("SETTLED_LONG") else 0.0
"""The race goes on for so long, and each pair of buttons is pressed twice at least."""

BUTTONS = ("approve", "reject", "revise")


def test_two_processes_race_on_proposals(stage: Stage) -> None:
    """Approved, declined and revised at once, round after round: no version has two decisions."""
    ends_at = elapsed_seconds() + SECONDS
    meetings = list(itertools.product(BUTTONS, BUTTONS))
    begun: list[OperationView] = []
    with deciders(stage, "grace", "alan") as people:
        while len(begun) < 2 * len(meetings) or elapsed_seconds() < ends_at:
            number = len(begun)
            pressed = meetings[number % len(meetings)]
            proposal = proposed(stage, f"refund-request-{number}")
            begun.append(proposal)
            about = {"version": 1, "digest": proposal.digest}
            for who, what in zip(people, pressed, strict=True):
                given: dict[str, Any] = (
                    {"amount": f"{20 + number % 7}.00"} if what == "revise" else about
                )
                who.press(what, proposal.operation_id, **given)
            _check(stage, proposal, pressed, [who.told() for who in people])
    approved = [one for one in map(stage.get, begun) if one.state == "ready"]
    assert approved, "nobody ever won with an approval"
    stage.worker()
    for one in approved:
        stage.wait(one, "succeeded", timeout_seconds=60)
    stage.expect(requests=len(approved), effects=len(approved))


def _check(
    stage: Stage, proposal: OperationView, pressed: tuple[str, ...], told: list[dict[str, Any]]
) -> None:
    """What was recorded is one order of what was pressed, and everybody was told of it."""
    names, now = stage.names(proposal), stage.get(proposal)
    decisions = _decisions(stage, proposal)
    for version, found in decisions.items():
        assert len(found) == 1, f"version {version} has the decisions {found}: {names}"
        for what, one in zip(pressed, told, strict=True):
            if what != "revise" and one["decision"] is not None and version == 1:
                assert one["decision"] == found[0], f"{what} was told {one}, and there is {found}"
    assert names.count("Intended") == names.count("Approved"), names
    assert names.count("Revised") == sum(
        what == "revise" and "refused" not in one for what, one in zip(pressed, told, strict=True)
    )
    assert "Dispatching" not in names, names
    if now.state == "ready":
        (latest,) = decisions[now.proposal_version]
        assert latest[0] == "approved" and now.approved_by == latest[1]


def _decisions(stage: Stage, proposal: OperationView) -> dict[int, list[list[str]]]:
    """Return who decided how, by version."""
    found: dict[int, list[list[str]]] = {}
    by = Principal(proposal.tenant, "reader")
    for entry in stage.app.operations.history(proposal, by=by):
        if entry.name in ("Approved", "Rejected"):
            version = int(entry.fields["proposal_version"])
            found.setdefault(version, []).append([entry.name.lower(), entry.actor])
    return found


def test_two_of_two_at_once_are_both_counted(stage: Stage) -> None:
    """Both approvals come in one moment: neither is lost, and it is intended once."""
    with deciders(stage, "grace", "alan") as people:
        for number in range(6):
            proposal = _large(stage, f"refund-request-{number}")
            for who in people:
                _press(who, "approve", proposal)
            told = [who.told() for who in people]
            assert sorted(one["state"] for one in told) == ["proposed", "ready"]
            names = stage.names(proposal)
            assert (names.count("Approved"), names.count("Intended")) == (2, 1)


def test_decided_one_by_one_with_restarts_in_between(stage: Stage) -> None:
    """Four proposals wait; between any two decisions, service, people and worker are new ones.

    Each decision is found by whoever comes next, and each proposal waits for its own.
    """
    waiting = [_large(stage, f"refund-request-{number}") for number in range(3)]
    waiting.append(proposed(stage, "refund-request-9"))
    for step, (proposal, what) in enumerate(
        [
            (waiting[0], "approve"),
            (waiting[1], "approve"),
            (waiting[3], "approve"),
            (waiting[1], "reject"),
            (waiting[0], "approve"),
        ]
    ):
        stage.move(stage.url)
        killed = stage.worker(f"worker-{step}", lease_seconds=0.5)
        with deciders(stage, f"person-{step}") as (person,):
            _press(person, what, proposal)
            assert "refused" not in person.told()
            person.kill()
        killed.end()
    stage.move(stage.url)
    stage.worker("last")
    for done in (waiting[0], waiting[3]):
        stage.wait(done, "succeeded")
    states = [stage.get(one).state for one in waiting]
    assert states == ["succeeded", "rejected", "proposed", "succeeded"]
    assert stage.effects() == 2
    deciding = _decisions(stage, waiting[0])
    assert deciding == {1: [["approved", "person-0"], ["approved", "person-4"]]}


def _large(stage: Stage, operation_id: str) -> OperationView:
    """Propose what two people have to approve."""
    params = {"order": "order-72", "amount": Money("500.00", "USD")}
    return stage.app.operations.propose("ruled", operation_id, params, by=AGENT)


def _press(who: Decider, what: str, proposal: OperationView) -> None:
    about = {"version": proposal.proposal_version, "digest": proposal.digest}
    who.press(what, proposal.operation_id, proposal.kind, **about)
