"""Evidence that arrived before, or without, its operation: kept, retried, and joined.

A webhook may be faster than the commit of the intent that caused it. It is stored in a stream of
its own with an agenda row, and looked at again until its operation appears or its time is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from settled.domain.clock import Stamp
from settled.domain.contract.echo import compare
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.errors import InvalidEvidence
from settled.domain.identity import Identity, stream_id
from settled.domain.machine import ABSENT, Arrow, Event, Lifecycle, State, StateMachine
from settled.domain.provider import Answered, Echo, Finding, Via

KIND = "evidence"
"""The kind under which unmatched evidence stands in the agenda."""

KEEP = timedelta(days=30)
"""How long unmatched evidence is retried before it is listed as never matched."""

FIRST_RETRY = timedelta(milliseconds=50)
LONGEST_RETRY = timedelta(hours=1)
AFTER_FAILURE = timedelta(seconds=30)

LIFECYCLE = Lifecycle(
    "evidence",
    states=(
        State("waiting", "Stored, and no operation it belongs to is known yet. Looked at again."),
        State("joined", "Given to its operation.", settled=True),
        State("unmatched", "No operation appeared in time. Listed for a person.", settled=True),
    ),
    arrows=(
        Arrow((ABSENT,), "Received", "waiting"),
        Arrow(("waiting",), "NotFoundYet", None),
        Arrow(("waiting",), "Joined", "joined"),
        Arrow(("waiting",), "Lapsed", "unmatched"),
    ),
)


class Testimony(BaseModel):
    """What somebody says about an operation: a webhook, a report.

    It names the operation by kind and operation id, or by the provider's reference. `answered` is
    a value of `Answered`; `receipt` is the provider's object. `name` tells it from other
    testimony: the provider's event id, or a digest of all that it says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str
    provider: str
    kind: str | None
    operation_id: str | None
    reference: str | None
    answered: Answered
    receipt: dict[str, Any] | None
    reason: str
    event_id: str | None

    @property
    def name(self) -> str:
        """The same words again have the same name."""
        said = self.event_id or self.model_dump_json()
        digest = hashlib.sha256(f"{self.provider}\n{said}".encode()).hexdigest()
        return f"{self.provider}-{digest[:32]}"

    def finding(self, contract: ProviderContract, intended: Mapping[str, Any]) -> Finding:
        """Return what it means for an operation under this contract."""
        echo, differs_in = Echo.NONE, ""
        if self.receipt is not None:
            echo, differs_in = compare(contract.echo, self.receipt, intended)
        return Finding(
            answered=self.answered,
            via=Via.WEBHOOK,
            reason=self.reason,
            reference=self.reference,
            receipt=self.receipt,
            echo=echo,
            differs_in=differs_in,
            evidence={"event_id": self.event_id, "receipt": self.receipt},
        )


def testimony(
    *,
    tenant: str,
    provider: str,
    kind: str | None,
    operation_id: str | None,
    reference: str | None,
    answered: str,
    receipt: Mapping[str, Any] | None,
    reason: str,
    event_id: str | None,
) -> Testimony:
    """Return checked testimony; InvalidEvidence for what could never be matched or read."""
    if not (kind and operation_id) and not reference:
        raise InvalidEvidence(
            "The evidence names no operation.",
            hint="Give kind and operation_id, or the provider's reference.",
        )
    if kind and operation_id:
        Identity(tenant, kind, operation_id)  # raises for names that no operation can have
    words = [word.value for word in TELLING]
    if answered not in words:
        raise InvalidEvidence(
            f"{answered!r} is not what a provider reports.", hint=f"One of: {', '.join(words)}."
        )
    return Testimony(
        tenant=tenant,
        provider=provider,
        kind=kind,
        operation_id=operation_id,
        reference=reference,
        answered=Answered(answered),
        receipt=dict(receipt) if receipt is not None else None,
        reason=reason,
        event_id=event_id,
    )


TELLING = (Answered.PERFORMED, Answered.PENDING, Answered.FAILED, Answered.REVERSED)
"""What a webhook can say about an outcome."""


class Received(Event):
    """Testimony came in, and no operation was known for it."""

    TOPIC: ClassVar[str] = "settled.evidence.Received"
    BODY: ClassVar[frozenset[str]] = frozenset({"testimony"})
    tenant: str
    identity: str
    testimony: Testimony | None = None

    def apply(self, machine: Evidence) -> None:
        """Fold."""
        machine.testimony = self.testimony
        machine.due = self.timestamp + FIRST_RETRY
        machine.keep_until = self.timestamp + KEEP


class NotFoundYet(Event):
    """No operation yet; looked for again at a time that follows from how often it was tried.

    `failed` says that looking or joining failed, and why: that is no sign that there is none.
    """

    TOPIC: ClassVar[str] = "settled.evidence.NotFoundYet"
    failed: str | None = None

    def apply(self, machine: Evidence) -> None:
        """Fold."""
        if self.failed is not None:
            machine.due = self.timestamp + AFTER_FAILURE
            return
        machine.tries += 1
        pause = min(FIRST_RETRY * 2 ** min(machine.tries, 20), LONGEST_RETRY)
        machine.due = min(self.timestamp + pause, machine.keep_until)


class Joined(Event):
    """The evidence was given to its operation."""

    TOPIC: ClassVar[str] = "settled.evidence.Joined"
    stream: UUID

    def apply(self, machine: Evidence) -> None:
        """Fold."""
        machine.due = None


class Lapsed(Event):
    """Its time is over without an operation."""

    TOPIC: ClassVar[str] = "settled.evidence.Lapsed"

    def apply(self, machine: Evidence) -> None:
        """Fold."""
        machine.due = None


class Evidence(StateMachine):
    """One piece of evidence that waits for its operation."""

    TOPIC = "settled.evidence"
    LIFECYCLE = LIFECYCLE
    EVENTS = (Received, NotFoundYet, Joined, Lapsed)

    def prepare(self) -> None:
        """Give every attribute its first value."""
        super().prepare()
        self.testimony: Testimony | None = None
        self.keep_until: datetime
        self.tries = 0
        self.due: datetime | None = None

    def next_due(self) -> datetime | None:
        """Return when its operation is looked for again."""
        return self.due


def receive(said: Testimony, stamp: Stamp) -> Evidence:
    """Store testimony until its operation appears. The same words again are the same stream."""
    return Evidence.begin(
        Received,
        stream_id(said.tenant, "evidence", KIND, said.name),
        stamp,
        tenant=said.tenant,
        identity=said.name,
        testimony=said,
    )
