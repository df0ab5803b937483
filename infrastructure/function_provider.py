"""`FunctionProvider`: an effect that is a function of the user's, blocking or asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from settled.domain.contract import ProviderContract
from settled.domain.contract.echo import compare
from settled.domain.errors import InvalidKind
from settled.domain.identity import Identity
from settled.domain.params import freeze
from settled.domain.provider import Answered, Call, Finding, Lookup, SealedRequest, Via
from settled.domain.reply import Reply, Said
from settled.infrastructure.clock import elapsed_seconds
from settled.processes.log import logger

Function = Callable[[Call, Any], "Reply | Awaitable[Reply]"]
"""Performs the effect once and says what became of it."""

LookupFunction = Callable[[Lookup], "Reply | None | Awaitable[Reply | None]"]
"""Looks for an earlier attempt, without any effect. None: there is nothing."""

NO_BOUND: Final = datetime.max.replace(tzinfo=UTC)
"""The end of a call that was given up and still runs: nobody knows it."""

_ADAPTER = "function/1"
_ANSWERS: Mapping[Said, Answered] = {
    Said.PERFORMED: Answered.PERFORMED,
    Said.ACCEPTED: Answered.PENDING,
    Said.REFUSED: Answered.REJECTED,
    Said.NOT_SENT: Answered.NOT_SENT,
    Said.UNKNOWN: Answered.LOST,
}


class FunctionProvider:
    """A provider that is a function: `def send_email(call, params) -> Reply`.

    Whatever the function raises is an unknown outcome: it may have had its effect before. A
    blocking function runs on a thread of its own. When it does not end in time it is given up, but
    not ended, as nothing can end a thread: it keeps its slot of `slots`, the finding says that its
    effect may still come, and what it says in the end goes to the call's `late`.
    """

    def __init__(
        self,
        name: str,
        contract: ProviderContract,
        function: Function,
        *,
        lookup: LookupFunction | None = None,
        slots: int = 32,
    ) -> None:
        if slots < 1:
            raise InvalidKind(f"{name}: {slots} slots let nothing run.", hint="Give 1 or more.")
        self._name = name
        self._contract = contract
        self._function = function
        self._lookup = lookup
        self._slots = slots
        self._free = threading.BoundedSemaphore(slots)

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._name

    @property
    def contract(self) -> ProviderContract:
        """What is promised about the function's effect."""
        return self._contract

    def seal(self, identity: Identity, key: str, params: Any, secret: bytes) -> SealedRequest:
        """Freeze what the function gets: its key and its parameters."""
        return SealedRequest(
            method="CALL",
            url=f"function:{self._name}",
            headers=(("key", key),),
            body=freeze(params),
            adapter=_ADAPTER,
        )

    async def send(self, call: Call) -> Finding:
        """Call the function once, if the permit is not over and a slot is free."""
        if inspect.iscoroutinefunction(self._function):
            return await self._send_async(call)
        if not self._free.acquire(blocking=False):
            reason = f"all {self._slots} slots of {self._name} are taken by calls that still run"
            return Finding(Answered.NOT_SENT, Via.REPLY, reason)
        return await self._send_on_thread(call)

    async def look_up(self, lookup: Lookup) -> Finding:
        """Ask the look-up function; what it raises, or is too slow to say, is no evidence."""
        if self._lookup is None:
            return Finding(Answered.LOST, Via.LOOKUP, f"{self._name} has no look-up")
        try:
            async with asyncio.timeout(lookup.timeout_seconds):
                reply = await asyncio.to_thread(self._lookup, lookup)
                if inspect.isawaitable(reply):
                    reply = await reply
        except Exception as error:
            return _raised(error, Via.LOOKUP)
        if reply is None:
            return Finding(Answered.ABSENT, Via.LOOKUP, "the look-up found nothing")
        return self._understood(reply, lookup.intended, Via.LOOKUP)

    async def _send_async(self, call: Call) -> Finding:
        refusal = call.permit.check(elapsed_seconds())
        if refusal is not None:
            return Finding(Answered.NOT_SENT, Via.REPLY, refusal)
        try:
            async with asyncio.timeout(call.timeout_seconds):
                reply = self._function(call, call.params)
                said = await reply if inspect.isawaitable(reply) else reply
        except Exception as error:
            return _raised(error, Via.REPLY)
        return self._understood(said, call.intended, Via.REPLY)

    async def _send_on_thread(self, call: Call) -> Finding:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Finding] = loop.create_future()

        def give(finding: Finding) -> None:
            if answer.done():
                _tell_late(call, finding)
            else:
                answer.set_result(finding)

        def run() -> None:
            try:
                finding = self._called(call)
            finally:
                self._free.release()
            try:
                loop.call_soon_threadsafe(give, finding)
            except RuntimeError:  # The loop is closed: the worker has stopped without this.
                _tell_late(call, finding)

        # A daemon, because a call that hangs must not keep the process from ending.
        threading.Thread(target=run, name=f"settled-{self._name}", daemon=True).start()
        try:
            async with asyncio.timeout(call.timeout_seconds):
                return await answer
        except TimeoutError:
            return Finding(
                Answered.LOST,
                Via.REPLY,
                f"the function has not ended within {call.timeout_seconds:g} s and still runs",
                may_arrive_until=NO_BOUND,
            )

    def _called(self, call: Call) -> Finding:
        refusal = call.permit.check(elapsed_seconds())
        if refusal is not None:
            return Finding(Answered.NOT_SENT, Via.REPLY, refusal)
        try:
            reply = self._function(call, call.params)
        except BaseException as error:
            # On this thread nobody else would hear of it, be it SystemExit.
            return _raised(error, Via.REPLY)
        return self._understood(reply, call.intended, Via.REPLY)

    def _understood(self, reply: object, intended: Mapping[str, Any], via: Via) -> Finding:
        if not isinstance(reply, Reply):
            reason = f"the function returned a {type(reply).__name__}, not a Reply"
            return Finding(Answered.LOST, via, reason)
        answered = _ANSWERS[reply.said]
        if reply.said is Said.ACCEPTED and self._contract.outcomes.acceptance_only:
            answered = Answered.PERFORMED
        if reply.said not in (Said.PERFORMED, Said.ACCEPTED):
            return Finding(answered, via, reply.reason, reference=reply.reference)
        try:
            receipt: dict[str, Any] = orjson.loads(orjson.dumps(dict(reply.receipt)))
        except orjson.JSONEncodeError as error:
            reason = f"{reply.reason}, but its receipt cannot be stored: {error}"
            return Finding(Answered.LOST, via, reason, reference=reply.reference)
        echo, differs_in = compare(self._contract.echo, receipt, intended)
        return Finding(
            answered,
            via,
            reply.reason,
            reference=reply.reference,
            receipt=receipt,
            echo=echo,
            differs_in=differs_in,
            evidence={"said": reply.said.value},
        )


def _raised(error: BaseException, via: Via) -> Finding:
    described = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Finding(Answered.LOST, via, described, evidence={"error": type(error).__name__})


def _tell_late(call: Call, finding: Finding) -> None:
    if call.late is not None:
        call.late(finding)
        return
    logger("settled.function").warning(
        "late_reply",
        operation=str(call.identity),
        attempt=call.attempt,
        answered=finding.answered.value,
        reference=finding.reference,
        reason=finding.reason,
    )
