"""One status has many meanings: what is read from an answer decides what is paid twice."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.domain.contract import (
    EchoAs,
    EchoField,
    LookupBy,
    LookupPromise,
    Outcome,
    Outcomes,
    ProviderContract,
    Rule,
    presets,
)
from settled.domain.contract.document import MISSING, Unreadable, at, parse
from settled.domain.contract.rules import RETRY_AFTER_CAP, read_answer
from settled.domain.errors import InvalidContract
from settled.domain.money import Money
from settled.domain.provider import Answered, Echo, Finding, Via

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
REFUND = {"id": "re_1", "amount": 3000, "currency": "usd", "status": "succeeded"}
INTENDED = {"amount": Money("30.00", "USD")}
SHOP = ProviderContract(
    provider="shop",
    operation="refund",
    rules=(
        Rule(
            answered=Answered.KEY_MISMATCH,
            status=200,
            body={"errors.0.code": "IDEMPOTENCY_KEY_PARAMETER_MISMATCH"},
        ),
        Rule(answered=Answered.DUPLICATE_OF, status=409, reference="resource_id"),
        Rule(answered=Answered.STORE_UNAVAILABLE, status=503, header={"Transient-Error": "true"}),
        Rule(answered=Answered.IN_PROGRESS, status=500, body={"code": "CallInProgress"}),
        Rule(answered=Answered.RATE_LIMITED, status=403, header={"X-RateLimit-Remaining": "0"}),
    ),
)


def read(
    contract: ProviderContract,
    status: int,
    body: Any,
    *,
    via: Via = Via.REPLY,
    headers: dict[str, str] | None = None,
    intended: dict[str, Any] | None = None,
    lookup: LookupPromise | None = None,
    wanted: str | None = None,
) -> Finding:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_answer(
        contract,
        status=status,
        headers=headers or {},
        body=raw,
        intended=INTENDED if intended is None else intended,
        via=via,
        now=NOW,
        lookup=lookup,
        wanted=wanted,
    )


@pytest.mark.parametrize(
    ("contract", "status", "body", "headers", "answered"),
    [
        (presets.stripe_v1_refund, 200, REFUND, {}, Answered.PERFORMED),
        (presets.stripe_v1_refund, 200, {**REFUND, "status": "pending"}, {}, Answered.PENDING),
        (presets.stripe_v1_refund, 200, {**REFUND, "status": "failed"}, {}, Answered.FAILED),
        (presets.stripe_v1_refund, 200, {**REFUND, "status": "new word"}, {}, Answered.PENDING),
        (presets.stripe_v1_refund, 200, {"id": "re_1"}, {}, Answered.PENDING),
        (
            presets.stripe_v1_refund,
            400,
            {"error": {"type": "idempotency_error"}},
            {},
            Answered.KEY_MISMATCH,
        ),
        (
            presets.stripe_v1_refund,
            400,
            {"error": {"type": "invalid_request_error"}},
            {},
            Answered.REJECTED,
        ),
        (
            presets.stripe_v1_refund,
            409,
            {"error": {"code": "idempotency_key_in_use"}},
            {},
            Answered.IN_PROGRESS,
        ),
        (
            presets.stripe_v1_refund,
            409,
            {"error": {"code": "lock_timeout"}},
            {},
            Answered.DUPLICATE,
        ),
        (presets.mollie_refund, 409, {"status": 409}, {}, Answered.IN_PROGRESS),
        (presets.mollie_refund, 400, {"status": 400}, {}, Answered.REJECTED),
        (presets.kubernetes_create, 409, {"reason": "AlreadyExists"}, {}, Answered.NAME_TAKEN),
        (presets.kubernetes_create, 409, {"reason": "Conflict"}, {}, Answered.PRECONDITION),
        (presets.kubernetes_create, 409, {"reason": "Other"}, {}, Answered.DUPLICATE),
        (presets.postmark, 200, {"MessageID": "m-1"}, {}, Answered.PERFORMED),
        (presets.postmark, 202, b"", {"Content-Length": "0"}, Answered.PERFORMED),
        (
            SHOP,
            200,
            {"errors": [{"code": "IDEMPOTENCY_KEY_PARAMETER_MISMATCH"}]},
            {},
            Answered.KEY_MISMATCH,
        ),
        (SHOP, 409, {"resource_id": "rf_9"}, {}, Answered.DUPLICATE_OF),
        (SHOP, 409, {"resource_id": None}, {}, Answered.DUPLICATE),
        (SHOP, 503, b"<html>", {"transient-error": "true"}, Answered.STORE_UNAVAILABLE),
        (SHOP, 503, b"<html>", {}, Answered.UNAVAILABLE),
        (SHOP, 500, {"code": "CallInProgress"}, {}, Answered.IN_PROGRESS),
        (SHOP, 403, {}, {"x-ratelimit-remaining": "0"}, Answered.RATE_LIMITED),
        (SHOP, 403, {}, {"x-ratelimit-remaining": "12"}, Answered.UNAUTHORISED),
    ],
)
def test_what_contracts_read(
    contract: ProviderContract,
    status: int,
    body: Any,
    headers: dict[str, str],
    answered: Answered,
) -> None:
    """The same number means in progress here, a mismatch there, and a duplicate elsewhere."""
    assert read(contract, status, body, headers=headers).answered is answered


@pytest.mark.parametrize(
    ("status", "answered"),
    [
        (200, Answered.PERFORMED),
        (201, Answered.PERFORMED),
        (202, Answered.PENDING),
        (206, Answered.LOST),
        (207, Answered.LOST),
        (301, Answered.LOST),
        (400, Answered.REJECTED),
        (401, Answered.UNAUTHORISED),
        (404, Answered.NO_TARGET),
        (408, Answered.LOST),
        (409, Answered.DUPLICATE),
        (412, Answered.PRECONDITION),
        (422, Answered.REJECTED),
        (429, Answered.RATE_LIMITED),
        (500, Answered.SERVER_ERROR),
        (503, Answered.UNAVAILABLE),
        (520, Answered.SERVER_ERROR),
        (999, Answered.LOST),
    ],
)
def test_what_http_says_in_general(status: int, answered: Answered) -> None:
    """Without a rule a status means as little as can be defended."""
    assert read(presets.generic_http, status, {}).answered is answered


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>ok</html>",
        b'{"id": "re_1", "amo',
        b'{"amount": 3000, "amount": 9000}',
        b'{"amount": NaN}',
        b'{"note": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("status", [200, 201, 202, 400, 403, 404, 409])
def test_a_body_that_cannot_be_read_is_a_lost_reply(status: int, body: bytes) -> None:
    """A cut reply looks like this, and a page from something in between does too."""
    assert read(presets.stripe_v1_refund, status, body).answered is Answered.LOST


def test_an_empty_body_that_says_so_is_not_cut() -> None:
    """A 404 without a body is an answer; a 200 without one still tells nothing about a refund."""
    empty = {"Content-Length": "0"}
    assert read(SHOP, 404, b"", headers=empty).answered is Answered.NO_TARGET
    assert read(SHOP, 200, b"", headers=empty).answered is Answered.LOST
    assert read(SHOP, 204, b"").answered is Answered.PERFORMED
    assert read(presets.stripe_v1_refund, 204, b"").answered is Answered.PENDING


def test_a_rule_never_fits_an_unreadable_success() -> None:
    """Even a rule that asks nothing of the body waits for a whole answer."""
    rule = Rule(answered=Answered.PERFORMED, status=201)
    contract = replace(presets.generic_http, rules=(rule,))
    assert read(contract, 201, b"{").answered is Answered.LOST
    assert read(contract, 201, b"{}").answered is Answered.PERFORMED


def test_rules_do_not_mistake_true_for_one() -> None:
    """Python says that True == 1; a provider that says 1 has not said true."""
    rule = Rule(answered=Answered.REJECTED, status=200, body={"error": 1})
    contract = replace(presets.generic_http, rules=(rule,))
    assert read(contract, 200, {"error": 1}).answered is Answered.REJECTED
    assert read(contract, 200, {"error": True}).answered is Answered.PERFORMED


AMOUNT_MAJOR = EchoField(
    field="amount", path="value", written=EchoAs.MAJOR_UNITS, currency_path="currency"
)
AMOUNT_MINOR = replace(AMOUNT_MAJOR, written=EchoAs.MINOR_UNITS)
REFERENCE = EchoField(field="order", path="reference")


@pytest.mark.parametrize(
    ("echo", "body", "intended", "expected"),
    [
        (AMOUNT_MAJOR, b'{"value": "30.00", "currency": "USD"}', INTENDED, Echo.EQUAL),
        (AMOUNT_MAJOR, b'{"value": 30.0, "currency": "usd"}', INTENDED, Echo.EQUAL),
        (AMOUNT_MAJOR, b'{"value": 30, "currency": "USD"}', INTENDED, Echo.EQUAL),
        (AMOUNT_MAJOR, b'{"value": "30.01", "currency": "USD"}', INTENDED, Echo.DIFFERS),
        (
            AMOUNT_MAJOR,
            b'{"value": 30.000000000000000001, "currency": "USD"}',
            INTENDED,
            Echo.DIFFERS,
        ),
        (AMOUNT_MAJOR, b'{"value": "3000", "currency": "USD"}', INTENDED, Echo.DIFFERS),
        (AMOUNT_MAJOR, b'{"value": "30.00", "currency": "EUR"}', INTENDED, Echo.DIFFERS),
        (AMOUNT_MAJOR, b'{"value": true, "currency": "USD"}', INTENDED, Echo.DIFFERS),
        (AMOUNT_MAJOR, b'{"value": "NaN", "currency": "USD"}', INTENDED, Echo.DIFFERS),
        (AMOUNT_MAJOR, b'{"value": "30.00"}', INTENDED, Echo.NONE),
        (AMOUNT_MAJOR, b'{"currency": "USD"}', INTENDED, Echo.NONE),
        (
            AMOUNT_MAJOR,
            b'{"value": "30.00", "currency": "USD"}',
            {"amount": {"amount": "30.00", "currency": "USD"}},
            Echo.EQUAL,
        ),
        (AMOUNT_MAJOR, b'{"value": "30.00", "currency": "USD"}', {"amount": "30"}, Echo.NONE),
        (AMOUNT_MAJOR, b'{"value": "30.00", "currency": "USD"}', {}, Echo.NONE),
        (AMOUNT_MINOR, b'{"value": 3000, "currency": "usd"}', INTENDED, Echo.EQUAL),
        (AMOUNT_MINOR, b'{"value": 30, "currency": "usd"}', INTENDED, Echo.DIFFERS),
        (
            AMOUNT_MINOR,
            b'{"value": 5800, "currency": "JPY"}',
            {"amount": Money("5800", "JPY")},
            Echo.EQUAL,
        ),
        (REFERENCE, b'{"reference": "order-72"}', {"order": "order-72"}, Echo.EQUAL),
        (REFERENCE, b'{"reference": 72}', {"order": "72"}, Echo.EQUAL),
        (REFERENCE, b'{"reference": "order-7"}', {"order": "order-72"}, Echo.DIFFERS),
        (REFERENCE, b'{"reference": true}', {"order": 1}, Echo.DIFFERS),
        (REFERENCE, b'{"reference": ["order-72"]}', {"order": "order-72"}, Echo.DIFFERS),
    ],
)
def test_echoes_are_compared_exactly(
    echo: EchoField, body: bytes, intended: dict[str, Any], expected: Echo
) -> None:
    """Case 9: the reply of another operation must never pass for ours, nor ours for another's."""
    contract = replace(presets.generic_http, echo=(echo,))
    assert read(contract, 200, body, intended=intended).echo is expected


