"""A contract is believed blindly by recovery, so it must be sound, sourced and humble."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from settled.domain.contract import (
    FOREVER,
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    EchoAs,
    EchoField,
    Guards,
    Key,
    KeyCarrier,
    KeySupport,
    Limits,
    LookupBy,
    LookupPromise,
    Matching,
    MatchingKind,
    Outcome,
    Outcomes,
    Pin,
    Poll,
    ProviderContract,
    ReplayMarker,
    Retention,
    RetentionKind,
    Rule,
    presets,
)
from settled.domain.errors import InvalidContract
from settled.domain.provider import Answered, Via

KEY = Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key")
HOUR = timedelta(hours=1)


def contract(**declared: Any) -> ProviderContract:
    return ProviderContract(provider="psp", operation="refund", **declared)


def keyed(**declared: Any) -> ProviderContract:
    return contract(dedup=Dedup.CLIENT_KEY, key=KEY, **declared)


def test_what_nobody_declared_is_unknown_or_none() -> None:
    """UNKNOWN must be the default, or a forgotten line widens what recovery does."""
    bare = contract()
    assert bare.dedup is Dedup.NONE
    assert not bare.keyed
    assert bare.retention.window == timedelta(0)
    assert bare.key_support is KeySupport.UNKNOWN
    assert bare.matching.kind is MatchingKind.UNKNOWN
    assert bare.duplicate_in_flight is DuplicateInFlight.UNKNOWN
    assert bare.max_in_flight is None
    assert bare.uncached_pre_execution == frozenset()
    assert bare.lookup_for(timedelta(0)) is None
    assert all(bare.pins(pin) for pin in Pin)


@pytest.mark.parametrize("preset", presets.ALL, ids=lambda preset: str(preset.provider))
def test_presets_say_where_their_facts_are_from(preset: ProviderContract) -> None:
    """A fact without a source and a date cannot be checked again."""
    assert preset.sources
    assert preset.verified_on is not None


def test_presets_are_all_listed() -> None:
    """The check above must see each preset."""
    declared = [v for v in vars(presets).values() if isinstance(v, ProviderContract)]
    assert {c.provider for c in declared} == {c.provider for c in presets.ALL}
    assert len(declared) == len(presets.ALL) == 7


def test_windows_of_the_presets() -> None:
    """The numbers that decide between a resend and a second effect."""
    assert presets.stripe_v1_refund.retention.window == timedelta(hours=23, minutes=30)
    assert presets.mollie_refund.retention.window == timedelta(minutes=55)
    assert presets.sqs_fifo.retention.window == timedelta(minutes=4, seconds=30)
    assert presets.kubernetes_create.retention.window == FOREVER
    assert presets.postmark.retention.window == timedelta(0)


def test_the_ietf_contract_takes_the_published_window() -> None:
    """Each server has its own, so there is no constant to be wrong about."""
    made = presets.ietf_idempotency_key(
        provider="psp",
        operation="refund",
        retention=timedelta(hours=10),
        sources=["https://psp.example/docs/keys"],
        verified_on=date(2026, 11, 1),
    )
    assert made.retention.window == timedelta(hours=9, minutes=30)
    assert made.matching.kind is MatchingKind.UNKNOWN
    with pytest.raises(InvalidContract, match="Nobody says"):
        presets.ietf_idempotency_key(
            provider="psp",
            operation="refund",
            retention=HOUR,
            sources=[],
            verified_on=date(2026, 11, 1),
        )


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "a key without a name for it": {"dedup": Dedup.CLIENT_KEY},
    "kept without deduplication": {"retention": Retention(RetentionKind.FIXED, HOUR)},
    "replayed without deduplication": {"duplicate_completed": DuplicateCompleted.REPLAY_STORED},
    "compared without deduplication": {"matching": Matching(MatchingKind.FULL)},
    "marked without deduplication": {"replay_marker": ReplayMarker(header="Replayed")},
    "likeness is nothing to keep": {
        "dedup": Dedup.FUZZY,
        "retention": Retention(RetentionKind.FIXED, HOUR),
    },
    "executes again": {
        "dedup": Dedup.CLIENT_KEY,
        "key": KEY,
        "duplicate_completed": DuplicateCompleted.EXECUTES_AGAIN,
    },
    "a signal that no rule knows": {
        "dedup": Dedup.CLIENT_KEY,
        "key": KEY,
        "duplicate_in_flight": DuplicateInFlight.SIGNAL,
    },
    "a reference that no rule reads": {
        "dedup": Dedup.CLIENT_KEY,
        "key": KEY,
        "duplicate_completed": DuplicateCompleted.ERROR_WITH_REF,
    },
    "a total without a precondition": {"guards": Guards(optimistic_total_field="total")},
    "enabled, which was not asked": {"key_enabled_ref": "TICKET-1"},
    "a field compared twice": {
        "echo": (EchoField(field="amount", path="a"), EchoField(field="amount", path="b"))
    },
    "a word that is no member": {"dedup": "client_key"},
    "a negative time": {"max_in_flight": timedelta(seconds=-1)},
    "no operation": {"operation": ""},
}


@pytest.mark.parametrize("declared", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradictions_are_refused(declared: dict[str, Any]) -> None:
    """Of two statements that exclude each other, recovery would believe the wrong one."""
    given: dict[str, Any] = {"provider": "psp", "operation": "refund", **declared}
    with pytest.raises(InvalidContract) as caught:
        ProviderContract(**given)
    assert caught.value.message


PARTS: dict[str, Any] = {
    "fixed without a length": lambda: Retention(RetentionKind.FIXED),
    "a margin as long as the window": lambda: Retention(
        RetentionKind.FIXED, HOUR, safety_margin=HOUR
    ),
    "unknown with a length": lambda: Retention(RetentionKind.UNKNOWN, HOUR),
    "for ever with a length": lambda: Retention(RetentionKind.FOREVER, HOUR),
    "fields without names": lambda: Matching(MatchingKind.FIELDS),
    "names without a comparison": lambda: Matching(MatchingKind.FULL, frozenset({"amount"})),
    "strong with a lag": lambda: LookupPromise(
        by=LookupBy.KEY, consistency=Consistency.STRONG, max_lag=HOUR
    ),
    "an outage without a lag": lambda: LookupPromise(
        by=LookupBy.KEY, consistency=Consistency.EVENTUAL, outage_lag=HOUR
    ),
    "a list without a match": lambda: LookupPromise(by=LookupBy.KEY, items="data"),
    "a currency of text": lambda: EchoField(field="a", path="a", currency_path="c"),
    "an echo of nothing": lambda: EchoField(field="a", path="", written=EchoAs.TEXT),
    "statuses without a place": lambda: Outcomes(meanings={"done": Outcome.SUCCEEDED}),
    "a status and none": lambda: Outcomes(
        acceptance_only=True, status_path="s", meanings={"done": Outcome.SUCCEEDED}
    ),
    "a poll without a pause": lambda: Poll(first=timedelta(0)),
    "no attempts": lambda: Limits(max_attempts=0),
    "a key of no length": lambda: Key(carrier=KeyCarrier.BODY, name="k", max_len=0),
    "no UUID fits": lambda: Key(carrier=KeyCarrier.BODY, name="k", max_len=35, must_be_uuid=True),
    "an alphabet that is no pattern": lambda: Key(carrier=KeyCarrier.BODY, name="k", alphabet="["),
    "a rule for everything": lambda: Rule(answered=Answered.REJECTED),
    "an answer that was not sent": lambda: Rule(answered=Answered.NOT_SENT, status=400),
    "absent from a reply": lambda: Rule(answered=Answered.ABSENT, status=404),
    "a reference from nowhere": lambda: Rule(answered=Answered.DUPLICATE_OF, status=409),
    "success by a conflict": lambda: Rule(answered=Answered.PERFORMED, status=409),
    "success by the body of anything": lambda: Rule(
        answered=Answered.PERFORMED, body={"code": "exists"}
    ),
    "accepted by a conflict": lambda: Rule(answered=Answered.PENDING, status=409),
}


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS.keys())
def test_parts_refuse_what_cannot_be_meant(make: Any) -> None:
    """A part is checked where it is written, not when it is first needed."""
    with pytest.raises(InvalidContract):
        make()


def test_rules_may_name_a_look_up() -> None:
    """The counterpart of the refusals above: what is allowed must stay possible."""
    assert Rule(answered=Answered.ABSENT, status=404, via=Via.LOOKUP).status == 404
    assert Rule(answered=Answered.PERFORMED, status=201, body={"ok": True}).status == 201


@pytest.mark.parametrize(
    ("key", "given", "fits"),
    [
        (Key(carrier=KeyCarrier.HEADER, name="k", max_len=3), "abc", True),
        (Key(carrier=KeyCarrier.HEADER, name="k", max_len=3), "abcd", False),
        (Key(carrier=KeyCarrier.BODY, name="k", alphabet="[a-z.-]"), "a.b-c", True),
        (Key(carrier=KeyCarrier.BODY, name="k", alphabet="[a-z.-]"), "a_b", False),
        (
            Key(carrier=KeyCarrier.BODY, name="k", must_be_uuid=True),
            "6d0f2f0e-6d8c-5f0b-9a53-3f5b0b1f7c11",
            True,
        ),
        (
            Key(carrier=KeyCarrier.BODY, name="k", must_be_uuid=True),
            "00000000-0000-0000-0000-000000000000",
            False,
        ),
        (Key(carrier=KeyCarrier.BODY, name="k", must_be_uuid=True), "refund-1", False),
    ],
)
def test_keys_that_a_provider_takes(key: Key, given: str, fits: bool) -> None:
    """A key that is cut or refused at the provider deduplicates nothing."""
    assert (key.problem(given) is None) is fits


def test_the_first_look_up_that_reaches_counts() -> None:
    """Adapters and recovery must mean the same look-up by the same contract."""
    by_key = LookupPromise(by=LookupBy.KEY, horizon=HOUR)
    paid = LookupPromise(by=LookupBy.SEARCH, requires="the reporting add-on")
    listed = LookupPromise(by=LookupBy.PARENT_LIST, horizon=24 * HOUR)
    made = keyed(lookups=(by_key, paid, listed))
    assert made.lookup_for(timedelta(minutes=5)) is by_key
    assert made.lookup_for(2 * HOUR) is listed
    assert made.lookup_for(25 * HOUR) is None
    granted = replace(paid, granted=True)
    assert replace(made, lookups=(by_key, granted)).lookup_for(2 * HOUR) is granted


def test_when_an_absence_counts() -> None:
    """Lag and outage add up; what is not stated never counts."""
    minute = timedelta(minutes=1)
    eventual = LookupPromise(by=LookupBy.SEARCH, consistency=Consistency.EVENTUAL)
    strong = LookupPromise(by=LookupBy.KEY, consistency=Consistency.STRONG)
    assert LookupPromise(by=LookupBy.KEY).absence_counts_after is None
    assert strong.absence_counts_after == timedelta(0)
    assert replace(strong, complete_after=minute).absence_counts_after == minute
    assert eventual.absence_counts_after is None
    assert replace(eventual, max_lag=minute).absence_counts_after == minute
    assert replace(eventual, max_lag=minute, outage_lag=HOUR).absence_counts_after == minute + HOUR


def test_polls_wait_ever_longer() -> None:
    """A refund may take days: nobody is asked every minute for days, nor never again."""
    poll = Poll(first=timedelta(minutes=1), longest=HOUR)
    assert [poll.wait(n) // timedelta(minutes=1) for n in (0, 1, 2, 5, 6, 10_000)] == [
        *(1, 2, 4, 32, 60, 60)
    ]
