"""The relay makes exactly the fault it names, before a real PostgreSQL and a real provider.

Every test about lost answers stands on this: if "the reply was lost" could also mean "the request
never arrived", they would prove nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest

from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.fault_relay import Fault, FaultRelay

COMMIT = b"COMMIT\0"


@pytest.fixture
def relay(postgres_url: str) -> Iterator[FaultRelay]:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE refund (request text PRIMARY KEY)")
    with FaultRelay.before_postgres(postgres_url) as relay:
        yield relay


@pytest.fixture
def through(relay: FaultRelay, postgres_url: str) -> str:
    return relay.postgres_url(postgres_url)


def insert(url: str, request: str = "refund-request-9") -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO refund VALUES (%s)", [request])


def stored(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute("SELECT request FROM refund ORDER BY 1")]


def test_without_a_fault_everything_passes(
    relay: FaultRelay, through: str, postgres_url: str
) -> None:
    """The relay itself changes nothing, also for a reply of many chunks."""
    insert(through)
    with psycopg.connect(through) as connection:
        row = connection.execute("SELECT repeat('x', 5000000)").fetchone()
    assert row is not None and len(row[0]) == 5_000_000
    assert stored(postgres_url) == ["refund-request-9"]
    assert relay.strikes == 0


def test_lost_reply_of_a_commit_leaves_the_row(
    relay: FaultRelay, through: str, postgres_url: str
) -> None:
    """The client is told of a failure, and the row is there."""
    relay.inject(Fault.LOSE_REPLY, on=COMMIT)
    with pytest.raises(psycopg.OperationalError):
        insert(through)
    assert relay.strikes == 1
    assert stored(postgres_url) == ["refund-request-9"]
    insert(through, "refund-request-10")  # one fault was asked for, so the next call passes
    assert relay.strikes == 1


def test_lost_request_of_a_commit_leaves_no_row(
    relay: FaultRelay, through: str, postgres_url: str
) -> None:
    """The client sees the same failure as for a lost reply, and there is no row."""
    relay.inject(Fault.LOSE_REQUEST, on=COMMIT)
    with pytest.raises(psycopg.OperationalError):
        insert(through)
    assert relay.strikes == 1
    assert stored(postgres_url) == []


def test_faults_strike_as_often_as_asked(relay: FaultRelay, through: str) -> None:
    """`times` counts requests; None is every one until healed."""
    relay.inject(Fault.LOSE_REQUEST, on=COMMIT, times=None)
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError):
            insert(through)
    assert relay.strikes == 3
    relay.heal()
    insert(through)


def test_held_request_arrives_after_the_client_left(
    relay: FaultRelay, through: str, postgres_url: str
) -> None:
    """The late arrival that makes "we saw nothing there" prove nothing."""
    relay.inject(Fault.HOLD_REQUEST, on=COMMIT)
    connection = psycopg.connect(through)
    connection.execute("INSERT INTO refund VALUES ('refund-request-9')")

    def give_up() -> None:
        relay.wait_struck()
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    leaving = threading.Thread(target=give_up)
    leaving.start()
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    leaving.join(10)
    assert stored(postgres_url) == []
    with psycopg.connect(postgres_url, autocommit=True) as witness:
        relay.release()
        # The same key waits for the held transaction, and then meets its row.
        with pytest.raises(psycopg.errors.UniqueViolation):
            witness.execute("INSERT INTO refund VALUES ('refund-request-9')")


def test_delayed_request_arrives_late(relay: FaultRelay, through: str, postgres_url: str) -> None:
    """The call takes at least the delay, and succeeds."""
    relay.inject(Fault.DELAY_REQUEST, on=COMMIT, delay_seconds=0.2)
    began = time.monotonic()
    insert(through)
    assert time.monotonic() - began >= 0.2
    assert stored(postgres_url) == ["refund-request-9"]


def test_cut_reply_of_a_commit_leaves_the_row(
    relay: FaultRelay, through: str, postgres_url: str
) -> None:
    """Half of "it is committed" is no answer, and the row is there."""
    relay.inject(Fault.CUT_REPLY, on=COMMIT)
    with pytest.raises(psycopg.OperationalError):
        insert(through)
    assert relay.strikes == 1
    assert stored(postgres_url) == ["refund-request-9"]


def test_refusal_breaks_connections_and_ends_when_healed(
    relay: FaultRelay, through: str, postgres_url: str
) -> None:
    """An outage, and its end on the same port."""
    with psycopg.connect(through, autocommit=True) as open_before:
        relay.inject(Fault.REFUSE)
        with pytest.raises(psycopg.OperationalError):
            open_before.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        insert(through)
    relay.heal()
    insert(through)
    assert stored(postgres_url) == ["refund-request-9"]


def test_target_may_be_a_tcp_server(relay: FaultRelay, through: str, postgres_url: str) -> None:
    """A second relay before the first: the same fault, with TCP on both sides."""
    with FaultRelay(("127.0.0.1", relay.port)) as second:
        second.inject(Fault.LOSE_REPLY, on=COMMIT)
        with pytest.raises(psycopg.OperationalError):
            insert(second.postgres_url(postgres_url))
    assert stored(postgres_url) == ["refund-request-9"]
    assert relay.strikes == 0


def test_waiting_for_a_strike_has_an_end(relay: FaultRelay) -> None:
    """A test that waits for a fault that never happens fails instead of hanging."""
    with pytest.raises(TimeoutError, match="0 of 1"):
        relay.wait_struck(timeout_seconds=0.01)


def test_the_schema_of_a_store_goes_along(postgres_url: str) -> None:
    """A store's URL names its schema, which libpq knows nothing of: both may be asked for here."""
    url = f"{postgres_url}&schema=shop" if "?" in postgres_url else f"{postgres_url}?schema=shop"
    open_journal(url, migrate=True, require_fsync=False).close()
    with FaultRelay.before_postgres(url) as relay:
        through = relay.postgres_url(url)
        with closing(open_journal(through, require_fsync=False)) as journal:
            installation = journal.installation()
        with psycopg.connect(postgres_url) as connection:
            row = connection.execute("SELECT id FROM shop.installation").fetchone()
    assert row == (installation.id,)
    assert through.endswith("&schema=shop")


