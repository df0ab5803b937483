"""What can happen to an operation. Each event's topic is stable; its docstring says what it means.

Fields named in `BODY` hold what may have to be erased one day; they read as None afterwards.
Every event that leaves an operation open says when somebody has to look at it next, so that the
due time is a function of what was recorded and of nothing else.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from settled.domain.machine.event import Event
from settled.domain.machine.tombstone import Tombstone
from settled.domain.operation.terms import NEWS, TERMS_BODY, Remains, Request, Terms

if TYPE_CHECKING:
    from settled.domain.operation.operation import Operation


class Proposed(Event, Terms):
    """A proposal waits for a decision on this version of it, until `expires_at`."""

    TOPIC: ClassVar[str] = "settled.operation.Proposed"
    BODY: ClassVar[frozenset[str]] = TERMS_BODY
    expires_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_terms(self)
        operation.proposal_version = 1
        operation.due = operation.expires_at = self.expires_at


class Revised(Event, Terms):
    """The proposal has new terms, under the next version; earlier decisions do not count for it."""

    TOPIC: ClassVar[str] = "settled.operation.Revised"
    BODY: ClassVar[frozenset[str]] = TERMS_BODY
    proposal_version: int
    expires_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_terms(self)
        operation.proposal_version = self.proposal_version
        operation.approved_by = None
        operation.approved_version = 0
        operation.approval_consumed = False
        operation.due = operation.expires_at = self.expires_at


class Approved(Event):
    """A person (`actor`) approved this version of the proposal, by its digest."""

    TOPIC: ClassVar[str] = "settled.operation.Approved"
    proposal_version: int
    digest: str
    roles: tuple[str, ...]

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.approved_by = self.actor
        operation.approved_version = self.proposal_version


class Rejected(Event):
    """A person (`actor`) declined this version of the proposal."""

    TOPIC: ClassVar[str] = "settled.operation.Rejected"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    proposal_version: int
    reason: str | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.close(self.reason)


class ProposalExpired(Event):
    """Nobody decided in time."""

    TOPIC: ClassVar[str] = "settled.operation.ProposalExpired"

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.close("nobody decided in time")


class ApprovalRevoked(Event):
    """The approval was withdrawn before a worker's claim consumed it."""

    TOPIC: ClassVar[str] = "settled.operation.ApprovalRevoked"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    reason: str | None = None
    expires_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.approved_by = None
        operation.approved_version = 0
        operation.due = operation.expires_at = self.expires_at


class Intended(Event, Terms):
    """The intent is durable: exactly these parameters, once, under this provider key.

    `give_up_at` ends the automatic steps. The key is a function of installation and identity.
    """

    TOPIC: ClassVar[str] = "settled.operation.Intended"
    BODY: ClassVar[frozenset[str]] = TERMS_BODY
    provider_key: str
    generation: int
    give_up_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_terms(self)
        operation.provider_key = self.provider_key
        operation.generation = self.generation
        operation.intended_at = operation.due = self.timestamp
        operation.give_up_at = self.give_up_at


class Cancelled(Event):
    """Withdrawn before anything was sent."""

    TOPIC: ClassVar[str] = "settled.operation.Cancelled"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    reason: str | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.close(self.reason)


class Expired(Event):
    """The time for it ran out while nothing was out."""

    TOPIC: ClassVar[str] = "settled.operation.Expired"

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.close("its time ran out while nothing was out")


class Claimed(Event):
    """A worker owns the operation. The first claim consumes the approval."""

    TOPIC: ClassVar[str] = "settled.operation.Claimed"
    PROGRESS: ClassVar[bool] = False
    worker: str
    epoch: int
    due_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.worker, operation.claim_epoch = self.worker, self.epoch
        operation.revalidated = False
        operation.approval_consumed = True
        operation.due = self.due_at


class Released(Event):
    """The claim was given back, or its worker is gone; nothing was sent under it.

    `deliberate` says that a living worker gave it back until `due_at`; only claims that end with
    their worker count towards parking.
    """

    TOPIC: ClassVar[str] = "settled.operation.Released"
    reason: str
    due_at: datetime
    deliberate: bool = False

    @property
    def progress(self) -> bool:
        """Whether the count of takes starts afresh."""
        return self.deliberate

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.worker = None
        operation.last_reason = self.reason
        operation.due = self.due_at


