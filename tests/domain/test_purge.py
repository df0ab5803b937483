"""What a purge leaves of an operation is enough for whoever comes late, and no more.

On random histories: the machine after a purge is the one before it in all that it is asked for, and
a fold that begins with the purge is the fold of everything.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from settled import presets
from settled.domain.clock import Stamp
from settled.domain.contract import (
    Consistency,
    Dedup,
    Key,
    KeyCarrier,
    LookupBy,
    LookupPromise,
    Outcomes,
    ProviderContract,
    Retention,
    RetentionKind,
)
from settled.domain.errors import DeclarationError, NotPossible, TransitionRefused
from settled.domain.journal.gone import Gone, gone_before, gone_with, pack, unpack
from settled.domain.journal.unit import RecordedEvent
from settled.domain.machine import Tombstone
from settled.domain.operation.evidence import admit
from settled.domain.operation.operation import Operation, fields
from settled.domain.operation.purge import WHEN_UNKNOWN, evidence_window, kept_until, purge
from settled.domain.provider import Answered, Echo, Finding, Via
from tests.projections.histories import history, mapper

KNOWN = ProviderContract(provider="psp", operation="refund", max_in_flight=timedelta(minutes=1))
KEY = Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key")
FORGOTTEN = ("request", "receipt", "last_reason", "due", "purged_at", "purged_events", "_version")
RECOVERING = ("looked_up", "waits", "asking", "known_there", "last_absent_at", "accepted_at")
HANDS = ("owner_name", "handed_over_at", "notified", "worker", "claim_epoch", "sender_reported")


def keyed(retention: Retention, **more: Any) -> ProviderContract:
    return replace(KNOWN, dedup=Dedup.CLIENT_KEY, key=KEY, retention=retention, **more)


@pytest.mark.parametrize(
    ("contract", "window"),
    [
        (KNOWN, timedelta(minutes=1)),
        (replace(KNOWN, max_in_flight=None), WHEN_UNKNOWN),
        (keyed(Retention(RetentionKind.FIXED, timedelta(hours=24))), timedelta(hours=24)),
        (keyed(Retention()), WHEN_UNKNOWN),
        (keyed(Retention(RetentionKind.LAST_N)), WHEN_UNKNOWN),
        (keyed(Retention(RetentionKind.FOREVER)), timedelta(minutes=1)),
        (replace(KNOWN, outcomes=Outcomes(max_pending=timedelta(days=9))), timedelta(days=9)),
        (
            replace(KNOWN, lookups=(LookupPromise(by=LookupBy.KEY),)),
            WHEN_UNKNOWN,
        ),
        (
            replace(
                KNOWN,
                lookups=(LookupPromise(by=LookupBy.KEY, consistency=Consistency.STRONG),),
            ),
            timedelta(minutes=1),
        ),
    ],
)
def test_details_stay_as_long_as_the_contract_may_need_them(
    contract: ProviderContract, window: timedelta
) -> None:
    """The longest of what the contract says; what it does not say is a long time, not none."""
    assert evidence_window(contract) == window


def test_every_preset_has_a_window() -> None:
    """A window that nobody can wait for would keep personal data for ever."""
    contracts = [one for one in vars(presets).values() if isinstance(one, ProviderContract)]
    assert contracts
    for contract in contracts:
        assert timedelta() < evidence_window(contract) <= timedelta(days=400), contract.provider


def ended(seed: int) -> tuple[Operation, list[RecordedEvent]]:
    """Return a random operation that is settled, and its events."""
    drawn = random.Random(seed)
    while True:
        operation, records = history(drawn, drawn.randrange(30))
        if operation.settled:
            return operation, records


def purged(operation: Operation, records: list[RecordedEvent]) -> RecordedEvent:
    """Purge an operation, and return the one record that is left."""
    stamp = Stamp(operation.since + timedelta(days=99), "ada")
    folded = mapper().fold(records)
    assert folded is not None
    operation.chain = folded.chain
    purge(operation, records, KNOWN, stamp, "old enough")
    (record,) = mapper().seal(operation, lambda count: [uuid4() for _ in range(count)])
    return record


def pictured(operation: Operation) -> dict[str, Any]:
    """Return all that an operation knows, so that two can be compared."""
    known = dict(vars(operation))
    known["attempts"] = [
        (a.number, a.generation, a.at, a.key, a.may_arrive_until, a.out, a.counts)
        for a in operation.attempts
    ]
    terms = fields(known["terms"])
    known["terms"] = {n: v for n, v in terms.items() if n not in ("params", "label", "origin")}
    return known


@pytest.mark.parametrize("seed", range(120))
def test_what_is_asked_of_a_settled_operation_is_as_before(seed: int) -> None:
    """The state after is the state before; a fold of the rest is a fold of everything."""
    operation, records = ended(seed)
    before = pictured(operation)
    version, chain = operation.version, records[-1].hash
    record = purged(operation, records)
    after = pictured(operation)
    beside = {*FORGOTTEN, *RECOVERING, *HANDS, "chain", "pending_events", "new_references"}
    beside |= {"_pending_events", "expires_at", "min_reader", "revalidated"}
    beside |= {name for name in before if name.lstrip("_").startswith(("modified", "created"))}
    assert {n: v for n, v in after.items() if n not in beside} == {
        n: v for n, v in before.items() if n not in beside
    }
    assert (record.previous_hash, record.originator_version) == (chain, version + 1)
    alone, whole = mapper().fold([record]), mapper().fold([*records, record])
    assert isinstance(alone, Operation) and isinstance(whole, Operation)
    pictures = [pictured(one) for one in (alone, whole, operation)]
    for picture in pictures:
        picture.pop("_created_on", None)
        picture.pop("new_references", None)
    assert pictures[0] == pictures[1] == pictures[2]


@pytest.mark.parametrize("seed", range(120))
def test_late_evidence_is_judged_as_before(seed: int) -> None:
    """Whatever comes late leads to the same events as if nothing had been purged."""
    drawn = random.Random(seed)
    operation, records = ended(seed)
    left = mapper().fold([purged(operation, records)])
    whole = mapper().fold(records)
    assert isinstance(left, Operation) and isinstance(whole, Operation)
    references = [None, "re_new", whole.reference, *(name for _, name in whole.references)]
    for _ in range(6):
        finding = Finding(
            drawn.choice(list(Answered)),
            drawn.choice(list(Via)),
            "said late",
            reference=drawn.choice(references),
            echo=drawn.choice(list(Echo)),
            evidence={"id": drawn.randrange(3)},
        )
        attempt = drawn.choice([None, None, 1, len(whole.attempts)])
        stamp = Stamp(left.modified_on + timedelta(days=1), "webhook")
        for machine in (left, whole):
            if machine.settled:
                admit(machine, KNOWN, finding, stamp, timedelta(), attempt)
        assert left.state == whole.state
    names = [[type(e).__name__ for e in one.pending_events] for one in (left, whole)]
    assert names[0] == names[1]


def test_what_is_open_or_needed_is_refused_and_left_alone() -> None:
    """A refusal records nothing: the next one who looks finds the operation as it was."""
    drawn = random.Random(5)
    operation, records = history(drawn, 3)
    while operation.settled:
        operation, records = history(drawn, 3)
    stamp = Stamp(operation.since + timedelta(days=99), "ada")
    with pytest.raises(TransitionRefused, match="open"):
        purge(operation, records, KNOWN, stamp, "old enough")
    operation, records = ended(1)
    while not operation.attempts:
        operation, records = ended(drawn.randrange(10**6))
    early = Stamp(kept_until(operation, KNOWN) - timedelta(microseconds=1), "ada")
    with pytest.raises(NotPossible, match="until"):
        purge(operation, records, KNOWN, early, "too soon")
    assert not operation.pending_events
    purge(operation, records, KNOWN, Stamp(kept_until(operation, KNOWN), "ada"), "in time")


def test_places_and_hashes_come_back() -> None:
    """What is packed is what is unpacked; what is no such text is told, not guessed at."""
    gone = [Gone(n, 7 * n, bytes([n]) * 32) for n in range(1, 5)]
    assert unpack(pack(gone)) == gone
    for text in ("!", "AAAA", pack(gone)[:-4]):
        with pytest.raises(ValueError, match="no places"):
            unpack(text)


def test_a_tombstone_stands_for_all_or_for_nothing() -> None:
    """Events that are missing without one make a purge impossible, and an unsound one no proof."""
    operation, records = ended(3)
    while len(records) < 4:
        operation, records = ended(len(records) + 40)
    with pytest.raises(ValueError, match="missing"):
        gone_with(records[1:])
    record = purged(operation, records)
    assert [one.hash for one in gone_before(record)] == [one.hash for one in records]
    again = gone_with([replace(record, position=999)])
    assert [one.version for one in again] == list(range(1, len(records) + 2))
    for unsound in (
        replace(record, state=b"{}"),
        replace(record, state=b"[]"),
        replace(record, previous_hash=bytes(32)),
        replace(record, originator_version=2),
        replace(record, originator_version=1, state=b'{"gone":""}'),
    ):
        with pytest.raises(ValueError):
            gone_before(unsound)


def test_a_tombstone_has_its_name() -> None:
    """Stores and audits know it by its topic alone, without the class."""
    with pytest.raises(DeclarationError, match="stands for older events"):
        type("Buried", (Tombstone,), {"TOPIC": "errand.Buried", "__module__": __name__})


def test_a_stream_begins_with_its_first_event_or_what_stands_for_it() -> None:
    """A fold that began in the middle would know half of an operation, and act on it."""
    _, records = ended(7)
    while len(records) < 3:
        _, records = ended(len(records) + 70)
    with pytest.raises(Exception, match="OriginatorVersionError|1"):
        mapper().fold(records[1:])
    assert isinstance(records[0].stream, UUID)
