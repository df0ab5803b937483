"""A function as a provider: whatever it says, raises or fails to say becomes a true finding."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Queue
from typing import Any

import pytest
import structlog

from settled.domain.contract import Outcomes, ProviderContract
from settled.domain.errors import InvalidKind
from settled.domain.params import Params
from settled.domain.permit import SendPermit
from settled.domain.provider import Answered, Call, Echo, Finding, Lookup, Via
from settled.domain.reply import Reply
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.function_provider import NO_BOUND, Function, FunctionProvider
from settled.infrastructure.simulator.contract import simulator_contract
from settled.infrastructure.testing.adapter_calls import NOW, call_for, lookup_for, run

CONTRACT = ProviderContract(provider="mail", operation="send")


class EmailParams(Params):
    """What an e-mail needs."""

    to: str


PARAMS = EmailParams(to="customer@shop.example")


def send(function: Function, contract: ProviderContract = CONTRACT, **given: Any) -> Finding:
    provider = FunctionProvider("mail", contract, function)
    call = call_for(provider, PARAMS, **given)
    (finding,) = run(provider, lambda: provider.send(call))
    return finding


def blocking(reply: object) -> Function:
    return lambda call, params: reply  # type: ignore[return-value]


def asynchronous(reply: object) -> Function:
    async def function(call: Call, params: Any) -> Reply:
        return reply  # type: ignore[return-value]

    return function


@pytest.mark.parametrize("made", [blocking, asynchronous])
@pytest.mark.parametrize(
    ("reply", "answered"),
    [
        (Reply.performed({"id": "m1"}, "m1"), Answered.PERFORMED),
        (Reply.accepted("m1"), Answered.PENDING),
        (Reply.refused("no such mailbox"), Answered.REJECTED),
        (Reply.not_sent("connection refused"), Answered.NOT_SENT),
        (Reply.unknown("timeout after DATA"), Answered.LOST),
        (None, Answered.LOST),
        ({"id": "m1"}, Answered.LOST),
    ],
)
def test_what_a_function_says_is_what_is_found(
    made: Callable[[object], Function], reply: object, answered: Answered
) -> None:
    """Each of the five words, and everything that is none of them."""
    finding = send(made(reply))
    assert (finding.answered, finding.via) == (answered, Via.REPLY)
    if isinstance(reply, Reply):
        assert finding.reference == reply.reference


def test_where_acceptance_is_all_there_is_it_is_the_outcome() -> None:
    """Of an e-mail nothing more will ever be reported."""
    contract = replace(CONTRACT, outcomes=Outcomes(acceptance_only=True))
    assert send(blocking(Reply.accepted("250 queued")), contract).answered is Answered.PERFORMED


def test_the_function_gets_the_call_and_the_parameters() -> None:
    """The key is what the function has to pass on."""
    got: list[object] = []

    def function(call: Call, params: EmailParams) -> Reply:
        got.extend([call.key, params, threading.current_thread() is threading.main_thread()])
        return Reply.performed({})

    provider = FunctionProvider("mail", CONTRACT, function)
    call = call_for(provider, PARAMS)
    run(provider, lambda: provider.send(call))
    assert got == [call.key, PARAMS, False]


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody"), SystemExit(3)])
def test_an_exception_of_a_blocking_function_is_an_unknown_outcome(error: BaseException) -> None:
    """It may have been raised after the effect, whatever its class suggests."""

    def function(call: Call, params: Any) -> Reply:
        raise error

    finding = send(function)
    assert finding.answered is Answered.LOST
    assert finding.evidence == {"error": type(error).__name__}
    assert finding.may_arrive_until is None, "it has ended"


def test_an_exception_of_an_asynchronous_function_is_an_unknown_outcome() -> None:
    """As with a blocking one."""

    async def function(call: Call, params: Any) -> Reply:
        raise ValueError("the reply was malformed")

    assert send(function).answered is Answered.LOST


@pytest.mark.parametrize("asynchronously", [True, False])
def test_the_function_is_not_called_when_the_permit_is_over(asynchronously: bool) -> None:
    """A worker that thaws late does not begin."""
    called: list[object] = []

    def function(call: Call, params: Any) -> Reply:
        called.append(call)
        return Reply.performed({})

    async def asynchronous_function(call: Call, params: Any) -> Reply:
        return function(call, params)

    provider = FunctionProvider(
        "mail", CONTRACT, asynchronous_function if asynchronously else function
    )
    late = replace(call_for(provider, PARAMS), permit=SendPermit(elapsed_seconds(), NOW))
    (finding,) = run(provider, lambda: provider.send(late))
    assert (finding.answered, called) == (Answered.NOT_SENT, [])


def test_an_asynchronous_function_is_cancelled_at_its_timeout() -> None:
    """It has ended then, and nothing of it can arrive later."""

    async def function(call: Call, params: Any) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets this event")

    finding = send(function, timeout_seconds=0.05)
    assert (finding.answered, finding.may_arrive_until) == (Answered.LOST, None)


def test_a_blocking_function_that_is_given_up_keeps_its_slot_and_is_heard_in_the_end() -> None:
    """Nothing can end a thread, so nobody may act as if it had ended."""
    go_on = threading.Event()
    heard: Queue[Finding] = Queue()

    def function(call: Call, params: Any) -> Reply:
        go_on.wait(10)
        return Reply.performed({"id": "m1"}, "m1")

    provider = FunctionProvider("mail", CONTRACT, function, slots=1)
    first = replace(call_for(provider, PARAMS, timeout_seconds=0.05), late=heard.put)
    second = call_for(provider, PARAMS, attempt=2)

    async def after_the_late_one() -> Finding:
        go_on.set()
        finding = await asyncio.to_thread(heard.get, True, 10)
        assert finding.reference == "m1"
        return await provider.send(second)

    given_up, no_slot, performed = run(
        provider,
        lambda: provider.send(first),
        lambda: provider.send(second),
        after_the_late_one,
    )
    assert (given_up.answered, given_up.may_arrive_until) == (Answered.LOST, NO_BOUND)
    assert no_slot.answered is Answered.NOT_SENT
    assert performed.answered is Answered.PERFORMED


def test_a_late_reply_is_heard_after_the_event_loop_has_ended() -> None:
    """A worker that stops does not lose what comes in while it does."""
    go_on = threading.Event()
    heard: Queue[Finding] = Queue()

    def function(call: Call, params: Any) -> Reply:
        go_on.wait(10)
        return Reply.performed({}, "m1")

    provider = FunctionProvider("mail", CONTRACT, function)
    call = replace(call_for(provider, PARAMS, timeout_seconds=0.05), late=heard.put)
    run(provider, lambda: provider.send(call))
    go_on.set()
    assert heard.get(timeout=10).reference == "m1"


def test_a_late_reply_that_nobody_takes_is_logged() -> None:
    """With its operation and reference, so that a person can enter it as evidence."""
    go_on, done = threading.Event(), threading.Event()

    def logged(logger: object, name: str, event: Any) -> Any:
        seen.append(event)
        done.set()
        raise structlog.DropEvent

    def function(call: Call, params: Any) -> Reply:
        go_on.wait(10)
        return Reply.performed({}, "m1")

    seen: list[Any] = []
    structlog.configure(processors=[logged])
    try:
        provider = FunctionProvider("mail", CONTRACT, function)
        call = call_for(provider, PARAMS, timeout_seconds=0.05)
        run(provider, lambda: provider.send(call))
        go_on.set()
        assert done.wait(10)
    finally:
        structlog.reset_defaults()
    assert (seen[0]["event"], seen[0]["reference"]) == ("late_reply", "m1")
    assert seen[0]["operation"] == "acme/refund/refund-request-9"


def test_a_receipt_is_compared_with_the_intent() -> None:
    """A function that fetched somebody else's object must not settle ours."""
    receipt = {"id": "re_1", "order": "order-73"}
    finding = send(blocking(Reply.performed(receipt, "re_1")), simulator_contract())
    assert finding.echo is Echo.NONE, "an e-mail has neither order nor amount"

    class OrderParams(Params):
        order: str

    provider = FunctionProvider(
        "psp", simulator_contract(), blocking(Reply.performed(receipt, "re_1"))
    )
    call = call_for(provider, OrderParams(order="order-72"))
    (finding,) = run(provider, lambda: provider.send(call))
    assert (finding.echo, finding.differs_in) == (Echo.DIFFERS, "order")


