"""HttpProvider over real sockets: each way in which a call can fail, and what is known after it.

The verdict is compared with what the other end has seen: "not sent" is only right when nothing
arrived, and anything that may have arrived must never be called so.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

import orjson
import pytest

from settled.domain.contract import (
    Dedup,
    Key,
    KeyCarrier,
    LookupBy,
    LookupPromise,
    ProviderContract,
)
from settled.domain.errors import InvalidContract, InvalidParams
from settled.domain.money import Money
from settled.domain.params import Params
from settled.domain.provider import Answered, Echo, Finding
from settled.infrastructure.http.json_provider import HttpProvider
from settled.infrastructure.http.transport import MAX_REPLY_BYTES
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.simulator.contract import simulator_contract
from settled.infrastructure.testing.adapter_calls import (
    IDENTITY,
    KEY,
    SECRET,
    call_for,
    lookup_for,
    run,
)

LINGER_OFF = struct.pack("ii", 1, 0)


class RefundParams(Params):
    """What the simulated provider is asked for."""

    order: str
    amount: Money


PARAMS = RefundParams(order="order-72", amount=Money("30.00", "USD"))


def psp(simulator: SimulatorClient, **given: Any) -> HttpProvider:
    options: dict[str, Any] = {
        "contract": simulator_contract(),
        "lookups": {LookupBy.KEY: "{url}?key={key}"},
    }
    return HttpProvider(simulator.refunds_url, **(options | given))


def send(provider: HttpProvider, **given: Any) -> Finding:
    call = call_for(provider, PARAMS, **given)
    (finding,) = run(provider, lambda: provider.send(call))
    return finding


class Raw:
    """A server of one script, with what it has received."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1/refunds"
        self.requests: list[bytes] = []
        self.connections = 0
        self.ended: list[str] = []
        self.went_on = threading.Event()

    def request_from(self, connection: socket.socket) -> None:
        """Read one whole request: all of ours end in the JSON object's brace."""
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(1 << 16)
        self.requests.append(received)


@contextmanager
def raw_server(script: Callable[[Raw, socket.socket], None]) -> Generator[Raw]:
    """Run `script` for each connection, one after the other, on a thread."""
    raw = Raw()

    def serve() -> None:
        while True:
            try:
                connection, _ = raw.listener.accept()
            except OSError:  # Shut down below.
                return
            raw.connections += 1
            connection.settimeout(10)
            with connection:
                script(raw, connection)
            raw.went_on.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield raw
    finally:
        raw.listener.shutdown(socket.SHUT_RDWR)
        raw.listener.close()
        thread.join(10)


def reset_at_once(raw: Raw, connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_OFF)


def answer(body: bytes, *, keep: bool = False) -> Callable[[Raw, socket.socket], None]:
    def script(raw: Raw, connection: socket.socket) -> None:
        raw.request_from(connection)
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(body))
        connection.sendall(body)

    return script


def wait_for_the_end(raw: Raw, connection: socket.socket) -> None:
    """Take the request, answer nothing, and note how the client left."""
    raw.request_from(connection)
    try:
        raw.ended.append("closed" if connection.recv(1) == b"" else "sent more")
    except ConnectionResetError:
        raw.ended.append("reset")


def test_a_name_that_does_not_exist_is_not_sent() -> None:
    """Resolving comes before connecting."""
    provider = HttpProvider("http://psp.invalid/v1/refunds", contract=simulator_contract())
    assert send(provider).answered is Answered.NOT_SENT


