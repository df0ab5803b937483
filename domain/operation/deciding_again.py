"""What recovery would decide today at each finding that an operation has recorded.

Pure. An event keeps what was found and which rule decided, but not all that the decision was made
of: how long a pause was drawn, whether an object that is not kept was equal to the intent. What is
not recorded is taken as it would have to be for the recorded decision; a difference is one that no
such reading explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.contract.echo import compare
from settled.domain.kind import Kind
from settled.domain.machine.event import Event
from settled.domain.operation.evidence import admit
from settled.domain.operation.judgement import OWNER_GONE, SHUT_DOWN, conclude
from settled.domain.operation.operation import Operation
from settled.domain.params import Params, model_of_version, thaw
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.recovery import StepKind, recover
from settled.domain.recovery_rules import rule_named


@dataclass(frozen=True, slots=True)
class Decision:
    """What one finding led to when it was recorded, and what it would lead to today.

    `version` is that of the first event that it led to. `recorded` and `today` name the events,
    each with its rule where it has one; `reason` is today's.
    """

    version: int
    at: datetime
    finding: str
    recorded: tuple[str, ...]
    today: tuple[str, ...]
    reason: str

    @property
    def differs(self) -> bool:
        """Whether today's code would decide otherwise."""
        return self.recorded != self.today


def fold(events: Sequence[Event]) -> Operation:
    """Fold events into their operation."""
    operation: Operation | None = None
    for event in events:
        operation = event.mutate(operation)
    assert isinstance(operation, Operation), "the stream of an operation holds one"
    operation.new_references.clear()
    operation.new_guards.clear()
    return operation


def decided_again(events: Sequence[Event], kind: Kind[Any]) -> list[Decision]:
    """Return every decision of recovery in a history, beside what it would be today."""
    decisions: list[Decision] = []
    index = 1
    while index < len(events):
        before, together = events[:index], _together(events, index)
        if _is_decision(fold(before), events[index]):
            decisions.append(_decided(before, events[index : index + together], kind))
        index += together
    return decisions


def _together(events: Sequence[Event], index: int) -> int:
    """Return how many events one decision recorded: some pass through outcome_unknown."""
    first = events[index]
    after = events[index + 1] if index + 1 < len(events) else None
    passes = (
        first.NAME == "OutcomeUnknown"
        and after is not None
        and after.NAME in ("HandedOver", "ConfirmedAbsent")
        and after.timestamp == first.timestamp
        and _field(after, "rule") == _field(first, "rule")
    )
    return 2 if passes else 1


_DECIDED = frozenset(
    {
        *("RetryScheduled", "Accepted", "OutcomeUnknown", "LookedUp", "ReconciliationScheduled"),
        *("ConfirmedAbsent", "Succeeded", "Failed", "HandedOver", "EvidenceRecorded"),
    }
)
"""Events that recovery decides on, unless their rule says that somebody else did."""


def _is_decision(operation: Operation, event: Event) -> bool:
    if event.NAME == "Dispatching":
        return operation.state == "outcome_unknown"
    if _field(event, "via") == Via.HAND or event.NAME not in _DECIDED:
        return False
    rule = rule_named(str(_field(event, "rule")))
    return rule is None or rule.automatic


