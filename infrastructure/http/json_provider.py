"""`HttpProvider`: an effect that is one HTTP request, answered in JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

from settled.domain.contract import (
    Dedup,
    KeyCarrier,
    LookupBy,
    LookupPromise,
    ProviderContract,
)
from settled.domain.contract.rules import read_answer
from settled.domain.errors import InvalidContract
from settled.domain.identity import Identity
from settled.domain.provider import Answered, Call, Finding, Lookup, SealedRequest, Via
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.http.body import Body, Encoding, flat_body, sealed_body
from settled.infrastructure.http.checks import (
    check_lookup,
    checked_headers,
    checked_key,
    checked_url,
    is_header_value,
)
from settled.infrastructure.http.keys import fitted, written
from settled.infrastructure.http.transport import HttpReply, NoReply, SingleAttempt

Credential = Callable[[], Mapping[str, str]]
"""Returns the headers that authorise a request. Asked each time, so a secret may be rotated."""

_ADAPTER = "http/1"
_KEPT_HEADERS = (
    "content-type",
    "date",
    "idempotent-replayed",
    "location",
    "request-id",
    "retry-after",
    "x-request-id",
)
"""What is kept of an answer's headers as evidence: what a provider's support asks for."""


class HttpProvider:
    """A provider whose effect is one request, and whose answers are JSON.

    - `url` is where the request goes. It may name fields of the parameters and `{key}`:
      `https://psp.example/v1/payments/{payment}/refunds`.
    - `contract` is what the provider promises. `provider.contract` is the same without the
      look-ups that `lookups` does not say how to make.
    - `body` makes what is sent from the parameters, by default `flat_body`; `encoding` is how it
      is written, as JSON or as a form.
    - `headers` are sent and stored with each request; `credential` returns those that authorise
      it, which are never stored.
    - `lookups` says where to look for an earlier attempt: `{LookupBy.KEY: "{url}?key={key}"}`.
      Placeholders are `url`, `key`, `our_reference` and the fields of the parameters. An object
      whose name we chose (`LookupBy.NATURAL_ID`) needs no mention: it is at `{url}`, or at
      `{url}/{key}` where the name is sent in the body.
    - `object_url` is where the provider's object is read once its `{reference}` is known:
      `{url}/{reference}`, or `{url}` where that ends in the name that we chose.
    - `reference_field` is a path in the body (`metadata.settled_key`) into which our own reference
      is written: what look-ups by anything else than the key search for.
    - `scope` is what else a key is only valid within: `{"api_version": "2026-01", "account": …}`.
    - `tls` is for a private certificate authority or a client certificate.

    Raises `InvalidContract` for what cannot be used together.
    """

    def __init__(
        self,
        url: str,
        *,
        contract: ProviderContract,
        name: str | None = None,
        method: str = "POST",
        body: Body = flat_body,
        encoding: Encoding = "json",
        headers: Mapping[str, str] | None = None,
        credential: Credential | None = None,
        lookups: Mapping[LookupBy, str] | None = None,
        object_url: str | None = None,
        reference_field: str = "",
        scope: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = checked_url(url)
        self._name = name or contract.provider
        self._method = method
        self._body = body
        self._encoding: Encoding = encoding
        self._headers = checked_headers(headers or {}, encoding)
        self._credential = credential
        self._key = checked_key(contract, url)
        # A name in the body is that of an object in a collection; else the URL ends in the name.
        in_body = self._key is not None and self._key.carrier is KeyCarrier.BODY
        at_url = contract.dedup is Dedup.NATURAL_KEY and not in_body
        self._object_url = object_url or ("{url}" if at_url else "{url}/{reference}")
        by_name = "{url}" if at_url else "{url}/{key}"
        self._lookups = {LookupBy.NATURAL_ID: by_name, **(lookups or {})}
        self._reference_field = reference_field
        self._scope = (("url", url), *sorted((scope or {}).items()))
        self._transport = SingleAttempt(tls)
        usable = tuple(p for p in contract.lookups if p.usable and p.by in self._lookups)
        for promise in usable:
            check_lookup(promise, self._key, reference_field)
        self._contract = replace(contract, lookups=usable)

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._name

    @property
    def contract(self) -> ProviderContract:
        """What the provider promises, as far as this adapter can make use of it."""
        return self._contract

    def seal(self, identity: Identity, key: str, params: Any, secret: bytes) -> SealedRequest:
        """Freeze the request, with the key where the contract puts it."""
        headers = dict(self._headers)
        into_body: dict[str, str] = {}
        if self._key is not None:
            wire_key = fitted(key, self._key)
            if self._key.carrier is KeyCarrier.HEADER:
                headers[self._key.name.lower()] = written(wire_key, self._key)
            elif self._key.carrier is KeyCarrier.BODY:
                into_body[self._key.name] = wire_key
        if self._reference_field:
            into_body[self._reference_field] = key
        return SealedRequest(
            method=self._method,
            url=self._rendered_url(key, params),
            headers=tuple(sorted(headers.items())),
            body=sealed_body(self._body(params), into_body, self._encoding),
            adapter=_ADAPTER,
            scope=self._scope,
            credential_fingerprint=self._fingerprint(secret),
        )

    async def send(self, call: Call) -> Finding:
        """Try once, with exactly the bytes that were sealed."""
        request = call.request
        credential = await self._authorisation()
        if isinstance(credential, NoReply):
            return _without_reply(credential, Via.REPLY)
        came = await self._transport.send(
            request.method,
            request.url,
            (*request.headers, *credential),
            request.body,
            timeout_seconds=call.timeout_seconds,
            forbidden=lambda: call.permit.check(elapsed_seconds()),
        )
        if isinstance(came, NoReply):
            return _without_reply(came, Via.REPLY)
        finding = read_answer(
            self._contract,
            status=came.status,
            headers=came.headers,
            body=came.body,
            intended=call.intended,
            via=Via.REPLY,
            now=call.now,
        )
        return _with_headers(finding, came)

    async def look_up(self, lookup: Lookup) -> Finding:
        """Read the object if its name is known, else search for it; either way with a GET."""
        promise: LookupPromise | None = None
        if lookup.reference is not None:
            template = self._object_url
        elif self._contract.lookups:
            promise = self._contract.lookups[0]
            template = self._lookups[promise.by]
        else:
            reason = f"{self._name} has no look-up, and the object's name is not known"
            return Finding(Answered.LOST, Via.LOOKUP, reason)
        credential = await self._authorisation()
        if isinstance(credential, NoReply):
            return _without_reply(credential, Via.LOOKUP)
        headers = {n: v for n, v in self._headers.items() if n != "content-type"}
        came = await self._transport.send(
            "GET",
            self._rendered_lookup(template, lookup),
            (*headers.items(), *credential),
            b"",
            timeout_seconds=lookup.timeout_seconds,
        )
        if isinstance(came, NoReply):
            return _without_reply(came, Via.LOOKUP)
        by_key = promise is not None and promise.by is LookupBy.KEY
        finding = read_answer(
            self._contract,
            status=came.status,
            headers=came.headers,
            body=came.body,
            intended=lookup.intended,
            via=Via.LOOKUP,
            now=lookup.now,
            lookup=promise,
            wanted=self._wire_key(lookup.key) if by_key else lookup.key,
        )
        return _with_headers(finding, came)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._transport.aclose()

    def _wire_key(self, key: str) -> str:
        return key if self._key is None else fitted(key, self._key)

    def _rendered_url(self, key: str, params: Any) -> str:
        return _render(self._url, {**_values(params), "key": self._wire_key(key)})

    def _rendered_lookup(self, template: str, lookup: Lookup) -> str:
        sent_to = lookup.request.url if lookup.request else None
        url = sent_to or self._rendered_url(lookup.key, lookup.params)
        values = {
            **_values(lookup.params),
            "key": self._wire_key(lookup.key),
            "our_reference": lookup.key,
            "reference": lookup.reference or "",
        }
        return _render(template, values, url=url)

    def _fingerprint(self, secret: bytes) -> str:
        if self._credential is None:
            return ""
        said = json.dumps(sorted(self._credential().items())).encode()
        return hmac.digest(secret, b"settled/credential/" + said, hashlib.sha256).hex()

    async def _authorisation(self) -> tuple[tuple[str, str], ...] | NoReply:
        if self._credential is None:
            return ()
        try:
            # On a thread: it may ask a vault.
            credential = tuple((await asyncio.to_thread(self._credential)).items())
        except Exception as error:
            # Its message may quote the secret, so only the class is kept.
            return NoReply(False, "the credential could not be read", type(error).__name__)
        if not all(is_header_value(value) for _, value in credential):
            return NoReply(False, "the credential cannot be the value of a header")
        return credential


def _without_reply(came: NoReply, via: Via) -> Finding:
    evidence: dict[str, Any] = {"phase": "begun" if came.begun else "not begun"}
    if came.error:
        evidence["error"] = came.error
    if came.status is not None:
        evidence["status"] = came.status
    # Of a look-up it does not matter whether it left: it has told nothing either way.
    unsent = not came.begun and via is Via.REPLY
    answered = Answered.NOT_SENT if unsent else Answered.LOST
    return Finding(answered, via, came.reason, evidence=evidence)


def _with_headers(finding: Finding, came: HttpReply) -> Finding:
    kept = {name: came.headers[name] for name in _KEPT_HEADERS if name in came.headers}
    return replace(finding, evidence={**finding.evidence, "headers": kept})


def _values(params: Any) -> dict[str, str]:
    """Return the fields of the parameters that have a form as part of a URL."""
    fields = cast(Mapping[str, object], vars(params))
    plain = {n: v for n, v in fields.items() if isinstance(v, str | int | UUID | date)}
    return {n: str(v) for n, v in plain.items() if not isinstance(v, bool)}


def _render(template: str, values: Mapping[str, str], url: str = "") -> str:
    """Fill in a template. Values are quoted so that none can reach beyond its place."""
    quoted = {name: quote(value, safe="") for name, value in values.items()}
    try:
        return template.format_map({**quoted, "url": url})
    except KeyError as error:
        raise InvalidContract(
            f"{template} names {error}, which is no text or number in the parameters.",
            hint="Use key, our_reference or a field of the parameters.",
        ) from error
