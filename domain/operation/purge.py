"""Purging a settled operation: until when its details have to stay, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from settled.domain.clock import Stamp
from settled.domain.contract.parts import ZERO
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import RetentionKind
from settled.domain.errors import NotPossible
from settled.domain.journal.gone import gone_with, pack
from settled.domain.journal.unit import RecordedEvent
from settled.domain.operation import events as ev
from settled.domain.operation.operation import KEPT, Operation, fields
from settled.domain.operation.terms import PastAttempt, Remains
from settled.domain.situation import in_words, later

WHEN_UNKNOWN = timedelta(days=30)
"""How long details stay where the contract does not say for how long they may matter."""


def evidence_window(contract: ProviderContract) -> timedelta:
    """Return how long after its end an operation's details may still be needed as evidence.

    That is the longest of: the time for which the provider keeps its key, and would answer a
    duplicate by it; the time for which it may work on a request; the time for which an effect may
    stay unseen by a look-up, or an outcome open. What is not known counts as thirty days. A key
    that is kept for ever has no end to wait for.
    """
    return max(_windows(contract))


def _windows(contract: ProviderContract) -> Iterator[timedelta]:
    retention = contract.retention
    if contract.keyed and retention.kind is not RetentionKind.FOREVER:
        yield retention.minimum or WHEN_UNKNOWN
    yield WHEN_UNKNOWN if contract.max_in_flight is None else contract.max_in_flight
    yield contract.outcomes.max_pending or ZERO
    for lookup in contract.lookups:
        lag = lookup.absence_counts_after
        yield WHEN_UNKNOWN if lag is None else lag


def kept_until(operation: Operation, contract: ProviderContract) -> datetime:
    """Return until when an operation's details stay, counted from when it was settled."""
    if not operation.attempts and not operation.adopted:
        return operation.since  # nothing was ever sent, so the provider knows nothing of it
    return later(operation.since, evidence_window(contract))


def purge(
    operation: Operation,
    records: Sequence[RecordedEvent],
    contract: ProviderContract,
    stamp: Stamp,
    reason: str,
) -> None:
    """Record that a settled operation's details go: `records`, which are all that it has.

    Raises TransitionRefused for an open one, NotPossible while its details may be needed.
    """
    operation.LIFECYCLE.step(operation.state, ev.Purged.NAME)
    until = kept_until(operation, contract)
    if stamp.at < until:
        raise NotPossible(
            f"The details of {operation.label} may be needed as evidence until"
            f" {until.isoformat(timespec='seconds')}: {in_words(evidence_window(contract))} after"
            f" it was {operation.state}, by the contract of {contract.provider}.",
            hint="Nothing was purged. Purge it after that.",
        )
    operation.record(
        ev.Purged,
        stamp,
        **what_is_left(operation),
        gone=pack(gone_with(records)),
        events=len(records),
        reason=reason,
    )
    operation.new_references.clear()  # each of them is its own already


def what_is_left(operation: Operation) -> dict[str, Any]:
    """Return what a Purged says of the operation: its terms without words, and its remains."""
    erased: dict[str, Any] = {"params": None, "label": None, "origin": {}}
    return fields(operation.terms) | erased | {"left": _remains(operation)}


def _remains(operation: Operation) -> Remains:
    attempts = [
        PastAttempt(
            number=attempt.number,
            generation=attempt.generation,
            at=attempt.at,
            key=attempt.key,
            may_arrive_until=attempt.may_arrive_until,
            out=attempt.out,
            counts=attempt.counts,
        )
        for attempt in operation.attempts
    ]
    return Remains(
        state=operation.state,
        since=operation.since,
        give_up_at=getattr(operation, "give_up_at", None),  # a proposal has none
        attempts=tuple(attempts),
        evidence_keys=tuple(sorted(operation.evidence_keys)),
        told=tuple(sorted(operation.told, key=str)),
        rule=operation.last_rule,
        **{name: getattr(operation, name) for name in KEPT},
    )