def _decided(before: Sequence[Event], recorded: Sequence[Event], kind: Kind[Any]) -> Decision:
    """Take the first reading that leads to what was recorded, or else the first of all."""
    first = recorded[0]
    names = tuple(_named(event) for event in recorded)
    chosen: tuple[_Reading, tuple[str, ...], str] | None = None
    for reading in _readings(fold(before), recorded, kind):
        today, reason = _today(fold(before), first, reading, kind)
        if chosen is None or today == names:
            chosen = reading, today, reason
        if today == names:
            break
    assert chosen is not None, "there is always a reading"
    reading, today, reason = chosen
    return Decision(first.originator_version, first.timestamp, str(reading), names, today, reason)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way in which a recorded event can have come about.

    `at` is when it was decided: the time of the event, or one before the event ahead of it, which
    is what a clock that went back had shown and what is not recorded as it was.
    """

    finding: Finding | None
    jitter: timedelta
    at: datetime
    attempt: int | None = None
    by_itself: bool = False
    pinned: bool = True

    def __str__(self) -> str:
        if self.finding is None:
            return "nobody answered"
        return f"{self.finding.answered.value} by {self.finding.via.value}"


def _today(
    operation: Operation, event: Event, reading: _Reading, kind: Kind[Any]
) -> tuple[tuple[str, ...], str]:
    """Return what today's code records for this reading, and why."""
    contract, finding = kind.provider.contract, reading.finding
    stamp = Stamp(reading.at, event.actor)
    if reading.by_itself and finding is not None:
        admit(operation, contract, finding, stamp, reading.jitter, reading.attempt)
        reason = finding.reason
    else:
        situation = operation.situation(stamp.at)
        if not reading.pinned:
            situation = replace(situation, scope_unchanged=False)
        step = recover(situation, contract, finding, reading.jitter)
        reason = step.reason
        due = step.not_before is None or step.not_before <= stamp.at
        if finding is None and operation.state != "dispatching" and due:
            if step.kind is StepKind.RESEND and operation.state == "outcome_unknown":
                return ("Dispatching",), reason
            if step.kind in (StepKind.LOOK_UP, StepKind.POLL):
                return ("a look-up",), reason
        shut_down = _field(event, "cause") == SHUT_DOWN.word
        conclude(operation, step, stamp, finding, SHUT_DOWN if shut_down else OWNER_GONE)
    pending = [event for event in operation.pending_events if isinstance(event, Event)]
    comparable = rule_named(str(_field(event, "rule"))) is not None
    return tuple(_named(one, comparable) for one in pending), reason


def _named(event: Event, comparable: bool = True) -> str:
    """Return an event's name, with its rule where that is one that today's code has too."""
    rule = _field(event, "rule")
    known = comparable and rule is not None and rule_named(str(rule)) is not None
    return f"{event.NAME} ({rule})" if known and event.NAME != "Dispatching" else event.NAME


# From an event back to what may have been found.


def _readings(
    operation: Operation, recorded: Sequence[Event], kind: Kind[Any]
) -> Iterator[_Reading]:
    first, last = recorded[0], recorded[-1]
    pinned = "the key may not be known there" not in str(_field(last, "reason"))
    until = _field(first, "may_arrive_until")
    said = str(_field(first, "reason") or "it was recorded without a reason")
    for answered in _answers(recorded):
        if answered is None:
            for at, jitter in product(_times(operation, first), _jitters(operation, first, kind)):
                yield _Reading(None, jitter, at, pinned=pinned)
            continue
        for at, (via, attempt), (echo, differs), replayed, jitter in product(
            _times(operation, first),
            _ways_and_attempts(operation, first),
            _echoes(operation, recorded, kind),
            _replays(first),
            _jitters(operation, first, kind),
        ):
            finding = Finding(
                answered,
                via,
                said,
                reference=_field(first, "reference"),
                receipt=_field(first, "receipt"),
                echo=echo,
                differs_in=differs,
                replayed=replayed,
                evidence=_field(first, "evidence") or {},
                may_arrive_until=until,
            )
            alone = via is Via.WEBHOOK or first.NAME == "EvidenceRecorded"
            alone = alone or (via is Via.REPLY and operation.state != "dispatching")
            yield _Reading(finding, jitter, at, attempt, alone, pinned)


_MEANT: dict[str, tuple[Answered | None, ...]] = {
    "Succeeded": (Answered.PERFORMED,),
    "Accepted": (Answered.PENDING,),
    "ReconciliationScheduled": (None,),
    "Dispatching": (None,),
    "ConfirmedAbsent": (Answered.ABSENT, Answered.NOT_SENT, None),
    "RetryScheduled": (Answered.NOT_SENT, Answered.RATE_LIMITED, Answered.UNAUTHORISED),
    "Failed": (Answered.FAILED, Answered.REJECTED, Answered.NO_TARGET, Answered.ABSENT),
    "HandedOver": (None,),
    "OutcomeUnknown": (Answered.LOST,),
}
"""What may have been answered where neither the event nor its rule tells."""