def test_one_missing_field_is_no_proof_and_one_difference_is_enough() -> None:
    """An equal reference says nothing about the amount beside it."""
    contract = replace(presets.generic_http, echo=(AMOUNT_MAJOR, REFERENCE))
    intended = {**INTENDED, "order": "order-72"}
    partly = read(contract, 200, {"reference": "order-72"}, intended=intended)
    assert partly.echo is Echo.NONE
    other = read(contract, 200, {"reference": "order-7"}, intended=intended)
    assert (other.echo, other.differs_in) == (Echo.DIFFERS, "order")


def test_a_finding_holds_reference_receipt_and_evidence() -> None:
    """What settles an operation is kept: the object whole, exact, and the answer's beginning."""
    finding = read(
        presets.mollie_refund,
        201,
        b'{"id": "re_4", "status": "refunded", "amount": {"value": "30.00", "currency": "USD"},'
        b' "rate": 1.10}',
        headers={"idempotent-replayed": "true"},
    )
    assert finding.reference == "re_4"
    assert finding.replayed
    assert finding.echo is Echo.EQUAL
    assert finding.receipt is not None
    assert finding.receipt["rate"] == "1.10"
    assert finding.evidence["status"] == 201
    long = read(presets.generic_http, 500, b"x" * 100_000)
    assert len(long.evidence["body"]) == 2000


