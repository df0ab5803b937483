"""From an answer on the wire to what it means under a contract.

One function reads replies, look-ups and webhooks alike. It asks, in this order: can the body of a
2xx be read at all; does one of the contract's rules fit; what does HTTP say in general. In general
means as little as can be defended: a 409 is a duplicate of unknown outcome, a status of the object
that the contract does not know is pending, and nothing becomes a success by its number alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from settled.domain.contract.document import MISSING, Unreadable, at, parse, text_at
from settled.domain.contract.echo import compare
from settled.domain.contract.parts import LookupPromise, Rule
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import Outcome
from settled.domain.errors import InvalidContract
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.retry import retry_after

RETRY_AFTER_CAP = timedelta(days=1)
"""The longest that a provider's Retry-After is believed; deadlines are shorter, as a rule."""

EVIDENCE_CHARACTERS = 2000
"""How much of a body is kept as evidence. A receipt is kept whole."""

_MEANINGS: Mapping[Outcome, Answered] = {
    Outcome.PENDING: Answered.PENDING,
    Outcome.SUCCEEDED: Answered.PERFORMED,
    Outcome.FAILED: Answered.FAILED,
    Outcome.REVERSED: Answered.REVERSED,
}

_WITH_OBJECT = frozenset(_MEANINGS.values())
"""The answers that tell about the provider's object, and so can be compared with the intent."""

_NO_CONTENT = frozenset({204, 205})
_MAY_BE_EMPTY = _NO_CONTENT | {202}
_WHOLE_ANSWER = frozenset({200, 201, 203}) | _MAY_BE_EMPTY

_BY_STATUS: Mapping[int, tuple[Answered, str]] = {
    401: (Answered.UNAUTHORISED, "the credential was refused"),
    403: (Answered.UNAUTHORISED, "the credential may not do that"),
    404: (Answered.NO_TARGET, "there is no such object"),
    407: (Answered.UNAUTHORISED, "a proxy refused the credential"),
    408: (Answered.LOST, "the provider gave up waiting for the request"),
    409: (Answered.DUPLICATE, "a conflict, of which the contract says no more"),
    410: (Answered.NO_TARGET, "the object is gone"),
    412: (Answered.PRECONDITION, "a precondition does not hold"),
    425: (Answered.UNAVAILABLE, "too early"),
    429: (Answered.RATE_LIMITED, "too many requests"),
    502: (Answered.UNAVAILABLE, "a gateway got no usable answer"),
    503: (Answered.UNAVAILABLE, "it cannot serve now"),
    504: (Answered.UNAVAILABLE, "a gateway got no answer in time"),
}
"""What HTTP says in general (RFC 9110, sections 15.5 and 15.6), where it says one thing."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, with its body read as far as it can be; `document` is MISSING otherwise."""

    status: int
    headers: Mapping[str, str]
    document: Any
    unreadable: str
    via: Via

    def fits(self, rule: Rule) -> bool:
        """Tell whether all that a rule names is so."""
        return (
            (rule.via is None or rule.via is self.via)
            and (rule.status is None or rule.status == self.status)
            and all(self.headers.get(n.lower()) == v for n, v in rule.header.items())
            and all(_equal(at(self.document, path), v) for path, v in rule.body.items())
            and (not rule.reference or text_at(self.document, rule.reference) is not None)
        )


def read_answer(
    contract: ProviderContract,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    intended: Mapping[str, Any],
    via: Via,
    now: datetime,
    lookup: LookupPromise | None = None,
    wanted: str | None = None,
) -> Finding:
    """Return what an answer means under the contract. Never raises for what a provider sent.

    `status` is the HTTP status (200 for a webhook), `body` the whole body, `intended` what an echo
    is compared with, `now` aware and in UTC. Of a look-up that answers with a list, `lookup` says
    how it is searched and `wanted` is our key or reference. Raises `InvalidContract` for a list
    that is to be searched for nothing.
    """
    if lookup is not None and lookup.items and not wanted:
        raise InvalidContract(
            f"The look-up by {lookup.by} searches a list, for nothing.",
            hint="Pass `wanted`: the key or reference that the request carried.",
        )
    names = {name.lower(): value.strip() for name, value in headers.items()}
    answer = _read_body(status, names, body, via)
    answered, reason, reference, document = _understand(contract, answer, lookup, wanted)
    echo, differs_in = Echo.NONE, ""
    if document is _SEVERAL:
        echo, differs_in, document = Echo.DIFFERS, "the number of objects", MISSING
    elif answered in _WITH_OBJECT and document is not MISSING:
        echo, differs_in = compare(contract.echo, document, intended)
        reference = reference or text_at(document, contract.reference)
    marker = contract.replay_marker
    return Finding(
        answered=answered,
        via=via,
        reason=f"{status}: {reason}" if via is not Via.WEBHOOK else reason,
        reference=reference,
        receipt=_receipt(document) if answered in _WITH_OBJECT else None,
        echo=echo,
        differs_in=differs_in,
        replayed=marker is not None and names.get(marker.header.lower()) == marker.value,
        retry_after=retry_after(names, now, RETRY_AFTER_CAP),
        evidence={
            "status": status,
            "body": body[: 4 * EVIDENCE_CHARACTERS].decode(errors="replace")[:EVIDENCE_CHARACTERS],
        },
    )


