"""Random histories of operations: every event of the lifecycle, with fields drawn by their types.

No process manager would ever walk some of these ways; a fold has to be right on all of them.
"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from settled import NotPossible, Stamp, Via
from settled.domain.digest import Digest
from settled.domain.identity import Identity
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.unit import RecordedEvent
from settled.domain.keys import DerivedKeys
from settled.domain.machine import Event
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, fields, intend, propose
from settled.domain.operation.purge import what_is_left
from settled.domain.operation.terms import Terms

SECRET = bytes(32)
BEGAN = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
ANSWERS = ("performed", "pending", "absent", "duplicate", "in_progress", "name_taken", "reversed")
CAUSES = ("reply_lost", "owner_gone", "unclear_answer", "shut_down", "evidence", "adopted")


def mapper() -> EventMapper:
    """Return a mapper with a key of no installation."""
    return EventMapper(DerivedKeys(SECRET))


def terms(drawn: random.Random, identity: Identity) -> Terms:
    """Return what might be authorised."""
    return Terms(
        tenant=identity.tenant,
        kind=identity.kind,
        identity=identity.operation_id,
        kind_version=1,
        mode="live",
        label=drawn.choice([None, f"Refund {drawn.randrange(100)}.00 USD", "Rückzahlung Nr. 7"]),
        params="{}",
        params_version=1,
        digest=Digest("hmac-sha-256", "00", identity.kind, 1, "k1"),
        provider=drawn.choice(["psp.example", "mail.example"]),
        hand_over_to="payments-oncall",
        priority=1,
        within_seconds=3600,
        attempts_allowed=8,
        call_timeout_seconds=30,
        permit_seconds=5,
    )


def history(drawn: random.Random, steps: int) -> tuple[Operation, list[RecordedEvent]]:
    """Return an operation after up to this many random steps, and all its events."""
    number = drawn.randrange(10**6)
    identity = Identity(drawn.choice(["acme", "globex"]), "refund", f"refund-request-{number}")
    stamp = Stamp(BEGAN + timedelta(microseconds=drawn.choice([0, 1, 999_999])), "agent")
    if drawn.random() < 0.5:
        operation = propose(terms(drawn, identity), stamp, stamp.at + timedelta(days=1))
    else:
        operation = intend(terms(drawn, identity), stamp, "key-1")
    for _ in range(steps):
        stamp = stamp.later(stamp.at + timedelta(milliseconds=drawn.choice([1, 500, 90_000])))
        _step(drawn, operation, stamp)
    records = mapper().seal(operation, lambda count: [uuid.uuid4() for _ in range(count)])
    placed = [_at(record, 10 * n) for n, record in enumerate(records, 1)]
    return operation, placed


def _step(drawn: random.Random, operation: Operation, stamp: Stamp) -> None:
    possible = [e for e in ev.EVENTS if Operation.LIFECYCLE.allows(operation.state, e.name())]
    event = drawn.choice(possible)
    if event is ev.Purged and drawn.random() < 0.7:
        event = ev.EvidenceRecorded  # ends are rare enough, and a purge forgets so much
    try:
        operation.record(event, stamp, **_fields(drawn, event, operation, stamp))
    except NotPossible:
        return  # a guard said no, as guards do


def _at(record: RecordedEvent, position: int) -> RecordedEvent:
    object.__setattr__(record, "position", position)
    return record


def _fields(
    drawn: random.Random, event: type[Event], operation: Operation, stamp: Stamp
) -> dict[str, Any]:
    if event is ev.Purged:
        return what_is_left(operation) | {"gone": "", "events": 1, "reason": "old enough"}
    named = {name for name in event.model_fields if name not in Event.model_fields}
    if issubclass(event, Terms):
        given: dict[str, Any] = fields(terms(drawn, operation.business_identity))
        named -= set(Terms.model_fields)
    else:
        given = {}
    return given | {name: _value(drawn, event, name, stamp) for name in sorted(named)}


def _value(drawn: random.Random, event: type[Event], name: str, stamp: Stamp) -> Any:
    kind = event.model_fields[name].annotation
    text = str(kind)
    if name == "answered":
        return drawn.choice([None, *ANSWERS] if "None" in text else ANSWERS)
    if name == "cause":
        return drawn.choice(CAUSES)
    if name == "via":
        return drawn.choice([via.value for via in Via])
    if name in ("receipt", "evidence"):
        return drawn.choice([None, {"id": f"re_{drawn.randrange(9)}", "amount": 2**70, "ok": True}])
    if name == "request":
        return None
    if "datetime" in text:
        at = stamp.at + timedelta(seconds=drawn.choice([0, 5, 86_400]), microseconds=7)
        return drawn.choice([at, at.replace(microsecond=0)])
    if kind is bool:
        return drawn.random() < 0.5
    if kind is int:
        return drawn.randrange(1, 9)
    if kind is UUID:
        return UUID(int=drawn.randrange(9))
    if "tuple" in text:
        return ()
    if "None" in text and drawn.random() < 0.3:
        return None
    return f"{name} {drawn.randrange(9)}"
