"""The six answers that a kind owes: derived from its declaration, its contract and the store.

What is stored, who it is and who owns it, where it survives, what wakes it, what can repeat, and
how an outcome that is not known is resolved. How recovery goes on is not described here but asked:
the recovery decision itself is put in front of the situations that a lost reply leads to.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from settled.domain import inbox
from settled.domain.contract.parts import FOREVER, LookupPromise
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import Consistency, Dedup, KeySupport, RetentionKind
from settled.domain.kind import Kind
from settled.domain.obstacles import resend_obstacle
from settled.domain.operation.events import EVENTS
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.recovery import recover
from settled.domain.situation import Situation, Step, StepKind, in_words

_SENT_AT = datetime(2000, 1, 1, tzinfo=UTC)
"""Any moment: only what passes after it counts."""

_SECOND = timedelta(seconds=1)
_NO_JITTER = timedelta()


class Question(enum.StrEnum):
    """What is asked of every kind."""

    STORED = "what is stored"
    IDENTITY = "identity and owner"
    SURVIVES = "where it survives"
    WAKES = "what wakes it"
    REPEATS = "what can repeat"
    RESOLVED = "how an uncertain outcome is resolved"


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What is known of the store. `problems` are reasons for which it may not survive a restart."""

    name: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in sentences. `missing` says what cannot be answered: then nothing is ready."""

    question: Question
    lines: tuple[str, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """All that a kind owes. `unknown` names what its contract leaves open."""

    kind: str
    provider: str
    answers: tuple[Answer, ...]
    unknown: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Everything that is missing, each with its question."""
        return tuple(
            f"{answer.question}: {what}" for answer in self.answers for what in answer.missing
        )


def cards(kinds: Iterable[Kind[Any]], store: StoreFacts, open_kinds: Sequence[str]) -> list[Card]:
    """Return a card for each declared kind, for the evidence inbox, and for each kind that has open
    operations in the store (`open_kinds`) and is declared nowhere.
    """
    declared = list(kinds)
    known = {kind.name for kind in declared} | {inbox.KIND}
    return [
        *(card(kind, store) for kind in declared),
        evidence_card(store),
        *(undeclared_card(name) for name in open_kinds if name not in known),
    ]


def card(kind: Kind[Any], store: StoreFacts) -> Card:
    """Return the card of one kind."""
    contract = kind.provider.contract
    return Card(
        kind.name,
        f"{contract.provider}, {contract.operation}",
        (
            _stored(kind),
            _identity(kind),
            survives(store),
            _wakes(kind),
            _repeats(kind),
            _resolved(kind),
        ),
        tuple(unknowns(contract)),
    )


def undeclared_card(name: str) -> Card:
    """Return the card of a kind of which there are open operations and no declaration."""
    missing = ("it has open operations in this store, and is not declared",)
    return Card(name, "", tuple(Answer(question, (), missing) for question in Question))


def evidence_card(store: StoreFacts) -> Card:
    """Return the card of evidence that is without its operation."""
    stored = "What a webhook or a report said, where its operation is not known (yet)."
    identity = (
        "The tenant, and the provider's event id, or a digest of what was said: the same words"
        " again are the same stream. It has no owner: what it belongs to has one.",
    )
    wakes = (
        f"Its agenda row: looked at again after {_length(inbox.FIRST_RETRY)}, then ever later,"
        f" at most every {_length(inbox.LONGEST_RETRY)}, for {_length(inbox.KEEP)}.",
    )
    repeats = ("Nothing is sent for it. Joined twice, it is one event of its operation.",)
    resolved = (
        "It joins its operation as soon as that is known, and is judged there. What finds none in"
        f" {_length(inbox.KEEP)} is unmatched: `settled ops list --kind {inbox.KIND} --state"
        " unmatched` shows it to a person.",
    )
    return Card(
        inbox.KIND,
        "every provider",
        (
            Answer(Question.STORED, (stored,)),
            Answer(Question.IDENTITY, identity),
            survives(store),
            Answer(Question.WAKES, wakes),
            Answer(Question.REPEATS, repeats),
            Answer(Question.RESOLVED, resolved),
        ),
    )


def blocked_by_unknowns(kind: Kind[Any]) -> str | None:
    """Return what an unknown of the contract costs: why a lost reply is handed over at once.

    None where recovery has an automatic step, or where the contract leaves nothing open.
    """
    step = _lost(kind, kind.call_timeout)
    if step.kind is not StepKind.HAND_OVER:
        return None
    unknown = ", ".join(unknowns(kind.provider.contract))
    return f"{step.reason}; the contract leaves open: {unknown}" if unknown else None