LISTED = LookupPromise(by=LookupBy.PARENT_LIST, items="data", match="metadata.key", more="more")
LIST_CONTRACT = replace(
    presets.generic_http,
    lookups=(LISTED,),
    reference="id",
    echo=(AMOUNT_MINOR,),
    outcomes=Outcomes(status_path="status", meanings={"done": Outcome.SUCCEEDED}),
)


def item(key: str, **more: Any) -> dict[str, Any]:
    ours = {"id": "re_1", "value": 3000, "currency": "USD", "status": "done"}
    return {**ours, "metadata": {"key": key}, **more}


@pytest.mark.parametrize(
    ("body", "answered", "echo"),
    [
        ({"data": [item("other"), item("k-1")]}, Answered.PERFORMED, Echo.EQUAL),
        ({"data": [item("k-1", value=1)]}, Answered.PERFORMED, Echo.DIFFERS),
        ({"data": [item("k-1", status="x")]}, Answered.PENDING, Echo.EQUAL),
        ({"data": [item("other")]}, Answered.ABSENT, Echo.NONE),
        ({"data": [], "more": False}, Answered.ABSENT, Echo.NONE),
        ({"data": [item("other")], "more": True}, Answered.LOST, Echo.NONE),
        ({"data": [item("k-1"), item("k-1")]}, Answered.PERFORMED, Echo.DIFFERS),
        ({"items": []}, Answered.LOST, Echo.NONE),
    ],
)
def test_lists_are_searched(body: Any, answered: Answered, echo: Echo) -> None:
    """A page that is not the last proves no absence, and two objects are never one success."""
    finding = read(LIST_CONTRACT, 200, body, via=Via.LOOKUP, lookup=LISTED, wanted="k-1")
    assert (finding.answered, finding.echo) == (answered, echo)