_Understood = tuple[Answered, str, str | None, Any]
"""What it means, why, the provider's name for its object, and the object."""

_SEVERAL = object()
"""In place of the object: a look-up found more than one, for one operation."""


def _understand(
    contract: ProviderContract, answer: _Answer, lookup: LookupPromise | None, wanted: str | None
) -> _Understood:
    good = 200 <= answer.status < 300
    silent = answer.status in _MAY_BE_EMPTY or contract.outcomes.acceptance_only
    if good and (answer.unreadable or (answer.document is MISSING and not silent)):
        # A 2xx status line is only a hint: a reply that was cut after it looks just like this.
        return Answered.LOST, answer.unreadable or "the body is empty", None, MISSING
    for rule in contract.rules:
        if answer.fits(rule):
            reason = rule.reason or f"the contract reads it as {rule.answered}"
            reference = text_at(answer.document, rule.reference)
            return rule.answered, reason, reference, answer.document
    if not good:
        answered, reason = _in_general(answer)
        return answered, reason, None, answer.document
    if answer.status not in _WHOLE_ANSWER:
        return Answered.LOST, "only part of an answer", None, MISSING
    if answer.via is Via.LOOKUP and lookup is not None and lookup.items:
        return _search(contract, answer, lookup, wanted)
    document = answer.document
    if answer.via is Via.WEBHOOK:
        document = at(document, contract.outcomes.webhook_object)
        if document is MISSING:
            return Answered.LOST, "the webhook does not hold the object", None, MISSING
    answered, reason = _outcome(contract, answer.status, document)
    return answered, reason, None, document


def _search(
    contract: ProviderContract, answer: _Answer, lookup: LookupPromise, wanted: str | None
) -> _Understood:
    """Find our object in a list."""
    found = at(answer.document, lookup.items)
    if not isinstance(found, list):
        return Answered.LOST, f"there is no list at {lookup.items}", None, MISSING
    items = cast(Sequence[Any], found)
    ours = [item for item in items if text_at(item, lookup.match) == wanted]
    if len(ours) > 1:
        return Answered.PERFORMED, f"{len(ours)} objects carry our reference", None, _SEVERAL
    if ours:
        answered, reason = _outcome(contract, answer.status, ours[0])
        return answered, reason, None, ours[0]
    if lookup.more and at(answer.document, lookup.more) not in (MISSING, None, False, "", 0):
        return Answered.LOST, "not on this page, and more pages follow", None, MISSING
    return Answered.ABSENT, "not in the list", None, MISSING


def _outcome(contract: ProviderContract, status: int, document: Any) -> tuple[Answered, str]:
    """Read a 2xx with its object."""
    outcomes = contract.outcomes
    if outcomes.acceptance_only:
        return Answered.PERFORMED, "accepted, which is all that this provider reports"
    if outcomes.meanings:
        named = text_at(document, outcomes.status_path)
        meaning = outcomes.meanings.get(named) if named is not None else None
        if meaning is None:
            return Answered.PENDING, f"its status is {named!r}, which the contract does not know"
        return _MEANINGS[meaning], f"its status is {named}"
    if status == 202:
        return Answered.PENDING, "accepted for later"
    return Answered.PERFORMED, "performed"


def _in_general(answer: _Answer) -> tuple[Answered, str]:
    """Read what is not a 2xx and no rule knows."""
    status, lookup = answer.status, answer.via is Via.LOOKUP
    if answer.unreadable and 400 <= status < 500 and status != 429:
        # It may come from something in between, and that could have let the request through.
        return Answered.LOST, answer.unreadable
    if lookup and status == 404:
        return Answered.ABSENT, "not found"
    if lookup and status == 410:
        return Answered.LOST, "gone, so it did exist"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 400 <= status < 500:
        return Answered.REJECTED, "the request was refused"
    if 500 <= status < 600:
        return Answered.SERVER_ERROR, "the server failed"
    return Answered.LOST, "neither a result nor a refusal"


def _read_body(status: int, headers: Mapping[str, str], body: bytes, via: Via) -> _Answer:
    if not body and (status in _NO_CONTENT or headers.get("content-length") == "0"):
        return _Answer(status, headers, MISSING, "", via)  # Empty because it says so: not cut.
    try:
        return _Answer(status, headers, parse(body), "", via)
    except Unreadable as error:
        reason = str(error) if body else "the body is empty"
        return _Answer(status, headers, MISSING, reason, via)


def _equal(value: Any, declared: str | int | bool) -> bool:
    """Compare without Python's belief that True is 1."""
    return type(value) is type(declared) and bool(value == declared)


def _receipt(document: Any) -> Mapping[str, Any] | None:
    return cast(Mapping[str, Any], document) if isinstance(document, Mapping) else None