def unknowns(contract: ProviderContract) -> Iterator[str]:
    """Name what the contract leaves open, as far as recovery would use it."""
    if contract.keyed:
        if contract.dedup is Dedup.CLIENT_KEY and contract.key_support is KeySupport.UNKNOWN:
            yield "key_support"
        for name in ("retention", "matching"):
            if getattr(contract, name).kind.value == "unknown":
                yield name
        for name in ("duplicate_completed", "duplicate_in_flight"):
            if getattr(contract, name).value == "unknown":
                yield name
        if contract.cached is None:
            yield "cached"
        if contract.key_scope is None:
            yield "key_scope"
    if contract.max_in_flight is None:
        yield "max_in_flight"
    for lookup in contract.lookups:
        yield from _unknown_of(lookup)


def _unknown_of(lookup: LookupPromise) -> Iterator[str]:
    if lookup.consistency is Consistency.UNKNOWN:
        yield f"lookups ({lookup.by}): consistency"
    if lookup.consistency is Consistency.EVENTUAL and lookup.max_lag is None:
        yield f"lookups ({lookup.by}): max_lag"
    if lookup.horizon is None:
        yield f"lookups ({lookup.by}): horizon"


def _stored(kind: Kind[Any]) -> Answer:
    fields = ", ".join(kind.params.model_fields) or "nothing"
    return Answer(
        Question.STORED,
        (
            f"Its parameters ({fields}), exactly as authorised, with their digest; the sealed"
            " request, without credentials; the answers, and the receipt.",
            f"One event for each of {len(EVENTS)} things that can happen to it, chained by hashes,"
            " with actor and time. Each request that can have an effect has its own, before it.",
        ),
    )


def _identity(kind: Kind[Any]) -> Answer:
    owner = kind.hand_over_to.strip()
    lines = [f"Tenant, {kind.name}, and the operation id that the business gives."]
    if kind.needs_approval:
        roles = " or ".join(sorted(kind.policy.roles))
        lines.append(f"Nothing is sent before a {roles} has approved this version of it.")
    if not owner:
        return Answer(Question.IDENTITY, tuple(lines), ("hand_over_to names nobody",))
    lines.append(f"What cannot be resolved belongs to {owner}.")
    return Answer(Question.IDENTITY, tuple(lines))


def survives(store: StoreFacts) -> Answer:
    """Say where everything survives, or what keeps it from that."""
    lines = (f"In {store.name}. A commit has reached its disk before anything is sent.",)
    return Answer(Question.SURVIVES, () if store.problems else lines, store.problems)


def _wakes(kind: Kind[Any]) -> Answer:
    contract = kind.provider.contract
    lines = [
        "Its agenda row, which always has one next time while it is open: any worker that serves"
        f" {kind.name} takes it then, and what a dead worker held.",
    ]
    if contract.outcomes.webhook_events:
        lines.append(f"Webhooks: {', '.join(contract.outcomes.webhook_events)}.")
    poll = contract.outcomes.poll
    if contract.lookups and not contract.outcomes.acceptance_only:
        lines.append(
            f"While the provider has not finished: a poll after {in_words(poll.first)}, then ever"
            f" later, at most every {in_words(poll.longest)}."
        )
    return Answer(Question.WAKES, tuple(lines))


def _repeats(kind: Kind[Any]) -> Answer:
    contract = kind.provider.contract
    lines = ["A duplicate start repeats nothing: it gets the operation that there is."]
    missing: tuple[str, ...] = ()
    obstacle = _resend_obstacle(kind)
    if obstacle is None:
        until = min(_resends_end(kind), kind.within)
        attempts = min(kind.retry.attempts, contract.limits.max_attempts or kind.retry.attempts)
        lines.append(
            f"The same request, byte for byte and with the same key, until {in_words(until)} after"
            f" the first, {attempts} in all: the provider performs it once."
        )
    else:
        lines.append(
            "No request that may have had an effect, unless it is proven that there was none:"
            f" {obstacle}."
        )
    if contract.key_support is KeySupport.MUST_BE_ENABLED and not contract.key_enabled_ref:
        missing = ("nobody has stated that keys are enabled at the provider (key_enabled_ref)",)
    if contract.severity.duplicate_cost:
        lines.append(f"What a second effect would cost: {contract.severity.duplicate_cost}.")
    return Answer(Question.REPEATS, tuple(lines), missing)


def _resolved(kind: Kind[Any]) -> Answer:
    owner = kind.hand_over_to.strip()
    automatic = _lost(kind, kind.call_timeout).kind is not StepKind.HAND_OVER
    lines = list(_way(kind))
    told = f"told every {in_words(kind.notify_every)}"
    if kind.second_owner:
        told += f", and {kind.second_owner} too after {kind.second_owner_after} times"
    lines.append(
        f"What is not known {in_words(kind.within)} after the intent is handed over to"
        f" {owner or 'nobody'}, {told}, until it is settled with evidence."
        if automatic
        else f"{owner or 'Nobody'} is {told}, until it is settled with evidence."
    )
    if owner:
        return Answer(Question.RESOLVED, tuple(lines))
    why = "nobody is named to hand over to"
    if not automatic:
        why += ", and the contract leaves no automatic step"
    return Answer(Question.RESOLVED, tuple(lines), (why,))


