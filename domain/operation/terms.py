"""What is authorised, and the request that was made of it, as they are stored."""

from __future__ import annotations

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
