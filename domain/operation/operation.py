"""The operation: an aggregate whose events say what was authorised, sent and reported.

Folding only remembers. What may be done next is decided by the lifecycle, its guards below, and
for everything that touches the provider by `settled.domain.recovery`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal
from uuid import UUID

from settled.domain.approval import POLICY, RecordedDecision, Requirement
from settled.domain.budget import Holds, Reservation, act_of
from settled.domain.clock import Stamp
from settled.domain.errors import DecisionRefused, EffectPossible, TransitionRefused
from settled.domain.identity import Identity, stream_id
from settled.domain.journal.unit import GuardChange
from settled.domain.machine.event import Event
from settled.domain.machine.lifecycle import ABSENT
from settled.domain.machine.machine import StateMachine
from settled.domain.operation import events as ev
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.terms import PastAttempt, Terms
from settled.domain.provider import SealedRequest
from settled.domain.recovery import Situation

CATEGORY = "operation"
KNOWN_THERE = ("duplicate", "duplicate_of", "in_progress", "name_taken")
"""Answers by which a provider says that it has had this request, or one under this name."""

NOTHING_HELD = (ABSENT, "proposed", "rejected", "expired", "cancelled", "failed")
HOLDS: dict[str, Holds] = {
    **dict.fromkeys(LIFECYCLE.states, "reserved"),
    **dict.fromkeys(NOTHING_HELD, "nothing"),
    **dict.fromkeys(("succeeded", "reversed"), "consumed"),
}
"""What an operation holds of its budgets in each state: what may have an effect is reserved."""

CLAIM_SECONDS = 60.0
"""How long a claim may stand before its row is looked at again; its worker sends at once."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One Dispatching.

    `out` is False once it is proven that nothing of it exists or can arrive. `counts` is False
    when it was refused for its credential: that says nothing about the request, and uses up none
    of its attempts. `may_arrive_until` is the last moment at which it can reach the provider.
    """

    number: int
    at: datetime
    key: str
    may_arrive_until: datetime
    scope: tuple[tuple[str, str], ...]
    credential_fingerprint: str
    request_digest: str
    generation: int
    out: bool = True
    counts: bool = True

    def __str__(self) -> str:
        """Return what was sent, in words."""
        return f"attempt {self.number} at {self.at.isoformat()}, key {self.key}"


KEPT = (
    *("proposal_version", "approved_by", "approved_version", "approval_consumed", "intended_at"),
    *("provider_key", "generation", "references", "reference", "reference_is_theirs", "adopted"),
    *("contradicted", "disputed", "cancel_requested", "requirement", "declined"),
)
"""What a purge leaves as it is, under the same name in `Remains`."""


class Operation(StateMachine):
    """One business action with one external effect, identified by (tenant, kind, operation id)."""

    TOPIC = "settled.operation"
    LIFECYCLE = LIFECYCLE
    EVENTS = ev.EVENTS
    OPEN: ClassVar[tuple[str, ...]] = tuple(
        s.name for s in LIFECYCLE.states.values() if not s.settled
    )

    @staticmethod
    def stream(identity: Identity) -> UUID:
        """Return the stream of an identity: the store's key on it is the uniqueness constraint."""
        return stream_id(identity.tenant, CATEGORY, identity.kind, identity.operation_id)

    def prepare(self) -> None:
        """Give every attribute its first value."""
        super().prepare()
        self.terms: Terms
        self.drawn: tuple[Reservation, ...] = ()  # what it holds of budgets
        self.proposal_version = 0
        self.approved_by: str | None = None
        self.approved_version = 0
        self.approval_consumed = False
        self.requirement: Requirement | None = None  # None: recorded before there was any
        self.authors: frozenset[str] = frozenset()  # who proposed or revised it
        self.decisions: tuple[RecordedDecision, ...] = ()  # on the version that it has now
        self.declined = False  # somebody has said no to it before, whatever it was revised to
        self.expires_at: datetime | None = None
        self.intended_at: datetime | None = None
        self.give_up_at: datetime
        self.provider_key = ""
        self.generation = 0
        self.worker: str | None = None
        self.claim_epoch: int | None = None
        self.found_absent = False  # an absence was confirmed, and nothing was sent since
        self.revalidated = False  # by the worker that holds it now; never recorded
        self.evidence_keys: frozenset[str] = frozenset()
        self.told: frozenset[tuple[str, str | None]] = frozenset()  # performed or reversed, of what
        self.attempts: tuple[Attempt, ...] = ()
        self.request: SealedRequest | None = None
        self.adopted = False
        self.sender_reported = True
        self.looked_up = 0
        self.waits = 0
        self.asking = False
        self.known_there = False
        self.last_absent_at: datetime | None = None
        self.accepted_at: datetime | None = None
        self.reference: str | None = None
        self.references: tuple[tuple[str, str], ...] = ()  # all that were ever its own
        self.reference_is_theirs = False  # named by a refusal, and not compared yet
        self.receipt: dict[str, Any] | None = None
        self.owner_name: str | None = None
        self.handed_over_at: datetime | None = None
        self.notified = 0
        self.contradicted = False
        self.disputed = False  # an answer was about something else, or told of a reversal
        self.cancel_requested = False
        self.last_reason: str | None = None
        self.last_rule: str | None = None
        self.due: datetime | None = None
        self.purged_at: datetime | None = None
        self.purged_events = 0  # how many went then

    # What is read.

    @property
    def operation_id(self) -> str:
        """The business's name for it."""
        return self.identity

    @property
    def business_identity(self) -> Identity:
        """Tenant, kind and operation id together."""
        return Identity.recorded(self.tenant, self.kind, self.identity)

    @property
    def label(self) -> str:
        """What it is, in words a person understands."""
        return self.terms.label or f"{self.kind} {self.identity}"

    @property
    def lane(self) -> str:
        """The lane in which it waits: tenant/kind@version/provider. See `settled.domain.route`."""
        terms = self.terms
        return f"{self.tenant}/{self.kind}@{terms.kind_version}/{terms.provider}"

    @property
    def priority(self) -> int:
        """0 goes first, then 1, then 2."""
        return self.terms.priority

    @property
    def out(self) -> tuple[Attempt, ...]:
        """The attempts of which something may exist at the provider, or may still arrive."""
        return tuple(attempt for attempt in self.attempts if attempt.out)

    @property
    def next_attempt(self) -> int:
        """The number that the next Dispatching gets. It counts over all generations."""
        return len(self.attempts) + 1

    @property
    def approvals(self) -> tuple[RecordedDecision, ...]:
        """The approvals that count for the version that it has now: each person's once.

        Counted here and not where they are given, so that what is intended was approved as its
        requirement asks, whichever way the events came.
        """
        four_eyes = self.requirement is not None and self.requirement.four_eyes
        this = (self.proposal_version, self.terms.digest.value)
        counted: dict[str, RecordedDecision] = {}
        for one in self.decisions:
            about_this = (one.proposal_version, one.digest) == this
            own = four_eyes and one.by in self.authors
            if one.decided == "approved" and about_this and not own:
                counted.setdefault(one.by, one)
        return tuple(counted.values())

    @property
    def approvals_missing(self) -> int:
        """How many approvals the version that it has now still needs."""
        found = self.approvals
        if any(one.authority == POLICY for one in found):
            return 0
        return max((self.requirement.count if self.requirement else 1) - len(found), 0)

    @property
    def decided(self) -> RecordedDecision | None:
        """The decision that stands for the version that it has now; None while there is none."""
        if not self.decisions or (self.approvals_missing and self.state != "rejected"):
            return None
        return self.decisions[-1]

    @property
    def approved_until(self) -> datetime | None:
        """The moment from which on nothing is sent by its approval; None where there is none."""
        ends = [one.valid_until for one in self.approvals if one.valid_until is not None]
        return min(ends, default=None)

    @property
    def our_reference(self) -> str | None:
        """The provider's name for our object, once an answer has shown that it is ours."""
        return None if self.reference_is_theirs else self.reference

    def next_due(self) -> datetime | None:
        """Return when somebody has to look at it again, as the last event said."""
        return None if self.settled else self.due

    def situation(self, now: datetime, *, today: SealedRequest | None = None) -> Situation:
        """Return what the recorded events say to the recovery decision.

        `today` is the request as the adapter would seal it now: its scope and credential are
        compared with those of the first dispatch. Attempts count within the current generation.
        """
        mine = [a for a in self.attempts if a.generation == self.generation]
        out = [a for a in mine if a.out]
        # What was adopted may have been sent by another copy at any time since it was intended.
        sent_at = [a.at for a in out] + ([self.intended_at] if self.adopted else [])
        first = min((at for at in sent_at if at is not None), default=None)
        last_arrival = max((a.may_arrive_until for a in out), default=None)
        if self.adopted and last_arrival is None:
            last_arrival = self.modified_on
        return Situation(
            now=now,
            last_event_at=self.modified_on,
            first_sent_at=first,
            sent=len(out) + self.adopted,
            dispatched=sum(a.counts for a in mine),
            attempts_allowed=self.terms.attempts_allowed,
            nothing_arrives_after=last_arrival,
            sender_known=self.sender_reported,
            key_on_every_attempt=all(a.key == self.provider_key for a in out),
            scope_unchanged=today is None or all(a.scope == today.scope for a in out),
            request_identical=len({a.request_digest for a in out}) <= 1,
            credential_unchanged=today is None
            or all(a.credential_fingerprint == today.credential_fingerprint for a in out),
            timeout=timedelta(seconds=self.terms.call_timeout_seconds),
            give_up_at=self.give_up_at,
            looked_up=max(self.looked_up, int(self.asking)),
            last_lookup_absent_at=self.last_absent_at,
            handle=self.reference,
            accepted_at=self.accepted_at,
            waits=self.waits,
            known_there=self.known_there,
        )

    # Guards, named by the lifecycle.

    def must_await_decision(self) -> None:
        """Refuse a decision on a version that has been decided."""
        if self.approved_version == self.proposal_version:
            raise DecisionRefused(
                f"Version {self.proposal_version} was approved by {self.approved_by} already.",
                hint="The first decision stands.",
            )

    def must_be_approved(self) -> None:
        """Refuse an intent whose terms nobody approved."""
        if self.approved_version != self.proposal_version:
            raise DecisionRefused(
                f"Nobody has approved version {self.proposal_version} of this proposal.",
                hint="Approve it first.",
            )

    def must_be_undispatched(self) -> None:
        """Refuse new terms for what has been sent before."""
        if self.attempts or self.adopted:
            raise EffectPossible(
                "A request for these terms has been sent before, so they cannot change.",
                hint="Use a new operation id for other terms.",
            )

    def must_have_nothing_out(self) -> None:
        """Refuse to call something off while an effect of it may exist."""
        if self.out:
            raise EffectPossible(
                "An earlier request may have had an effect.",
                hint="Wait until its outcome is known.",
            )

    def must_have_no_earlier_out(self) -> None:
        """Refuse to start over while a request before the last one may have had an effect."""
        if any(attempt.out for attempt in self.attempts[:-1]) or self.adopted:
            raise EffectPossible("An earlier request may have had an effect.")

    def must_not_be_withdrawn(self) -> None:
        """Refuse to send what somebody asked to cancel."""
        if self.cancel_requested:
            raise TransitionRefused(
                "A cancel was requested, and nothing is out: it is not sent again.",
                hint="Cancel it.",
            )

    def must_not_be_contradicted(self) -> None:
        """Refuse to go on by itself after evidence has disagreed with an end.

        What was rejected, cancelled or reversed would otherwise be sent after all.
        """
        if self.contradicted:
            raise DecisionRefused(
                "Evidence disagrees with how this had ended, so nothing is sent for it again.",
                hint="Settle it as succeeded or as failed; for another effect begin an operation.",
            )

    def must_not_be_purged(self) -> None:
        """Refuse to begin anew what nobody knows the parameters of any more."""
        if isinstance(self.terms, ev.Purged):
            raise TransitionRefused(
                "Its details were purged, so there is nothing that could be sent again.",
                hint="Begin a new operation.",
            )

    # Folding, called by the events.

    def enter(self, state: str, event: Event) -> None:
        """Take the state that an event leads to, and what it changes in budgets."""
        act = act_of(HOLDS[self.state], HOLDS[state], by_evidence=event.NAME == "Contradicted")
        if act in ("reserve", "recount"):
            self.drawn = self.terms.reserves
        if act is not None and self.drawn:
            self.new_guards += [GuardChange(one.key, act, one.amount) for one in self.drawn]
        super().enter(state, event)

    def take_proposal(self, event: ev.Proposed | ev.Revised, version: int) -> None:
        """Remember what waits for a decision now, and whose it is."""
        self.take_terms(event)
        self.proposal_version = version
        self.requirement = event.requirement
        self.authors |= {event.actor}
        self.forget_decisions()
        self.due = self.expires_at = event.expires_at

    def forget_decisions(self) -> None:
        """Let no decision so far count any more."""
        self.decisions = ()
        self.approved_by = None
        self.approved_version = 0

    def take_decision(
        self, event: ev.Approved | ev.Rejected, decided: Literal["approved", "rejected"]
    ) -> None:
        """Remember a decision. The version is approved once there are as many as it needs."""
        self.decisions += (
            RecordedDecision(
                decided=decided,
                proposal_version=event.proposal_version,
                digest=event.digest,
                by=event.actor,
                at=event.timestamp,
                authority=event.authority,
                policy_version=event.policy_version,
                valid_until=event.valid_until if isinstance(event, ev.Approved) else None,
                reason=event.reason,
                evidence=event.evidence,
            ),
        )
        if decided == "approved" and not self.approvals_missing:
            self.approved_by = ", ".join(one.by for one in self.approvals)
            self.approved_version = event.proposal_version

    def take_terms(self, event: ev.Proposed | ev.Revised | ev.Intended) -> None:
        """Remember what is authorised."""
        self.terms = event

    def take_dispatch(self, event: ev.Dispatching) -> None:
        """Remember an attempt; the request is stored with the first one."""
        if event.request is not None:
            self.request = SealedRequest(
                method=event.request.method,
                url=event.request.url,
                headers=event.request.headers,
                body=event.request.body.encode("latin-1"),
                adapter=event.adapter,
                scope=event.scope,
                credential_fingerprint=event.credential_fingerprint,
            )
        self.worker = event.worker
        self.sender_reported = self.found_absent = False
        self.attempts += (
            Attempt(
                number=event.attempt,
                at=event.timestamp,
                key=event.key,
                may_arrive_until=max(event.permit_until, event.call_deadline),
                scope=event.scope,
                credential_fingerprint=event.credential_fingerprint,
                request_digest=event.request_digest,
                generation=self.generation,
            ),
        )

    def take_reference(self, reference: str | None) -> None:
        """Remember the provider's name for the effect."""
        if reference is None or (reference == self.reference and not self.reference_is_theirs):
            return
        self.reference, self.reference_is_theirs = reference, False
        named = (self.terms.provider, reference)
        self.new_references.append(named)
        if named not in self.references:
            self.references += (named,)

    def take_answer(self, answered: str | None, reference: str | None) -> None:
        """Remember what a look-up says about the effect."""
        if answered in KNOWN_THERE:
            self.take_refusal(reference)
        else:
            self.take_reference(reference)

    def take_refusal(self, reference: str | None) -> None:
        """Remember that the provider refuses because it has had this already.

        The object that it names may be somebody else's until it is compared, so it is read by
        that name and not yet kept as ours.
        """
        self.known_there = True
        if reference is not None and self.reference is None:
            self.reference, self.reference_is_theirs = reference, True

    def take_unknown(self, event: ev.OutcomeUnknown) -> None:
        """Remember that an effect may exist."""
        self.worker = None
        if not event.attempt_out:
            self.attempt_not_out()
        elif self.attempts and event.may_arrive_until is not None:
            last = self.attempts[-1]
            until = max(last.may_arrive_until, event.may_arrive_until)
            self.attempts = (*self.attempts[:-1], replace(last, may_arrive_until=until))
        self.sender_reported = event.sender_reported
        self.waits += event.waited
        self.asking = self.asking or event.look_up
        if event.answered in KNOWN_THERE:
            self.take_refusal(event.reference)
        self.adopted = self.adopted or event.cause in ("adopted", "evidence") and not self.out

    def attempt_not_out(self, counts: bool = True) -> None:
        """Remember that the last attempt was proven not sent, or refused before execution."""
        if self.attempts:
            last = replace(self.attempts[-1], out=False, counts=counts)
            self.attempts = (*self.attempts[:-1], last)
        self.sender_reported = True

    def take_told(self, answered: str, reference: str | None) -> None:
        """Remember an effect that evidence tells of and that is not known to be this one."""
        if answered in ("performed", "reversed"):
            self.told |= {(answered, reference)}

    def nothing_out(self) -> None:
        """Remember that of no attempt so far anything exists."""
        self.told = frozenset()
        self.attempts = tuple(replace(attempt, out=False) for attempt in self.attempts)
        self.adopted = self.known_there = self.reference_is_theirs = False
        self.reference = self.accepted_at = None
        self.sender_reported = True

    def reissue(self, generation: int, key: str) -> None:
        """Begin a new generation: another key, and the request is sealed anew."""
        self.generation, self.provider_key = generation, key
        self.request = self.reference = self.accepted_at = self.last_absent_at = None
        self.reference_is_theirs = False
        self.looked_up = self.waits = 0
        self.asking = False
        self.contradicted = self.disputed = self.cancel_requested = self.found_absent = False

    def hand_over(self, to: str, at: datetime, next_at: datetime) -> None:
        """Remember who reconciles, and since when."""
        self.worker = None
        self.handed_over_at = at
        self.owner_name = to
        self.notified = 0
        self.due = next_at

    def take_remains(self, event: ev.Purged) -> None:
        """Be what is left of it. Of requests, receipts and words nothing is."""
        left = event.left
        self.terms = event
        self.state, self.since = left.state, left.since
        self.purged_at, self.purged_events = event.timestamp, event.events
        for name in KEPT:
            setattr(self, name, getattr(left, name))
        if left.give_up_at is not None:
            self.give_up_at = left.give_up_at
        self.attempts = tuple(_past(attempt) for attempt in left.attempts)
        self.evidence_keys = frozenset(left.evidence_keys)
        self.told = frozenset(left.told)
        self.authors, self.decisions = frozenset(left.authors), left.decisions
        self.new_references += left.references
        self.last_rule = left.rule

    def close(self, reason: str | None) -> None:
        """Remember why it ended."""
        self.worker = None
        self.last_reason = reason
        self.due = None


