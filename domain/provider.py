"""The port to a provider: what it is asked, and what it is understood to have answered.

An adapter turns a frozen request into one try on the wire and the answer into a *finding*. A
finding says what the answer means under the provider's contract; what to do about it is decided
by `settled.domain.recovery`, never by the adapter.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.identity import Identity
from settled.domain.permit import SendPermit


class Answered(enum.StrEnum):
    """What a provider's answer, or its absence, means under the contract."""

    PERFORMED = "performed"
    """The effect exists and is final."""
    PENDING = "pending"
    """The provider has accepted the request; the final outcome follows."""
    FAILED = "failed"
    """The provider reports a final outcome without effect (a declined, a failed status)."""
    REVERSED = "reversed"
    """The effect existed and the provider took it back."""
    NOT_SENT = "not_sent"
    """Proven: the request never left (refused connection, no name, handshake), single attempt."""
    LOST = "lost"
    """It may have been sent, and nothing usable came back: timeout, reset, cut, malformed."""
    REJECTED = "rejected"
    """Refused by validation before execution."""
    UNAUTHORISED = "unauthorised"
    """Refused for the credential."""
    NO_TARGET = "no_target"
    """The object that the request is about does not exist."""
    IN_PROGRESS = "in_progress"
    """A request with this key is running at the provider."""
    DUPLICATE = "duplicate"
    """The provider has had this request; it names no object."""
    DUPLICATE_OF = "duplicate_of"
    """The provider has had this request and names the object (`reference`)."""
    NAME_TAKEN = "name_taken"
    """An object with the name that we chose exists (natural key)."""
    PRECONDITION = "precondition"
    """A version or expected total did not match."""
    KEY_MISMATCH = "key_mismatch"
    """The key was used with other parameters."""
    RATE_LIMITED = "rate_limited"
    """Too many requests; without effect where the contract says so."""
    SERVER_ERROR = "server_error"
    """The server failed; whether it executed depends on the contract."""
    UNAVAILABLE = "unavailable"
    """A gateway or the server says that it cannot serve now."""
    STORE_UNAVAILABLE = "store_unavailable"
    """The provider's idempotency store is down."""
    ABSENT = "absent"
    """A lookup found nothing. Evidence only when the contract says that absence is proof."""


class Echo(enum.StrEnum):
    """Whether what the provider says it did equals what was intended."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NONE = "none"
    """The answer repeats none of the compared fields."""


class Via(enum.StrEnum):
    """How a finding reached us."""

    REPLY = "reply"
    LOOKUP = "lookup"
    WEBHOOK = "webhook"
    HAND = "hand"


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence about an operation, as the contract reads it.

    `evidence` is what was seen (status, body, exception), small and JSON-like; it is recorded.
    `receipt` is the provider's object where it reported one; `reference` its name for it.
    """

    answered: Answered
    via: Via
    reason: str
    reference: str | None = None
    receipt: Mapping[str, Any] | None = None
    echo: Echo = Echo.NONE
    differs_in: str = ""
    replayed: bool = False
    retry_after: timedelta | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    may_arrive_until: datetime | None = None
    """Until when a request of this attempt may still reach the provider, if it may at all."""


@dataclass(frozen=True, slots=True)
class SealedRequest:
    """The request as it was frozen at the first dispatch and is sent each time, byte for byte.

    `headers` hold no credential: adapters add it at sending, and `credential_fingerprint` (keyed)
    tells whether it is still the same one. `scope` pins what the deduplication depends on (base
    URL, region, API version, account, mode).
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    adapter: str
    scope: tuple[tuple[str, str], ...] = ()
    credential_fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One dispatch: the frozen request, its key, and until when it may be sent and answered."""

    identity: Identity
    key: str
    attempt: int
    request: SealedRequest
    params: Any
    timeout_seconds: float
    permit: SendPermit
    now: datetime
    intended: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The fields that an echo is compared with."""
    late: Callable[[Finding], None] | None = None
    """Takes what a call that was given up says in the end. May be called from any thread."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A question about an earlier attempt: by key, by client reference, or by the handle given."""

    identity: Identity
    key: str
    reference: str | None
    request: SealedRequest | None
    params: Any
    timeout_seconds: float
    now: datetime
    intended: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Provider(Protocol):
    """What a kind's effects are performed through."""

    @property
    def name(self) -> str:
        """The provider's name, part of the lane and of every reference."""
        ...

    @property
    def contract(self) -> ProviderContract:
        """What the provider promises for this operation."""
        ...

    def seal(self, identity: Identity, key: str, params: Any, secret: bytes) -> SealedRequest:
        """Freeze the request. Pure but for the credential's fingerprint, keyed by `secret`."""
        ...

    async def send(self, call: Call) -> Finding:
        """Try once. Checks the permit immediately before the first byte is written."""
        ...

    async def look_up(self, lookup: Lookup) -> Finding:
        """Ask whether an earlier attempt had an effect. Must itself have none."""
        ...
