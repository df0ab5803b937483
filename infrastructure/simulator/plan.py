"""The switches of the simulated provider.

`Conduct` is how the provider behaves as a rule: what its keys promise, how long, what a duplicate
is told. A `Fault` is what happens to single requests: to the next few, or to those with one key.
Both are given at the start or changed at `POST /admin/plan`. All times are seconds on the
simulator's clock, which `POST /admin/clock` moves, unless a field says otherwise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveInt


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Delivery(StrEnum):
    """What becomes of the answer on the wire."""

    ANSWER = "answer"
    """It is sent."""
    CLOSE = "close"
    """The connection is closed (FIN) without a byte of it."""
    RESET = "reset"
    """The connection is reset (RST) without a byte of it."""
    CUT_STATUS_LINE = "cut_status_line"
    """The connection is closed in the middle of the status line."""
    CUT_BODY = "cut_body"
    """The connection is closed in the middle of the body."""
    GARBAGE = "garbage"
    """Something that is not HTTP is sent, then the connection is closed."""


class CompletedDuplicate(StrEnum):
    """What a request is told whose key has a completed one."""

    REPLAY = "replay"
    """The stored answer, with the header `Idempotent-Replayed: true`."""
    CURRENT_STATE = "current_state"
    """The object as it is now."""
    CONFLICT_WITH_REFERENCE = "conflict_with_reference"
    """409 `duplicate`, naming the object."""
    CONFLICT = "conflict"
    """409 `duplicate`, naming nothing."""
    EXECUTE_AGAIN = "execute_again"
    """Nothing of the kind: the effect happens again."""


class Pending(_Model):
    """Outcomes that are pending first, and what makes them final.

    With neither `polls` nor `seconds` they stay pending until `POST /admin/settle`.
    """

    polls: PositiveInt | None = None
    """How often the object is read (or found by a lookup) before it shows its final status."""
    seconds: NonNegativeFloat | None = None
    """How long after its creation the object is final."""
    final: Literal["succeeded", "failed"] = "succeeded"


class Webhooks(_Model):
    """Whom the provider tells about its effects, and when."""

    url: str
    when: Literal["before_reply", "after_reply", "manual"] = "after_reply"
    """`manual`: only at `POST /admin/webhooks`."""
    copies: PositiveInt = 1
    newest_first: bool = False
    """Several events that are due together arrive in the wrong order."""


class Conduct(_Model):
    """How the provider behaves as a rule."""

    key: Literal["header", "body", "none"] = "header"
    """Where the idempotency key is expected. `none`: nothing is ever recognised as a duplicate."""
    key_name: str = "Idempotency-Key"
    retention_seconds: NonNegativeFloat | None = 86_400.0
    """How long a key is known, counted from its first request; None means for ever."""
    compare_parameters: bool = True
    """Whether a known key with another body is refused (422); otherwise it is answered as the
    first request was."""
    cache_failures: bool = False
    """Whether an answer that is a failure is stored under the key and replayed."""
    duplicate_completed: CompletedDuplicate = CompletedDuplicate.REPLAY
    in_progress_seconds: NonNegativeFloat = 0.0
    """How long after its first request a key counts as in progress (409), even when that one was
    answered. While a request is really running, its key is in progress anyway."""
    enforce_remaining: bool = True
    """Whether refunds beyond what was captured are refused."""
    captured: dict[str, str] = Field(default_factory=dict)
    """What was captured, by order, in the unit that requests use. Others have no limit."""
    lookup_lag_seconds: NonNegativeFloat = 0.0
    """How long a new object is missing from lookups. Reading it by its id is never late."""
    pending: Pending | None = None
    webhooks: Webhooks | None = None


class Fault(_Model):
    """What happens to single requests. The first fault that matches a request is used up by it."""

    times: PositiveInt | None = 1
    """For how many requests; None means for all that match."""
    key: str | None = None
    """Only requests with this idempotency key."""
    on: Literal["effects", "reads"] = "effects"
    """Requests that can have an effect, or lookups and polls."""
    hold_before: bool = False
    """Wait for `POST /admin/release` before executing. Meanwhile the key is in progress."""
    delay_before_seconds: NonNegativeFloat = 0.0
    """Wait before executing: real seconds. Meanwhile the key is in progress."""
    execute: bool = True
    """Whether the request is executed at all."""
    hold_after: bool = False
    """Having executed, wait for `POST /admin/release` before answering. For others with the key,
    this request is completed: only its reply is on its way."""
    delay_after_seconds: NonNegativeFloat = 0.0
    """Having executed, wait before answering: real seconds. Completed, as above."""
    status: int | None = Field(default=None, ge=200, le=999)
    """Answer with this status instead of the true one, whether or not it was executed."""
    body: Any = None
    """The body of that answer: text as it is, anything else as JSON."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of the answer, beside or in place of its own."""
    reply: Delivery = Delivery.ANSWER

    def matches(self, *, reads: bool, key: str | None) -> bool:
        """Tell whether this fault is meant for a request."""
        return (self.on == "reads") == reads and self.key in (None, key)

    def used(self) -> Fault | None:
        """Return what is left of this fault after one request."""
        if self.times is None:
            return self
        return self.model_copy(update={"times": self.times - 1}) if self.times > 1 else None


class Plan(_Model):
    """The switches that are set, and what `POST /admin/plan` takes.

    There, `conduct` replaces the fields that it names and keeps the others, and `faults` are
    added behind those that wait; with `clear_faults` those are dropped first.
    """

    conduct: Conduct = Conduct()
    faults: tuple[Fault, ...] = ()
    clear_faults: bool = False

    def changed(self, change: Plan) -> Plan:
        """Return the plan after such a change."""
        given = {name: getattr(change.conduct, name) for name in change.conduct.model_fields_set}
        kept = () if change.clear_faults else self.faults
        return Plan(conduct=self.conduct.model_copy(update=given), faults=kept + change.faults)

    def taken(self, *, reads: bool, key: str | None) -> tuple[Fault | None, Plan]:
        """Return the fault for a request, if there is one, and the plan without it."""
        for index, fault in enumerate(self.faults):
            if fault.matches(reads=reads, key=key):
                left = fault.used()
                faults = self.faults[:index] + ((left,) if left else ()) + self.faults[index + 1 :]
                return fault, self.model_copy(update={"faults": faults})
        return None, self
