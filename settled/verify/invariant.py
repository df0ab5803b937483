"""What has to hold after anything: per key, no more requests than recorded Dispatching events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from settled import HistoryEntry
from settled.infrastructure.simulator.record import Seen

CLOCK_SLACK_SECONDS = 0.05
"""How far the provider's clock and the store's may be apart on one host."""


def check_invariant(histories: Iterable[Sequence[HistoryEntry]], calls: Iterable[Seen]) -> int:
    """Check the operations' histories against the calls that the provider saw.

    Per key: requests ≤ Dispatching, each after its own; one key and one body an operation. Returns
    how many Dispatchings of all these operations were followed by no request, beyond those that
    were proven not to be sent. Raises AssertionError.
    """
    by_key: dict[str, list[Seen]] = {}
    by_body: dict[str, list[Seen]] = {}
    for call in calls:
        if call.key is None:
            by_body.setdefault(call.body_sha256, []).append(call)
        else:
            by_key.setdefault(call.key, []).append(call)
    differing = [key for key, seen in by_key.items() if len({one.body_sha256 for one in seen}) > 1]
    assert not differing, f"requests of one key differ: {differing}"
    return sum(_check_one(history, by_key, by_body) for history in histories)


def _check_one(
    history: Sequence[HistoryEntry],
    by_key: dict[str, list[Seen]],
    by_body: dict[str, list[Seen]],
) -> int:
    sent = [entry for entry in history if entry.name == "Dispatching"]
    keys = {entry.fields["key"] for entry in sent}
    bodies = {entry.fields["request_digest"] for entry in sent}
    assert len(keys) <= 1, "one generation has one key"
    keyed = [request for key in keys for request in by_key.get(key, ())]
    keyless = [request for body in bodies for request in by_body.get(body, ())]
    requests = keyed + keyless
    assert len(requests) <= len(sent), (
        f"{len(requests)} requests after {len(sent)} Dispatching events"
    )
    for request, entry in zip(requests, sent, strict=False):
        early = entry.at.timestamp() - request.at
        assert early <= CLOCK_SLACK_SECONDS, f"a request {early} s before its commit"
    proven = sum(
        before.name == "Dispatching" and _never_sent(after)
        for before, after in zip(history, history[1:], strict=False)
    )
    return len(sent) - proven - len(requests)


def _never_sent(entry: HistoryEntry) -> bool:
    """Tell whether an event says that the attempt before it was proven not sent."""
    evidence: dict[str, Any] = entry.fields.get("evidence") or {}
    unsent = evidence.get("phase") == "not begun"
    return unsent and entry.name in ("RetryScheduled", "OutcomeUnknown")
