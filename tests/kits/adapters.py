"""A user's test of an adapter, and of each mistake in it that the suite is there to find."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import settled
from settled import Call, Lookup, Reply
from settled.testing import AdapterSuite
from tests.kits.shop import RefundParams, Shop


class Adapted(AdapterSuite):
    """The suite, on the shop that a subclass names."""

    SHOP: type[Shop] = Shop

    @pytest.fixture
    def provider_at(self) -> Callable[[str], settled.FunctionProvider]:
        return lambda url: self.SHOP(url).provider()

    @pytest.fixture
    def params(self) -> RefundParams:
        return RefundParams(order="order-72", amount=settled.Money("30.00", "USD"))


class TestShop(Adapted):
    """It keeps every rule."""


class Retrying(Shop):
    """Its client library tries again by itself."""

    def post(self, call: Call, body: dict[str, str], headers: dict[str, str]) -> httpx2.Response:
        for _ in range(3):
            try:
                answer = super().post(call, body, headers)
            except httpx2.RemoteProtocolError:
                continue
            if answer.status_code not in (429, 503):
                return answer
        return super().post(call, body, headers)


class TestRetrying(Adapted):
    """1: two requests for one call."""

    SHOP = Retrying


class Redirected(Shop):
    """Its client library goes where it is sent."""

    def post(self, call: Call, body: dict[str, str], headers: dict[str, str]) -> httpx2.Response:
        client = httpx2.Client(follow_redirects=True, trust_env=False)
        with client:
            return client.post(self.url, json=body, headers=headers, timeout=call.timeout_seconds)


class TestRedirected(Adapted):
    """1: two requests for one call, the second to wherever the first was sent on."""

    SHOP = Redirected


class NewKey(Shop):
    """It makes a key for each request."""

    def key(self, call: Call) -> str:
        return str(uuid.uuid4())


class TestNewKey(Adapted):
    """2: a new key on a resend."""

    SHOP = NewKey


class KeyOfProcess(Shop):
    """It remembers the key that it made, until its process ends."""

    def __init__(self, base_url: str) -> None:
        super().__init__(base_url)
        self.keys: dict[str, str] = {}

    def key(self, call: Call) -> str:
        return self.keys.setdefault(call.key, str(uuid.uuid4()))

    def query(self, lookup: Lookup) -> dict[str, Any]:
        return {"key": self.keys.get(lookup.key, "")}


class TestKeyOfProcess(Adapted):
    """2: a new key on the resend of another worker."""

    SHOP = KeyOfProcess


class Numbered(Shop):
    """It tells the provider which attempt this is."""

    def body(self, call: Call, params: RefundParams) -> dict[str, str]:
        return {**super().body(call, params), "attempt": str(call.attempt)}


class TestNumbered(Adapted):
    """3: other bytes on a resend."""

    SHOP = Numbered


class ConflictRefused(Shop):
    """It takes a 409 for a refusal."""

    def undecided(self, answer: httpx2.Response) -> Reply:
        if answer.status_code == 409:
            return Reply.refused(answer.text)
        return super().undecided(answer)


class TestConflictRefused(Adapted):
    """4: the duplicate of a success is read as a failure."""

    SHOP = ConflictRefused


class ConflictPerformed(Shop):
    """It takes a 409 for a success."""

    def undecided(self, answer: httpx2.Response) -> Reply:
        if answer.status_code == 409:
            return Reply.performed({"status": "succeeded"})
        return super().undecided(answer)


class TestConflictPerformed(Adapted):
    """4: a request that still runs is read as a success."""

    SHOP = ConflictPerformed


class Unconnected(Shop):
    """It takes every error of the transport for one of connecting."""

    def post(self, call: Call, body: dict[str, str], headers: dict[str, str]) -> httpx2.Response:
        try:
            return super().post(call, body, headers)
        except httpx2.TransportError as error:
            raise httpx2.ConnectError(str(error)) from error


class TestUnconnected(Adapted):
    """4: a lost reply is read as a request that was never sent."""

    SHOP = Unconnected


class Vague(Shop):
    """It cannot tell a refused connection from a lost reply."""

    def without_connection(self, error: httpx2.ConnectError) -> Reply:
        return Reply.unknown(str(error))


class TestVague(Adapted):
    """4: a request that was never sent is read as a lost reply."""

    SHOP = Vague


class Blind(Shop):
    """It looks where nothing is."""

    def query(self, lookup: Lookup) -> dict[str, Any]:
        return {"reference": lookup.identity.operation_id}


class TestBlind(Adapted):
    """5: the look-up does not find what was performed."""

    SHOP = Blind


class Greedy(Shop):
    """It takes any refund of the order for its own."""

    def query(self, lookup: Lookup) -> dict[str, Any]:
        return {"order": lookup.params.order}


class TestGreedy(Adapted):
    """5: the look-up finds what another operation has performed."""

    SHOP = Greedy


class Careless(Shop):
    """It takes a list that cannot be read for an empty one."""

    def find(self, lookup: Lookup) -> Reply | None:
        try:
            return super().find(lookup)
        except (httpx2.HTTPError, ValueError):
            return None


class TestCareless(Adapted):
    """5: the look-up says that nothing is there when it could not ask."""

    SHOP = Careless
