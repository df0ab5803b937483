"""Why an operation is where it is: every state is explained, and so is what stands in the way.

An operator acts on these sentences at night, so each says who has it and what comes next.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from settled import App, Kind, Money, NotFound, Params, PermissionDenied, Principal, presets
from settled.domain.approval import Requirement
from settled.domain.clock import Stamp
from settled.domain.contract import ProviderContract, Retention
from settled.domain.identity import Identity
from settled.domain.journal.port import AgendaRow, WorkerRow
from settled.domain.journal.unit import RecordedEvent
from settled.domain.operation import events as ev
from settled.domain.operation.lifecycle import STATES
from settled.domain.operation.operation import Operation, fields, intend, propose
from settled.infrastructure.seeding import seed
from settled.processes.ledger import head_of
from settled.processes.replay import RecordsOnly
from settled.projections.history import history_of
from settled.projections.why import Explanation, why
from settled.projections.why_states import Surroundings
from tests.projections.histories import BEGAN, history, mapper, terms

ALICE = WorkerRow(1, "alice", BEGAN, BEGAN + timedelta(hours=1), lapsed=False)
LAPSED = replace(ALICE, lapsed=True)
HOUR = timedelta(hours=1)


class RefundParams(Params):
    """What a refund is made of."""

    order: str
    amount: Money


class NoProvider:
    """A name and a contract. What is explained is read; nobody is asked."""

    def __init__(self, contract: ProviderContract, name: str = "psp.example") -> None:
        self.contract, self.name = contract, name


def kind(contract: ProviderContract = presets.stripe_v1_refund, **policy: Any) -> Kind[Any]:
    provider: Any = RecordsOnly(NoProvider(contract))  # type: ignore[arg-type]
    return Kind("refund", RefundParams, provider, "payments-oncall", **policy)


def operation(*names: str, **given: dict[str, Any]) -> Operation:
    """Return an operation to which these events happened, a second apart."""
    return machine(random.Random(7), names, given)


def machine(
    drawn: random.Random, names: Sequence[str], given: dict[str, dict[str, Any]]
) -> Operation:
    identity = Identity("acme", "refund", "refund-request-9")
    authorised = terms(drawn, identity).model_copy(
        update={"provider": "psp.example", "label": "Refund 30.00 USD for order-72"}
    )
    stamp = Stamp(BEGAN, "support-agent")
    if names[0] == "Proposed":
        made = propose(authorised, stamp, BEGAN + 24 * HOUR)
    else:
        made = intend(authorised, stamp, "key-1")
    for number, name in enumerate(names[1:], 1):
        at = stamp.later(BEGAN + timedelta(seconds=number))
        fields = {**_FIELDS.get(name, {}), **given.get(name, {})}
        made.record(
            getattr(ev, name), at, **{k: v(at) if callable(v) else v for k, v in fields.items()}
        )
    return made


def _soon(stamp: Any) -> Any:
    return stamp.at + timedelta(seconds=30)


_RULE = {"reason": "no reply within 30 s", "rule": "lost reply, window open"}
_FIELDS: dict[str, dict[str, Any]] = {
    "Rejected": {"proposal_version": 1, "reason": "not this one"},
    "Cancelled": {"reason": "no longer wanted"},
    "Claimed": {"worker": "alice", "epoch": 1, "due_at": _soon},
    "Released": {"reason": "the worker is stopping", "due_at": _soon},
    "Dispatching": {
        "attempt": 1,
        "key": "key-1",
        "worker": "alice",
        "epoch": 1,
        "permit_until": _soon,
        "call_deadline": _soon,
        "adapter": "http-json/1",
        "scope": (),
        "credential_fingerprint": "",
        "request_digest": "00",
    },
    "RetryScheduled": {**_RULE, "rule": "rate limited at first", "retry_at": _soon},
    "OutcomeUnknown": {
        **_RULE,
        "cause": "reply_lost",
        "sender_reported": True,
        "waited": False,
        "attempt_out": True,
        "next_at": _soon,
    },
    "Accepted": {
        "reference": "re_1",
        "via": "reply",
        "reason": "pending",
        "rule": "pending",
        "next_at": _soon,
    },
    "HandedOver": {
        "to": "payments-oncall",
        "reason": "the provider offers no look-up",
        "rule": "unanswered, nothing left",
        "next_at": _soon,
    },
    "Succeeded": {
        "reference": "re_1",
        "via": "reply",
        "replayed": False,
        "reason": "201",
        "rule": "performed",
    },
    "Failed": {"via": "reply", "reason": "400", "rule": "rejected"},
    "Reversed": {"via": "webhook", "reason": "taken back"},
    "Contradicted": {
        "to": "payments-oncall",
        "was": "failed",
        "reason": "settled as failed, and now: 200",
        "reference": "re_2",
        "next_at": _soon,
    },
    "CancelRequested": {"reason": "no longer wanted"},
}

SENT = ("Intended", "Claimed", "Dispatching")
UNKNOWN = (*SENT, "OutcomeUnknown")
WAYS: dict[str, tuple[str, ...]] = {
    "proposed": ("Proposed",),
    "ready": ("Intended",),
    "claimed": SENT[:2],
    "dispatching": SENT,
    "accepted": (*SENT, "Accepted"),
    "outcome_unknown": UNKNOWN,
    "handed_over": (*UNKNOWN, "HandedOver"),
    "succeeded": (*SENT, "Succeeded"),
    "failed": (*SENT, "Failed"),
    "rejected": ("Proposed", "Rejected"),
    "expired": ("Intended", "Expired"),
    "cancelled": ("Intended", "Cancelled"),
    "reversed": (*SENT, "Succeeded", "Reversed"),
}


def row(made: Operation, **given: Any) -> AgendaRow:
    head = head_of(made)
    return replace(
        AgendaRow(
            made.tenant,
            made.id,
            head.kind,
            head.identity,
            made.version,
            head.state,
            head.due_at,
            head.lane,
            head.priority,
            head.min_reader,
            1 if head.held else None,
            0,
            None,
        ),
        **given,
    )


def sealed(made: Operation) -> Sequence[RecordedEvent]:
    """Return the events of an operation as they would be stored."""
    return mapper().seal(made, lambda many: [uuid4() for _ in range(many)])


def explained(made: Operation, after: timedelta = HOUR, **around: Any) -> Explanation:
    """Explain an operation some time after it began; `head` is its agenda row."""
    head = around.pop("head", None) or row(made)
    records = sealed(made)
    around.setdefault("workers", [ALICE])
    return why(made, history_of(records), head, Surroundings(BEGAN + after, **around))


SAYS: dict[str, tuple[str, ...]] = {
    "proposed": ("nobody has decided", "expires at 2026-12-01"),
    "ready": ("nothing was sent yet", "attempt 1 of 8 is sent"),
    "claimed": ("alice, which is at work", "has sent nothing"),
    "dispatching": ("attempt 1 of 8 left at 2026-11-30 12:00:02 UTC", "its outcome is unknown"),
    "accepted": ("accepted it as re_1", "a webhook may tell"),
    "outcome_unknown": ("no reply within 30 s", "the same request again", "payments-oncall"),
    "handed_over": ("the provider offers no look-up", "`settled ops settle`"),
    "succeeded": ("performed it, receipt re_1", "nobody"),
    "failed": ("it had no effect: 400",),
    "rejected": ("declined", "not this one"),
    "expired": ("its time ran out",),
    "cancelled": ("withdrawn", "no longer wanted"),
    "reversed": ("took it back",),
}


@pytest.mark.parametrize("state", [state.name for state in STATES])
def test_every_state_is_explained(state: str) -> None:
    """One test for each state of the lifecycle: what happened, who has it, what comes next."""
    made = operation(*WAYS[state])
    assert made.state == state
    told = explained(made, kind=kind())
    text = " ".join(str(getattr(told, name)) for name in told.__slots__)
    for words in SAYS[state]:
        assert words in text, text
    assert told.happened and told.known and told.holder and told.next
    assert told.next_at == made.next_due()
    assert (told.next_at is None) == made.settled


def test_every_history_is_explained() -> None:
    """Total: whatever can have happened to an operation, nothing is left without words."""
    seen: set[str] = set()
    for number in range(400):
        drawn = random.Random(number)
        made, records = history(drawn, drawn.randrange(14))
        declared = drawn.choice([None, kind(), kind(presets.smtp), kind(second_owner="lead")])
        now = made.modified_on + timedelta(minutes=drawn.choice([-1, 0, 600]))
        around = Surroundings(now, drawn.choice([[], [ALICE], [LAPSED]]), False, declared)
        told = why(made, history_of(records), row(made), around)
        seen.add(told.state)
        assert all((told.happened, told.known, told.holder, told.next)), number
        assert (told.rule is None) == (told.rule_means is None), number
        assert told.since <= made.modified_on, number
    assert seen == {state.name for state in STATES}


def test_a_row_that_is_parked_or_paused_says_what_lets_it_go_on() -> None:
    """Nothing happens by itself then, whenever it is due."""
    made = operation("Intended")
    parked = explained(made, head=row(made, parked_at=BEGAN + HOUR, takes=5))
    assert "taken 5 times without progress" in parked.next and "ops unpark" in parked.next
    assert parked.next_at is None
    paused = explained(operation("Intended"), paused=True)
    assert paused.next == "nothing, while the lane acme/refund@1/psp.example is paused"


@pytest.mark.parametrize(
    ("workers", "words"),
    [([ALICE], "alice, which is at work"), ([LAPSED], "lease is over"), ([], "which is gone")],
)
def test_the_worker_that_has_it_is_named(workers: list[WorkerRow], words: str) -> None:
    """Whether it is alive decides whether to wait for it."""
    told = explained(operation(*SENT), workers=workers)
    assert words in told.holder
    gone = "another worker records that its outcome is unknown"
    assert told.next == ("the provider answers" if workers == [ALICE] else gone)


def test_the_window_of_the_key_closes() -> None:
    """Stripe keeps keys for a day: until when the same request may be sent again is said."""
    made = operation(*UNKNOWN)
    early = explained(made, kind=kind())
    assert early.key_until is not None and early.key is not None
    assert early.key_until < BEGAN + 24 * HOUR and "may be sent until" in early.key
    late = explained(operation(*UNKNOWN), 48 * HOUR, kind=kind())
    assert late.key is not None and "might have been sent until" in late.key
    unknown = replace(presets.stripe_v1_refund, retention=Retention())
    never = explained(operation(*UNKNOWN), kind=kind(unknown))
    assert never.key_until is None and never.key is not None and "not known" in never.key


def test_what_would_be_decided_now() -> None:
    """Recovery is asked, purely, with the contract that is declared now."""
    again = explained(operation(*UNKNOWN), timedelta(minutes=1), kind=kind())
    assert again.today is not None and again.today.startswith("send the same request")
    assert again.today_rule == "unanswered, window open"
    over = explained(operation(*UNKNOWN), kind=kind(presets.smtp))
    assert over.today is not None and over.today.startswith("hand it over")
    handed = explained(operation(*UNKNOWN, "HandedOver"), kind=kind())
    assert handed.today is not None and handed.today.startswith("given back now, send the same")


def test_a_kind_that_is_not_declared_here_is_said() -> None:
    """Without its contract nothing is guessed, also where it is declared with another provider."""
    told = explained(operation(*UNKNOWN))
    assert told.today is not None and "not declared" in told.today and "--kinds" in told.today
    provider: Any = RecordsOnly(NoProvider(presets.smtp, "mail.example"))  # type: ignore[arg-type]
    other = Kind("refund", RefundParams, provider, "payments-oncall")
    moved = explained(operation(*UNKNOWN), kind=other)
    assert moved.today is not None and "now declared with mail.example" in moved.today


def test_the_rule_is_that_of_the_present_state() -> None:
    """An old rule behind a new state would explain something else."""
    retried = operation(*SENT, "RetryScheduled")
    told = explained(retried)
    assert (told.rule, told.state) == ("rate limited at first", "ready")
    assert told.rule_means is not None and "one too many" in told.rule_means
    sent = operation(*SENT, "RetryScheduled", "Claimed")
    assert explained(sent).rule is None


def test_notes_say_what_stands_beside() -> None:
    """A cancel that waits, evidence that disagrees, something due with nobody at work."""
    made = operation(*UNKNOWN, "CancelRequested")
    notes = " ".join(explained(made, workers=[]).notes)
    assert "a cancel was requested" in notes and "no worker is at work" in notes
    disagreed = explained(operation(*SENT, "Failed", "Contradicted"))
    assert "only a person settles it" in " ".join(disagreed.notes)
    assert disagreed.today is None and "gives it back" not in disagreed.next


def test_proposals_name_the_roles_that_decide() -> None:
    """Whoever waits wants to know for whom."""
    told = explained(operation("Proposed"), kind=kind(approvers=frozenset({"lead"})))
    assert "role lead" in told.holder


def test_what_several_have_to_approve_says_how_many_are_missing() -> None:
    """Who has, how many have to, as what, and until when: what whoever waits asks."""
    asked = Requirement(roles=("finance-lead",), count=2, four_eyes=True)
    first = operation("Proposed")
    begun = given_machine(first, asked)
    stamp = Stamp(BEGAN + timedelta(seconds=5), "ada")
    about = {"proposal_version": 2, "digest": begun.terms.digest.value, "roles": ("finance-lead",)}
    begun.record(ev.Approved, stamp, **about)
    told = explained(begun)
    assert "1 approved it" in told.happened
    assert "it waits for approval: 1 of 2 (ada), needs the role finance-lead, until" in told.next
    assert "role finance-lead, and not editor or support-agent" in told.holder


def given_machine(machine: Operation, asked: Requirement) -> Operation:
    """Return the proposal revised to a version that asks for this."""
    stamp = Stamp(BEGAN + timedelta(seconds=4), "editor")
    given: dict[str, Any] = fields(machine.terms)
    until = BEGAN + 24 * HOUR
    machine.record(
        ev.Revised, stamp, **given, proposal_version=2, expires_at=until, requirement=asked
    )
    return machine


def test_the_application_explains(app: App) -> None:
    """From Python as on the command line, on both databases; only for one's own tenant."""
    seed(app.journal, 20)
    by, states = Principal("acme", "reader"), set[str]()
    for line in app.journal.heads("acme"):
        told = app.operations.why(Identity("acme", "refund", line.identity), by=by)
        assert (told.state, told.identity.operation_id) == (line.state, line.identity)
        assert told.happened and told.holder
        states.add(told.state)
    assert len(states) > 1
    with pytest.raises(NotFound):
        app.operations.why(Identity("acme", "refund", "refund-request-99"), by=by)
    with pytest.raises(PermissionDenied):
        app.operations.why(Identity("globex", "refund", "refund-request-4"), by=by)
