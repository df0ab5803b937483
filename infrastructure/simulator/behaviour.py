"""What the simulated provider does with a request: pure, without sockets or a clock.

A request that can have an effect passes two steps. `arrive` answers at once what the key decides
(in progress, used otherwise, had before) and else marks the key as running; `execute` has the
effect and stores the answer under the key. Between the two lies time in which others arrive.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import parse_qsl

from settled.infrastructure.simulator.plan import CompletedDuplicate, Conduct, Pending
from settled.infrastructure.simulator.record import Effect, RequestLine

_AMOUNT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,6})?", re.ASCII)
_PREFIXES = {"refunds": "re", "messages": "msg"}
_LOOKUP_FIELDS = ("key", "reference", "order")

Status = Literal["pending", "succeeded", "failed", "reversed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer before it goes out. `body` is JSON-like, or text that is sent as it is."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict[str, str])


class Outcome(NamedTuple):
    """The answer to an executed request, and the effect it had, if it had one."""

    answer: Answer
    effect: Effect | None = None


@dataclass(slots=True)
class _Known:
    """What the provider keeps under one idempotency key."""

    parameters: str
    first_at: float
    running: bool = True
    effect_id: str | None = None
    answer: Answer | None = None


@dataclass(slots=True)
class SimulatedProvider:
    """The state of the provider: its keys and the effects that it holds."""

    conduct: Conduct
    effects: dict[str, Effect] = field(default_factory=dict[str, Effect])
    _keys: dict[str, _Known] = field(default_factory=dict[str, _Known])

    def key_of(self, headers: dict[str, str], body: str) -> str | None:
        """Return the idempotency key that a request carries, as this provider expects it."""
        if self.conduct.key == "body":
            given = parsed(body).get(self.conduct.key_name)
            return given if isinstance(given, str) else None
        value = headers.get(self.conduct.key_name.lower())
        return value.removeprefix('"').removesuffix('"') if value else None

    def arrive(self, request: RequestLine, now: float) -> Answer | None:
        """Return the answer that the key alone decides, or None: then `execute` is next."""
        if request.key is None or self.conduct.key == "none" or _is_named(request.path):
            return None
        known = self._keys.get(request.key)
        if known is not None and self._expired(known, now):
            known = None
        if known is None:
            self._keys[request.key] = _Known(_parameters(request), now)
            return None
        if self.conduct.compare_parameters and known.parameters != _parameters(request):
            return _error(422, "key_mismatch", "The key was used with other parameters.")
        busy_seconds = known.first_at + self.conduct.in_progress_seconds - now
        if known.running or busy_seconds > 0:
            wait_seconds = max(1, round(busy_seconds))
            return _error(
                409,
                "in_progress",
                "A request with this key is in progress.",
                headers={"Retry-After": str(wait_seconds)},
            )
        return self._had_before(known)

    def execute(self, request: RequestLine, now: float) -> Outcome:
        """Have the effect and return the answer, which is stored under the key."""
        if _is_named(request.path):
            return self._execute_named(request, now)
        outcome = self._execute_new(request, now)
        known = self._known(request)
        if known is not None and outcome.effect is not None:
            known.effect_id = outcome.effect.id
        return outcome

    def finish(self, request: RequestLine, answer: Answer | None) -> None:
        """Store the answer under the request's key, as this provider stores answers.

        None if it never came to an answer. Without an effect and without a stored failure the
        key is free again.
        """
        known = self._known(request)
        if known is None or not known.running:
            return
        known.running = False
        if answer is not None and (answer.status < 400 or self.conduct.cache_failures):
            known.answer = answer
        elif known.effect_id is None and request.key is not None:
            del self._keys[request.key]

    def read(self, request: RequestLine, now: float) -> Outcome:
        """Answer a lookup or a poll. The effect is given when reading it made it final."""
        segments = request.path.strip("/").split("/")
        if len(segments) == 3:
            effect = self._by_path(segments[1], segments[2])
            if effect is None:
                return Outcome(_error(404, "not_found", "There is no such object."))
            polled = self._polled(effect, now)
            changed = polled if polled.status != effect.status else None
            return Outcome(Answer(200, polled.shown()), changed)
        found: list[dict[str, Any]] = []
        for effect in tuple(self.effects.values()):
            asked = effect.resource == segments[1] and _answers(effect, request.query)
            if asked and now >= effect.at + self.conduct.lookup_lag_seconds:
                found.append(self._polled(effect, now).shown())
        return Outcome(Answer(200, {"data": found, "has_more": False}))

    def settle(self, effect_id: str, status: Status) -> Effect | None:
        """Give an effect its final status, or reverse it. None if there is no such effect."""
        effect = self.effects.get(effect_id)
        if effect is None:
            return None
        return self._keep(effect.model_copy(update={"status": status}))

    def _expired(self, known: _Known, now: float) -> bool:
        retention_seconds = self.conduct.retention_seconds
        return retention_seconds is not None and now - known.first_at >= retention_seconds

    def _known(self, request: RequestLine) -> _Known | None:
        return None if request.key is None else self._keys.get(request.key)

    def _had_before(self, known: _Known) -> Answer | None:
        effect = None if known.effect_id is None else self.effects[known.effect_id]
        failed = known.answer is not None and known.answer.status >= 400
        match self.conduct.duplicate_completed:
            case CompletedDuplicate.EXECUTE_AGAIN:
                known.running = True
                return None
            case CompletedDuplicate.CONFLICT_WITH_REFERENCE if effect is not None:
                return _error(409, "duplicate", "This was done before.", reference=effect.id)
            case CompletedDuplicate.CONFLICT if effect is not None:
                return _error(409, "duplicate", "This was done before.")
            case CompletedDuplicate.CURRENT_STATE if effect is not None and not failed:
                return Answer(200, effect.shown(), _replayed())
            case _ if known.answer is not None:
                headers = {**known.answer.headers, **_replayed()}
                return Answer(known.answer.status, known.answer.body, headers)
            case _:
                # Executed, and answered with a failure that is not stored: the work is resumed.
                assert effect is not None, "a key without effect and answer is released"
                return Answer(200, effect.shown(), _replayed())

    def _execute_new(self, request: RequestLine, now: float) -> Outcome:
        resource = request.path.strip("/").split("/")[1]
        fields = parsed(request.body)
        if resource == "refunds":
            refusal = self._refusal(fields)
            if refusal is not None:
                return Outcome(refusal)
        prefix = _PREFIXES.get(resource, resource[:3])
        effect_id = f"{prefix}_{len(self.effects) + 1}"
        status: Status = "pending" if self.conduct.pending is not None else "succeeded"
        effect = self._keep(
            Effect(
                id=effect_id,
                resource=resource,
                key=request.key,
                request=request.number,
                at=now,
                status=status,
                fields=fields,
            )
        )
        return Outcome(Answer(201, effect.shown()), effect)

    def _execute_named(self, request: RequestLine, now: float) -> Outcome:
        name = request.path.strip("/").split("/")[2]
        fields = parsed(request.body)
        there = self.effects.get(name)
        if there is not None:
            if request.method == "POST":
                message = f"There is an object named {name}."
                return Outcome(_error(409, "already_exists", message, reference=name))
            if there.fields == fields:
                return Outcome(Answer(200, there.shown()))
        effect = self._keep(
            Effect(
                id=name,
                resource="objects",
                key=request.key,
                request=request.number,
                at=now,
                status="succeeded",
                fields=fields,
            )
        )
        return Outcome(Answer(200 if there else 201, effect.shown()), effect)

    def _refusal(self, fields: dict[str, Any]) -> Answer | None:
        amount = fields.get("amount")
        if not isinstance(amount, str | int) or _AMOUNT.fullmatch(str(amount)) is None:
            return _error(400, "invalid_request", "The amount is missing or malformed.")
        order = str(fields.get("order", ""))
        captured = self.conduct.captured.get(order)
        if captured is None or not self.conduct.enforce_remaining:
            return None
        done = [e for e in self.effects.values() if e.resource == "refunds" and _counts(e, order)]
        remaining = Decimal(captured) - sum(Decimal(str(e.fields["amount"])) for e in done)
        if Decimal(str(amount)) > remaining:
            return _error(400, "exceeds_remaining", f"{remaining} is left of {order}.")
        return None

    def _by_path(self, resource: str, effect_id: str) -> Effect | None:
        effect = self.effects.get(effect_id)
        return effect if effect is not None and effect.resource == resource else None

    def _polled(self, effect: Effect, now: float) -> Effect:
        if effect.status != "pending":
            return effect
        # Of a provider that makes nothing pending any more, what still was is final when read.
        pending = self.conduct.pending or Pending(polls=1)
        polls = effect.polls + 1
        by_polls = pending.polls is not None and polls >= pending.polls
        by_time = pending.seconds is not None and now >= effect.at + pending.seconds
        status = pending.final if by_polls or by_time else effect.status
        return self._keep(effect.model_copy(update={"polls": polls, "status": status}))

    def _keep(self, effect: Effect) -> Effect:
        self.effects[effect.id] = effect
        return effect


def parsed(body: str) -> dict[str, Any]:
    """Return the fields of a JSON object or of a form; what is neither has none."""
    if body.lstrip().startswith("{"):
        try:
            value = json.loads(body)
        except json.JSONDecodeError:
            return {}
        return cast(dict[str, Any], value)
    return dict(parse_qsl(body))


def _parameters(request: RequestLine) -> str:
    """Return what two requests with one key have to agree in, whatever the order of fields."""
    said = [request.method, request.path, parsed(request.body)]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _answers(effect: Effect, query: dict[str, str]) -> bool:
    if query.get("key", effect.key) != effect.key:
        return False  # asked for by its key among very many: the fields are not looked at
    shown = {**effect.fields, "key": effect.key}
    return all(str(shown.get(name)) == query[name] for name in _LOOKUP_FIELDS if name in query)


def _counts(effect: Effect, order: str) -> bool:
    in_force = effect.status in ("pending", "succeeded")
    return in_force and str(effect.fields.get("order", "")) == order


def _is_named(path: str) -> bool:
    return path.startswith("/v1/objects/")


def _replayed() -> dict[str, str]:
    return {"Idempotent-Replayed": "true"}


def _error(
    status: int,
    code: str,
    message: str,
    *,
    reference: str | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    error = {"code": code, "message": message}
    if reference is not None:
        error["reference"] = reference
    return Answer(status, {"error": error}, headers or {})
