"""Events, moments and durations in words. One event is one line, whoever prints it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from settled.projections.history import HistoryEntry

_SHOWN_KEY_CHARACTERS = 4
_CAPITALS = re.compile(r"(?<=[a-z])(?=[A-Z])")

Fields = Mapping[str, Any]


def event_name(name: str) -> str:
    """Return the name of an event as states are written: OutcomeUnknown is outcome_unknown."""
    return _CAPITALS.sub("_", name).lower()


def short_key(key: str) -> str:
    """Return the beginning of a provider key: enough to tell two apart."""
    return f"{key[:_SHOWN_KEY_CHARACTERS]}…"


def told(entry: HistoryEntry) -> str:
    """Return what an event says, without its name, time and actor."""
    tell = _TELLERS.get(entry.name)
    said = tell(entry.fields) if tell else str(entry.fields.get("reason") or "")
    return f"{said} (details erased)".strip() if entry.erased else said


def moment(at: datetime) -> str:
    """Return a moment to the millisecond, its zone named."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def duration(length: timedelta) -> str:
    """Return a duration in the largest unit that says something: 26 ms, 0.4 s, 42 s, 3 min, 5 h."""
    seconds = length.total_seconds()
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, each in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / each:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 request, 2 requests."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def due(at: datetime | None, now: datetime) -> str:
    """Return when something is due, as seen from now."""
    if at is None:
        return ""
    return f"in {duration(at - now)}" if at > now else f"overdue {duration(now - at)}"


def _terms(fields: Fields) -> str:
    return str(fields.get("label") or "")


def _revised(fields: Fields) -> str:
    return f"version {fields['proposal_version']}: {_terms(fields)}"


def _approved(fields: Fields) -> str:
    return f"version {fields['proposal_version']}, digest {fields['digest'][:8]}…"


def _claimed(fields: Fields) -> str:
    return f"by {fields['worker']}"


def _dispatching(fields: Fields) -> str:
    return f"attempt {fields['attempt']}, key {short_key(fields['key'])}, by {fields['worker']}"


def _accepted(fields: Fields) -> str:
    return f"{fields['reference'] or 'no reference'}: {fields['reason']}"


def _succeeded(fields: Fields) -> str:
    receipt = f"receipt {fields['reference']}" if fields["reference"] else "no reference"
    how = ", replayed by the provider" if fields["replayed"] else ""
    by = "" if fields["via"] == "reply" else f", by {fields['via']}"
    return receipt + how + by


def _handed_over(fields: Fields) -> str:
    return f"to {fields['to']}: {fields['reason']}"


def _notified(fields: Fields) -> str:
    return f"{fields['to']} was told" if fields["delivered"] else f"{fields['to']} was not reached"


def _reissued(fields: Fields) -> str:
    key = short_key(fields["provider_key"])
    return f"generation {fields['generation']}, key {key}: {fields['reason']}"


def _purged(fields: Fields) -> str:
    left, went = fields["left"], counted(fields["events"], "event")
    return f"{left['state']} since {left['since']}; {went} went: {fields['reason']}"


_TELLERS: Mapping[str, Callable[[Fields], str]] = {
    "Proposed": _terms,
    "Revised": _revised,
    "Approved": _approved,
    "Intended": _terms,
    "Claimed": _claimed,
    "Dispatching": _dispatching,
    "Accepted": _accepted,
    "Succeeded": _succeeded,
    "HandedOver": _handed_over,
    "Contradicted": _handed_over,
    "OwnerNotified": _notified,
    "Reissued": _reissued,
    "Purged": _purged,
}
"""Event -> what it says; of any other, its reason."""
