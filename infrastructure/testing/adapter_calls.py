"""Calls and look-ups as a worker makes them, for whoever asks an adapter without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from settled.domain.identity import Identity
from settled.domain.permit import SendPermit
from settled.domain.provider import Call, Finding, Lookup, Provider, SealedRequest
from settled.infrastructure.clock import elapsed_seconds

IDENTITY = Identity("acme", "refund", "refund-request-9")
KEY = "0b7e5c1e-6f0c-4d0e-9a44-1c5ad9f0a001"
OTHER_KEY = "0b7e5c1e-6f0c-4d0e-9a44-1c5ad9f0a002"
SECRET = b"the secret of a test installation"
NOW = datetime(2026, 1, 5, 14, 3, 9, tzinfo=UTC)


def call_for(
    provider: Provider,
    params: Any,
    *,
    key: str = KEY,
    attempt: int = 1,
    timeout_seconds: float = 10.0,
    permit_seconds: float = 5.0,
    request: SealedRequest | None = None,
) -> Call:
    """Return a call as the dispatcher makes it, with the request sealed now if none is given."""
    permit_until = NOW + timedelta(seconds=permit_seconds)
    return Call(
        identity=IDENTITY,
        key=key,
        attempt=attempt,
        request=request or provider.seal(IDENTITY, key, params, SECRET),
        params=params,
        timeout_seconds=timeout_seconds,
        permit=SendPermit(elapsed_seconds() + permit_seconds, permit_until),
        now=NOW,
        intended=cast(Mapping[str, Any], vars(params)),
    )


def lookup_for(call: Call, *, reference: str | None = None) -> Lookup:
    """Return the question about a call, as the reconciler asks it."""
    return Lookup(
        identity=call.identity,
        key=call.key,
        reference=reference,
        request=call.request,
        params=call.params,
        timeout_seconds=call.timeout_seconds,
        now=call.now,
        intended=call.intended,
    )


def run(provider: Provider, *steps: Callable[[], Coroutine[Any, Any, Finding]]) -> list[Finding]:
    """Run calls and look-ups one after the other in one event loop, and close the adapter."""

    async def all_of_them() -> list[Finding]:
        try:
            return [await step() for step in steps]
        finally:
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()

    return asyncio.run(all_of_them())