def test_a_list_cannot_be_searched_for_nothing() -> None:
    """An adapter without a reference would find the first object that has none either."""
    with pytest.raises(InvalidContract, match="for nothing"):
        read(LIST_CONTRACT, 200, {"data": []}, via=Via.LOOKUP, lookup=LISTED)


def test_not_found_means_absent_only_to_a_look_up() -> None:
    """A 404 on creating is a refusal; on looking it is an absence; a 410 says it was there."""
    assert read(SHOP, 404, {}).answered is Answered.NO_TARGET
    assert read(SHOP, 404, {}, via=Via.LOOKUP).answered is Answered.ABSENT
    assert read(SHOP, 410, {}, via=Via.LOOKUP).answered is Answered.LOST


def test_webhooks_hold_the_object_somewhere() -> None:
    """The envelope has a status and an id of its own, which are not the refund's."""
    event = {"id": "evt_1", "status": "failed", "data": {"object": REFUND}}
    finding = read(presets.stripe_v1_refund, 200, event, via=Via.WEBHOOK)
    assert (finding.answered, finding.reference) == (Answered.PERFORMED, "re_1")
    bare = read(presets.stripe_v1_refund, 200, REFUND, via=Via.WEBHOOK)
    assert bare.answered is Answered.LOST


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("3600", timedelta(hours=1)),
        ("Mon, 30 Nov 2026 12:30:00 GMT", timedelta(minutes=30)),
        ("0.5", timedelta(seconds=0.5)),
        ("Mon, 30 Nov 2026 11:00:00 GMT", timedelta(0)),
        ("1000000000000", RETRY_AFTER_CAP),
        ("soon", None),
    ],
)
def test_retry_after_in_every_form(value: str, wait: timedelta | None) -> None:
    """Case 10: seconds, a date, a fraction, the past, and a number that is no wait."""
    assert read(SHOP, 429, {}, headers={"Retry-After": value}).retry_after == wait


def test_paths() -> None:
    """A path that leads nowhere is not the same as a null."""
    document = {"a": {"b": [{"c": None}, 2]}}
    assert at(document, "a.b.0.c") is None
    assert at(document, "a.b.1") == 2
    assert at(document, "") is document
    for path in ("a.x", "a.b.2", "a.b.-1", "a.b.0.c.d", "b"):
        assert at(document, path) is MISSING


@given(
    status=st.integers(100, 599),
    body=st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ).map(lambda value: json.dumps(value).encode()),
        st.sampled_from([json.dumps(REFUND).encode()]),
    ),
    headers=st.dictionaries(
        st.sampled_from(["Retry-After", "Content-Length", "Idempotent-Replayed"]), st.text()
    ),
    via=st.sampled_from(Via),
    contract=st.sampled_from([*presets.ALL, SHOP, LIST_CONTRACT]),
)
def test_any_answer_is_read(
    status: int, body: bytes, headers: dict[str, str], via: Via, contract: ProviderContract
) -> None:
    """Reading never raises for what a provider sent, and no refusal becomes an effect."""
    finding = read_answer(
        contract,
        status=status,
        headers=headers,
        body=body,
        intended=INTENDED,
        via=via,
        now=NOW,
    )
    assert finding.via is via
    assert finding.answered is not Answered.NOT_SENT
    if not 200 <= status < 300:
        assert finding.answered not in (Answered.PERFORMED, Answered.PENDING)
    if finding.answered is Answered.PERFORMED and status != 204:
        try:
            parse(body)
        except Unreadable:
            assert not body, "an unreadable body passed for a success"


def test_the_ietf_contract_reads_its_statuses() -> None:
    """Its 409 and 422 mean one thing each, whatever the body says."""
    contract = presets.ietf_idempotency_key(
        provider="psp",
        operation="refund",
        retention=timedelta(hours=24),
        sources=["https://psp.example/docs"],
        verified_on=date(2026, 11, 1),
    )
    assert read(contract, 409, b"").answered is Answered.IN_PROGRESS
    assert read(contract, 422, b"").answered is Answered.KEY_MISMATCH
    assert read(contract, 400, {}).answered is Answered.REJECTED
