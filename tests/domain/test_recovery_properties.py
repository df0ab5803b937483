"""What must hold for every contract, situation and answer, also those that nobody thought of.

The oracles here are written from the safety rules and not from the table. `SETTLED_LONG=1` runs
them on 100,000 cases.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from settled.domain.contract import (
    FOREVER,
    Anchor,
    Cached,
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    EchoField,
    Key,
    KeyCarrier,
    KeySupport,
    LookupBy,
    LookupPromise,
    Matching,
    MatchingKind,
    Outcomes,
    Pin,
    PreExecution,
    ProviderContract,
    Retention,
    RetentionKind,
    Rule,
)
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.recovery import Situation, Step, StepKind, recover
from tests.domain.recovery_cases import EVERY_CONTRACT, SENT_AT, found, situation

LONG = bool(os.environ.get("SETTLED_LONG"))
CASES = 100_000 if LONG else 500

KEYED = (Dedup.CLIENT_KEY, Dedup.NATURAL_KEY, Dedup.PRECONDITION)
SAFE_TOGETHER = (
    DuplicateInFlight.BLOCKS,
    DuplicateInFlight.SIGNAL,
    DuplicateInFlight.EITHER_MAY_FAIL,
)
CONFLICTS = (
    Answered.DUPLICATE,
    Answered.DUPLICATE_OF,
    Answered.NAME_TAKEN,
    Answered.IN_PROGRESS,
    Answered.PRECONDITION,
    Answered.KEY_MISMATCH,
)
RULES = (
    Rule(answered=Answered.IN_PROGRESS, status=409),
    Rule(answered=Answered.DUPLICATE_OF, status=409, reference="id"),
)

spans = st.one_of(
    st.integers(0, 200).map(lambda n: timedelta(seconds=n)),
    st.integers(0, 3000).map(lambda n: timedelta(minutes=n)),
)
maybe_spans = st.none() | spans

T = TypeVar("T")


def mostly(usual: T, other: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """Return the usual value seven times of eight: a step needs many things to be right at once."""
    return st.sampled_from(range(8)).flatmap(lambda n: other if n == 7 else st.just(usual))


@st.composite
def contracts(draw: st.DrawFn) -> ProviderContract:
    """Any contract that does not contradict itself, with holes in every place."""
    if draw(st.booleans()):
        return draw(st.sampled_from(EVERY_CONTRACT))
    dedup = draw(mostly(Dedup.CLIENT_KEY, st.sampled_from(Dedup)))
    keyed = dedup in KEYED
    consistency = draw(st.sampled_from(Consistency))
    lagging = consistency is Consistency.EVENTUAL
    lookup = LookupPromise(
        by=draw(st.sampled_from(LookupBy)),
        consistency=consistency,
        max_lag=draw(maybe_spans) if lagging else None,
        complete_after=draw(maybe_spans),
        horizon=draw(mostly(FOREVER, maybe_spans)),
        requires=draw(mostly("", st.just("a paid feature"))),
        granted=draw(st.booleans()),
    )
    declared: dict[str, Any] = {}
    if keyed:
        declared = {
            "retention": draw(retentions()),
            "matching": draw(matchings()),
            "duplicate_completed": draw(
                st.sampled_from([*set(DuplicateCompleted) - {DuplicateCompleted.EXECUTES_AGAIN}])
            ),
        }
    in_flight = draw(st.sampled_from(DuplicateInFlight))
    return ProviderContract(
        provider="psp",
        operation="refund",
        dedup=dedup,
        key=Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key"),
        key_support=draw(mostly(KeySupport.DOCUMENTED, st.sampled_from(KeySupport))),
        key_scope=draw(st.none() | st.frozensets(st.sampled_from(Pin))),
        duplicate_in_flight=in_flight,
        max_in_flight=draw(maybe_spans),
        cached=draw(st.none() | st.frozensets(st.sampled_from(Cached))),
        uncached_pre_execution=draw(st.frozensets(st.sampled_from(PreExecution))),
        lookups=(lookup,) if draw(st.booleans()) else (),
        outcomes=Outcomes(
            max_pending=draw(maybe_spans),
            webhook_events=("done",) if draw(st.booleans()) else (),
        ),
        rules=RULES if in_flight is not DuplicateInFlight.BLOCKS else RULES[1:],
        echo=(EchoField(field="amount", path="amount"),) if draw(st.booleans()) else (),
        **declared,
    )


@st.composite
def retentions(draw: st.DrawFn) -> Retention:
    kind = draw(st.sampled_from(RetentionKind))
    if kind in (RetentionKind.UNKNOWN, RetentionKind.LAST_N, RetentionKind.FOREVER):
        return Retention(kind)
    margin = draw(spans)
    return Retention(
        kind,
        margin + timedelta(seconds=1) + draw(spans),
        draw(st.sampled_from(Anchor)),
        margin,
    )


@st.composite
def matchings(draw: st.DrawFn) -> Matching:
    kind = draw(st.sampled_from(MatchingKind))
    named = kind in (MatchingKind.FIELDS, MatchingKind.IDENTITY_EXTENDS)
    return Matching(kind, frozenset({"amount"}) if named else frozenset())


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Any situation, also those that no aggregate should make; most are as they should be."""
    sent = draw(st.integers(0, 3))
    return situation(
        draw(spans),
        last_event_at=SENT_AT + draw(mostly(timedelta(0), spans)),
        first_sent_at=SENT_AT if sent and draw(mostly(True, st.just(False))) else None,
        sent=sent,
        dispatched=sent + draw(mostly(0, st.integers(0, 3))),
        attempts_allowed=draw(st.integers(1, 8)),
        nothing_arrives_after=draw(
            mostly(SENT_AT + timedelta(seconds=35), st.none() | spans.map(lambda n: SENT_AT + n))
        ),
        sender_known=draw(st.booleans()),
        key_on_every_attempt=draw(mostly(True, st.just(False))),
        scope_unchanged=draw(mostly(True, st.just(False))),
        request_identical=draw(mostly(True, st.just(False))),
        credential_unchanged=draw(mostly(True, st.just(False))),
        give_up_at=SENT_AT + draw(mostly(timedelta(days=30), spans)),
        looked_up=draw(mostly(0, st.integers(1, 3))),
        handle=draw(mostly(None, st.just("re_1"))),
        accepted_at=draw(mostly(None, spans.map(lambda n: SENT_AT + n))),
        waits=draw(st.integers(0, 9)),
        known_there=draw(mostly(False, st.just(True))),
    )


