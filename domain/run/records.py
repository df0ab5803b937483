"""What a run's events are made of: usage and budget, calls, waits, checkpoints."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from settled.domain.errors import InvalidInput, TooLarge
from settled.domain.money import Money

LIMIT_BYTES = 64 * 1024
"""How large a checkpoint may be, and anything else that a run keeps: a result, an input."""

BOUNDARIES = (
    "after_model_decision",
    "before_dispatch",
    "after_result",
    "approval_requested",
    "approval_decided",
)
"""The points at which a checkpoint may be marked, besides `milestone:NAME`."""

_MILESTONE = re.compile(r"milestone:[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


class OnRecovery(enum.StrEnum):
    """What a run that was resumed gets for a call that it made before.

    `reuse`: what was recorded; where nothing was, the call counts as lost and is not made again.
    `retry`: what was recorded; where nothing was, the same call is made again.
    `fresh`: a new answer each time the run is resumed, whatever was recorded.
    """

    REUSE = "reuse"
    RETRY = "retry"
    FRESH = "fresh"


class Sort(enum.StrEnum):
    """What is called: a model, a tool, or something whose answer depends on when it is asked."""

    MODEL = "model"
    TOOL = "tool"
    LOOKUP = "lookup"


class Reason(enum.StrEnum):
    """Why a run was started, or taken by a worker (`fresh` the first time, `resume` later)."""

    FRESH = "fresh"
    RESUME = "resume"
    REPLACEMENT = "replacement"
    FORK = "fork"
    HISTORICAL_REPLAY = "historical_replay"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Amounts = Mapping[str, int]
"""What is counted, by its unit: tokens, calls, or a currency in its smallest unit."""


class Usage(_Record):
    """What a call takes, or took: tokens, calls (counted by themselves), money."""

    tokens: int = Field(default=0, ge=0)
    calls: int = Field(default=0, ge=0)
    money: Money | None = None

    @property
    def amounts(self) -> dict[str, int]:
        """Return what is counted, unit by unit."""
        found = {"tokens": self.tokens, "calls": self.calls}
        if self.money is not None:
            found[self.money.currency] = self.money.minor
        return {unit: amount for unit, amount in found.items() if amount}


class RunBudget(_Record):
    """What a run and all that replace it or fork from it may use; None is no limit."""

    tokens: int | None = Field(default=None, ge=0)
    calls: int | None = Field(default=None, ge=0)
    money: Money | None = None

    @property
    def limits(self) -> dict[str, int]:
        """Return the limits, unit by unit."""
        found = {"tokens": self.tokens, "calls": self.calls}
        if self.money is not None:
            found[self.money.currency] = self.money.minor
        return {unit: limit for unit, limit in found.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Lack:
    """Of `unit`, `wanted` was asked for and only `left` is left."""

    unit: str
    wanted: int
    left: int


def add(one: Amounts, other: Amounts) -> dict[str, int]:
    """Return the sum, unit by unit."""
    return {unit: one.get(unit, 0) + other.get(unit, 0) for unit in {**one, **other}}


def left(limits: Amounts, used: Amounts, reserved: Iterable[Amounts]) -> dict[str, int]:
    """Return what is left of each limit; negative where more was used than had been reserved."""
    taken = dict(used)
    for amounts in reserved:
        taken = add(taken, amounts)
    return {unit: limit - taken.get(unit, 0) for unit, limit in limits.items()}


def lacking(remaining: Amounts, wanted: Amounts, *, of_all: bool) -> Lack | None:
    """Return the first unit of which less is left than is wanted; None when there is none.

    With `of_all` something has to be left of every unit, whatever is wanted: what a model uses is
    known only afterwards.
    """
    for unit, remains in remaining.items():
        asked = wanted.get(unit, 0)
        if asked > max(remains, 0) or (of_all and remains <= 0):
            return Lack(unit, asked, remains)
    return None


class Bound(_Record):
    """The operation that a call stands for, by the business's name."""

    kind: str
    operation_id: str
    stream: UUID


class Wait(_Record):
    """What a run waits for, and until when.

    `on` is operation, approval, input or timer; `key` is the name by which the run asks for it
    again. `until` is the earliest deadline, of `level` (call, turn or session); a timer is over
    at `at`. An approval is awaited of one `proposal_version`.
    """

    on: str
    key: str
    until: datetime
    level: str
    at: datetime | None = None
    operation: Bound | None = None
    proposal_version: int = 0
    call_id: str | None = None
    rpc_id: str | None = None

    def is_over_in(self, seen: Seen) -> bool:
        """Tell whether an operation that stands so ends this wait."""
        if self.on == "approval":
            return seen.state != "proposed" or seen.proposal_version != self.proposal_version
        return seen.settled


class Seen(_Record):
    """What the run was told of an operation: the state in which it was, and of which proposal."""

    state: str
    settled: bool
    proposal_version: int


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call as recorded: `state` is pending, returned, failed, timed_out or lost.

    `epoch` is the owner that made it last, `as_of` the moment at which a lookup was made. `result`
    is JSON text; None where there is none, or none is left.
    """

    call_id: str
    sort: Sort
    name: str
    on_recovery: OnRecovery
    digest: str
    until: datetime
    level: str
    epoch: int
    attempt: int
    state: str = "pending"
    result: str | None = None
    reason: str | None = None
    as_of: datetime | None = None
    operation: Bound | None = None
    model_call_id: str | None = None
    rpc_id: str | None = None


class Checkpoint(_Record):
    """What a run wrote down at a named boundary: `state` is JSON text of at most 64 KiB.

    `references` name what is kept elsewhere (a file, a transcript), each with its address.
    """

    boundary: str
    state: str | None
    digest: str
    size_bytes: int
    references: dict[str, str] = {}

    @property
    def value(self) -> Any:
        """The state; None where it was erased."""
        return read_value(self.state)


def checkpoint(boundary: str, state: Any, references: Mapping[str, str]) -> Checkpoint:
    """Return a checkpoint. Raises InvalidInput for another boundary, TooLarge over 64 KiB."""
    if boundary not in BOUNDARIES and _MILESTONE.fullmatch(boundary) is None:
        raise InvalidInput(
            f"{boundary[:80]!a} is no boundary of a run.",
            hint=f"Use {', '.join(BOUNDARIES)}, or milestone:NAME.",
        )
    text = text_of("The checkpoint", state)
    return Checkpoint(
        boundary=boundary,
        state=text,
        digest=digest_of(text),
        size_bytes=len(text.encode()),
        references=dict(references),
    )


def text_of(what: str, value: Any) -> str:
    """Return a value as the JSON text that is kept of it.

    Raises InvalidInput for what is not JSON, and TooLarge over 64 KiB.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise InvalidInput(
            f"{what} cannot be kept: {error}.",
            hint="Keep what JSON has: text, numbers, truth values, lists, objects with text keys.",
        ) from error
    if len(text) > LIMIT_BYTES:
        raise TooLarge(
            f"{what} has {len(text)} bytes; {LIMIT_BYTES} are allowed.",
            hint="Keep the content elsewhere, and record its address and its hash.",
        )
    return text.decode()


def read_value(text: str | None) -> Any:
    """Return what was kept; None where it was erased."""
    return None if text is None else orjson.loads(text)


def digest_of(text: str) -> str:
    """Return the digest by which two texts are compared."""
    return hashlib.sha256(text.encode()).hexdigest()