def _past(left: PastAttempt) -> Attempt:
    """Return an attempt as far as it is still known: no later request counts as equal to it."""
    return Attempt(
        number=left.number,
        at=left.at,
        key=left.key,
        may_arrive_until=left.may_arrive_until,
        scope=(),
        credential_fingerprint="",
        request_digest="",
        generation=left.generation,
        out=left.out,
        counts=left.counts,
    )


def fields(terms: Terms) -> dict[str, Any]:
    """Return the fields of the terms alone, whichever event they come from."""
    return {name: getattr(terms, name) for name in Terms.model_fields}


def propose(
    terms: Terms, stamp: Stamp, expires_at: datetime, requirement: Requirement | None = None
) -> Operation:
    """Begin an operation that waits for a decision."""
    identity = Identity(terms.tenant, terms.kind, terms.identity)
    return Operation.begin(
        ev.Proposed,
        Operation.stream(identity),
        stamp,
        **fields(terms),
        expires_at=expires_at,
        requirement=requirement,
    )


def intend(terms: Terms, stamp: Stamp, provider_key: str) -> Operation:
    """Begin an operation that is authorised from the start."""
    identity = Identity(terms.tenant, terms.kind, terms.identity)
    return Operation.begin(
        ev.Intended,
        Operation.stream(identity),
        stamp,
        **fields(terms),
        provider_key=provider_key,
        generation=1,
        give_up_at=stamp.at + timedelta(seconds=terms.within_seconds),
    )
