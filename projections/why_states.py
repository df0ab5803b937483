"""What each state of an operation means for whoever looks at it: a table of sentences by state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from settled.domain.approval import Requirement
from settled.domain.journal.port import AgendaRow, WorkerRow
from settled.domain.kind import Kind
from settled.domain.operation.operation import Operation


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the stream: the store's time, its workers, and today's declaration.

    `kind` is None where it is not declared here; `paused` says that the operation's lane is.
    """

    now: datetime
    workers: Sequence[WorkerRow] = ()
    paused: bool = False
    kind: Kind[Any] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """An operation, its agenda row, and what is around them."""

    operation: Operation
    head: AgendaRow
    around: Surroundings

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self.around.now

    @property
    def kind(self) -> Kind[Any] | None:
        """The declared kind, where it still stands for the provider that was authorised."""
        kind = self.around.kind
        served = kind is not None and kind.provider.name == self.operation.terms.provider
        return kind if served else None

    @property
    def asked(self) -> Requirement | None:
        """What has to be there before the proposal is approved; None where nobody here knows."""
        kind = self.around.kind
        if self.operation.requirement is None and kind and not kind.policy.has_limits:
            return kind.policy.asks_without_limits
        return self.operation.requirement

    @property
    def worker(self) -> str:
        """The worker that has the row, in words."""
        named = self.operation.worker or "a worker"
        row = next((w for w in self.around.workers if w.epoch == self.head.owner), None)
        if row is None:
            return f"{named}, which is gone: another worker takes it over"
        if row.lapsed:
            return f"{row.name}, whose lease is over: another worker takes it over"
        return f"{row.name}, which is at work"

    @property
    def owned(self) -> bool:
        """Whether the worker that has the row is there."""
        epochs = {worker.epoch for worker in self.around.workers if not worker.lapsed}
        return self.head.owner in epochs

    @property
    def gives_up(self) -> str:
        """What becomes of it when its time is over."""
        operation = self.operation
        return (
            f"automatic steps end at {in_words(operation.give_up_at)}; what is not known by then"
            f" goes to {operation.terms.hand_over_to}"
        )


@dataclass(frozen=True, slots=True)
class Told:
    """What happened, who has it, what comes next, and what behind that."""

    happened: str
    holder: str
    next: str
    then: str | None = None


def _proposed(case: Case) -> Told:
    operation, asked = case.operation, case.asked
    version, until = operation.proposal_version, in_words(operation.expires_at)
    given = [one.by for one in operation.approvals]
    authors = ", ".join(sorted(operation.authors))
    decided = f"{len(given)} approved it" if given else "nobody has decided on it"
    happened = f"version {version} was proposed by {authors}, and {decided}"
    if operation.last_reason:
        happened = f"{happened}: {operation.last_reason}"
    if asked is None:
        who = "whoever may approve it"
        waits = f"it waits for approval until {until}"
    else:
        roles, besides = asked.named_roles, ""
        if asked.four_eyes:
            besides = f", and not {' or '.join(sorted(operation.authors))}"
        who = f"somebody with the role {roles}{besides}"
        by = f" ({', '.join(given)})" if given else ""
        waits = (
            f"it waits for approval: {len(given)} of {asked.count}{by}, needs the role {roles},"
            f" until {until}"
        )
    return Told(
        happened,
        who,
        f"{waits}; with the last approval it is intended at once, one rejection ends it",
        f"it expires at {until} if nobody decides",
    )


def _ready(case: Case) -> Told:
    operation = case.operation
    tried = _attempts(operation)
    why_again = operation.last_reason or "nothing is out any more"
    happened = f"{tried}; {why_again}" if tried else "it was intended, and nothing was sent yet"
    if operation.last_reason and not tried:
        happened = f"it was given back: {operation.last_reason}"
    elif operation.decided and not tried:
        happened = f"it was approved by {operation.approved_by}, and nothing was sent yet"
    if operation.cancel_requested:
        return Told(happened, "the next free worker", "it is cancelled, as was requested")
    return Told(
        happened,
        "the next free worker that serves its kind",
        f"attempt {_next_attempt(operation)} is sent",
        _ready_until(operation),
    )


def _ready_until(operation: Operation) -> str:
    until = operation.approved_until
    if until is not None and until < operation.give_up_at:
        then = "it expires" if operation.attempts else "it has to be approved again"
        return f"its approval ends at {in_words(until)}; {then} if nothing could be sent"
    return f"it expires at {in_words(operation.give_up_at)} if nothing could be sent"