class Dispatching(Event):
    """One request is about to leave. Durable before its first byte.

    `permit_until` is the last moment at which a first byte may be written, `call_deadline` the
    moment by which the answer is there or counts as lost. `request` is stored once, with the
    first dispatch of a generation, and sent each time as stored.
    """

    TOPIC: ClassVar[str] = "settled.operation.Dispatching"
    BODY: ClassVar[frozenset[str]] = frozenset({"request"})
    attempt: int
    key: str
    worker: str
    epoch: int
    permit_until: datetime
    call_deadline: datetime
    adapter: str
    scope: tuple[tuple[str, str], ...]
    credential_fingerprint: str
    request_digest: str
    request: Request | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_dispatch(self)
        operation.due = self.call_deadline


class RetryScheduled(Event):
    """Nothing is out: the request was proven not sent, or refused before execution.

    `counts` is False when it was refused for its credential, which uses up no attempt.
    """

    TOPIC: ClassVar[str] = "settled.operation.RetryScheduled"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    reason: str
    rule: str
    retry_at: datetime
    counts: bool = True
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.attempt_not_out(counts=self.counts)
        operation.worker = None
        operation.last_reason, operation.last_rule = self.reason, self.rule
        operation.due = min(self.retry_at, operation.give_up_at)


class Accepted(Event):
    """The provider has the request; its outcome is pending. Polled next at `next_at`."""

    TOPIC: ClassVar[str] = "settled.operation.Accepted"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    reference: str | None
    via: str
    reason: str
    rule: str
    next_at: datetime
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.sender_reported = operation.sender_reported or self.via == "reply"
        operation.take_reference(self.reference)
        operation.accepted_at = operation.accepted_at or self.timestamp
        operation.last_reason, operation.last_rule = self.reason, self.rule
        operation.due = self.next_at


class ProgressReported(Event):
    """The provider reported progress without an outcome."""

    TOPIC: ClassVar[str] = "settled.operation.ProgressReported"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    via: str
    reason: str
    next_at: datetime
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.last_reason = self.reason
        operation.due = self.next_at


class OutcomeUnknown(Event):
    """An effect may exist, and nothing here says whether it does. `cause` is a short stable word.

    Causes: reply_lost, owner_gone, unclear_answer, shut_down, evidence, adopted. `attempt_out` is
    False when the last attempt itself was proven not sent and an earlier one is what is unknown.
    `answered` is what an answer meant, if there was one, and `reference` the object that it named:
    whose that is has to be looked up. With `look_up` that is decided, and nothing is sent before.
    `may_arrive_until` is given where the call was given up and may still have its effect later.
    """

    TOPIC: ClassVar[str] = "settled.operation.OutcomeUnknown"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    cause: str
    reason: str
    rule: str
    sender_reported: bool
    waited: bool
    attempt_out: bool
    next_at: datetime
    answered: str | None = None
    reference: str | None = None
    look_up: bool = False
    may_arrive_until: datetime | None = None
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_unknown(self)
        operation.last_reason, operation.last_rule = self.reason, self.rule
        operation.due = self.next_at


class LookedUp(Event):
    """The provider was asked about an earlier attempt. `answered` is what it meant."""

    TOPIC: ClassVar[str] = "settled.operation.LookedUp"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    answered: str
    reason: str
    rule: str
    reference: str | None
    waited: bool
    next_at: datetime
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.looked_up += 1
        operation.waits += self.waited
        operation.take_answer(self.answered, self.reference)
        if self.answered == "absent":
            operation.last_absent_at = self.timestamp
        operation.last_reason, operation.last_rule = self.reason, self.rule
        if operation.state != "handed_over":
            operation.due = self.next_at


class ReconciliationScheduled(Event):
    """Nothing can be done before `next_at`: the contract, or the provider, says to wait."""

    TOPIC: ClassVar[str] = "settled.operation.ReconciliationScheduled"
    reason: str
    rule: str
    next_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.last_reason, operation.last_rule = self.reason, self.rule
        operation.due = self.next_at


class ConfirmedAbsent(Event):
    """Proven: no effect exists and nothing can still arrive. `via` is reply, lookup or hand."""

    TOPIC: ClassVar[str] = "settled.operation.ConfirmedAbsent"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    via: str
    reason: str
    rule: str
    due_at: datetime
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.nothing_out()
        operation.last_reason, operation.last_rule = self.reason, self.rule
        operation.due = self.due_at


class Succeeded(Event):
    """The effect exists. `receipt` is the provider's object, `reference` its name for it."""

    TOPIC: ClassVar[str] = "settled.operation.Succeeded"
    BODY: ClassVar[frozenset[str]] = frozenset({"receipt", "evidence"})
    reference: str | None
    via: str
    replayed: bool
    reason: str
    rule: str
    receipt: dict[str, Any] | None = None
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_reference(self.reference)
        operation.receipt = self.receipt
        operation.close(self.reason)


