"""Why an operation is where it is: what happened, by which rule, who has it, and what comes next.

A pure function of the operation's stream, its row in the agenda, the workers and, where it is known
here, the declared kind. Nothing is asked of a provider and nothing is decided: what recovery would
decide now is the answer of a pure function to what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from settled.domain.contract.words import RetentionKind
from settled.domain.identity import Identity
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import AgendaRow, Journal
from settled.domain.journal.unit import PURGED
from settled.domain.kinds import Kinds
from settled.domain.machine.lifecycle import ABSENT
from settled.domain.operation.operation import Operation
from settled.domain.recovery import Situation, Step, StepKind, recover
from settled.domain.recovery_rules import meaning_of
from settled.domain.situation import later
from settled.projections.history import HistoryEntry, history_of
from settled.projections.why_states import STATES, Case, Surroundings, in_words


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an operation is where it is, each part in a sentence.

    `since` is when it came into its state. `rule` is the rule that was recorded last in this state,
    with what it means. `holder` is who has to act. `next_at` is None where nothing happens by
    itself. `key` and `key_until` say for how long the provider keeps the key of what may be out;
    `today` is what recovery would decide now without new evidence, by `today_rule`. `notes` are
    what stands in the way, or has to be known beside the rest.
    """

    tenant: str
    kind: str
    operation_id: str
    label: str
    state: str
    version: int
    since: datetime
    happened: str
    known: str
    rule: str | None
    rule_means: str | None
    holder: str
    next: str
    next_at: datetime | None
    then: str | None
    key: str | None
    key_until: datetime | None
    today: str | None
    today_rule: str | None
    notes: tuple[str, ...]

    @property
    def identity(self) -> Identity:
        """Tenant, kind and operation id together."""
        return Identity(self.tenant, self.kind, self.operation_id)


def why_now(
    journal: Journal, mapper: EventMapper, identity: Identity, kinds: Kinds
) -> Explanation | None:
    """Read what is recorded of an operation and explain it; None where there is none.

    `kinds` are the declarations known here; the one that counts is that of the operation's version.
    """
    stream = Operation.stream(identity)
    head = journal.head(identity.tenant, stream)
    if head is None:
        return None
    records = journal.events(identity.tenant, stream, upto=head.version)
    operation = mapper.fold(records)
    assert isinstance(operation, Operation), "the stream of an operation holds one"
    around = Surroundings(
        journal.time(),
        journal.workers(),
        journal.lanes().get(head.lane, False),
        kinds.known(operation),
    )
    return why(operation, history_of(records), head, around)


def why(
    operation: Operation, entries: Sequence[HistoryEntry], head: AgendaRow, around: Surroundings
) -> Explanation:
    """Explain an operation. `entries` is the whole of its history, `head` its agenda row."""
    case = Case(operation, head, around)
    entered = _entered(entries)
    rules = [str(rule) for rule in map(_rule, entries[entered:]) if rule]
    told = STATES[operation.state](case)
    stopped = _stopped(case)
    key, key_until = _key(case)
    step = _decided_now(case)
    return Explanation(
        tenant=operation.tenant,
        kind=operation.kind,
        operation_id=operation.operation_id,
        label=operation.label,
        state=operation.state,
        version=operation.version,
        since=operation.since,
        happened=told.happened,
        known=Operation.LIFECYCLE.states[operation.state].meaning,
        rule=rules[-1] if rules else None,
        rule_means=meaning_of(rules[-1]) if rules else None,
        holder=told.holder,
        next=stopped or told.next,
        next_at=None if stopped else operation.next_due(),
        then=told.then,
        key=key,
        key_until=key_until,
        today=_today(case, step),
        today_rule=step.rule if step else None,
        notes=tuple(_notes(case, entries)),
    )


def _entered(entries: Sequence[HistoryEntry]) -> int:
    """Return the index of the event that led into the present state, or stands for it."""
    state, entered = ABSENT, 0
    if entries[0].name == PURGED:
        state = str(entries[0].fields["left"]["state"])
    for index, entry in enumerate(entries):
        if entry.name == PURGED:
            continue
        target = Operation.LIFECYCLE.step(state, entry.name).target
        if target != state:
            state, entered = target, index
    return entered


def _rule(entry: HistoryEntry) -> str | None:
    said = entry.fields["left"] if entry.name == PURGED else entry.fields
    rule: str | None = said.get("rule")
    return rule


# The key's window, and what recovery would decide.


def _situation(case: Case) -> Situation | None:
    operation = case.operation
    if operation.state not in _MAY_BE_OUT or operation.intended_at is None:
        return None  # a proposal can be contradicted before it was ever intended
    return operation.situation(case.now)


_MAY_BE_OUT = ("dispatching", "accepted", "outcome_unknown", "handed_over")