findings = st.builds(
    found,
    answered=st.sampled_from(Answered),
    via=mostly(Via.REPLY, st.sampled_from(Via)),
    reference=st.none() | st.sampled_from(["re_1", "re_2"]),
    echo=st.sampled_from(Echo),
    replayed=mostly(False, st.just(True)),
    retry_after=mostly(None, spans | st.just(timedelta.max)),
    may_arrive_until=mostly(None, spans.map(lambda n: SENT_AT + n)),
) | st.builds(
    found,
    answered=st.sampled_from([Answered.ABSENT, Answered.NO_TARGET]),
    via=st.just(Via.LOOKUP),
    may_arrive_until=mostly(None, spans.map(lambda n: SENT_AT + n)),
)


def decide(
    where: Situation, contract: ProviderContract, finding: Finding | None, jitter: timedelta
) -> Step:
    step = recover(where, contract, finding, jitter)
    assert isinstance(step, Step)
    assert step.rule and step.reason
    assert step.not_before is None or step.not_before.tzinfo is not None
    return step


cases = given(where=situations(), contract=contracts(), finding=st.none() | findings, jitter=spans)


class Case(NamedTuple):
    """What was decided upon, and the decision."""

    where: Situation
    contract: ProviderContract
    finding: Finding | None
    jitter: timedelta
    step: Step


def test_every_answer_under_every_contract_gets_a_step() -> None:
    """Total over the words themselves, whatever the random cases below happen to draw."""
    wheres = (situation(), situation(sent=2, dispatched=2), situation(sent=0, dispatched=0))
    for where in wheres:
        for contract in EVERY_CONTRACT:
            for answered in Answered:
                for via in Via:
                    for echo in Echo:
                        finding = found(answered, via, echo=echo)
                        decide(where, contract, finding, timedelta(0))