def test_a_receipt_that_cannot_be_stored_leaves_the_outcome_unknown() -> None:
    """It would otherwise be refused by the journal, after the effect."""
    finding = send(blocking(Reply.performed({"client": object()}, "m1")))
    assert (finding.answered, finding.reference) == (Answered.LOST, "m1")


@pytest.mark.parametrize(
    ("reply", "answered"),
    [(None, Answered.ABSENT), (Reply.performed({"id": "m1"}, "m1"), Answered.PERFORMED)],
)
@pytest.mark.parametrize("asynchronously", [True, False])
def test_a_look_up_says_what_it_found(
    reply: Reply | None, answered: Answered, asynchronously: bool
) -> None:
    """None is "nothing there"; whether that proves anything is the contract's word."""

    def look_up(lookup: Lookup) -> Reply | None:
        return reply

    async def asynchronous_look_up(lookup: Lookup) -> Reply | None:
        return reply

    provider = FunctionProvider(
        "mail",
        CONTRACT,
        blocking(None),
        lookup=asynchronous_look_up if asynchronously else look_up,
    )
    call = call_for(provider, PARAMS)
    (finding,) = run(provider, lambda: provider.look_up(lookup_for(call)))
    assert (finding.answered, finding.via) == (answered, Via.LOOKUP)


def test_a_look_up_that_fails_or_is_missing_is_no_evidence() -> None:
    """Only an answer is evidence."""

    def look_up(lookup: Lookup) -> Reply | None:
        raise ConnectionError("unreachable")

    failing = FunctionProvider("mail", CONTRACT, blocking(None), lookup=look_up)
    missing = FunctionProvider("mail", CONTRACT, blocking(None))
    question = lookup_for(call_for(failing, PARAMS))
    findings = run(failing, lambda: failing.look_up(question), lambda: missing.look_up(question))
    assert [f.answered for f in findings] == [Answered.LOST] * 2


def test_no_slots_are_refused() -> None:
    """Nothing would ever be sent."""
    with pytest.raises(InvalidKind, match="slots"):
        FunctionProvider("mail", CONTRACT, blocking(None), slots=0)