def test_a_failed_handshake_is_not_sent() -> None:
    """TLS is established before the first byte of the request."""

    def plain(raw: Raw, connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with raw_server(plain) as raw:
        url = raw.url.replace("http://", "https://")
        assert send(HttpProvider(url, contract=simulator_contract())).answered is Answered.NOT_SENT


def test_a_connection_that_is_never_accepted_is_not_sent() -> None:
    """Connecting has half of the time, and runs out of it without a byte written."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)  # The backlog is full now: the next one hangs.
            url = f"http://127.0.0.1:{address[1]}/v1/refunds"
            provider = HttpProvider(url, contract=simulator_contract())
            finding = send(provider, timeout_seconds=0.4)
    assert finding.answered is Answered.NOT_SENT
    assert finding.evidence["error"] == "ConnectTimeout"


def test_a_reset_right_after_accepting_is_never_called_a_result() -> None:
    """The race decides whether a byte was written before the reset; both verdicts are true then."""
    with raw_server(reset_at_once) as raw:
        finding = send(HttpProvider(raw.url, contract=simulator_contract()))
        assert raw.went_on.wait(10)
        assert raw.connections == 1
    begun = finding.evidence["phase"] == "begun"
    assert finding.answered is (Answered.LOST if begun else Answered.NOT_SENT)


def test_a_call_that_is_given_up_cannot_arrive_later() -> None:
    """Closing throws away what the kernel has not delivered: the other end sees a reset."""
    with raw_server(wait_for_the_end) as raw:
        finding = send(HttpProvider(raw.url, contract=simulator_contract()), timeout_seconds=2)
        assert raw.went_on.wait(10)
    assert (finding.answered, raw.ended) == (Answered.LOST, ["reset"])
    assert finding.may_arrive_until is None
    assert len(raw.requests) == 1


def test_a_reply_over_a_megabyte_is_lost() -> None:
    """Nobody needs such a reply, and reading on could take all memory."""
    with raw_server(answer(b'"' + b"x" * MAX_REPLY_BYTES + b'"')) as raw:
        finding = send(HttpProvider(raw.url, contract=simulator_contract()))
    assert (finding.answered, finding.evidence["status"]) == (Answered.LOST, 201)
    assert "larger than" in finding.reason


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    """Writing on it would make an unknown outcome out of nothing."""
    body = orjson.dumps({"id": "re_1", "status": "succeeded"})
    with raw_server(answer(body)) as raw:
        provider = HttpProvider(raw.url, contract=simulator_contract())
        call = call_for(provider, PARAMS)

        async def again() -> Finding:
            assert await asyncio.to_thread(raw.went_on.wait, 10)
            return await provider.send(replace(call, attempt=2))

        findings = run(provider, lambda: provider.send(call), again)
    assert [f.answered for f in findings] == [Answered.PERFORMED] * 2
    assert (raw.connections, raw.requests[0]) == (2, raw.requests[1])


def test_a_kept_connection_that_breaks_is_lost_and_not_tried_again(
    simulator: SimulatorClient,
) -> None:
    """Other clients send once more here, behind one's back."""
    provider = psp(simulator)
    first, second = call_for(provider, PARAMS), call_for(provider, PARAMS, key="another-key")
    simulator.fault(key="another-key", reply="close", execute=False)
    findings = run(provider, lambda: provider.send(first), lambda: provider.send(second))
    assert [f.answered for f in findings] == [Answered.PERFORMED, Answered.LOST]
    one, two = simulator.log().calls()
    assert one.connection == two.connection


def test_a_put_whose_connection_is_closed_is_one_request(simulator: SimulatorClient) -> None:
    """A PUT may be repeated by anybody, HTTP says; by us it is not."""
    contract = replace(
        simulator_contract(),
        dedup=Dedup.NATURAL_KEY,
        key=Key(carrier=KeyCarrier.PATH, name="key"),
        lookups=(LookupPromise(by=LookupBy.NATURAL_ID, horizon=timedelta(days=1)),),
    )
    url = simulator.url + "/v1/objects/{key}"
    provider = HttpProvider(url, contract=contract, method="PUT")
    simulator.fault(reply="close")
    call = call_for(provider, PARAMS)
    lost, found = run(
        provider, lambda: provider.send(call), lambda: provider.look_up(lookup_for(call))
    )
    (seen,) = simulator.log().calls()
    assert (lost.answered, seen.path) == (Answered.LOST, f"/v1/objects/{KEY}")
    assert (found.answered, found.reference) == (Answered.PERFORMED, KEY)


def test_an_object_whose_name_is_in_the_body_is_looked_up_in_its_collection(
    simulator: SimulatorClient,
) -> None:
    """As with Kubernetes: what is created in a collection is read by its name there."""
    contract = replace(
        simulator_contract(),
        dedup=Dedup.NATURAL_KEY,
        key=Key(carrier=KeyCarrier.BODY, name="name"),
        lookups=(LookupPromise(by=LookupBy.NATURAL_ID, horizon=timedelta(days=1)),),
    )
    provider = psp(simulator, contract=contract, lookups={})
    call = call_for(provider, PARAMS)
    (found,) = run(provider, lambda: provider.look_up(lookup_for(call)))
    (seen,) = simulator.log().lookups()
    assert (found.answered, seen.path) == (Answered.ABSENT, f"/v1/refunds/{KEY}")


def test_the_environment_names_no_proxy(
    simulator: SimulatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would stand between "sent" and "arrived", and keep what it has been given."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert send(psp(simulator)).answered is Answered.PERFORMED


def test_a_redirect_is_not_followed(simulator: SimulatorClient) -> None:
    """A POST that is sent on elsewhere is a second request."""
    simulator.fault(execute=False, status=307, headers={"Location": simulator.refunds_url})
    assert send(psp(simulator)).answered is Answered.LOST
    assert len(simulator.log().calls()) == 1


def test_cancelling_a_call_that_has_begun_is_raised_and_not_repeated(
    simulator: SimulatorClient,
) -> None:
    """Whoever cancels records the unknown outcome; the adapter must not swallow it."""
    provider = psp(simulator)
    simulator.fault(hold_before=True)

    async def cancelled() -> bool:
        sending = asyncio.create_task(provider.send(call_for(provider, PARAMS)))
        await asyncio.to_thread(simulator.wait, held=1)
        sending.cancel()
        await asyncio.wait([sending])
        await provider.aclose()
        return sending.cancelled()

    assert asyncio.run(cancelled())
    simulator.release()
    assert len(simulator.wait(answers=1).calls()) == 1


@pytest.mark.parametrize(
    ("conduct", "answered"),
    [
        ({}, Answered.PERFORMED),
        ({"in_progress_seconds": 30}, Answered.IN_PROGRESS),
        ({"duplicate_completed": "conflict"}, Answered.DUPLICATE),
        ({"duplicate_completed": "conflict_with_reference"}, Answered.DUPLICATE_OF),
        ({"pending": {}}, Answered.PENDING),
    ],
)
def test_what_a_second_request_is_told(
    simulator: SimulatorClient, conduct: dict[str, Any], answered: Answered
) -> None:
    """The contract's rules reach the finding, with the reference where there is one."""
    simulator.conduct(**conduct)
    provider = psp(simulator)
    call = call_for(provider, PARAMS)
    _, second = run(provider, lambda: provider.send(call), lambda: provider.send(call))
    assert second.answered is answered
    if answered in (Answered.DUPLICATE_OF, Answered.PERFORMED):
        assert second.reference == "re_1"
    if answered is Answered.IN_PROGRESS:
        assert second.retry_after == timedelta(seconds=30)
    assert second.replayed is (answered in (Answered.PERFORMED, Answered.PENDING))


def test_the_echo_is_compared_with_the_intent(simulator: SimulatorClient) -> None:
    """One key for two refunds, and a provider that does not compare: the first one's answer."""
    simulator.conduct(compare_parameters=False)
    provider = psp(simulator)
    other = RefundParams(order="order-72", amount=Money("35.00", "USD"))
    first, foreign = run(
        provider,
        lambda: provider.send(call_for(provider, PARAMS)),
        lambda: provider.send(call_for(provider, other)),
    )
    assert first.echo is Echo.EQUAL
    assert (foreign.echo, foreign.differs_in) == (Echo.DIFFERS, "amount")


def test_a_known_object_is_read_by_its_reference(simulator: SimulatorClient) -> None:
    """A poll asks for the object, not for the list."""
    simulator.conduct(pending={"polls": 1})
    provider = psp(simulator)
    call = call_for(provider, PARAMS)
    _, found = run(
        provider,
        lambda: provider.send(call),
        lambda: provider.look_up(lookup_for(call, reference="re_1")),
    )
    (seen,) = simulator.log().lookups()
    assert (found.answered, seen.path) == (Answered.PERFORMED, "/v1/refunds/re_1")


def test_a_look_up_that_the_adapter_cannot_make_is_not_promised(
    simulator: SimulatorClient,
) -> None:
    """Recovery must not wait for a look-up that nobody can make."""
    assert psp(simulator, lookups={}).contract.lookups == ()
    assert psp(simulator).contract == simulator_contract()


def test_the_credential_is_sent_and_never_stored(simulator: SimulatorClient) -> None:
    """It is asked for at each call; what is stored is a fingerprint under the secret."""
    tokens = iter(["Bearer one", "Bearer one", "Bearer two"])
    provider = psp(simulator, credential=lambda: {"Authorization": next(tokens)})
    call = call_for(provider, PARAMS)
    assert send(provider, request=call.request).answered is Answered.PERFORMED
    (seen,) = simulator.log().calls()
    assert seen.headers["authorization"] == "Bearer one"
    assert b"Bearer" not in orjson.dumps(call.request.headers) + call.request.body
    rotated = provider.seal(IDENTITY, KEY, PARAMS, SECRET)
    assert rotated.credential_fingerprint != call.request.credential_fingerprint
    assert "Bearer" not in rotated.credential_fingerprint


def test_a_credential_that_cannot_be_had_is_not_sent(simulator: SimulatorClient) -> None:
    """Nothing has left yet, and the message, which may quote the secret, is not kept."""

    def vault() -> dict[str, str]:
        raise RuntimeError("token s3cret has expired")

    sealed = psp(simulator).seal(IDENTITY, KEY, PARAMS, SECRET)
    finding = send(psp(simulator, credential=vault), request=sealed)
    assert finding.answered is Answered.NOT_SENT
    assert "s3cret" not in str(finding)
    broken = psp(simulator, credential=lambda: {"Authorization": "Bearer a\r\nX: b"})
    assert send(broken, request=sealed).answered is Answered.NOT_SENT
    assert simulator.log().requests == ()


def test_exactly_the_sealed_bytes_are_sent(simulator: SimulatorClient) -> None:
    """What was authorised and recorded is what the provider gets, header for header."""
    provider = psp(simulator, headers={"Api-Version": "2026-01"})
    call = call_for(provider, PARAMS)
    run(provider, lambda: provider.send(call))
    (seen,) = simulator.log().calls()
    assert seen.body_sha256 == hashlib.sha256(call.request.body).hexdigest()
    assert orjson.loads(seen.body) == {"amount": "30.00", "currency": "USD", "order": "order-72"}
    of_the_wire = {"host", "content-length"}
    assert {n: v for n, v in seen.headers.items() if n not in of_the_wire} == dict(
        call.request.headers
    )


KEYLESS = ProviderContract(provider="psp", operation="refund")


def contract_with(key: Key) -> ProviderContract:
    return replace(simulator_contract(), key=key)


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        (Key(carrier=KeyCarrier.HEADER, name="PayPal-Request-Id"), "paypal-request-id", KEY),
        (Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key", quoted=True), None, f'"{KEY}"'),
        (Key(carrier=KeyCarrier.HEADER, name="K", max_len=32), "k", KEY.replace("-", "")),
        (
            Key(carrier=KeyCarrier.HEADER, name="K", max_len=24),
            "k",
            hashlib.sha256(KEY.encode()).hexdigest()[:24],
        ),
        (
            Key(carrier=KeyCarrier.HEADER, name="K", max_len=30, alphabet="[0-9]"),
            "k",
            str(int(hashlib.sha256(KEY.encode()).hexdigest(), 16))[:30],
        ),
    ],
)
def test_the_key_is_carried_as_the_contract_says(key: Key, name: str | None, value: str) -> None:
    """A key that a provider does not take, or takes and ignores, deduplicates nothing."""
    provider = HttpProvider("https://psp.example/v1/refunds", contract=contract_with(key))
    headers = dict(provider.seal(IDENTITY, KEY, PARAMS, SECRET).headers)
    assert headers[name or "idempotency-key"] == value


def test_key_and_reference_are_written_into_the_body() -> None:
    """At the paths that the contract and the declaration name."""
    provider = HttpProvider(
        "https://psp.example/v1/{order}/refunds",
        contract=contract_with(Key(carrier=KeyCarrier.BODY, name="idempotency_key", max_len=45)),
        reference_field="metadata.settled",
    )
    sealed = provider.seal(IDENTITY, KEY, RefundParams(order="a/b", amount=PARAMS.amount), SECRET)
    assert sealed.url == "https://psp.example/v1/a%2Fb/refunds", "a value stays in its place"
    body = orjson.loads(sealed.body)
    assert (body["idempotency_key"], body["metadata"]) == (KEY, {"settled": KEY})


def test_a_body_may_be_made_otherwise() -> None:
    """A form in minor units, with our reference inside; a float is refused before it is stored."""

    def in_minor_units(params: RefundParams) -> dict[str, Any]:
        return {"amount": params.amount.minor, "charge": params.order, "tags": [True, None]}

    provider = HttpProvider(
        "https://psp.example/v1/refunds",
        contract=simulator_contract(),
        body=in_minor_units,
        encoding="form",
        reference_field="metadata.settled_key",
    )
    sealed = provider.seal(IDENTITY, KEY, PARAMS, SECRET)
    assert dict(sealed.headers)["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qsl(sealed.body.decode(), keep_blank_values=True) == [
        ("amount", "3000"),
        ("charge", "order-72"),
        ("metadata[settled_key]", KEY),
        ("tags[0]", "true"),
        ("tags[1]", ""),
    ]
    inexact = HttpProvider(
        "https://psp.example", contract=simulator_contract(), body=lambda _: {"amount": 30.0}
    )
    with pytest.raises(InvalidParams, match="amount"):
        inexact.seal(IDENTITY, KEY, PARAMS, SECRET)


def test_an_effect_is_found_by_the_reference_that_was_sent(simulator: SimulatorClient) -> None:
    """Without a key, a field of ours in the provider's own list is what proves the effect."""
    simulator.conduct(key="none")
    contract = replace(
        KEYLESS,
        reference="id",
        outcomes=simulator_contract().outcomes,
        lookups=(LookupPromise(by=LookupBy.PARENT_LIST, items="data", match="reference"),),
    )
    lookups = {LookupBy.PARENT_LIST: "{url}?order={order}"}
    provider = psp(simulator, contract=contract, lookups=lookups, reference_field="reference")
    simulator.fault(reply="close")
    call = call_for(provider, PARAMS)
    other = call_for(provider, PARAMS, key="another-operation")
    _, _, found = run(
        provider,
        lambda: provider.send(call),
        lambda: provider.send(other),
        lambda: provider.look_up(lookup_for(call)),
    )
    assert (found.answered, found.reference) == (Answered.PERFORMED, "re_1")
    with pytest.raises(InvalidContract, match="none is sent"):
        psp(simulator, contract=contract, lookups=lookups)


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("psp.example/refunds", {}, "no URL"),
        ("https://me:secret@psp.example/refunds", {}, "credential"),
        ("https://psp.example", {"headers": {"Authorization": "Bearer x"}}, "credential"),
        ("https://psp.example", {"headers": {"X": "a\r\nb"}}, "cannot be the value"),
        (
            "https://psp.example/refunds",
            {"contract": contract_with(Key(carrier=KeyCarrier.PATH, name="id"))},
            "no place",
        ),
        (
            "https://psp.example/refunds",
            {"contract": contract_with(Key(carrier=KeyCarrier.MIME_HEADER, name="Message-ID"))},
            "cannot carry",
        ),
        (
            "https://psp.example/refunds",
            {
                "contract": replace(KEYLESS, lookups=(LookupPromise(by=LookupBy.KEY),)),
                "lookups": {LookupBy.KEY: "{url}?key={key}"},
            },
            "has no key",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(
    url: str, options: dict[str, Any], says: str
) -> None:
    """A worker that finds out later has an operation in its hands already."""
    given: dict[str, Any] = {"contract": simulator_contract(), **options}
    with pytest.raises(InvalidContract, match=says):
        HttpProvider(url, **given)


@pytest.mark.parametrize("max_len", [10, 21])
def test_a_key_too_short_to_be_unique_is_refused(max_len: int) -> None:
    """Two operations that meet in one key are one effect too few."""
    key = Key(carrier=KeyCarrier.HEADER, name="K", max_len=max_len)
    provider = HttpProvider("https://psp.example", contract=contract_with(key))
    with pytest.raises(InvalidContract, match="no unique form"):
        provider.seal(IDENTITY, KEY, PARAMS, SECRET)