def a_resend_needs_every_promise_and_every_pin(case: Case) -> None:
    """The one step that can pay twice is taken only where nothing is unknown."""
    where, contract, step = case.where, case.contract, case.step
    if step.kind is not StepKind.RESEND:
        return
    assert contract.dedup in KEYED
    assert contract.retention.kind not in (RetentionKind.UNKNOWN, RetentionKind.LAST_N)
    assert contract.dedup is not Dedup.CLIENT_KEY or contract.key_support in (
        KeySupport.DOCUMENTED,
        KeySupport.DISCOVERABLE,
    )
    assert contract.matching.kind is not MatchingKind.UNKNOWN or contract.echo
    assert where.key_on_every_attempt and where.scope_unchanged and where.request_identical
    credential_pinned = contract.key_scope is None or Pin.CREDENTIAL in contract.key_scope
    assert where.credential_unchanged or not credential_pinned
    assert where.now >= where.last_event_at, "no age can be trusted"
    assert where.first_sent_at is not None
    assert step.not_before is not None
    assert where.now + case.jitter <= step.not_before < where.give_up_at
    assert where.dispatched < where.attempts_allowed
    retention = contract.retention
    if retention.kind is not RetentionKind.FOREVER:
        arrives = step.not_before + where.timeout - where.first_sent_at
        assert arrives < retention.minimum - retention.safety_margin
    if contract.duplicate_in_flight not in SAFE_TOGETHER:
        assert where.nothing_arrives_after is not None
        assert contract.max_in_flight is not None
        assert step.not_before >= where.nothing_arrives_after + contract.max_in_flight


def nothing_is_started_again_while_something_may_be_out(case: Case) -> None:
    """DISPATCH is for what was never sent, or refused before it was performed."""
    where, contract, finding, step = case.where, case.contract, case.finding, case.step
    if step.kind is not StepKind.DISPATCH:
        return
    assert where.accepted_at is None
    refused_credential = finding is not None and finding.answered is Answered.UNAUTHORISED
    assert where.dispatched < where.attempts_allowed or refused_credential
    assert step.not_before is not None and step.not_before < where.give_up_at
    if where.sent == 0:
        return
    assert where.sent == 1 and finding is not None and finding.via is Via.REPLY
    needed = {
        Answered.NOT_SENT: None,
        Answered.RATE_LIMITED: PreExecution.RATE_LIMIT,
        Answered.UNAUTHORISED: PreExecution.AUTH,
    }[finding.answered]
    assert needed is None or needed in contract.uncached_pre_execution


def absence_is_confirmed_only_when_nothing_can_be_there(case: Case) -> None:
    """After this step a new request may leave: the old one must be provably without effect."""
    if case.step.kind is StepKind.CONFIRM_ABSENT:
        absence_is_proven(case)


def absence_is_proven(case: Case) -> None:
    where, contract, finding = case.where, case.contract, case.finding
    assert finding is not None and finding.via in (Via.LOOKUP, Via.HAND)
    assert finding.answered in (Answered.ABSENT, Answered.NO_TARGET)
    assert where.accepted_at is None and where.handle is None and not where.known_there
    assert where.now >= where.last_event_at
    assert where.scope_unchanged
    assert where.nothing_arrives_after is not None and contract.max_in_flight is not None
    quiet = where.nothing_arrives_after + contract.max_in_flight
    if finding.may_arrive_until is not None:
        quiet = max(quiet, finding.may_arrive_until + contract.max_in_flight)
    lookup = contract.lookups[0]
    assert lookup.granted or not lookup.requires
    assert lookup.horizon is not None
    assert lookup.consistency is not Consistency.UNKNOWN
    lag = timedelta(0)
    if lookup.consistency is Consistency.EVENTUAL:
        assert lookup.max_lag is not None
        lag = lookup.max_lag
    assert where.now - where.timeout > quiet + lag
    if contract.dedup not in KEYED:
        assert where.sender_known