REFUND = {"amount": "30.00", "currency": "USD", "order": "order-72"}


@pytest.fixture
def provider(simulator: SimulatorClient) -> Iterator[FaultRelay]:
    server = urlsplit(simulator.url)
    assert server.hostname is not None and server.port is not None
    with FaultRelay((server.hostname, server.port)) as relay:
        yield relay


def request(relay: FaultRelay) -> httpx2.Response:
    url = f"http://127.0.0.1:{relay.port}/v1/refunds"
    headers = {"Idempotency-Key": "k1"}
    return httpx2.post(url, json=REFUND, headers=headers, trust_env=False, timeout=10)


@pytest.mark.parametrize(
    ("fault", "effects"),
    [(Fault.LOSE_REQUEST, 0), (Fault.LOSE_REPLY, 1), (Fault.CUT_REPLY, 1)],
)
def test_before_a_provider(
    provider: FaultRelay, simulator: SimulatorClient, fault: Fault, effects: int
) -> None:
    """The client knows as little each time; the provider knows whether it has paid."""
    provider.inject(fault, on=b"POST /v1/refunds")
    with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
        request(provider)
    assert len(simulator.effects()) == effects
    assert request(provider).status_code == 201, "the fault strikes once"
    assert (provider.strikes, len(simulator.effects())) == (1, 1)


def test_a_cut_reply_has_its_head_and_half_of_its_body(
    provider: FaultRelay, simulator: SimulatorClient
) -> None:
    """In mid-body: the status is there to be believed, and what it is about is not."""
    provider.inject(Fault.CUT_REPLY)
    body = b'{"amount": "30.00", "currency": "USD", "order": "order-72"}'
    with socket.create_connection(("127.0.0.1", provider.port), timeout=10) as connection:
        head = f"POST /v1/refunds HTTP/1.1\r\nHost: psp\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        received = b""
        while chunk := connection.recv(1 << 16):
            received += chunk
    answer, _, half = received.partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert half.startswith(b"{") and not half.endswith(b"}")
    assert len(simulator.effects()) == 1


def test_a_request_to_a_provider_arrives_late_or_not_at_all(
    provider: FaultRelay, simulator: SimulatorClient
) -> None:
    """A delay is only that; a refusal is known to have no effect."""
    provider.inject(Fault.DELAY_REQUEST, delay_seconds=0.2)
    began = time.monotonic()
    assert request(provider).status_code == 201
    assert time.monotonic() - began >= 0.2
    provider.inject(Fault.REFUSE)
    with pytest.raises(httpx2.ConnectError):
        request(provider)
    assert len(simulator.log().calls()) == 1
