"""Routes decide which code is given which work, and kinds which declaration judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from settled import presets
from settled.domain.clock import Stamp
from settled.domain.errors import InvalidInput, InvalidKind, UnknownKind
from settled.domain.identity import Identity
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.operation.operation import Operation, intend
from settled.domain.params import Params
from settled.domain.route import Route, parse_versioned, serves
from settled.processes.replay import RecordsOnly
from tests.projections.histories import BEGAN
from tests.projections.test_why import NoProvider

KEYS = DerivedKeys(b"a secret of the installation")


class OldParams(Params):
    """As they were."""

    order: str


class NewParams(Params):
    """As they are."""

    PARAMS_VERSION: ClassVar[int] = 2
    OLD: ClassVar[Mapping[int, type[Params]]] = {1: OldParams}
    order: str
    reason: str


def kind(
    version: int = 1, params: type[Params] = OldParams, name: str = "psp.example"
) -> Kind[Any]:
    silent: Any = NoProvider(presets.stripe_v1_refund, name)
    provider = RecordsOnly(silent)
    return Kind("refund", params, provider, "payments-oncall", version=version)


def operation(declared: Kind[Any], params: Params) -> Operation:
    terms = declared.terms(Identity("acme", "refund", "refund-request-9"), params, KEYS, {})
    return intend(terms, Stamp(BEGAN, "support-agent"), "key-1")


OLD, NEW = kind(), kind(2, NewParams)


def test_a_lane_leads_to_code_of_one_version() -> None:
    """The lane of an operation is the tenant and the route that its declaration serves."""
    made = operation(NEW, NewParams(order="order-72", reason="damaged"))
    assert made.lane == f"acme/{NEW.route}" == "acme/refund@2/psp.example"
    assert Route.of_lane(made.lane) == Route("refund", 2, "psp.example")
    assert str(Route.of_lane(made.lane)) == NEW.route
    assert serves(made.lane, NEW.route.split()) and not serves(made.lane, OLD.route.split())


@pytest.mark.parametrize(
    ("lane", "served", "expected"),
    [
        ("acme/tab/-", {"tab"}, True),
        ("acme/tab/counter", {"tab"}, True),
        ("acme/tab/counter", {"tab/-"}, False),
        ("acme/refund@2/psp", {"refund"}, False),
        ("acme/refund@2/psp", {"refund@2"}, True),
        ("acme/refund@2/psp", {"refund@2/other"}, False),
        ("acme/refund@2/psp/eu", {"refund@2/psp/eu"}, True),
    ],
)
def test_what_a_worker_says_it_serves(lane: str, served: set[str], expected: bool) -> None:
    """The whole route, or all behind the slash; never a version that was not named."""
    assert serves(lane, served) is expected


def test_what_has_no_version_is_its_kind_alone() -> None:
    """Evidence and machines of one's own have lanes too."""
    assert Route.of_lane("acme/evidence/-") == Route("evidence", None, "-")
    assert str(Route.of_lane("acme/evidence/-")) == "evidence/-"


@pytest.mark.parametrize("text", ["refund", "refund@", "@1", "refund@one", "refund@-1"])
def test_a_version_that_is_none_is_refused(text: str) -> None:
    """Whoever retires something must have named it."""
    with pytest.raises(InvalidInput, match="names no version"):
        parse_versioned(text)
    assert parse_versioned("refund@12") == ("refund", 12)


@pytest.mark.parametrize("version", [0, -1, True])
def test_versions_count_from_one(version: int) -> None:
    """A version is part of a lane."""
    with pytest.raises(InvalidKind, match="count from 1"):
        kind(version)


def test_the_newest_begins_and_each_judges_its_own() -> None:
    """In whichever order they are declared."""
    for declared in ([OLD, NEW], [NEW, OLD]):
        kinds = Kinds.of(declared)
        assert kinds["refund"] is kinds.named("refund") is NEW
        assert kinds.named(OLD) is OLD
        assert set(kinds.routes) == {"refund@1/psp.example", "refund@2/psp.example"}
        made = operation(OLD, OldParams(order="order-72"))
        assert kinds.serving(made) is kinds.known(made) is kinds.judging(made) is OLD


def test_a_version_that_is_not_declared_is_named() -> None:
    """It must not be taken for another one."""
    kinds = Kinds.of([NEW])
    made = operation(OLD, OldParams(order="order-72"))
    for ask in (kinds.serving, kinds.of_operation):
        with pytest.raises(UnknownKind, match="Version 1 of kind refund is not declared here"):
            ask(made)
    with pytest.raises(UnknownKind, match="Version 1"):
        kinds.named(OLD)
    assert kinds.known(made) is None


def test_late_news_is_judged_by_the_newest_for_the_same_provider() -> None:
    """A webhook about what a retired version has sent is kept all the same; it sends nothing."""
    made = operation(OLD, OldParams(order="order-72"))
    assert Kinds.of([NEW]).judging(made) is NEW
    elsewhere = Kinds.of([kind(2, NewParams, name="other.example")])
    with pytest.raises(UnknownKind, match="Version 1"):
        elsewhere.judging(made)
    with pytest.raises(UnknownKind, match="No kind 'refund'"):
        Kinds.of([]).judging(made)


def test_one_version_is_declared_once() -> None:
    """Which of the two would act?"""
    with pytest.raises(UnknownKind, match="Two kinds are called 'refund' in version 1"):
        Kinds.of([OLD, kind()])


def test_a_newer_version_knows_the_parameters_of_an_older_one() -> None:
    """Without its class, a late duplicate could not be told from another request."""

    class Forgetful(Params):
        PARAMS_VERSION: ClassVar[int] = 2
        order: str

    with pytest.raises(InvalidKind, match="does not know the parameters of version 1") as caught:
        Kinds.of([OLD, kind(2, Forgetful)])
    assert "OLD = {1: OldParams}" in caught.value.hint
    Kinds.of([OLD, replace(OLD, version=2)])  # another policy for the same parameters
