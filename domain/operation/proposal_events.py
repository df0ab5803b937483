"""What can happen to a proposal until it is intended, or ends. Part of `events`; see there."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from settled.domain.approval import Requirement
from settled.domain.machine.event import Event
from settled.domain.operation.terms import TERMS_BODY, Terms

if TYPE_CHECKING:
    from settled.domain.operation.operation import Operation


class Proposed(Event, Terms):
    """A proposal waits for a decision on this version of it, until `expires_at`.

    `requirement` is what the policy asks for it; None in streams from before it was recorded.
    """

    TOPIC: ClassVar[str] = "settled.operation.Proposed"
    SCHEMA_VERSION: ClassVar[int] = 2
    BODY: ClassVar[frozenset[str]] = TERMS_BODY
    expires_at: datetime
    requirement: Requirement | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_proposal(self, 1)


class Revised(Event, Terms):
    """The proposal has new terms, under the next version; earlier decisions do not count for it.

    `requirement` is what the policy asks for these terms. `reason` says why they changed, where a
    revalidation changed them.
    """

    TOPIC: ClassVar[str] = "settled.operation.Revised"
    SCHEMA_VERSION: ClassVar[int] = 2
    BODY: ClassVar[frozenset[str]] = TERMS_BODY
    proposal_version: int
    expires_at: datetime
    requirement: Requirement | None = None
    reason: str | None = None

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_proposal(self, self.proposal_version)
        operation.approval_consumed = False
        operation.last_reason = self.reason


class Approved(Event):
    """Somebody (`actor`) approved this version of the proposal, by its digest.

    One of several, where several have to. `roles` are those that they had, and `authority` is what
    let them decide: "role …", or "policy" where the policy's own rule did, under `policy_version`.
    `evidence` names what they looked at. Nothing is sent by this approval from `valid_until` on.
    """

    TOPIC: ClassVar[str] = "settled.operation.Approved"
    SCHEMA_VERSION: ClassVar[int] = 2
    BODY: ClassVar[frozenset[str]] = frozenset({"reason", "evidence"})
    proposal_version: int
    digest: str
    roles: tuple[str, ...]
    authority: str = ""
    policy_version: int | None = None
    valid_until: datetime | None = None
    reason: str | None = None
    evidence: tuple[str, ...] = ()

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_decision(self, "approved")


class Rejected(Event):
    """A person (`actor`) declined this version of the proposal, by its digest. One is enough."""

    TOPIC: ClassVar[str] = "settled.operation.Rejected"
    SCHEMA_VERSION: ClassVar[int] = 2
    BODY: ClassVar[frozenset[str]] = frozenset({"reason", "evidence"})
    proposal_version: int
    digest: str = ""
    authority: str = ""
    policy_version: int | None = None
    reason: str | None = None
    evidence: tuple[str, ...] = ()

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.take_decision(self, "rejected")
        operation.declined = True
        operation.close(self.reason)


class ProposalExpired(Event):
    """Nobody decided in time."""

    TOPIC: ClassVar[str] = "settled.operation.ProposalExpired"

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.close("nobody decided in time")


class ApprovalRevoked(Event):
    """The approval was withdrawn before anything was sent by it; it waits for a decision again.

    `lapsed`: nobody withdrew it, but its time was over before anything was sent.
    """

    TOPIC: ClassVar[str] = "settled.operation.ApprovalRevoked"
    SCHEMA_VERSION: ClassVar[int] = 2
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    reason: str | None = None
    expires_at: datetime
    lapsed: bool = False

    def apply(self, operation: Operation) -> None:
        """Fold."""
        operation.forget_decisions()
        operation.declined = operation.declined or not self.lapsed
        operation.last_reason = self.reason
        operation.due = operation.expires_at = self.expires_at