def success_needs_an_effect_that_is_ours(case: Case) -> None:
    """Never from a conflict, never from what differs, never from nothing."""
    where, contract, finding, step = case.where, case.contract, case.finding, case.step
    if step.kind is not StepKind.SETTLE_SUCCEEDED:
        return
    assert finding is not None
    assert finding.answered is Answered.PERFORMED
    assert finding.echo is not Echo.DIFFERS
    if finding.echo is Echo.EQUAL or finding.via is Via.HAND:
        return
    only = where.sent <= 1 and finding.via is Via.REPLY and not finding.replayed
    compared = contract.matching.kind not in (MatchingKind.UNKNOWN, MatchingKind.NONE)
    accepted = where.accepted_at is not None and where.handle is not None
    keyless = contract.dedup not in KEYED and finding.via is Via.REPLY
    assert only or compared or accepted or keyless


def failure_is_final_only_when_no_effect_can_exist(case: Case) -> None:
    """A refusal while an earlier attempt is unknown is not a failure of the operation."""
    where, contract, finding, step = case.where, case.contract, case.finding, case.step
    if step.kind is not StepKind.SETTLE_FAILED:
        return
    if finding is not None and finding.answered is Answered.FAILED:
        assert finding.echo is not Echo.DIFFERS
        assert where.sent <= 1 or (contract.dedup in KEYED and where.key_on_every_attempt)
        return
    # Of what was never sent nothing can exist, whatever somebody says who was not asked about that.
    if where.sent > 0 and finding is not None and finding.via in (Via.LOOKUP, Via.HAND):
        absence_is_proven(case)
        return
    assert where.sent <= 1
    if where.sent == 1:
        assert finding is not None and finding.via is Via.REPLY
        assert finding.answered not in CONFLICTS


def after_the_deadline_nothing_leaves(case: Case) -> None:
    """Automatic steps end: what is still open then is somebody's, or the provider's to tell."""
    where, step = case.where, case.step
    if where.now < where.give_up_at:
        return
    assert step.kind not in (StepKind.RESEND, StepKind.DISPATCH, StepKind.LOOK_UP)
    if step.kind in (StepKind.POLL, StepKind.WAIT):
        assert where.accepted_at is not None, "only what the provider accepted stays open"


def waiting_ends(case: Case) -> None:
    """A wait has an end that lies ahead, or the same decision would be made for ever."""
    where, step = case.where, case.step
    if step.kind is StepKind.WAIT:
        assert step.not_before is not None
        assert step.not_before >= where.now
        if where.accepted_at is None:
            assert step.not_before <= where.give_up_at


def knowing_less_never_sends_more(case: Case) -> None:
    """A contract with all its promises taken away resends nothing and proves no absence."""
    where, contract, finding = case.where, case.contract, case.finding
    bare = ProviderContract(provider=contract.provider, operation=contract.operation)
    step = decide(where, bare, finding, case.jitter)
    assert step.kind not in (StepKind.RESEND, StepKind.CONFIRM_ABSENT)
    if where.sent > 0 and step.kind is StepKind.DISPATCH:
        assert finding is not None and finding.answered is Answered.NOT_SENT


ORACLES = (
    a_resend_needs_every_promise_and_every_pin,
    nothing_is_started_again_while_something_may_be_out,
    absence_is_confirmed_only_when_nothing_can_be_there,
    success_needs_an_effect_that_is_ours,
    failure_is_final_only_when_no_effect_can_exist,
    after_the_deadline_nothing_leaves,
    waiting_ends,
    knowing_less_never_sends_more,
)


@settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(where=situations(), contract=contracts(), finding=st.none() | findings, jitter=spans)
def test_the_safety_rules_hold(
    where: Situation, contract: ProviderContract, finding: Finding | None, jitter: timedelta
) -> None:
    """Whatever happened, each rule above holds of the step that is decided."""
    step = decide(where, contract, finding, jitter)
    for holds in ORACLES:
        holds(Case(where, contract, finding, jitter, step))
