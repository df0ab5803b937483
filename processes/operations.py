"""What the managers of operations share: the declared kinds, and how a request is dispatched."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from settled.domain.clock import Clock, Stamp
from settled.domain.errors import InvalidParams, SettledError, StoreError, StoreTooNew, UnknownKind
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.operation import events as ev
from settled.domain.operation.evidence import admit
from settled.domain.operation.judgement import SHUT_DOWN, conclude
from settled.domain.operation.operation import Operation
from settled.domain.operation.terms import Request
from settled.domain.params import Params, model_of_version, thaw
from settled.domain.permit import SendPermit
from settled.domain.provider import Answered, Call, Echo, Finding, Lookup, SealedRequest, Via
from settled.domain.recovery import Step, recover
from settled.processes.log import logger
from settled.processes.manager import Perform, Position, Work
from settled.processes.runner import Foreign, ShutDown

LONGEST_REFERENCE = 500
"""Characters of a provider's name for its object; longer ones are not kept."""

LARGEST_RECEIPT_BYTES = 256 * 1024
_SURELY_SMALL = (
    LARGEST_RECEIPT_BYTES // 12
)  # no character takes more bytes of JSON than a pair of \uXXXX

LATE_RETRY_SECONDS = 1.0
"""How soon a late reply is tried to be recorded again when the store is away."""

PAUSE_SECONDS = 15.0
"""How long an operation is left alone whose request cannot be made, or checked, just now."""


class NotSealed(Exception):
    """The adapter could not make the request: a credential is missing, a body function failed."""


Execute = Callable[[Operation, Callable[[Operation], None]], None]
"""Gives a command to the stream of an operation as it is now, and commits what it records."""


@dataclass(frozen=True)
class Desk:
    """What managers of operations work with."""

    kinds: Kinds
    clock: Clock
    secret: bytes
    execute: Execute

    def jitter(self, kind: Kind[Any], operation: Operation) -> timedelta:
        """Draw the next back-off delay."""
        tries = max(len(operation.attempts), operation.looked_up + operation.waits, 1)
        return kind.retry.delay(tries, self.clock.uniform())

    def dispatch(self, operation: Operation, stamp: Stamp, position: Position) -> Perform:
        """Record Dispatching and return the call that may follow once it is durable."""
        kind = self.kinds.serving(operation)
        monotonic = self.clock.monotonic()
        is_new = operation.request is None
        request, params = self._request(kind, operation)
        terms = operation.terms
        permit_seconds = _permit_seconds(operation, stamp)
        permit_until = stamp.at + timedelta(seconds=permit_seconds)
        call_deadline = permit_until + timedelta(seconds=terms.call_timeout_seconds)
        operation.record(
            ev.Dispatching,
            stamp,
            attempt=operation.next_attempt,
            key=operation.provider_key,
            worker=position.worker,
            epoch=position.epoch,
            permit_until=permit_until,
            call_deadline=call_deadline,
            adapter=request.adapter,
            scope=request.scope,
            credential_fingerprint=request.credential_fingerprint,
            request_digest=hashlib.sha256(request.body).hexdigest(),
            request=_stored(request) if is_new else None,
        )
        attempt = operation.attempts[-1].number
        call = Call(
            identity=operation.business_identity,
            key=operation.provider_key,
            attempt=attempt,
            request=request,
            params=params,
            timeout_seconds=terms.call_timeout_seconds,
            permit=SendPermit(monotonic + permit_seconds, permit_until),
            now=stamp.at,
            intended=fields_of(params),
            late=lambda finding: self._report_late(operation, finding, attempt),
        )
        bound_seconds = permit_seconds + terms.call_timeout_seconds

        async def send() -> Finding:
            async with asyncio.timeout(bound_seconds):
                return await kind.provider.send(call)

        return Perform(
            Work.CALL, kind.name, send, self._replied, partial(self._late, attempt=attempt)
        )

    def seal(self, kind: Kind[Any], operation: Operation) -> SealedRequest:
        """Return the request as today's adapter makes it. Raises NotSealed when it cannot now."""
        return self._sealed(kind, operation)[0]

    def _request(self, kind: Kind[Any], operation: Operation) -> tuple[SealedRequest, Params]:
        if operation.request is not None:
            return operation.request, self.params(kind, operation)
        return self._sealed(kind, operation)

    def _sealed(self, kind: Kind[Any], operation: Operation) -> tuple[SealedRequest, Params]:
        params = self.params(kind, operation)
        try:
            identity, key = operation.business_identity, operation.provider_key
            return kind.provider.seal(identity, key, params, self.secret), params
        except Exception as error:
            logger("settled.provider").exception(
                "not_sealed", provider=operation.terms.provider, operation=operation.operation_id
            )
            raise NotSealed(f"the request could not be made: {error!r}") from error

    def look_up(self, operation: Operation, stamp: Stamp) -> Perform:
        """Return the question about an earlier attempt."""
        kind = self.kinds.serving(operation)
        params = self.params(kind, operation)
        lookup = Lookup(
            identity=operation.business_identity,
            key=operation.provider_key,
            reference=operation.reference,
            request=operation.request,
            params=params,
            timeout_seconds=operation.terms.call_timeout_seconds,
            now=stamp.at,
            intended=fields_of(params),
        )

        async def ask() -> Finding:
            async with asyncio.timeout(operation.terms.call_timeout_seconds):
                return await kind.provider.look_up(lookup)

        return Perform(Work.LOOKUP, kind.name, ask, self._found, self._late)

    def params(self, kind: Kind[Any], operation: Operation) -> Any:
        """Return the parameters that were authorised.

        Raises UnknownKind where this code has others under that version: it is not for this code.
        """
        assert operation.terms.params is not None, "open operations keep their parameters"
        try:
            model = model_of_version(kind.params, operation.terms.params_version)
            return thaw(model, operation.terms.params.encode())
        except InvalidParams as error:
            raise UnknownKind(
                f"The parameters of {operation.label} are not those of {kind.route} as it is"
                f" declared here. {error.message}",
                hint="Raise the version of a kind with its parameters.",
            ) from error

    def _replied(self, operation: Operation, result: Any, stamp: Stamp) -> None:
        kind = self.kinds.serving(operation)
        finding = None if isinstance(result, ShutDown) else understood(result, Via.REPLY)
        step = recover(
            operation.situation(stamp.at),
            kind.provider.contract,
            finding,
            self.jitter(kind, operation),
        )
        self._alert(operation, step)
        conclude(operation, step, stamp, finding, SHUT_DOWN)

    def _found(self, operation: Operation, result: Any, stamp: Stamp) -> None:
        if isinstance(result, ShutDown):
            return
        kind = self.kinds.serving(operation)
        finding = understood(result, Via.LOOKUP)
        step = recover(
            operation.situation(stamp.at),
            kind.provider.contract,
            finding,
            self.jitter(kind, operation),
        )
        self._alert(operation, step)
        conclude(operation, step, stamp, finding)

    def _alert(self, operation: Operation, step: Step) -> None:
        """Say aloud what other operations are likely to meet too, such as a refused credential."""
        if step.alert:
            logger("settled.provider").error(
                "needs_attention",
                provider=operation.terms.provider,
                operation=operation.operation_id,
                rule=step.rule,
                reason=step.reason,
            )

    def _report_late(self, operation: Operation, finding: Finding, attempt: int) -> None:
        """Take what a call says that was given up. It came by itself, so it is evidence."""

        def late(newer: Operation) -> None:
            self._late(newer, finding, Stamp(self.clock.now(), "late-reply"), attempt)

        def report() -> None:
            while True:
                try:
                    self.execute(operation, late)
                except StoreTooNew as error:
                    logger("settled.provider").error(
                        "late_reply_lost", operation=operation.operation_id, error=str(error)
                    )
                    return  # newer code works on it, and asks the provider itself
                except StoreError as error:
                    logger("settled.provider").warning(
                        "late_reply_waits", operation=operation.operation_id, error=str(error)
                    )
                    time.sleep(LATE_RETRY_SECONDS)
                else:
                    return

        # On a thread of its own: it waits for a commit, and may come after the loop has ended.
        threading.Thread(target=report, name="settled-late-reply", daemon=True).start()

    def _late(
        self, operation: Operation, result: Any, stamp: Stamp, attempt: int | None = None
    ) -> None:
        if isinstance(result, ShutDown):
            return
        kind = self.kinds.serving(operation)
        finding = understood(result, Via.REPLY)
        jitter = self.jitter(kind, operation)
        admit(operation, kind.provider.contract, finding, stamp, jitter, attempt)


