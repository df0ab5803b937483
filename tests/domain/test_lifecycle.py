"""The table of an operation's life: total, reachable, and what the design says, arrow by arrow.

Everything else (guard, page, picture) is made from it, so a wrong arrow here is wrong everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.domain.clock import Stamp
from settled.domain.digest import Digest
from settled.domain.errors import (
    DecisionRefused,
    EffectPossible,
    InvalidLifecycle,
    NotPossible,
    TransitionRefused,
)
from settled.domain.journal.mapper import EventMapper
from settled.domain.keys import DerivedKeys
from settled.domain.machine import ABSENT, Arrow, Event, Lifecycle, Refusal, State
from settled.domain.operation import events as ev
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.operation import Operation, intend, propose
from settled.domain.operation.purge import what_is_left
from settled.domain.operation.terms import Terms
from settled.processes.ledger import head_of

OUT = "dispatching accepted outcome_unknown"

DESIGNED = {
    ABSENT: {"Proposed": "proposed", "Intended": "ready"},
    "proposed": {
        "Intended": "ready",
        "Rejected": "rejected",
        "ProposalExpired": "expired",
        "Cancelled": "cancelled",
        "Revised": "proposed",
    },
    "ready": {
        "Claimed": "claimed",
        "Cancelled": "cancelled",
        "Expired": "expired",
        "ApprovalRevoked": "proposed",
        "Revised": "proposed",
        "OutcomeUnknown": "outcome_unknown",
    },
    "claimed": {
        "Dispatching": "dispatching",
        "Released": "ready",
        "Revised": "proposed",
        "Cancelled": "cancelled",
        "OutcomeUnknown": "outcome_unknown",
    },
    "dispatching": {
        "Succeeded": "succeeded",
        "Failed": "failed",
        "Accepted": "accepted",
        "OutcomeUnknown": "outcome_unknown",
        "RetryScheduled": "ready",
    },
    "accepted": {
        "Succeeded": "succeeded",
        "Failed": "failed",
        "OutcomeUnknown": "outcome_unknown",
        "HandedOver": "handed_over",
    },
    "outcome_unknown": {
        "Succeeded": "succeeded",
        "Failed": "failed",
        "Accepted": "accepted",
        "ConfirmedAbsent": "ready",
        "Dispatching": "dispatching",
        "HandedOver": "handed_over",
    },
    "handed_over": {
        "Succeeded": "succeeded",
        "Failed": "failed",
        "ConfirmedAbsent": "ready",
        "ReconciliationResumed": "outcome_unknown",
    },
    "succeeded": {"Reversed": "reversed", "Contradicted": "handed_over"},
    "failed": {"Reissued": "ready", "Contradicted": "handed_over"},
    "rejected": {"Revised": "proposed", "Contradicted": "handed_over"},
    "expired": {"Revised": "proposed", "Contradicted": "handed_over"},
    "cancelled": {"Contradicted": "handed_over"},
    "reversed": {"Contradicted": "handed_over"},
}
"""The lifecycle as it was designed, written a second time and from another side."""

NOTED = {
    "EvidenceRecorded": set(DESIGNED) - {ABSENT},
    "CancelRequested": {*OUT.split(), "handed_over"},
    "LookedUp": {"accepted", "outcome_unknown", "handed_over"},
    "ProgressReported": {"dispatching", "accepted"},
    "Purged": {"succeeded", "failed", "rejected", "expired", "cancelled", "reversed"},
}
"""What is designed to change nothing, and where it can happen."""

JUSTIFIED = {
    ("proposed", "Approved"): "proposed",
    ("proposed", "Contradicted"): "handed_over",
    ("accepted", "ReconciliationScheduled"): "accepted",
    ("outcome_unknown", "ReconciliationScheduled"): "outcome_unknown",
    ("handed_over", "OwnerNotified"): "handed_over",
}
"""What docs/decisions/0002-lifecycle.md adds, with its reasons."""


def test_the_table_is_the_design_and_what_was_decided_beside_it() -> None:
    """No arrow is missing, and none is there that nobody decided on."""
    expected = {(s, e): target for s, out in DESIGNED.items() for e, target in out.items()}
    expected |= {(state, event): state for event, states in NOTED.items() for state in states}
    assert not expected.keys() & JUSTIFIED.keys()
    actual = {(state, event): step.target for state, event, step in LIFECYCLE.pairs() if step}
    assert actual == expected | JUSTIFIED


PAIRS = list(LIFECYCLE.pairs())


def test_every_pair_is_decided() -> None:
    """Total: as many pairs as states times events, each a step or an error with a name."""
    assert len(PAIRS) == (len(LIFECYCLE.states) + 1) * len(Operation.EVENTS)
    for state, event, step in PAIRS:
        if step is not None:
            assert LIFECYCLE.step(state, event) == step
            continue
        with pytest.raises(NotPossible) as caught:
            LIFECYCLE.step(state, event)
        named = type(caught.value)
        assert named in (EffectPossible, TransitionRefused)
        assert caught.value.message and caught.value.hint


def test_what_may_be_out_is_refused_by_its_own_name() -> None:
    """A caller tells "wait for the outcome" from "that makes no sense"."""
    for state in (*OUT.split(), "handed_over"):
        for event in ("Cancelled", "Revised", "ApprovalRevoked", "Expired"):
            assert isinstance(LIFECYCLE.refusal(state, event), EffectPossible)
    assert isinstance(LIFECYCLE.refusal("succeeded", "Cancelled"), TransitionRefused)
    assert "Claimed" in LIFECYCLE.refusal("ready", "Succeeded").hint
    lamp = Lifecycle(
        "lamp",
        states=[State("on", "Lit.", settled=True)],
        arrows=[Arrow((ABSENT,), "Lit", "on")],
    )
    with pytest.raises(TransitionRefused, match="nothing"):
        lamp.step("on", "Lit")


def test_every_state_is_reached_and_every_open_one_can_end() -> None:
    """Nothing waits for ever by construction: from each open state a way leads to a settled one."""
    reached, frontier = {ABSENT}, {ABSENT}
    while frontier:
        frontier = {s.target for a, _, s in PAIRS if s and a in frontier} - reached
        reached |= frontier
    assert reached == {ABSENT, *LIFECYCLE.states}
    ends = {name for name, state in LIFECYCLE.states.items() if state.settled}
    for _ in LIFECYCLE.states:
        ends |= {a for a, _, s in PAIRS if s and s.target in ends}
    assert ends == {ABSENT, *LIFECYCLE.states}


def test_each_guard_is_a_method_and_each_state_says_what_it_means() -> None:
    """A guard that is misspelt would fail when it is first needed."""
    for _, _, step in PAIRS:
        assert step is None or step.guard is None or callable(getattr(Operation, step.guard))
    assert all(len(state.meaning) > 30 for state in LIFECYCLE.states.values())
    assert {name for name, state in LIFECYCLE.states.items() if state.held} == {
        "claimed",
        "dispatching",
    }


def test_the_picture_shows_every_way() -> None:
    """People read the picture, not the table; self-loops lead nowhere and are left out."""
    picture = LIFECYCLE.mermaid("ready")
    for state, event, step in PAIRS:
        if step is not None and step.target != state:
            (line,) = [one for one in picture.splitlines() if f" {state} --> {step.target}:" in one]
            assert event in line
    assert "Class ready s_active" in picture
    assert "EvidenceRecorded" not in picture


OPEN, END = State("open", "Open."), State("end", "Over.", settled=True)
BEGUN, ENDED = Arrow((ABSENT,), "Begun", "open"), Arrow(("open",), "Ended", "end")


@pytest.mark.parametrize(
    ("states", "arrows", "refusals", "message"),
    [
        ([OPEN, OPEN, END], [BEGUN, ENDED], [], "named twice"),
        ([OPEN, END, State(ABSENT, "?")], [BEGUN, ENDED], [], "named twice"),
        ([OPEN, END], [BEGUN, ENDED, Arrow(("open",), "Ended", "open")], [], "two arrows"),
        ([OPEN, END], [BEGUN, ENDED, Arrow(("open",), "Lost", "lost")], [], "no state|lost"),
        ([OPEN, END], [BEGUN, ENDED, Arrow(("lost",), "Lost", "end")], [], "no state|lost"),
        ([OPEN, END, State("island", "?")], [BEGUN, ENDED], [], "nothing leads to island"),
        ([OPEN], [BEGUN], [], "nothing leads out of open"),
        (
            [OPEN, END],
            [BEGUN, ENDED],
            [Refusal(("open",), ("Ended",), EffectPossible, "?")],
            "decided twice",
        ),
        (
            [OPEN, END],
            [BEGUN, ENDED],
            [Refusal(("open",), ("Lost",), EffectPossible, "?")],
            "nothing is called Lost",
        ),
    ],
)
def test_a_wrong_table_is_refused_when_it_is_declared(
    states: list[State], arrows: list[Arrow], refusals: list[Refusal], message: str
) -> None:
    """At import, where its author sees it, and not in production, where an operation needs it."""
    with pytest.raises(InvalidLifecycle, match=message):
        Lifecycle("lamp", states=states, arrows=arrows, refusals=refusals)


# What was ended stays ended.


@pytest.mark.parametrize("end", ["Rejected", "ProposalExpired", "Cancelled", None])
def test_what_was_never_approved_is_not_sent_after_a_contradiction(end: str | None) -> None:
    """Evidence about a proposal goes to a person; no answer of theirs makes the proposal ready."""
    stamp = Stamp(START, "ada")
    machine = propose(Terms(**TERMS), stamp, START + timedelta(hours=1))
    ended: dict[str, tuple[type[Event], dict[str, Any]]] = {
        "Rejected": (ev.Rejected, {"proposal_version": 1}),
        "ProposalExpired": (ev.ProposalExpired, {}),
        "Cancelled": (ev.Cancelled, {}),
    }
    if end is not None:
        event, fields = ended[end]
        machine.record(event, stamp, **fields)
    told = {"to": "payments-oncall", "was": machine.state, "reason": "a webhook says so"}
    machine.record(ev.Contradicted, stamp, **told, reference="re_1", next_at=START)
    by_hand = {"via": "hand", "reason": "nothing there", "rule": "settled by hand"}
    with pytest.raises(DecisionRefused, match="nothing is sent for it again"):
        machine.record(ev.ConfirmedAbsent, stamp, **by_hand, due_at=START)
    with pytest.raises(DecisionRefused, match="nothing is sent for it again"):
        machine.record(ev.ReconciliationResumed, stamp, reason="go on", give_up_at=START)
    machine.record(ev.Failed, stamp, **by_hand)
    assert machine.state == "failed"


# Whatever happens, whoever is open is due.

START = datetime(2026, 11, 30, 14, 3, 9, tzinfo=UTC)
DIGEST = Digest("hmac-sha256", "00" * 32, "refund", 1, "k1")
TERMS: dict[str, Any] = {
    "tenant": "acme",
    "kind": "refund",
    "identity": "refund-request-9",
    "kind_version": 1,
    "mode": "live",
    "params": "{}",
    "params_version": 1,
    "digest": DIGEST,
    "provider": "psp",
    "hand_over_to": "payments-oncall",
    "priority": 1,
    "within_seconds": 3600.0,
    "attempts_allowed": 8,
    "call_timeout_seconds": 5.0,
    "permit_seconds": 1.0,
}
MEANT: Mapping[str, Any] = {
    **TERMS,
    "via": "webhook",
    "answered": "absent",
    "cause": "evidence",
    "reason": "a reason",
    "rule": "a rule",
    "was": "succeeded",
    "to": "payments-oncall",
    "roles": (),
    "reference": "re_1",
    "key": "key-1",
    "provider_key": "key-1",
    "worker": "worker-1",
    "adapter": "http/1",
    "scope": (),
    "credential_fingerprint": "f",
    "request_digest": "d",
    "epoch": 1,
    "attempt": 1,
    "generation": 1,
    "proposal_version": 1,
}
BOOLEANS = ("waited", "attempt_out", "sender_reported", "replayed", "delivered")


def fields_of(
    event: type[Event], machine: Operation, at: datetime, draw: st.DataObject
) -> dict[str, Any]:
    """Return what an event needs: moments about now, words that fit, either truth value."""
    if event is ev.Purged:
        return what_is_left(machine) | {"gone": "", "events": machine.version, "reason": "old"}
    fields: dict[str, Any] = {}
    for name, info in event.model_fields.items():
        if name in Event.model_fields or not info.is_required():
            continue
        if name == "digest" and event is ev.Approved:
            fields[name] = "00" * 32
        elif info.annotation is datetime:
            fields[name] = at + timedelta(seconds=draw.draw(st.integers(-5, 100)))
        elif name in BOOLEANS:
            fields[name] = draw.draw(st.booleans())
        else:
            fields[name] = MEANT[name]
    return fields


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_is_open_is_always_due(data: st.DataObject) -> None:
    """Any commands in any order: an open operation has a due time, a settled one has none.

    Without a due time nobody would look at it again; the agenda row is made from the same answer.
    And a fold of what was recorded is where the commands had led.
    """
    at = START
    stamp = Stamp(at, "support-agent")
    terms = Terms(**TERMS)
    if data.draw(st.booleans()):
        machine = propose(terms, stamp, at + timedelta(hours=1))
    else:
        machine = intend(terms, stamp, "key-1")
    recorded = 1
    for _ in range(data.draw(st.integers(1, 25))):
        at += timedelta(seconds=data.draw(st.integers(0, 60)))
        possible = [e for e in Operation.EVENTS if LIFECYCLE.allows(machine.state, e.name())]
        event = data.draw(st.sampled_from(possible), label=machine.state)
        try:
            machine.record(event, Stamp(at, "support-agent"), **fields_of(event, machine, at, data))
        except NotPossible:
            continue  # a guard refused it: nothing is recorded
        recorded += 1
        head = head_of(machine)
        assert (head.due_at is None) == LIFECYCLE.states[machine.state].settled
        assert head.held == (machine.state in ("claimed", "dispatching"))
        assert machine.provider_key or machine.state not in ("ready", *OUT.split())
    assert machine.version == recorded
    before = head_of(machine)
    ids = data.draw(st.lists(st.uuids(), min_size=recorded, max_size=recorded, unique=True))
    mapper = EventMapper(DerivedKeys(b"secret"))
    folded = mapper.fold(mapper.seal(machine, lambda count: ids))
    assert folded is not None
    assert head_of(folded) == before
