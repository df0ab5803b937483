"""What the simulated provider writes down: every request, every effect, every answer.

The log is JSON Lines. A line is written before what it tells of goes out, so that the log of a
simulator, or of a test, that was killed is complete. `read_log` puts the lines together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Effect(_Model):
    """Something that the provider did: a refund, a message, an object of a given name."""

    id: str
    """The provider's reference, such as `re_1`; for a named object its name."""
    resource: str
    """The collection in the path, such as `refunds`."""
    key: str | None
    request: int
    """The number of the request that had this effect."""
    at: float
    status: Literal["pending", "succeeded", "failed", "reversed"]
    fields: dict[str, Any]
    polls: int = 0

    def shown(self) -> dict[str, Any]:
        """Return the object as the provider's API shows it."""
        own = {"id": self.id, "key": self.key, "status": self.status, "created": self.at}
        return {**self.fields, **own}


class RequestLine(_Model):
    """A request arrived in full."""

    type: Literal["request"] = "request"
    number: int
    at: float
    """The simulator's clock, in seconds since 1970."""
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """With names in lower case."""
    key: str | None
    body: str
    body_sha256: str
    connection: int
    """Requests with one number came over one connection."""


class EffectLine(_Model):
    """An effect began, or its status changed."""

    type: Literal["effect"] = "effect"
    at: float
    effect: Effect


class AnswerLine(_Model):
    """A request is answered now, or its connection is broken instead."""

    type: Literal["answer"] = "answer"
    number: int
    at: float
    status: int
    body: str
    reply: str
    """What becomes of the answer on the wire, as in `plan.Delivery`."""
    effect: str | None
    """The id of the effect that this request had."""


class WebhookLine(_Model):
    """A webhook was sent."""

    type: Literal["webhook"] = "webhook"
    at: float
    url: str
    event: str
    effect: str
    status: int | None
    """What the receiver answered; None if nobody did."""


class ResetLine(_Model):
    """Everything before this was forgotten."""

    type: Literal["reset"] = "reset"
    at: float


Line = RequestLine | EffectLine | AnswerLine | WebhookLine | ResetLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


class Seen(_Model):
    """One request, with how it was answered if it was."""

    number: int
    at: float
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    key: str | None
    body: str
    body_sha256: str
    connection: int
    answered_at: float | None = None
    status: int | None = None
    answer: str | None = None
    reply: str | None = None
    effect: str | None = None

    @property
    def reads(self) -> bool:
        """Whether this was a lookup or a poll, which has no effect."""
        return self.method == "GET"


class SimulatorLog(_Model):
    """What the provider has seen and done since the last reset."""

    requests: tuple[Seen, ...] = ()
    effects: tuple[Effect, ...] = ()
    webhooks: tuple[WebhookLine, ...] = ()

    def calls(self, key: str | None = None) -> tuple[Seen, ...]:
        """Return the requests that could have an effect; with a key, those that carried it."""
        return tuple(s for s in self.requests if not s.reads and key in (None, s.key))

    def lookups(self) -> tuple[Seen, ...]:
        """Return the lookups and polls."""
        return tuple(s for s in self.requests if s.reads)


class Collector:
    """Puts log lines together, one at a time."""

    def __init__(self) -> None:
        self.requests: dict[int, Seen] = {}
        self.effects: dict[str, Effect] = {}
        self.webhooks: list[WebhookLine] = []

    def add(self, line: Line) -> None:
        """Take the next line."""
        match line:
            case RequestLine():
                self.requests[line.number] = Seen(**line.model_dump(exclude={"type"}))
            case AnswerLine():
                answer = {
                    "answered_at": line.at,
                    "status": line.status,
                    "answer": line.body,
                    "reply": line.reply,
                    "effect": line.effect,
                }
                seen = self.requests.get(line.number)
                if seen is not None:  # It is None if a reset came between the two.
                    self.requests[line.number] = seen.model_copy(update=answer)
            case EffectLine():
                self.effects[line.effect.id] = line.effect
            case WebhookLine():
                self.webhooks.append(line)
            case ResetLine():
                self.requests, self.effects, self.webhooks = {}, {}, []

    def log(self) -> SimulatorLog:
        """Return what the lines since the last reset say."""
        return SimulatorLog(
            requests=tuple(self.requests.values()),
            effects=tuple(self.effects.values()),
            webhooks=tuple(self.webhooks),
        )


def read_log(path: Path) -> SimulatorLog:
    """Return what the log file of a simulator says, whether or not it still runs.

    A line that was cut off by a kill has told nobody anything yet, and is left out.
    """
    whole = path.read_bytes().rpartition(b"\n")[0]
    collector = Collector()
    for line in whole.splitlines():
        collector.add(_LINE.validate_json(line))
    return collector.log()
