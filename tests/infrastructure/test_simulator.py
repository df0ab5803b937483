"""The simulated provider is what every other test believes, so each of its switches is proven here.

All of it over sockets, against the process: what a test is told is what a worker would be told.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx2
import pytest

from settled.infrastructure.simulator.client import SimulatorClient, running_simulator
from settled.infrastructure.simulator.record import read_log

HTTP = httpx2.Client(trust_env=False, timeout=10)
REFUND = {"amount": "30.00", "currency": "USD", "order": "order-72", "reference": "refund-1"}


def request(
    simulator: SimulatorClient, key: str = "k1", body: dict[str, Any] | None = None
) -> httpx2.Response:
    return HTTP.post(
        simulator.refunds_url,
        json=body or REFUND,
        headers={"Idempotency-Key": key},
    )


def look_up(simulator: SimulatorClient, **query: str) -> list[dict[str, Any]]:
    response = HTTP.get(simulator.refunds_url, params=query)
    found: list[dict[str, Any]] = response.json()["data"]
    return found


def code(response: httpx2.Response) -> str:
    return str(response.json()["error"]["code"])


@pytest.fixture(scope="module", autouse=True)
def connections() -> Generator[None]:
    with HTTP:
        yield


@pytest.fixture
def background() -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def receiver() -> Generator[tuple[str, Queue[dict[str, Any]]]]:
    """Somewhere to send webhooks to, and what arrived there."""
    arrived: Queue[dict[str, Any]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            arrived.put(httpx2.Response(200, content=body).json())
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the test asserts what arrived."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", arrived
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_refund_is_performed_and_recorded(simulator: SimulatorClient) -> None:
    response = request(simulator)
    log = simulator.log()
    assert (response.status_code, response.json()["id"]) == (201, "re_1")
    assert [(s.key, s.status, s.effect) for s in log.requests] == [("k1", 201, "re_1")]
    assert [(e.id, e.key, e.status) for e in log.effects] == [("re_1", "k1", "succeeded")]


def test_a_form_is_read_like_json(simulator: SimulatorClient) -> None:
    response = HTTP.post(simulator.refunds_url, data=REFUND)
    assert response.json()["order"] == "order-72"


def test_a_completed_duplicate_is_replayed(simulator: SimulatorClient) -> None:
    first, second = request(simulator), request(simulator)
    assert second.content == first.content
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(simulator.effects()) == 1


@pytest.mark.parametrize(
    ("duplicate", "status", "says"),
    [
        ("conflict", 409, {"error": {"code": "duplicate", "message": "This was done before."}}),
        ("conflict_with_reference", 409, None),
        ("current_state", 200, None),
        ("execute_again", 201, None),
    ],
)
def test_what_a_completed_duplicate_is_told(
    simulator: SimulatorClient, duplicate: str, status: int, says: dict[str, Any] | None
) -> None:
    simulator.conduct(duplicate_completed=duplicate)
    request(simulator)
    simulator.settle("re_1", "reversed")
    response = request(simulator)
    assert response.status_code == status
    match duplicate:
        case "conflict":
            assert response.json() == says
        case "conflict_with_reference":
            assert response.json()["error"]["reference"] == "re_1"
        case "current_state":
            assert response.json()["status"] == "reversed"
        case _:
            assert response.json()["id"] == "re_2"


def test_other_parameters_are_refused_only_if_compared(simulator: SimulatorClient) -> None:
    request(simulator)
    other = REFUND | {"amount": "35.00"}
    assert code(request(simulator, body=other)) == "key_mismatch"
    assert request(simulator, body=dict(reversed(REFUND.items()))).status_code == 201
    simulator.conduct(compare_parameters=False)
    assert request(simulator, body=other).json()["amount"] == "30.00"
    assert len(simulator.effects()) == 1


def test_a_key_is_forgotten_when_its_retention_ends(simulator: SimulatorClient) -> None:
    simulator.conduct(retention_seconds=3600)
    request(simulator)
    simulator.advance_clock(3599)
    request(simulator)
    assert len(simulator.effects()) == 1
    simulator.advance_clock(1)
    request(simulator)
    assert len(simulator.effects()) == 2


def test_without_keys_everything_executes(simulator: SimulatorClient) -> None:
    simulator.conduct(key="none")
    request(simulator)
    request(simulator)
    assert len(simulator.effects()) == 2


def test_the_key_may_be_in_the_body(simulator: SimulatorClient) -> None:
    simulator.conduct(key="body", key_name="idempotency_key")
    for _ in range(2):
        HTTP.post(simulator.refunds_url, json=REFUND | {"idempotency_key": "b1"})
    assert [e.key for e in simulator.effects()] == ["b1"]


@pytest.mark.parametrize(("cached", "second", "effects"), [(True, 500, 0), (False, 201, 1)])
def test_whether_failures_are_stored(
    simulator: SimulatorClient, cached: bool, second: int, effects: int
) -> None:
    simulator.conduct(cache_failures=cached)
    simulator.fault(execute=False, status=500, body={"error": {"code": "oops"}})
    assert request(simulator).status_code == 500
    assert request(simulator).status_code == second
    assert len(simulator.effects()) == effects


def test_a_500_may_hide_an_effect(simulator: SimulatorClient) -> None:
    simulator.fault(status=500, body="Internal Server Error")
    assert request(simulator).status_code == 500
    assert len(simulator.effects()) == 1
    assert request(simulator).json()["id"] == "re_1", "the failure is not stored: work is resumed"
    assert len(simulator.effects()) == 1


@pytest.mark.parametrize(("enforced", "effects"), [(True, 1), (False, 2)])
def test_the_remaining_amount(simulator: SimulatorClient, enforced: bool, effects: int) -> None:
    simulator.conduct(captured={"order-72": "50.00"}, enforce_remaining=enforced)
    request(simulator, "k1")
    second = request(simulator, "k2")
    assert len(simulator.effects()) == effects
    if enforced:
        assert (second.status_code, code(second)) == (400, "exceeds_remaining")


def test_a_malformed_amount_is_refused_and_the_key_is_free(simulator: SimulatorClient) -> None:
    assert code(request(simulator, body={"amount": "much"})) == "invalid_request"
    assert request(simulator).status_code == 201


def test_a_lookup_may_lag_and_reading_by_id_does_not(simulator: SimulatorClient) -> None:
    simulator.conduct(lookup_lag_seconds=60)
    request(simulator)
    assert look_up(simulator, key="k1") == []
    assert HTTP.get(f"{simulator.refunds_url}/re_1").status_code == 200
    simulator.advance_clock(60)
    for query in ({"key": "k1"}, {"reference": "refund-1"}, {"order": "order-72"}):
        assert [r["id"] for r in look_up(simulator, **query)] == ["re_1"]
    assert look_up(simulator, key="k2") == []


@pytest.mark.parametrize(
    ("reply", "raises"),
    [
        ("close", httpx2.RemoteProtocolError),
        ("reset", httpx2.ReadError),
        ("cut_status_line", httpx2.RemoteProtocolError),
        ("cut_body", httpx2.RemoteProtocolError),
        ("garbage", httpx2.RemoteProtocolError),
    ],
)
@pytest.mark.parametrize("execute", [True, False])
def test_a_reply_is_lost(
    simulator: SimulatorClient, reply: str, raises: type[Exception], execute: bool
) -> None:
    simulator.fault(reply=reply, execute=execute)
    with pytest.raises(raises):
        request(simulator)
    assert len(simulator.effects()) == execute
    assert request(simulator).status_code == 201, "a fault strikes once, and the key still works"
    assert len(simulator.effects()) == 1


def test_a_fault_may_wait_for_a_key_and_strike_more_than_once(simulator: SimulatorClient) -> None:
    simulator.fault(key="k2", times=2, execute=False, status=429, headers={"Retry-After": "7"})
    statuses = [request(simulator, key).status_code for key in ("k1", "k2", "k2", "k2")]
    assert statuses == [201, 429, 429, 201]


def test_a_fault_may_be_meant_for_lookups(simulator: SimulatorClient) -> None:
    simulator.fault(on="reads", status=503)
    assert request(simulator).status_code == 201
    response = HTTP.get(simulator.refunds_url, params={"key": "k1"})
    assert response.status_code == 503


def test_a_key_is_in_progress_while_its_request_runs(
    simulator: SimulatorClient, background: ThreadPoolExecutor
) -> None:
    simulator.fault(hold_before=True)
    first: Future[httpx2.Response] = background.submit(request, simulator)
    simulator.wait(held=1)
    second = request(simulator)
    assert (second.status_code, code(second)) == (409, "in_progress")
    assert simulator.effects() == []
    assert simulator.release("k1") == 1
    assert first.result(10).status_code == 201


def test_a_reply_may_be_held_while_the_key_is_completed(
    simulator: SimulatorClient, background: ThreadPoolExecutor
) -> None:
    simulator.fault(hold_after=True)
    first: Future[httpx2.Response] = background.submit(request, simulator)
    simulator.wait(held=1, effects=1)
    assert request(simulator).headers["Idempotent-Replayed"] == "true"
    simulator.release()
    assert first.result(10).json()["id"] == "re_1"


@pytest.mark.parametrize("delay", ["delay_before_seconds", "delay_after_seconds"])
def test_an_answer_is_delayed(simulator: SimulatorClient, delay: str) -> None:
    simulator.fault(**{delay: 0.05})
    request(simulator)
    (seen,) = simulator.log().requests
    assert seen.answered_at is not None and seen.answered_at >= seen.at + 0.05


def test_a_key_may_stay_in_progress_for_a_time(simulator: SimulatorClient) -> None:
    simulator.conduct(in_progress_seconds=30)
    simulator.fault(reply="close")
    with pytest.raises(httpx2.RemoteProtocolError):
        request(simulator)
    second = request(simulator)
    assert (code(second), second.headers["Retry-After"]) == ("in_progress", "30")
    simulator.advance_clock(30)
    assert request(simulator).status_code == 201


@pytest.mark.parametrize("final", ["succeeded", "failed"])
def test_a_pending_refund_becomes_final_after_polls(simulator: SimulatorClient, final: str) -> None:
    simulator.conduct(pending={"polls": 2, "final": final})
    assert request(simulator).json()["status"] == "pending"
    url = f"{simulator.refunds_url}/re_1"
    statuses = [HTTP.get(url).json()["status"] for _ in range(3)]
    assert statuses == ["pending", final, final]
    assert [e.status for e in simulator.effects()] == [final]


def test_a_pending_refund_becomes_final_after_a_time(simulator: SimulatorClient) -> None:
    simulator.conduct(pending={"seconds": 60})
    request(simulator)
    assert look_up(simulator, key="k1")[0]["status"] == "pending"
    simulator.advance_clock(60)
    assert look_up(simulator, key="k1")[0]["status"] == "succeeded"


def test_a_webhook_may_come_before_the_reply(
    simulator: SimulatorClient, receiver: tuple[str, Queue[dict[str, Any]]]
) -> None:
    url, arrived = receiver
    simulator.conduct(webhooks={"url": url, "when": "before_reply", "copies": 3})
    request(simulator)
    assert arrived.qsize() == 3, "all three came before the reply did"
    assert {arrived.get_nowait()["id"] for _ in range(3)} == {"evt_re_1_succeeded"}
    assert [w.status for w in simulator.log().webhooks] == [204, 204, 204]


def test_a_webhook_comes_after_the_reply_even_if_that_was_lost(
    simulator: SimulatorClient, receiver: tuple[str, Queue[dict[str, Any]]]
) -> None:
    url, arrived = receiver
    simulator.conduct(webhooks={"url": url, "when": "after_reply"}, pending={})
    simulator.fault(reply="close")
    with pytest.raises(httpx2.RemoteProtocolError):
        request(simulator)
    event = arrived.get(timeout=10)
    assert (event["type"], event["key"], event["data"]["id"]) == ("refund.pending", "k1", "re_1")
    simulator.settle("re_1")
    assert arrived.get(timeout=10)["type"] == "refund.succeeded"


def test_webhooks_may_come_on_order_and_in_the_wrong_order(
    simulator: SimulatorClient, receiver: tuple[str, Queue[dict[str, Any]]]
) -> None:
    url, arrived = receiver
    request(simulator, "k1")
    request(simulator, "k2")
    assert simulator.send_webhooks(url, newest_first=True) == 2
    assert [arrived.get(timeout=10)["key"] for _ in range(2)] == ["k2", "k1"]
    assert simulator.send_webhooks(url, effect="re_1") == 1


def test_an_object_has_the_name_that_the_client_chose(simulator: SimulatorClient) -> None:
    url = f"{simulator.url}/v1/objects/ticket-7"
    statuses = [
        HTTP.post(url, json={"title": "a"}).status_code,
        HTTP.post(url, json={"title": "a"}).status_code,
        HTTP.put(url, json={"title": "a"}).status_code,
        HTTP.put(url, json={"title": "b"}).status_code,
    ]
    assert statuses == [201, 409, 200, 200]
    assert HTTP.get(url).json()["title"] == "b"
    assert [line.effect for line in simulator.log().requests[:4]] == [
        "ticket-7",
        None,
        None,
        "ticket-7",
    ]


def test_more_than_a_megabyte_is_refused(simulator: SimulatorClient) -> None:
    response = request(simulator, body={"amount": "1", "note": "x" * 1_000_000})
    assert response.status_code == 413
    assert simulator.log().requests == ()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /v1/refunds HTTP/1.1\r\nno-colon\r\n\r\n", b"400"),
        (b"POST /v1/refunds HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /v1/refunds HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
        (b"DELETE /v1/refunds HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
    ],
)
def test_what_cannot_be_read_is_refused(
    simulator: SimulatorClient, sent: bytes, status: bytes
) -> None:
    host, port = simulator.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(sent)
        assert connection.recv(12) == b"HTTP/1.1 " + status


def test_a_switch_that_does_not_exist_is_refused(simulator: SimulatorClient) -> None:
    response = HTTP.post(f"{simulator.url}/admin/plan", json={"conduct": {"drop": 1}})
    assert response.status_code == 400


def test_waiting_ends_with_what_is_there(simulator: SimulatorClient) -> None:
    with pytest.raises(TimeoutError, match="the log is"):
        simulator.wait(calls=1, seconds=0.01)


def test_the_log_outlives_a_kill(tmp_path: Path) -> None:
    log = tmp_path / "provider.jsonl"
    with running_simulator(log=log) as simulator:
        request(simulator)
        simulator.fault(reply="close")
        with pytest.raises(httpx2.RemoteProtocolError):
            request(simulator, "k2")
        assert simulator.pid is not None
        os.kill(simulator.pid, signal.SIGKILL)
    seen = read_log(log)
    assert [(s.key, s.reply, s.effect) for s in seen.requests] == [
        ("k1", "answer", "re_1"),
        ("k2", "close", "re_2"),
    ]
    assert [e.key for e in seen.effects] == ["k1", "k2"]


def test_a_log_is_not_mixed_with_that_of_another_run(tmp_path: Path) -> None:
    log = tmp_path / "provider.jsonl"
    log.touch()
    with pytest.raises(RuntimeError, match="status 2"), running_simulator(log=log):
        raise AssertionError("it must not start")


def test_connections_are_kept_alive(simulator: SimulatorClient) -> None:
    with httpx2.Client(trust_env=False) as client:
        for key in ("k1", "k2"):
            client.post(simulator.refunds_url, json=REFUND, headers={"Idempotency-Key": key})
    first, second = simulator.log().requests
    assert first.connection == second.connection