def _key(case: Case) -> tuple[str | None, datetime | None]:
    situation = _situation(case)
    if situation is None or situation.sent <= 0 or case.kind is None:
        return None, None
    contract = case.kind.provider.contract
    kind = contract.retention.kind
    if not contract.keyed:
        return f"{contract.provider} recognises no repeated request", None
    if kind is RetentionKind.FOREVER:
        return f"{contract.provider} keeps keys for ever", None
    if kind in (RetentionKind.UNKNOWN, RetentionKind.LAST_N) or situation.first_sent_at is None:
        return "it is not known until when the provider still has the key", None
    until = later(situation.first_sent_at, contract.retention.window - situation.timeout)
    ends = "may be sent until" if until > case.now else "might have been sent until"
    return f"the same request with the same key {ends} {in_words(until)}", until


def _decided_now(case: Case) -> Step | None:
    """Ask recovery, as if nobody answered and the worker were gone; None where it is not asked."""
    situation = _situation(case)
    operation = case.operation
    if situation is None or case.kind is None or _only_by_hand(operation):
        return None
    if operation.state == "handed_over":
        # Who gives it back gives it the time of an intent, counted from then.
        within = timedelta(seconds=operation.terms.within_seconds)
        situation = replace(situation, give_up_at=later(case.now, within))
    return recover(situation, case.kind.provider.contract, None, timedelta())


def _only_by_hand(operation: Operation) -> bool:
    return operation.state == "handed_over" and operation.contradicted


def _today(case: Case, step: Step | None) -> str | None:
    operation, declared = case.operation, case.around.kind
    if operation.state not in _MAY_BE_OUT or _only_by_hand(operation):
        return None
    if declared is None:
        return (
            f"what would be decided now is not known: the kind {operation.kind} is not declared"
            " here (name its module with --kinds)"
        )
    if step is None:
        return (
            f"what would be decided now is not known: it was authorised for provider"
            f" {operation.terms.provider}, and {declared.name} is now declared with"
            f" {declared.provider.name}"
        )
    condition = ""
    if operation.state == "handed_over":
        condition = "given back now, "
    elif operation.state == "dispatching" and case.owned:
        condition = "were its worker gone now, "
    waits = step.not_before is not None and step.not_before > case.now
    at = f" at {in_words(step.not_before)}" if waits else ""
    return f"{condition}{_STEPS[step.kind]}{at}: {step.reason}"


_STEPS: Mapping[StepKind, str] = {
    StepKind.DISPATCH: "send it under the same key",
    StepKind.RESEND: "send the same request with the same key again",
    StepKind.LOOK_UP: "ask the provider what came of it",
    StepKind.WAIT: "wait",
    StepKind.POLL: "ask the provider for the final outcome",
    StepKind.SETTLE_SUCCEEDED: "settle it as succeeded",
    StepKind.SETTLE_FAILED: "settle it as failed",
    StepKind.SETTLE_REVERSED: "hand it over as reversed",
    StepKind.ACCEPT: "count it as accepted",
    StepKind.CONFIRM_ABSENT: "count it as absent",
    StepKind.HAND_OVER: "hand it over",
}


# What stands in the way.


def _stopped(case: Case) -> str | None:
    """Return why nothing happens although something is due."""
    if case.operation.settled:
        return None
    if case.head.parked_at is not None:
        return (
            f"nothing: it was taken {case.head.takes} times without progress and parked at"
            f" {in_words(case.head.parked_at)}; `settled ops unpark` lets it go on"
        )
    if case.around.paused:
        return f"nothing, while the lane {case.head.lane} is paused"
    return None


def _notes(case: Case, entries: Sequence[HistoryEntry]) -> list[str]:
    operation, due = case.operation, case.operation.next_due()
    notes: list[str] = []
    if due is not None and due < case.now and not _stopped(case):
        at_work = [worker for worker in case.around.workers if not worker.lapsed]
        notes.append(
            f"it is due since {in_words(due)}"
            + ("" if at_work else ", and no worker is at work on this store")
        )
    if operation.cancel_requested and not operation.settled:
        notes.append("a cancel was requested, and is acted on once nothing is out")
    if operation.contradicted and operation.state == "handed_over":
        notes.append("evidence disagrees with how it had ended, so only a person settles it")
    elif operation.disputed and operation.state == "handed_over":
        notes.append("an answer was about something else than intended: only a person settles it")
    for entry in entries:
        if entry.name == PURGED:
            notes.append(
                f"its details were purged at {in_words(entry.at)} by {entry.actor}, with"
                f" {entry.fields['events']} events: {entry.fields['reason']}"
            )
    erased = [str(entry.version) for entry in entries if entry.erased]
    if erased:
        notes.append(f"the details of event {', '.join(erased)} were erased")
    return notes