def _permit_seconds(operation: Operation, stamp: Stamp) -> float:
    """Return for how long a first byte may be written: not beyond the approval's end.

    A request of which an earlier one may be out is sent to learn of that one; it needs none.
    """
    permit_seconds, until = operation.terms.permit_seconds, operation.approved_until
    if until is None or operation.out or operation.adopted:
        return permit_seconds
    return min(permit_seconds, max((until - stamp.at).total_seconds(), 0.0))


def fields_of(params: Params) -> Mapping[str, Any]:
    """Return the fields that an echo is compared with."""
    return {name: getattr(params, name) for name in type(params).model_fields}


def understood(result: Any, via: Via) -> Finding:
    """Return the finding that a call ended with; whatever else it ended with is a lost reply."""
    if isinstance(result, Foreign):
        return _foreign(understood(result.result, via))
    if isinstance(result, Finding):
        return _bounded(result)
    reason = str(result) or type(result).__name__
    if isinstance(result, TimeoutError):
        reason = "no answer in time"
    return Finding(
        Answered.LOST,
        via,
        reason if not isinstance(result, SettledError) else result.message,
        evidence={"exception": type(result).__name__, "message": reason[:500]},
    )


def _bounded(finding: Finding) -> Finding:
    """Return a finding that can be stored: a provider may answer with anything.

    A name that cannot be kept is left out, and so is an object that is too large; what they say
    about the outcome stays.
    """
    name = finding.reference
    if name is not None and (len(name) > LONGEST_REFERENCE or not name.isprintable()):
        finding = replace(
            finding, reference=None, evidence={**finding.evidence, "name": "unusable"}
        )
    if finding.receipt is not None and len(str(finding.receipt)) > _SURELY_SMALL:
        size = len(json.dumps(dict(finding.receipt), default=str))
        if size > LARGEST_RECEIPT_BYTES:
            note = f"an object of {size} bytes was left out"
            finding = replace(finding, receipt=None, evidence={**finding.evidence, "receipt": note})
    return finding


def _foreign(finding: Finding) -> Finding:
    """Return a finding about an object that is another operation's: it must not settle this one."""
    named = finding.reference or "the provider's object"
    return replace(
        finding,
        echo=Echo.DIFFERS,
        differs_in=f"{named}, which belongs to another operation",
        reference=None,
        receipt=None,
        evidence={**finding.evidence, "reference": finding.reference},
    )


def _stored(request: SealedRequest) -> Request:
    return Request(
        method=request.method,
        url=request.url,
        headers=request.headers,
        body=request.body.decode("latin-1"),
    )