def _way(kind: Kind[Any]) -> Iterator[str]:
    """Yield what recovery does about a lost reply, step after step."""
    step = _lost(kind, kind.call_timeout)
    yield _told(kind, step, "After a lost reply")
    if step.kind is StepKind.RESEND and (end := _resends_end(kind)) < kind.within:
        step = _lost(kind, end + _SECOND)
        yield _told(kind, step, "Once that is over")
    if step.kind is StepKind.LOOK_UP or kind.provider.contract.lookups:
        found = _looked_up(kind, Answered.PERFORMED)
        yield _told(kind, found, "A look-up that finds it")
        absent = _looked_up(kind, Answered.ABSENT)
        yield _told(kind, absent, "A look-up that never finds it")


_STEPS = {
    StepKind.DISPATCH: "sent when it is due",
    StepKind.RESEND: "the same request is sent again with the same key",
    StepKind.LOOK_UP: "the provider is asked",
    StepKind.WAIT: "it is left as it is, and looked at again",
    StepKind.POLL: "the provider is asked for the final outcome",
    StepKind.SETTLE_SUCCEEDED: "settles it as succeeded",
    StepKind.SETTLE_FAILED: "settles it as failed",
    StepKind.SETTLE_REVERSED: "settles it as reversed",
    StepKind.ACCEPT: "counts as accepted",
    StepKind.CONFIRM_ABSENT: "proves that nothing was performed, so that it is sent afresh",
    StepKind.HAND_OVER: "handed over",
}


def _told(kind: Kind[Any], step: Step, when: str) -> str:
    if step.kind is StepKind.HAND_OVER:
        owner = kind.hand_over_to.strip() or "nobody"
        return f"Handed over to {owner} ({when[0].lower()}{when[1:]}): {step.reason}."
    about = f" ({step.reason})" if step.kind is StepKind.WAIT else ""
    joined = " " if step.kind.value.startswith(("settle", "confirm", "accept")) else ": "
    return f"{when}{joined}{_STEPS[step.kind]}{about}."


def _lost(kind: Kind[Any], age: timedelta) -> Step:
    finding = Finding(Answered.LOST, Via.REPLY, "nothing usable came back")
    return recover(_situation(kind, age), kind.provider.contract, finding, _NO_JITTER)


def _looked_up(kind: Kind[Any], answered: Answered) -> Step:
    """Ask recovery about a look-up so late that nothing can arrive or be hidden any more."""
    contract = kind.provider.contract
    lags = [lookup.absence_counts_after or timedelta() for lookup in contract.lookups]
    quiet = kind.permit + kind.call_timeout + (contract.max_in_flight or timedelta())
    age = quiet + max([timedelta(), *lags]) + kind.call_timeout + _SECOND
    echo = Echo.EQUAL if contract.echo and answered is Answered.PERFORMED else Echo.NONE
    words = "it was found" if answered is Answered.PERFORMED else "it was not found"
    finding = Finding(answered, Via.LOOKUP, words, echo=echo)
    return recover(_situation(kind, age), contract, finding, _NO_JITTER)


def _resend_obstacle(kind: Kind[Any]) -> str | None:
    situation = _situation(kind, kind.call_timeout)
    return resend_obstacle(situation, kind.provider.contract, situation.now)


def _resends_end(kind: Kind[Any]) -> timedelta:
    """Return how long after the first request the same one may be sent again."""
    retention = kind.provider.contract.retention
    if retention.kind is RetentionKind.FOREVER:
        return FOREVER
    return max(retention.window - kind.call_timeout, timedelta())


def _situation(kind: Kind[Any], age: timedelta) -> Situation:
    """Return where an operation stands so long after its one request, of which nothing is known."""
    return Situation(
        now=_SENT_AT + age,
        last_event_at=_SENT_AT,
        first_sent_at=_SENT_AT,
        sent=1,
        dispatched=1,
        attempts_allowed=kind.retry.attempts,
        nothing_arrives_after=_SENT_AT + kind.permit + kind.call_timeout,
        sender_known=True,
        key_on_every_attempt=True,
        scope_unchanged=True,
        request_identical=True,
        credential_unchanged=True,
        timeout=kind.call_timeout,
        give_up_at=_SENT_AT + kind.within,
        looked_up=0,
        last_lookup_absent_at=None,
        handle=None,
        accepted_at=None,
        waits=0,
    )


def _length(length: timedelta) -> str:
    return f"{length.days} days" if length.days else in_words(length)