class Failed(Event):
    """Definitively no effect."""

    TOPIC: ClassVar[str] = "settled.operation.Failed"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    via: str
    reason: str
    rule: str
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.nothing_out()
        operation.close(self.reason)


class Reversed(Event):
    """The effect existed, and the provider took it back."""

    TOPIC: ClassVar[str] = "settled.operation.Reversed"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    via: str
    reason: str
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.close(self.reason)


class Reissued(Event):
    """A new generation of a failed operation, with a key of its own, by an explicit command."""

    TOPIC: ClassVar[str] = "settled.operation.Reissued"
    generation: int
    provider_key: str
    give_up_at: datetime
    reason: str

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.reissue(self.generation, self.provider_key)
        operation.give_up_at = self.give_up_at
        operation.intended_at = operation.due = self.timestamp


class HandedOver(Event):
    """Automatic steps have stopped; `to` reconciles. Told again at `next_at`.

    `disputed`: an answer was about another object than intended, or about several, or said that
    the effect was taken back. Then nothing but a person's word settles it. `beside` is an object
    that was performed beside the one that was known.
    """

    TOPIC: ClassVar[str] = "settled.operation.HandedOver"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    to: str
    reason: str
    rule: str
    next_at: datetime
    disputed: bool = False
    beside: str | None = None
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.disputed = operation.disputed or self.disputed
        if self.beside is not None:
            operation.take_told("performed", self.beside)
        operation.hand_over(self.to, self.timestamp, self.next_at)
        operation.last_reason, operation.last_rule = self.reason, self.rule


class Contradicted(Event):
    """Evidence disagrees with what was settled; a person has to say what is true."""

    TOPIC: ClassVar[str] = "settled.operation.Contradicted"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    to: str
    was: str
    reason: str
    reference: str | None
    next_at: datetime
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.contradicted = True
        operation.hand_over(self.to, self.timestamp, self.next_at)
        operation.last_reason, operation.last_rule = self.reason, "contradicted"


class OwnerNotified(Event):
    """The owner was told. After some times without an answer a second owner is told too."""

    TOPIC: ClassVar[str] = "settled.operation.OwnerNotified"
    to: str
    delivered: bool
    next_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.notified += self.delivered
        operation.due = self.next_at


class ReconciliationResumed(Event):
    """A person gave the operation back to the automatic steps."""

    TOPIC: ClassVar[str] = "settled.operation.ReconciliationResumed"
    reason: str
    give_up_at: datetime

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.owner_name = None
        operation.give_up_at = self.give_up_at
        operation.due = self.timestamp


class CancelRequested(Event):
    """Somebody wants it cancelled while a request may be out. Acted on once nothing is out."""

    TOPIC: ClassVar[str] = "settled.operation.CancelRequested"
    reason: str

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.cancel_requested = True


class EvidenceRecorded(Event):
    """A reply, webhook or report that changes nothing by itself is kept, never dropped.

    `key` is a digest of what was said: the same words again are not recorded twice.
    """

    TOPIC: ClassVar[str] = "settled.operation.EvidenceRecorded"
    BODY: ClassVar[frozenset[str]] = frozenset({"evidence"})
    via: str
    answered: str
    reference: str | None
    reason: str
    key: str
    evidence: dict[str, Any] | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.evidence_keys |= {self.key}
        operation.take_told(self.answered, self.reference)
        if operation.state == "handed_over" and self.answered in NEWS:
            operation.due = self.timestamp  # its owner hears of it


class Purged(Tombstone, Terms):
    """The details are gone, with every event before this one; the outcome and the proof are not.

    It stands for all of them: the terms without parameters, label and origin, and in `left` what
    answers a late duplicate, a late decision and late evidence.
    """

    TOPIC: ClassVar[str] = "settled.operation.Purged"
    left: Remains

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_remains(self)


EVENTS: tuple[type[Event], ...] = (
    Proposed,
    Revised,
    Approved,
    Rejected,
    ProposalExpired,
    ApprovalRevoked,
    Intended,
    Cancelled,
    Expired,
    Claimed,
    Released,
    Dispatching,
    RetryScheduled,
    Accepted,
    ProgressReported,
    OutcomeUnknown,
    LookedUp,
    ReconciliationScheduled,
    ConfirmedAbsent,
    Succeeded,
    Failed,
    Reversed,
    Reissued,
    HandedOver,
    Contradicted,
    OwnerNotified,
    ReconciliationResumed,
    CancelRequested,
    EvidenceRecorded,
    Purged,
)