def _claimed(case: Case) -> Told:
    attempt = _next_attempt(case.operation)
    return Told(
        f"{case.operation.worker} claimed it, and has sent nothing",
        case.worker,
        f"attempt {attempt} is sent" if case.owned else "the claim is given back",
        None if case.owned else f"attempt {attempt} is sent by another worker",
    )


def _dispatching(case: Case) -> Told:
    operation = case.operation
    if case.owned:
        upcoming = "the provider answers"
        then = f"without an answer by {in_words(operation.due)} its outcome is unknown"
    else:
        upcoming = "another worker records that its outcome is unknown"
        then = "what the contract allows then: the same request again, a look-up, or a person"
    return Told(f"{_attempts(operation)}, and no answer is recorded", case.worker, upcoming, then)


def _accepted(case: Case) -> Told:
    operation = case.operation
    named = f" as {operation.reference}" if operation.reference else ""
    asked = f"; asked {operation.looked_up} times since" if operation.looked_up else ""
    return Told(
        f"the provider accepted it{named} at {in_words(operation.accepted_at)}{asked}",
        "the next free worker, or a webhook",
        "the provider is asked for the outcome, where it can be asked; a webhook may tell before",
        case.gives_up,
    )


def _outcome_unknown(case: Case) -> Told:
    operation = case.operation
    sent = _attempts(operation) or "it may have been sent by another copy of this store"
    return Told(
        f"{sent}; {operation.last_reason or 'nothing usable came back'}",
        "the next free worker that serves its kind",
        "recovery is asked what the contract allows: the same request again, a look-up, or a wait",
        case.gives_up,
    )


def _handed_over(case: Case) -> Told:
    operation = case.operation
    told = f"told {operation.notified} times" if operation.notified else "not told yet"
    second = None
    if case.kind is not None and case.kind.second_owner:
        second = (
            f"after {case.kind.second_owner_after} times without an answer"
            f" {case.kind.second_owner} is told too"
        )
    return Told(
        f"no automatic step was left: {operation.last_reason or 'the reason was erased'}",
        f"{operation.owner_name} ({told})",
        f"{operation.owner_name} is told again, until somebody says what is true with `settled ops"
        " settle`" + ("" if operation.contradicted else ", or gives it back with `ops resume`"),
        second,
    )


def _ended(happened: str) -> Callable[[Case], Told]:
    def tell(case: Case) -> Told:
        reason = case.operation.last_reason
        named = case.operation.reference
        said = happened + (f", receipt {named}" if named and "performed" in happened else "")
        return Told(f"{said}: {reason}" if reason else said, "nobody", _NOTHING)

    return tell


_NOTHING = "nothing: it is settled; evidence that disagrees with that would bring a person in"

STATES: Mapping[str, Callable[[Case], Told]] = {
    "proposed": _proposed,
    "ready": _ready,
    "claimed": _claimed,
    "dispatching": _dispatching,
    "accepted": _accepted,
    "outcome_unknown": _outcome_unknown,
    "handed_over": _handed_over,
    "succeeded": _ended("the provider performed it"),
    "failed": _ended("it had no effect"),
    "rejected": _ended("it was declined, and nothing was sent"),
    "expired": _ended("its time ran out, and nothing is out"),
    "cancelled": _ended("it was withdrawn, and nothing is out"),
    "reversed": _ended("the provider performed it and took it back"),
}
"""Every state of the lifecycle, with its sentences."""


def _attempts(operation: Operation) -> str:
    """Return which attempt was the last one, and when it left; empty before the first."""
    if not operation.attempts:
        return ""
    last = operation.attempts[-1]
    return f"attempt {last.number} of {_allowed(operation)} left at {in_words(last.at)}"


def _next_attempt(operation: Operation) -> str:
    return f"{operation.next_attempt} of {_allowed(operation)}"


def _allowed(operation: Operation) -> int:
    """Return how many attempts there may be, those of earlier generations included."""
    earlier = [a for a in operation.attempts if a.generation != operation.generation]
    return len(earlier) + operation.terms.attempts_allowed


def in_words(moment: datetime | None) -> str:
    """Return a moment to the second, its zone named."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else "no time that is known"
