"""An adapter as a user writes it, over an ordinary HTTP client: what the kits are tried on.

It is copied with `adapters.py` to where there is nothing but the installed wheel.
"""

from __future__ import annotations

from typing import Any

import httpx2

import settled
from settled import Call, Lookup, Reply
from settled.testing import simulator_contract


class RefundParams(settled.Params):
    """A refund of part of an order."""

    order: str
    amount: settled.Money


class Shop:
    """Requests refunds. Each step is a method, so that each can be got wrong by itself."""

    def __init__(self, base_url: str) -> None:
        self.url = f"{base_url}/v1/refunds"

    def key(self, call: Call) -> str:
        """Return what the provider recognises the request by."""
        return call.key

    def body(self, call: Call, params: RefundParams) -> dict[str, str]:
        """Return what is sent, as JSON."""
        amount = params.amount
        return {"order": params.order, "amount": str(amount.amount), "currency": amount.currency}

    def post(self, call: Call, body: dict[str, str], headers: dict[str, str]) -> httpx2.Response:
        """Send it once."""
        seconds = call.timeout_seconds
        return httpx2.post(self.url, json=body, headers=headers, timeout=seconds, trust_env=False)

    def refund(self, call: Call, params: RefundParams) -> Reply:
        """Ask for a refund; what goes wrong after the connection is raised, and so unknown."""
        headers = {"Idempotency-Key": self.key(call)}
        try:
            answer = self.post(call, self.body(call, params), headers)
        except httpx2.ConnectError as error:
            return self.without_connection(error)
        if answer.status_code in (409, 429) or not 200 <= answer.status_code < 500:
            return self.undecided(answer)
        if answer.status_code >= 300:
            return Reply.refused(answer.text)
        refund = answer.json()
        return Reply.performed(refund, reference=refund["id"])

    def without_connection(self, error: httpx2.ConnectError) -> Reply:
        """Say what it means that nobody has taken the connection."""
        return Reply.not_sent(str(error))

    def undecided(self, answer: httpx2.Response) -> Reply:
        """Say what it means that the answer is neither a refund nor a refusal."""
        return Reply.unknown(f"{answer.status_code}: {answer.text}")

    def find(self, lookup: Lookup) -> Reply | None:
        """Look for the refund that an earlier request may have made."""
        answer = httpx2.get(self.url, params=self.query(lookup), trust_env=False)
        for refund in answer.raise_for_status().json()["data"]:
            return Reply.performed(refund, reference=refund["id"])
        return None

    def query(self, lookup: Lookup) -> dict[str, Any]:
        """Return what the provider's list is searched for."""
        return {"key": lookup.key}

    def provider(self) -> settled.FunctionProvider:
        """Return the adapter."""
        return settled.FunctionProvider("shop", simulator_contract(), self.refund, lookup=self.find)
