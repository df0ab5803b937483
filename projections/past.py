"""An operation as it was, at a version or a moment, and what changed between two versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from settled.domain.errors import InvalidInput, NotFound
from settled.domain.journal.unit import RecordedEvent
from settled.projections.history import HistoryEntry
from settled.projections.operation_view import OperationView

Moment = int | datetime
"""A version, counted from 1, or a moment (aware)."""


def moment_of(text: str) -> Moment:
    """Return the version or the moment that somebody typed; without a zone it is UTC.

    Raises InvalidInput.
    """
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
    except ValueError:
        raise InvalidInput(
            f"{text} is neither a version nor a time.",
            hint="Give a number, such as 3, or a time, such as 2026-11-30T14:03:09Z.",
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def as_of(records: Sequence[RecordedEvent], moment: Moment) -> list[RecordedEvent]:
    """Return the events of a stream up to a version or a moment, that one included.

    Raises NotFound where there were none yet, or are not as many, or where they were purged.
    """
    first, last = records[0].originator_version, records[-1].originator_version
    if isinstance(moment, int):
        if 1 <= moment < first:
            raise _purged(f"Version {moment} cannot be shown", records)
        if not first <= moment <= last:
            raise NotFound(
                f"There is no version {moment}.", hint=f"The versions are {first} to {last}."
            )
        return [record for record in records if record.originator_version <= moment]
    found = [record for record in records if record.recorded_at <= moment]
    if not found and first > 1:
        raise _purged(
            f"What was at {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC is gone", records
        )
    if not found:
        began = records[0].recorded_at.astimezone(UTC)
        raise NotFound(
            f"There was nothing yet at {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            hint=f"It began at {began:%Y-%m-%d %H:%M:%S.%f} UTC.",
        )
    return found


def _purged(what: str, records: Sequence[RecordedEvent]) -> NotFound:
    left = records[0]
    return NotFound(
        f"{what}: the details of versions 1 to {left.originator_version - 1} were purged at"
        f" {left.recorded_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC by {left.actor}.",
        hint=f"Version {left.originator_version} says what is left of them.",
    )


@dataclass(frozen=True, slots=True)
class Change:
    """An attribute of an operation that is not what it was."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        name = self.name.replace("_", " ")
        if self.before is None:
            return f"{name} is {_word(self.after)}, and was not there"
        if self.after is None:
            return f"{name} is gone, and was {_word(self.before)}"
        return f"{name} is {_word(self.after)}, and was {_word(self.before)}"


def changes(before: OperationView, after: OperationView) -> list[Change]:
    """Return what differs between two pictures of an operation, beside their version."""
    pairs = [
        (field.name, getattr(before, field.name), getattr(after, field.name))
        for field in fields(OperationView)
        if field.name != "version"
    ]
    return [Change(name, was, now) for name, was, now in pairs if was != now]


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two events that belong together, in seconds.

    `what` is "waiting" from the intent to the first dispatch after it, and "answering" from a
    dispatch to what is recorded of its outcome.
    """

    what: str
    version: int
    until: int
    seconds: float


def gaps(entries: Sequence[HistoryEntry]) -> list[Gap]:
    """Return how long it waited to be sent, and how long each request was without an answer."""
    found: list[Gap] = []
    begun: HistoryEntry | None = None
    sent: HistoryEntry | None = None
    for entry in entries:
        if sent is not None and entry.name not in _BESIDE:
            found.append(_gap("answering", sent, entry))
            sent = None
        if entry.name == "Dispatching":
            if begun is not None:
                found.append(_gap("waiting", begun, entry))
            begun, sent = None, entry
        elif entry.name in ("Intended", "Reissued"):
            begun = entry
    return found


_BESIDE = frozenset({"EvidenceRecorded", "CancelRequested", "ProgressReported"})
"""Events of a request that is still out."""


def _gap(what: str, begin: HistoryEntry, end: HistoryEntry) -> Gap:
    return Gap(what, begin.version, end.version, (end.at - begin.at).total_seconds())


def _word(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
