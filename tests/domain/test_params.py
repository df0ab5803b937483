"""What is stored must be what was authorised: exact, complete, and readable for years."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, create_model

from settled.domain.canonical import LIMIT_BYTES, LIMIT_DEPTH
from settled.domain.errors import InvalidKind, InvalidParams, TooLarge
from settled.domain.money import Money
from settled.domain.params import (
    Params,
    Remark,
    freeze,
    model_of_version,
    parse,
    semantic,
    thaw,
    under_version,
)

USD_30 = Money("30.00", "USD")
JSON_30 = {"amount": "30.00", "currency": "USD"}


class Reason(Enum):
    """An enum as kinds declare them."""

    DAMAGED = "damaged"
    LATE = "late"


class Card(Params):
    """One variant, told by its tag."""

    type: Literal["card"] = "card"
    number: str


class Bank(Params):
    """The other variant."""

    type: Literal["bank"] = "bank"
    number: str


class RefundParams(Params):
    """One field of every type that can be declared."""

    order: str
    amount: Money
    items: tuple[int, ...] = ()
    rate: Decimal = Decimal("1")
    reason: Reason = Reason.DAMAGED
    due: datetime | None = None
    day: date | None = None
    payment: UUID | None = None
    target: Card | Bank | None = None
    labels: dict[str, str] = {}
    partial: bool = False
    note: Annotated[str, Remark()] = ""


BASIC: dict[str, Any] = {"order": "order-72", "amount": USD_30}
FULL: Mapping[str, Any] = {
    "order": "order-72",
    "amount": USD_30,
    "items": (1, 2),
    "rate": Decimal("0.10"),
    "reason": Reason.LATE,
    "due": datetime(2026, 3, 1, 12, tzinfo=UTC),
    "day": date(2026, 3, 1),
    "payment": UUID(int=7),
    "target": Bank(number="1"),
    "labels": {"channel": "mail"},
    "partial": True,
    "note": "called twice",
}


def refund(**more: Any) -> RefundParams:
    return RefundParams(**{**BASIC, **more})


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("amount", {"amount": Decimal("30.00"), "currency": "USD"}, USD_30),
        ("amount", {"amount": 30, "currency": "USD"}, USD_30),
        ("items", ["7", 8], (7, 8)),
        ("items", ["-9223372036854775808"], (-(2**63),)),
        ("rate", "30.00", Decimal("30.00")),
        ("rate", 30, Decimal("30")),
        ("reason", "late", Reason.LATE),
        ("due", "2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("due", "2026-03-01T13:00:00.5+01:00", datetime(2026, 3, 1, 12, 0, 0, 500000, UTC)),
        ("day", "2026-03-01", date(2026, 3, 1)),
        ("payment", str(UUID(int=7)), UUID(int=7)),
        ("target", {"type": "bank", "number": "1"}, Bank(number="1")),
    ],
)
def test_text_that_says_exactly_the_type_is_taken_for_it(field: str, text: Any, value: Any) -> None:
    """Agents and JSON have text only; what they mean is one and the same request."""
    assert getattr(refund(**{field: text}), field) == value


REFUSED: list[tuple[str, Any]] = [
    *[("items", [v]) for v in ("07", " 7", "7.0", "1_0", "-0", "٧", "", 7.0, True)],
    ("items", ["9223372036854775808"]),
    ("items", [2**63]),
    ("items", 7),
    *[("rate", v) for v in ("1e3", "NaN", "Infinity", ".5", "1,5", True, 0.5)],
    *[("rate", Decimal(v)) for v in ("NaN", "Infinity", "1E+40", "1E-41")],
    *[("amount", v) for v in ("30.00", 30, 30.0, -0.0, float("nan"), None, True)],
    ("amount", {"amount": 30.0, "currency": "USD"}),
    ("amount", {"amount": True, "currency": "USD"}),
    ("order", 72),
    ("order", None),
    ("order", b"order-72"),
    ("order", "a\0"),
    ("order", "a\x1b[31m"),
    ("order", "a\x85"),
    ("order", "\ud800"),
    ("partial", 1),
    ("partial", "true"),
    ("reason", "lost"),
    ("reason", Card(number="1")),
    ("due", datetime(2026, 3, 1)),
    ("due", datetime.min.replace(tzinfo=UTC)),
    ("due", "2026-03-01"),
    ("due", "2026-03-01T12:00:00"),
    ("due", 1772366400),
    ("day", datetime(2026, 3, 1, tzinfo=UTC)),
    ("day", "2026-02-30"),
    ("payment", "{00000000-0000-0000-0000-000000000007}"),
    ("target", {"type": "cash", "number": "1"}),
    ("labels", {1: "a"}),
    ("labels", {"é": "a", "e\u0301": "b"}),
    ("labels", {"a\0": "b"}),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_what_is_not_exactly_the_type_is_refused_by_name(field: str, value: Any) -> None:
    """Case 13: a clear refusal for floats, NaN, True for 1; nothing is guessed."""
    with pytest.raises(InvalidParams, match=field) as refused:
        refund(**{field: value})
    assert refused.value.hint
    str(refused.value).encode()


def test_every_wrong_field_is_listed_in_plain_words() -> None:
    """One round trip for an agent, not one for each field."""
    with pytest.raises(InvalidParams) as refused:
        parse(RefundParams, {"order": 72, "item": 1, "target": {"type": "card"}})
    message = refused.value.message
    assert "order should be a valid string" in message
    assert "amount is missing" in message
    assert "item is not a field" in message
    assert "number is missing" in message
    assert "order, amount, items" in refused.value.hint


def test_a_thousand_wrong_fields_make_a_short_message() -> None:
    with pytest.raises(InvalidParams, match="and 980 more") as refused:
        refund(items=[0.5] * 1000)
    assert len(str(refused.value)) < 3000


def test_missing_and_null_are_different_answers() -> None:
    """Case 13: null is a value; only a field that declares it takes it."""
    assert refund(due=None) == refund()
    with pytest.raises(InvalidParams, match="rate"):
        refund(rate=None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"order":"a","order":"b"}', "'order' is given twice"),
        ('{"amount":{"amount":"1","amount":"2"}}', "'amount' is given twice"),
        ('{"amount":{"amount":30.0,"currency":"USD"}}', "amount.amount is the float 30.0"),
        ('{"rate":3e1}', "rate is the float 30.0"),
        ('{"rate":-0.0}', "rate is the float -0.0"),
        ('{"rate":NaN}', "rate is the float nan"),
        ('{"rate":Infinity}', "rate is the float inf"),
        ('{"rate":' + "9" * 5000 + "}", "past 64 bits"),
        ('{"order":"\\ud800"}', "order holds half of a surrogate pair"),
        ('{"order":"\\u0000"}', r"order holds the control character U\+0000"),
        ("[" * 60_000, "nested more than"),
        ('{"order":' + "[" * 40 + "]" * 40 + "}", "nested more than"),
        ("{", "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        ("[]", "is not a JSON object"),
        (b'{"order":"\xff"}', "is not UTF-8"),
    ],
)
def test_json_text_is_read_without_losing_what_it_said(text: bytes | str, reason: str) -> None:
    """Case 13: duplicate keys and binary floats, before a parser hides them."""
    with pytest.raises(InvalidParams, match=reason):
        parse(RefundParams, text)


@pytest.mark.parametrize("given", [None, 7, [("order", "a")], {1: 2}, Card(number="1")])
def test_what_has_no_fields_is_refused(given: Any) -> None:
    with pytest.raises(InvalidParams):
        parse(RefundParams, given)


def test_text_may_hold_line_ends_and_tabs() -> None:
    assert refund(order="a\tb\r\nc").order == "a\tb\r\nc"


TOO_LARGE: list[Any] = [
    "x" * 10_000_000,
    b" " * 10_000_000,
    {"order": "x" * 10_000_000, "amount": JSON_30},
    {"order": "é" * (LIMIT_BYTES // 2), "amount": JSON_30},
    {"order": "a", "amount": JSON_30, "items": [1] * 10_000_000},
    {"order": "a", "amount": JSON_30, "items": [[]] * 10_000_000},
]


@pytest.mark.parametrize("given", TOO_LARGE)
def test_ten_megabytes_are_refused_before_they_are_read(given: Any) -> None:
    """Nobody may keep a worker busy with what it will refuse."""
    started = time.process_time()
    with pytest.raises(TooLarge):
        parse(RefundParams, given)
    assert time.process_time() - started < 1


def test_escapes_count_for_what_is_stored() -> None:
    """A text of line ends doubles in JSON: what counts is the stored body."""
    with pytest.raises(TooLarge):
        freeze(refund(order="\n" * (LIMIT_BYTES - 1000)))


def test_nesting_is_bounded_for_objects_too() -> None:
    value: object = "leaf"
    for _ in range(LIMIT_DEPTH):
        value = {"deeper": value}
    with pytest.raises(InvalidParams, match="nested more than"):
        parse(RefundParams, {"order": value})


def test_an_instance_is_validated_again() -> None:
    """`model_copy` and `model_construct` check nothing, and they are public."""
    assert parse(RefundParams, refund(items=["7"])) == refund(items=(7,))
    for forged in (refund().model_copy(update={"amount": 30.0}), RefundParams.model_construct()):
        with pytest.raises(InvalidParams, match="amount"):
            parse(RefundParams, forged)
    nested = Card.model_construct(type="card", number=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidParams, match=r"target\.Card\.number"):
        refund(target=nested)


def test_params_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        refund().order = "order-73"  # pyright: ignore[reportAttributeAccessIssue]


@given(
    order=st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=50),
    items=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    rate=st.decimals(allow_nan=False, allow_infinity=False, places=6, max_value=10**20),
    minor=st.integers(0, 2**63 - 1),
    due=st.datetimes(datetime(1900, 1, 1), timezones=st.timezones()) | st.none(),
)
def test_what_is_stored_is_read_back_unchanged(
    order: str, items: list[int], rate: Decimal, minor: int, due: datetime | None
) -> None:
    """A worker that comes after a crash has nothing but the stored body."""
    if due is not None and due.year == 9999:
        return
    params = refund(
        order=order, items=items, rate=rate, amount=Money.of_minor(minor, "KWD"), due=due
    )
    again = thaw(RefundParams, freeze(params))
    # Python calls a moment in a repeated or skipped hour unequal to itself in another zone.
    assert freeze(again) == freeze(params)
    assert again.order == order  # NFD stays NFD: normal form is the digest's business.


def test_an_offset_of_minutes_and_seconds_keeps_the_instant() -> None:
    """Amsterdam before 1937: a JSON writer that rounds the offset moves the moment."""
    due = datetime(1930, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32)))
    assert thaw(RefundParams, freeze(refund(due=due))).due == due


def test_a_body_as_large_as_may_be_stored_can_be_read() -> None:
    """Two ways of counting must not leave an operation that nobody can read."""
    empty = len(freeze(refund(order="")))
    params = refund(order="x" * (LIMIT_BYTES - empty))
    assert len(freeze(params)) == LIMIT_BYTES
    assert thaw(RefundParams, freeze(params)) == params


def test_every_type_survives_the_journal() -> None:
    params = RefundParams(**FULL)
    assert thaw(RefundParams, freeze(params)) == params
    assert freeze(refund()) == (
        b'{"amount":{"amount":"30.00","currency":"USD"},"day":null,"due":null,"items":[],'
        b'"labels":{},"note":"","order":"order-72","partial":false,"payment":null,"rate":"1",'
        b'"reason":"damaged","target":null}'
    )


def test_the_meaning_has_neither_defaults_nor_remarks() -> None:
    """A tag stays: without it a card and a bank account of one number would be one request."""
    given = refund(rate="1.00", reason="damaged", note="retry", target=Card(number="1"))
    assert semantic(given) == {
        "order": "order-72",
        "amount": USD_30,
        "target": {"type": "card", "number": "1"},
    }


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        *[(t, ...) for t in (float, bytes, set[str], Any, object, list, dict, tuple, list[float])],
        *[(t, ...) for t in (int | str, Decimal | str, dict[int, str], list[Any], Literal[b"a"])],
        (Card | dict[str, str], ...),
        (Card | RefundParams, ...),
        (Enum("Odd", {"A": 1.5}), ...),
        (Decimal, 1.5),
        (str, "a\0"),
    ],
)
def test_a_declaration_with_more_than_one_reading_is_refused(declared: Any, default: Any) -> None:
    """At import, by the author; not years later, by a duplicate that is not recognised."""
    with pytest.raises(InvalidKind, match=r"Odd\.field: "):
        create_model("Odd", __base__=Params, field=(declared, default))


def test_a_default_that_differs_from_start_to_start_is_refused() -> None:
    with pytest.raises(InvalidKind, match="factory"):
        create_model("Odd", __base__=Params, field=(int, Field(default_factory=int)))
    with pytest.raises(InvalidKind, match="alias"):
        create_model("Odd", __base__=Params, field=(int, Field(alias="other")))


class Tree(Params):
    """A model that contains itself."""

    name: str
    children: tuple[Tree, ...] = ()


def test_a_model_may_contain_itself() -> None:
    tree = Tree(name="a", children=(Tree(name="b"),))
    assert semantic(tree) == {"name": "a", "children": [{"name": "b"}]}
    assert thaw(Tree, freeze(tree)) == tree


class ParcelV1(Params):
    """Parameters as an earlier release declared them."""

    order: str
    speed: str = "standard"


class Parcel(Params):
    """The same with another default and one more field."""

    PARAMS_VERSION: ClassVar[int] = 2
    OLD: ClassVar[Mapping[int, type[Params]]] = {1: ParcelV1}

    order: str
    speed: str = "express"
    insured: bool = False


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"order": "order-72"}),
        ({"speed": "standard"}, {"order": "order-72"}),
        ({"speed": "express"}, {"order": "order-72", "speed": "express"}),
        ({"insured": False}, {"order": "order-72"}),
        ({"insured": True}, None),
    ],
)
def test_a_duplicate_is_read_as_the_stored_version_reads_it(
    given: dict[str, object], expected: dict[str, object] | None
) -> None:
    """A left-out field means what it meant; what the old version cannot say is another request."""
    read = under_version(parse(Parcel, {"order": "order-72", **given}), 1)
    assert (None if read is None else semantic(read)) == expected


def test_a_version_that_this_code_lacks_is_named() -> None:
    """Neither recognising nor refusing the duplicate would be right, so somebody is told."""
    assert model_of_version(Parcel, 2) is Parcel
    assert model_of_version(Parcel, 1) is ParcelV1
    with pytest.raises(InvalidParams, match=r"no params version 3 here, only \[1, 2\]"):
        model_of_version(Parcel, 3)


@pytest.mark.parametrize("body", [b"{", b'{"order": NaN}', b"\xff"])
def test_a_stored_body_that_is_no_json_is_named(body: bytes) -> None:
    """As one that somebody edited in the database."""
    with pytest.raises(InvalidParams, match="not JSON"):
        thaw(RefundParams, body)
