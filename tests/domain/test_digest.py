"""A digest that differs too easily refuses honest retries; one that collides pays twice."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any
from uuid import UUID

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from settled.domain.canonical import canonical
from settled.domain.digest import Digest, Mode, differing_fields, digest, same_request
from settled.domain.errors import InvalidInput, InvalidParams, TooLarge
from settled.domain.money import Money
from settled.domain.params import Params, Remark, freeze, parse

KEY = b"k" * 32


class RefundParams(Params):
    """A refund, with a remark that is no part of it."""

    order: str
    amount: Money
    count: int = 1
    rate: Decimal = Decimal("1")
    recipient: str = ""
    labels: dict[str, str] = {}
    note: Annotated[str, Remark()] = ""


def refund(amount: Any = None, **more: Any) -> RefundParams:
    money = Money("30.00", "USD") if amount is None else amount
    return parse(RefundParams, {"order": "order-72", "amount": money, **more})


def value(params: Params, mode: Mode = "live") -> str:
    return digest(params, "refund", mode, KEY, "key-1").value


SAME_MONEY = [
    Money("30.00", "USD"),
    Money.of_minor(3000, "USD"),
    *[{"amount": a, "currency": "USD"} for a in (30, "30", "30.0", "30.00", Decimal("30.00"))],
]


@pytest.mark.parametrize("amount", SAME_MONEY)
def test_equal_money_has_one_digest(amount: Any) -> None:
    """Case 13: 30, "30.00" and Decimal("30.00") are one request; floats are none."""
    assert value(refund(amount)) == value(refund())


@pytest.mark.parametrize("amount", [30.0, -0.0, float("nan"), True])
def test_a_float_has_no_digest(amount: Any) -> None:
    """Cases 12 and 13: refused before anything is compared or written."""
    with pytest.raises(InvalidParams):
        refund({"amount": amount, "currency": "USD"})


def test_an_integer_past_2_53_keeps_its_last_digit() -> None:
    """Case 13: 9007199254740993 becomes …992 in every form that goes through a double."""
    assert value(refund(count=9007199254740993)) == value(refund(count="9007199254740993"))
    assert value(refund(count=9007199254740993)) != value(refund(count=9007199254740992))


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.just("x")),
    st.randoms(use_true_random=False),
)
def test_key_order_and_unicode_form_make_no_difference(labels: dict[str, str], chance: Any) -> None:
    """Case 13: the same name typed on two systems is one name."""
    labels = {unicodedata.normalize("NFC", key): item for key, item in labels.items()}
    pairs = [(unicodedata.normalize("NFD", key), item) for key, item in labels.items()]
    chance.shuffle(pairs)
    assert value(refund(labels=labels)) == value(refund(labels=dict(pairs)))


def test_text_is_stored_as_it_was_given() -> None:
    """NFC is for the digest only: the provider is sent what the caller wrote."""
    decomposed = unicodedata.normalize("NFD", "Zoé")
    assert value(refund(recipient=decomposed)) == value(refund(recipient="Zoé"))
    assert decomposed.encode() in freeze(refund(recipient=decomposed))


@given(st.fixed_dictionaries({}, optional={"count": st.just(1), "rate": st.just("1.0")}))
def test_a_default_left_out_or_given_is_one_request(given: dict[str, Any]) -> None:
    assert value(refund(**given)) == value(refund())


def test_a_remark_is_no_part_of_the_request() -> None:
    """Case 12: an agent that plans again likes to add a note."""
    assert value(refund(note="retry")) == value(refund())


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_another_amount_is_another_request(one: int, other: int) -> None:
    digests = [value(refund(Money.of_minor(minor, "USD"))) for minor in (one, other)]
    assert (digests[0] == digests[1]) == (one == other)


def test_each_part_of_the_meaning_counts() -> None:
    """Amount, currency, recipient, number against text, mode, kind, version and key."""

    class Later(RefundParams):
        PARAMS_VERSION = 2

    others = [
        value(refund()),
        value(refund(), mode="dry-run"),
        value(refund(Money("35.00", "USD"))),
        value(refund(Money("30.00", "EUR"))),
        value(refund(Money("3000", "JPY"))),
        value(refund(recipient="ada")),
        value(refund(rate="1.01")),
        value(Later(order="order-72", amount=Money("30.00", "USD"))),
        digest(refund(), "payout", "live", KEY, "key-1").value,
        digest(refund(), "refund", "live", b"l" * 32, "key-2").value,
    ]
    assert len(set(others)) == len(others)


def test_a_digest_says_how_it_was_made_and_can_be_made_elsewhere() -> None:
    """An auditor with the key needs RFC 8785 and HMAC, not this library."""
    made = digest(refund(), "refund", "live", KEY, "key-1")
    text = (
        '{"algorithm":"s:hmac-sha256/rfc8785","fields":{"amount":"m:30.00 USD",'
        '"order":"s:order-72"},"kind":"s:refund","mode":"s:live","params_version":"i:1"}'
    )
    expected = hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()
    assert made == Digest("hmac-sha256/rfc8785", expected, "refund", 1, "key-1")


def test_a_release_with_one_more_optional_field_recognises_what_is_stored() -> None:
    """Also the release before it recognises what the new one stored, while both run."""

    class Newer(RefundParams):
        channel: str = "web"

    newer = parse(Newer, {"order": "order-72", "amount": Money("30.00", "USD")})
    assert same_request(digest(refund(), "refund", "live", KEY, "key-1"), newer, "live", KEY)
    assert same_request(digest(newer, "refund", "live", KEY, "key-1"), refund(), "live", KEY)
    by_mail = newer.model_copy(update={"channel": "mail"})
    assert not same_request(digest(refund(), "refund", "live", KEY, "k"), by_mail, "live", KEY)


def test_a_duplicate_is_judged_under_the_stored_version() -> None:
    """A default that changed since does not turn an old retry into another request."""

    class ParcelV1(Params):
        order: str
        speed: str = "standard"

    class Parcel(Params):
        PARAMS_VERSION = 2
        OLD = {1: ParcelV1}

        order: str
        speed: str = "express"
        insured: bool = False

    stored = digest(ParcelV1(order="order-72"), "parcel", "live", KEY, "key-1")
    assert same_request(stored, Parcel(order="order-72"), "live", KEY)
    assert same_request(stored, Parcel(order="order-72", speed="standard"), "live", KEY)
    assert not same_request(stored, Parcel(order="order-72", speed="express"), "live", KEY)
    assert not same_request(stored, Parcel(order="order-72", insured=True), "live", KEY)
    assert not same_request(stored, Parcel(order="order-72"), "dry-run", KEY)


def test_a_short_key_and_an_unknown_mode_are_refused() -> None:
    with pytest.raises(InvalidInput, match="can be guessed"):
        digest(refund(), "refund", "live", b"short", "key-1")
    mode: Any = "rehearsal"
    with pytest.raises(InvalidInput, match="not a mode"):
        digest(refund(), "refund", mode, KEY, "key-1")


def test_differences_are_shown_as_people_read_them() -> None:
    """The message of ParametersChanged is built from them."""
    given = refund(Money("35.00", "USD"), rate="1.00", recipient="r" * 200, note="retry")
    differences = differing_fields(refund(), given)
    assert differences == [
        ("amount", "30.00 USD", "35.00 USD"),
        ("recipient", "", "r" * 79 + "…"),
    ]
    assert differing_fields(freeze_as_mapping(refund()), given) == differences
    assert differing_fields(refund(), refund(rate="1.000")) == []


def test_a_stored_body_whose_class_is_gone_is_compared_as_json() -> None:
    stored = {**freeze_as_mapping(refund()), "channel": "web"}
    assert differing_fields(stored, refund()) == [("channel", "web", "nothing")]
    assert differing_fields({"a": 1, "b": None}, {"b": [2]}) == [
        ("a", "1", "nothing"),
        ("b", "null", "[2]"),
    ]


def freeze_as_mapping(params: Params) -> dict[str, object]:
    read: dict[str, object] = orjson.loads(freeze(params))
    return read


class Colour(Enum):
    """Members with values of two types."""

    RED = "red"
    ONE = 1


TOKYO = timezone(timedelta(hours=9))

DISTINCT: list[object] = [
    *(None, True, False, 0, 1, "", "1", "true", "null", "i:1", "s:1", Decimal("1"), Decimal("-1")),
    *(Decimal("10"), Decimal("0.1"), Decimal("1E+5"), Money("1", "USD"), Money("1", "EUR")),
    *(Money("1", "JPY"), "1.00 USD", UUID(int=1), str(UUID(int=1)), date(2026, 3, 1), "2026-03-01"),
    *(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 0, 0, 0, 1, UTC), [], {}, [[]], [{}]),
    *([None], ["1"], [1], [1, 1], {"a": 1}, {"a": "1"}, {"b": 1}, {"a": None}, {"A": 1}),
]


def test_values_that_differ_have_other_canonical_bytes() -> None:
    """A number, the text of it, a decimal and an amount are four things."""
    assert len({canonical(each) for each in DISTINCT}) == len(DISTINCT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("30.00"), Decimal("3E+1")),
        (Decimal("-0.00"), Decimal("0")),
        (
            Decimal("1234567890123456789012345678901230"),
            Decimal("123456789012345678901234567890123E1"),
        ),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 21, tzinfo=TOKYO)),
        ("\u00e9", "e\u0301"),
        ({"\u00e9": 1, "a": 2}, {"a": 2, "e\u0301": 1}),
        ([1, 2], (1, 2)),
        (Colour.RED, "red"),
        (Colour.ONE, 1),
    ],
)
def test_values_that_mean_the_same_have_one_form(one: object, other: object) -> None:
    assert canonical(one) == canonical(other)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
def test_a_decimal_keeps_every_digit(number: Decimal) -> None:
    """`Decimal.normalize` would round to 28 digits, and two amounts would be one."""
    try:
        form = canonical(number).decode().strip('"')
    except InvalidParams:
        assert abs(number) > 1e300 or -int(str(number.as_tuple().exponent)) > 40
        return
    assert Decimal(form.removeprefix("d:")) == number


@pytest.mark.parametrize(
    "unusable", [0.5, float("nan"), b"a", {1, 2}, object(), {1: 2}, 2**64, "\ud800", [[0.5]]]
)
def test_what_is_not_exact_has_no_canonical_form(unusable: object) -> None:
    with pytest.raises(InvalidParams):
        canonical(unusable)


def test_a_canonical_form_is_bounded() -> None:
    """A list that contains itself ends here too."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidParams, match="nested"):
        canonical(endless)
    with pytest.raises(TooLarge):
        canonical("x" * 70_000)


class Shade(StrEnum):
    """A text enum, whose members are text of a class of their own."""

    RED = "red"


def test_a_key_that_is_a_member_of_a_text_enum_is_its_value() -> None:
    """It may come from a default, which nothing has validated."""
    assert canonical({Shade.RED: "x"}) == canonical({"red": "x"})


JSON_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
TAGGED = st.recursive(
    JSON_TEXT | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(TAGGED)
def test_the_short_way_over_ascii_is_rfc_8785(value: Any) -> None:
    """Where orjson writes ASCII alone, it writes what RFC 8785 asks for, escapes and order too."""
    compact = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if compact.isascii():
        assert compact == rfc8785.dumps(value)
