"""A store full of operations that never happened: to look at, to measure on, to debug.

Each goes through the real aggregate and the real journal, so every stream can be folded, replayed
and checked; nothing is sent, and what the provider is said to have answered is made up. The same
number and seed make the same stories, and the more operations, the longer ago the first began.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from settled.domain.clock import Stamp
from settled.domain.digest import digest
from settled.domain.errors import InvalidInput
from settled.domain.identity import Identity, provider_key
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import Committed
from settled.domain.keys import DerivedKeys
from settled.domain.money import Money
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, intend, propose
from settled.domain.operation.terms import Request, Terms
from settled.domain.params import Params, freeze
from settled.infrastructure.clock import StoreClock
from settled.infrastructure.journal.queue import CommitQueue
from settled.processes.ledger import Ledger

TENANTS = ("acme", "globex")
COHORT = 200
"""How many operations are under way at once."""

_SPACING = timedelta(milliseconds=40)
_LONGEST = timedelta(minutes=10)
"""What the longest story takes: all of them lie in the past."""
_OWNER = "payments-oncall"

_STORIES = (
    ("performed", 62),
    ("retried", 10),
    ("unknown_then_performed", 10),
    ("refused", 6),
    ("handed_over", 4),
    ("waiting", 3),
    ("unknown", 2),
    ("proposed", 2),
    ("contradicted", 1),
)
"""What becomes of an operation, and of how many in a hundred."""


class SeededRefund(Params):
    """A refund that nobody asked for."""

    order: str
    amount: Money


@dataclass
class _Story:
    """One operation on its way, and the time in it."""

    machine: Operation
    stamp: Stamp
    number: int

    def after(self, seconds: float) -> Stamp:
        """Let time pass."""
        self.stamp = self.stamp.later(self.stamp.at + timedelta(seconds=seconds))
        return self.stamp


def seed(
    journal: Journal,
    operations: int,
    *,
    seed: int = 0,
    tell: Callable[[int], None] = lambda done: None,
) -> int:
    """Add operations to a store and return how many events they have; `tell` hears of each cohort.

    Raises InvalidInput where the store holds operations of the same names already.
    """
    installation = journal.installation()
    keys = DerivedKeys(installation.secret)
    clock = StoreClock(journal.time)
    queue = CommitQueue(journal.committer())
    ledger = Ledger(journal, queue, EventMapper(keys), clock)
    numbers = iter(range(1, operations + 1))
    began = clock.now() - operations * _SPACING - _LONGEST
    drawn, events = random.Random(seed), 0
    try:
        while cohort := list(islice(numbers, COHORT)):
            stories = [_begin(number, began, drawn, keys, installation.id) for number in cohort]
            _commit(ledger, queue, stories)
            for story in stories:
                _tell_on(story, drawn)
            _commit(ledger, queue, [one for one in stories if one.machine.pending_events])
            events += sum(story.machine.version for story in stories)
            tell(cohort[-1])
    finally:
        queue.close()
    return events


def _commit(ledger: Ledger, queue: CommitQueue, stories: list[_Story]) -> None:
    units = [ledger.unit(story.machine) for story in stories]
    answers = queue.run(lambda committer: committer.commit(units)).result()
    for story, given in zip(stories, answers, strict=True):
        if not isinstance(given, Committed):
            raise InvalidInput(
                f"{story.machine.business_identity} is there already: {given}.",
                hint="Seed an empty store, once.",
            )


def _begin(
    number: int, began: datetime, drawn: random.Random, keys: DerivedKeys, installation: UUID
) -> _Story:
    tenant = TENANTS[number % 4 == 0]
    identity = Identity(tenant, "refund", f"refund-request-{number}")
    amount = Money.of_minor(drawn.randrange(100, 50_000), "USD")
    params = SeededRefund(order=f"order-{drawn.randrange(1, 200_000)}", amount=amount)
    key_id = keys.current(tenant)
    terms = Terms(
        tenant=tenant,
        kind="refund",
        identity=identity.operation_id,
        kind_version=1,
        mode="live",
        label=f"Refund {amount} for {params.order}",
        params=freeze(params).decode(),
        params_version=1,
        digest=digest(params, "refund", "live", keys.key(tenant, key_id), key_id),
        provider="psp.example",
        hand_over_to=_OWNER,
        priority=1,
        within_seconds=72_000,
        attempts_allowed=8,
        call_timeout_seconds=30,
        permit_seconds=5,
        origin={"tool_call": f"call_{drawn.randrange(16**8):08x}"},
    )
    names, weights = zip(*_STORIES, strict=True)
    (told,) = drawn.choices(names, weights)
    stamp = Stamp(began + number * _SPACING, "support-agent", correlation=told)
    if told == "proposed":
        return _Story(propose(terms, stamp, stamp.at + timedelta(days=7)), stamp, number)
    key = provider_key(installation, identity, 1)
    return _Story(intend(terms, stamp, key), stamp, number)


def _tell_on(story: _Story, drawn: random.Random) -> None:
    """Record what becomes of an operation after its beginning."""
    match story.stamp.correlation:
        case "performed":
            _dispatch(story)
            _succeed(story, drawn)
        case "retried":
            _dispatch(story)
            _retry(story)
            _dispatch(story)
            _succeed(story, drawn)
        case "unknown_then_performed":
            _dispatch(story)
            _lose(story)
            _send(story)
            _succeed(story, drawn, replayed=True)
        case "refused":
            _dispatch(story)
            _refuse(story)
        case "handed_over":
            _dispatch(story)
            _lose(story)
            _hand_over(story)
        case "unknown":
            _dispatch(story)
            _lose(story)
        case "contradicted":
            _dispatch(story)
            _refuse(story)
            _contradict(story)
        case _:
            pass  # it waits


def _dispatch(story: _Story) -> None:
    stamp = story.after(0.02)
    worker = f"worker-{story.number % 3}"
    story.machine.record(
        ev.Claimed,
        stamp,
        worker=worker,
        epoch=1 + story.number % 3,
        due_at=stamp.at + timedelta(seconds=60),
    )
    _send(story)


def _send(story: _Story) -> None:
    machine, stamp = story.machine, story.after(0.01)
    body = machine.terms.params or ""
    request = Request(
        method="POST",
        url="https://psp.example/v1/refunds",
        headers=(("content-type", "application/json"), ("idempotency-key", machine.provider_key)),
        body=body,
    )
    machine.record(
        ev.Dispatching,
        stamp,
        attempt=machine.next_attempt,
        key=machine.provider_key,
        worker=f"worker-{story.number % 3}",
        epoch=1 + story.number % 3,
        permit_until=stamp.at + timedelta(seconds=5),
        call_deadline=stamp.at + timedelta(seconds=35),
        adapter="http-json/1",
        scope=(("base_url", "https://psp.example"),),
        credential_fingerprint="seeded",
        request_digest=hashlib.sha256(body.encode()).hexdigest(),
        request=request if machine.request is None else None,
    )


def _succeed(story: _Story, drawn: random.Random, *, replayed: bool = False) -> None:
    reference = f"re_{drawn.randrange(16**12):012x}"
    story.machine.record(
        ev.Succeeded,
        story.after(0.3),
        reference=reference,
        via="reply",
        replayed=replayed,
        reason="the provider performed it",
        rule="performed",
        receipt={"id": reference, "status": "succeeded"},
        evidence={"status": 200},
    )


def _retry(story: _Story) -> None:
    stamp = story.after(0.2)
    story.machine.record(
        ev.RetryScheduled,
        stamp,
        reason="the provider asked to slow down (429)",
        rule="rate limited at first",
        retry_at=stamp.at + timedelta(seconds=2),
        evidence={"status": 429},
    )
    story.after(2)


def _lose(story: _Story) -> None:
    stamp = story.after(35)
    story.machine.record(
        ev.OutcomeUnknown,
        stamp,
        cause="reply_lost",
        reason="no reply within 30 s",
        rule="lost reply, window open",
        sender_reported=True,
        waited=False,
        attempt_out=True,
        next_at=stamp.at + timedelta(seconds=5),
    )
    story.after(5)


def _refuse(story: _Story) -> None:
    story.machine.record(
        ev.Failed,
        story.after(0.2),
        via="reply",
        reason="the charge was refunded already (400)",
        rule="rejected",
        evidence={"status": 400},
    )


def _hand_over(story: _Story) -> None:
    stamp = story.after(1)
    story.machine.record(
        ev.HandedOver,
        stamp,
        to=_OWNER,
        reason="the provider cannot be asked about it",
        rule="unanswered, nothing left",
        next_at=stamp.at,
    )


def _contradict(story: _Story) -> None:
    stamp = story.after(60)
    story.machine.record(
        ev.Contradicted,
        stamp,
        to=_OWNER,
        was="failed",
        reason="a webhook says that it was performed",
        reference=f"re_late_{story.number}",
        next_at=stamp.at,
        evidence={"webhook": "evt_1"},
    )