def _answers(recorded: Sequence[Event]) -> tuple[Answered | None, ...]:
    first = recorded[0]
    told = _field(first, "answered")
    if told is not None:
        return (Answered(told),)
    if first.NAME == "OutcomeUnknown" and _field(first, "cause") in ("owner_gone", "shut_down"):
        return (None,)
    fixed = first.NAME in ("Succeeded", "Accepted", "ReconciliationScheduled", "Dispatching")
    rule = None if fixed else rule_named(str(_field(first, "rule")))
    if first.NAME == "HandedOver" and (rule is None or rule.answered is None):
        # What was asked in vain has left evidence; where the time was over, nobody was asked.
        asked = _field(first, "evidence") is not None or _field(first, "rule") == "pending too long"
        return (None, Answered.LOST) if asked else (None,)
    if rule is None or rule.answered is None:
        return _MEANT[first.NAME]
    # "never sent" is also what is said of an operation of which nothing is out any more.
    return (rule.answered, None) if rule.answered is Answered.NOT_SENT else (rule.answered,)


def _ways(operation: Operation, event: Event) -> tuple[Via, ...]:
    told = _field(event, "via")
    if told is not None:
        return (Via(told),)
    if event.NAME == "LookedUp":
        return (Via.LOOKUP,)
    if operation.state == "dispatching":
        return (Via.REPLY, Via.WEBHOOK)
    return (Via.LOOKUP, Via.WEBHOOK, Via.REPLY)


def _ways_and_attempts(operation: Operation, event: Event) -> Iterator[tuple[Via, int | None]]:
    """Add the attempt that a late reply may have answered: the last one, or an earlier one."""
    numbers = [attempt.number for attempt in operation.attempts]
    for via in _ways(operation, event):
        late = dict.fromkeys([numbers[-1], numbers[0]]) if numbers and via is Via.REPLY else (None,)
        yield from ((via, attempt) for attempt in late)


def _echoes(
    operation: Operation, recorded: Sequence[Event], kind: Kind[Any]
) -> tuple[tuple[Echo, str], ...]:
    """Compare the object again where it is kept; otherwise take what the rule says of it."""
    contract = kind.provider.contract
    receipt = _field(recorded[0], "receipt")
    if receipt is not None and operation.terms.params is not None:
        model = model_of_version(kind.params, operation.terms.params_version)
        params: Params = thaw(model, operation.terms.params.encode())
        intended = {name: getattr(params, name) for name in type(params).model_fields}
        echo, differs = compare(contract.echo, receipt, intended)
        if echo is not Echo.NONE:
            return ((echo, differs),)
    if str(_field(recorded[0], "rule")).endswith("echo differs"):
        return ((Echo.DIFFERS, "what was intended"),)
    unequal = [(Echo.DIFFERS, "what was intended")] * (recorded[0].NAME == "EvidenceRecorded")
    return ((Echo.NONE, ""), (Echo.EQUAL, ""), *unequal)


def _replays(event: Event) -> tuple[bool, ...]:
    told = _field(event, "replayed")
    return (False, True) if told is None else (bool(told),)


def _times(operation: Operation, event: Event) -> tuple[datetime, ...]:
    if event.timestamp > operation.modified_on:
        return (event.timestamp,)
    return (event.timestamp, event.timestamp - timedelta(microseconds=1))


def _jitters(operation: Operation, event: Event, kind: Kind[Any]) -> tuple[timedelta, ...]:
    """Return how long a pause may have been drawn: as recorded, none, or the longest."""
    zero = timedelta()
    if event.NAME in ("Dispatching", "ReconciliationScheduled"):
        return (zero,)
    if event.NAME == "HandedOver" and operation.state != "dispatching":
        return (zero, timedelta(seconds=kind.retry.cap_seconds))
    until = next((at for at in map(event.__dict__.get, _NEXT) if at is not None), event.timestamp)
    longest = timedelta(seconds=kind.retry.cap_seconds)
    return tuple(dict.fromkeys((max(until - event.timestamp, zero), zero, longest)))


_NEXT = ("next_at", "retry_at", "due_at")
"""The fields in which an event says when the operation is looked at again."""


def _field(event: Event, name: str) -> Any:
    """Return a field that this class of event may not have."""
    return getattr(event, name, None)
