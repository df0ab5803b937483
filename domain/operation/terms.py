"""What is authorised, and the request that was made of it, as they are stored."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from settled.domain.budget import Reservation
from settled.domain.digest import Digest


class Terms(BaseModel):
    """What is authorised: identity, exact parameters, and the policy that was in force.

    `params` is the frozen JSON of the validated parameters. `origin` holds other identifiers of the
    request (a model's tool-call id, a run id): they are kept beside the identity, never in it.
    `reserves` is what it takes of budgets. Durations are in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str
    kind: str
    identity: str
    kind_version: int
    mode: str
    label: str | None = None
    params: str | None = None
    params_version: int
    digest: Digest
    provider: str
    hand_over_to: str
    priority: int
    within_seconds: float
    attempts_allowed: int
    call_timeout_seconds: float
    permit_seconds: float
    origin: dict[str, str] = {}
    reserves: tuple[Reservation, ...] = ()


NEWS = frozenset({"performed", "pending", "reversed"})
"""Answers that say that an effect exists, or did."""

TERMS_BODY: frozenset[str] = frozenset({"params", "label", "origin"})


class Request(BaseModel):
    """A sealed request as it is stored: `body` is the exact bytes, as Latin-1 text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str


class PastAttempt(BaseModel):
    """What is left of an attempt: when it left, and whether anything of it may exist."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    generation: int
    at: datetime
    key: str
    may_arrive_until: datetime
    out: bool
    counts: bool


class Remains(BaseModel):
    """What a purge leaves of an operation beside its terms: enough to answer who comes late.

    A duplicate start is answered by the terms' digest, `state` and `reference`; a repeated
    decision by what was approved; evidence by `reference`, `told`, `evidence_keys` and `attempts`.
    Each reference that was ever its own is in `references`, with its provider. `rule` is the
    stable word for why it ended; what anybody wrote is not kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: str
    since: datetime
    proposal_version: int
    approved_by: str | None
    approved_version: int
    approval_consumed: bool
    intended_at: datetime | None
    give_up_at: datetime | None
    provider_key: str
    generation: int
    attempts: tuple[PastAttempt, ...]
    evidence_keys: tuple[str, ...]
    told: tuple[tuple[str, str | None], ...]
    references: tuple[tuple[str, str], ...]
    reference: str | None
    reference_is_theirs: bool
    adopted: bool
    contradicted: bool
    disputed: bool
    cancel_requested: bool
    rule: str | None
