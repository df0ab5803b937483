"""What has to hold after anything: every request that can have an effect has its Dispatching."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from settled import HistoryEntry
from settled.infrastructure.simulator.record import Seen

CLOCK_SLACK_SECONDS = 0.05
"""How far the provider's clock and the store's may be apart on one host."""

_BESIDE = ("CancelRequested", "EvidenceRecorded")
"""What may be recorded while a request is out, and says nothing of it."""


class Unsent(NamedTuple):
    """The Dispatchings without a request: every other one has exactly one."""

    missing: int
    """Nobody knows whether anything was sent, and nothing was: a worker died in between."""
    proven: int
    """The worker itself has recorded that it did not begin to send."""


def check_invariant(histories: Iterable[Sequence[HistoryEntry]], calls: Iterable[Seen]) -> Unsent:
    """Check the operations' histories against the calls that the provider saw.

    Each call belongs to one of these operations, by its key, or without one by its body. Each has
    a Dispatching of its own, one that was not proven unsent and is not later than the call; what is
    compared is its stamp, which is taken shortly before the commit. No request says to which
    attempt it belongs, so it counts if there is any way to give each call its own. One operation
    has one key and one body.

    Returns how many Dispatchings had no call. Raises AssertionError.
    """
    seen = tuple(calls)
    keyless = {call.body_sha256 for call in seen if call.key is None}
    pool_of: dict[str, str] = {}
    sent: dict[str, list[datetime]] = {}
    proven = 0
    for history in histories:
        dispatches = [entry.fields for entry in history if entry.name == "Dispatching"]
        named = {(str(fields["key"]), str(fields["request_digest"])) for fields in dispatches}
        assert len(named) <= 1, f"one operation has one key and one body: {named}"
        for key, digest in named:
            pool_of[key] = digest if digest in keyless else key
            possible = _possibly_sent(history)
            proven += len(dispatches) - len(possible)
            sent.setdefault(pool_of[key], []).extend(possible)
    requests = _by_pool(seen, pool_of)
    strangers = [
        call.number for pool, found in requests.items() if pool not in sent for call in found
    ]
    assert not strangers, f"requests that belong to no Dispatching: {strangers}"
    for pool, found in requests.items():
        _check_pool(found, sorted(sent[pool]))
    return Unsent(sum(map(len, sent.values())) - len(seen), proven)


def _by_pool(calls: Sequence[Seen], pool_of: dict[str, str]) -> dict[str, list[Seen]]:
    """Put together the calls that share a key, or a body where any of them came without a key."""
    bodies: dict[str, str] = {}
    requests: dict[str, list[Seen]] = defaultdict(list)
    for call in calls:
        if call.key is not None:
            first = bodies.setdefault(call.key, call.body_sha256)
            assert first == call.body_sha256, f"requests of one key differ: {call.key}"
        pool = call.body_sha256 if call.key is None else pool_of.get(call.key, call.key)
        requests[pool].append(call)
    return requests


def _check_pool(requests: Sequence[Seen], sent: Sequence[datetime]) -> None:
    """Give each request a Dispatching that was recorded before it.

    Both in the order of time, the earliest request takes the earliest Dispatching, and so on: if
    that fails, every other way does.
    """
    assert len(requests) <= len(sent), (
        f"{len(requests)} requests after {len(sent)} Dispatching events"
    )
    for at, recorded in zip(sorted(call.at for call in requests), sent, strict=False):
        early = recorded.timestamp() - at
        assert early <= CLOCK_SLACK_SECONDS, f"a request {early} s before its commit"


def _possibly_sent(history: Sequence[HistoryEntry]) -> list[datetime]:
    """Return when each Dispatching was recorded whose request was not proven unsent."""
    steps = [entry for entry in history if entry.name not in _BESIDE]
    following = (*steps[1:], None)
    return [
        entry.at
        for entry, after in zip(steps, following, strict=True)
        if entry.name == "Dispatching" and not (after is not None and _never_sent(after))
    ]


def _never_sent(entry: HistoryEntry) -> bool:
    """Tell whether an event says that the attempt before it was proven not sent."""
    evidence: dict[str, Any] = entry.fields.get("evidence") or {}
    return evidence.get("phase") == "not begun"
