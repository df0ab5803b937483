"""Two workers that mean one operation must arrive at one stream and one provider key."""

from __future__ import annotations

import unicodedata
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.domain.errors import InvalidIdentity
from settled.domain.identity import NAMESPACE, Identity, Principal, provider_key, stream_id

INSTALLATION = uuid.UUID("00000000-0000-4000-8000-000000000001")
REFUND = Identity("acme", "refund", "refund-request-9")
PARTS = st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]))] * 4)


@given(PARTS, PARTS)
def test_a_stream_id_is_one_for_one_name(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """No other list of parts reads alike, wherever their borders are."""
    assert (stream_id(*one) == stream_id(*other)) == (one == other)
    assert stream_id("ab", "c", "", "") != stream_id("a", "bc", "", "")
    assert stream_id("1:", "a", "", "") != stream_id("", "1:a", "", "")


@given(PARTS)
def test_a_stream_id_is_a_uuid5(parts: tuple[str, ...]) -> None:
    """Anybody can compute it again with a standard library, in any language."""
    name = "".join(f"{len(part.encode())}:{part}" for part in parts)
    assert stream_id(*parts) == uuid.uuid5(NAMESPACE, name)


def test_a_stream_id_never_changes() -> None:
    """Another value here means that every stored stream is lost."""
    expected = "7f5ac647-3a90-5889-abae-42e2406d737e"
    assert str(stream_id("acme", "operation", "refund", "refund-request-9")) == expected


def test_a_provider_key_never_changes() -> None:
    """Another value here means that every open operation is paid again."""
    expected = "667758a9-0f58-44a0-98cd-c9b2d871c37b"
    assert provider_key(INSTALLATION, REFUND, 1) == expected


def test_a_provider_key_follows_installation_identity_and_generation() -> None:
    """A copy of the database, another operation and a reissue each have keys of their own."""
    keys = [
        provider_key(INSTALLATION, REFUND, 1),
        provider_key(INSTALLATION, REFUND, 2),
        provider_key(uuid.UUID(int=2), REFUND, 1),
        provider_key(INSTALLATION, Identity("acme", "refund", "refund-request-10"), 1),
        provider_key(INSTALLATION, Identity("acme", "payout", "refund-request-9"), 1),
        provider_key(INSTALLATION, Identity("umbrella", "refund", "refund-request-9"), 1),
    ]
    assert len(set(keys)) == len(keys)
    assert all(str(uuid.UUID(key)) == key and uuid.UUID(key).version == 4 for key in keys)


@pytest.mark.parametrize("generation", [0, -1, True])
def test_generations_count_from_one(generation: int) -> None:
    with pytest.raises(InvalidIdentity):
        provider_key(INSTALLATION, REFUND, generation)


@pytest.mark.parametrize(
    "operation_id",
    ["refund-request-9", "72", "a", "Rückerstattung 9", "返金-9", "x" * 200, "a/b:c#d", "🚚-9"],
)
def test_an_operation_id_is_what_the_business_calls_it(operation_id: str) -> None:
    assert str(Identity("acme", "refund", operation_id)) == f"acme/refund/{operation_id}"


@pytest.mark.parametrize(
    "operation_id",
    [
        *("", " ", " a", "a ", "a\n", "a\tb", "a\0b", "\x7f", "\u0085", "\ud800"),
        *("a\u202eb", "a\u200bb", "a\u2028b", "\ufeffa", "x" * 201, "x" * 10_000),
        *(unicodedata.normalize("NFD", "é"), None, 9, b"a"),
    ],
)
def test_what_cannot_be_a_name_is_refused_briefly(operation_id: Any) -> None:
    """An id that cannot be printed or looks like another one misleads whoever reads it."""
    with pytest.raises(InvalidIdentity) as refused:
        Identity("acme", "refund", operation_id)
    assert refused.value.hint
    assert len(str(refused.value)) < 300
    str(refused.value).encode()


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "ä", "a/b", "x" * 64, "a\n", None])
def test_tenants_and_kinds_are_plain_names(name: Any) -> None:
    """They become parts of metric names, URLs and lock names."""
    with pytest.raises(InvalidIdentity):
        Identity(name, "refund", "refund-request-9")
    with pytest.raises(InvalidIdentity):
        Identity("acme", name, "refund-request-9")
    with pytest.raises(InvalidIdentity):
        Principal(name, "support-agent")


def test_a_principal_has_a_printable_name_and_a_set_of_roles() -> None:
    """A text as roles would be read as a set of letters."""
    assert Principal("acme", "ada@acme.example", frozenset({"approver"})).roles == {"approver"}
    roles: Any
    for roles in ("approver", ["approver"], frozenset({""}), frozenset({1})):
        with pytest.raises(InvalidIdentity):
            Principal("acme", "ada", roles)
    with pytest.raises(InvalidIdentity):
        Principal("acme", "a\0")
