"""A relay that loses, cuts, delays or holds what goes between a client and a server.

    with FaultRelay(("127.0.0.1", 8080)) as relay:
        relay.inject(Fault.LOSE_REPLY, on=b"POST /v1/refunds")

Placed before a provider it makes the call whose effect nobody was told of; placed before
PostgreSQL, the COMMIT whose answer never came. The client connects over TCP; the server may listen
on TCP or on a UNIX socket. The relay runs on a thread with an event loop of its own, so that
blocking clients, asyncio clients and other processes use it alike.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

_CHUNK_BYTES = 1 << 16
_PATTERN_BYTES = 1 << 10
_ANSWER_SECONDS = 10.0
_EMPTY_LINE = b"\r\n\r\n"


class Fault(StrEnum):
    """What happens to a request, or to a connection."""

    PASS = "pass"
    """Nothing."""
    LOSE_REQUEST = "lose request"
    """The connection breaks before the request arrives: the server does nothing."""
    LOSE_REPLY = "lose reply"
    """The server acts and answers; the connection breaks before the client hears of it."""
    CUT_REPLY = "cut reply"
    """The server acts and answers; the connection breaks in the middle of the answer's body."""
    HOLD_REQUEST = "hold request"
    """The request waits in the relay until released, and then arrives even if the client left."""
    DELAY_REQUEST = "delay request"
    """The request arrives late."""
    REFUSE = "refuse"
    """Open connections break and new ones are refused, until healed."""


@dataclass(frozen=True, slots=True)
class _Rule:
    fault: Fault
    on: bytes
    delay_seconds: float


_PASS = _Rule(Fault.PASS, b"", 0.0)


@dataclass(slots=True)
class _Struck:
    """What is to happen to the replies of one connection."""

    reply: Fault = Fault.PASS


class FaultRelay:
    """A relay before one server: a (host, port) pair, or the path of a UNIX socket."""

    def __init__(self, target: tuple[str, int] | Path) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fault-relay", daemon=True
        )
        # Bound and never listening, it keeps the port ours while connections are refused.
        self._reservation = socket.socket()
        self._listener: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._rule = _PASS
        self._times: int | None = None
        self._struck = threading.Condition()
        self._strikes = 0
        self._released = asyncio.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @classmethod
    def before_postgres(cls, url: str) -> FaultRelay:
        """Return a relay before the PostgreSQL server that a URL or conninfo string names.

        The URL may be that of a store, with its `schema`.
        """
        known = conninfo_to_dict(_parted(url)[0])
        host, port = str(known.get("host") or "localhost"), int(known.get("port") or 5432)
        return cls(Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, port))

    def postgres_url(self, url: str) -> str:
        """Return the URL that reaches the same database, as the same user, through this relay.

        It has the `schema` of a store where the given one has it.
        """
        libpq_url, schema = _parted(url)
        known = {name: str(value) for name, value in conninfo_to_dict(libpq_url).items()}
        # The relay looks for patterns in what goes through, so nothing may be encrypted.
        known |= {"host": "127.0.0.1", "port": str(self.port), "sslmode": "disable"}
        return f"postgresql:///?{'&'.join([urlencode(known, quote_via=quote), *schema])}"

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 where clients connect."""
        return int(self._reservation.getsockname()[1])

    @property
    def strikes(self) -> int:
        """How many requests were struck by a fault so far."""
        return self._strikes

    def start(self) -> None:
        """Begin to listen; clients may connect when this returns."""
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_ANSWER_SECONDS)

    def stop(self) -> None:
        """Break every connection and end the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_ANSWER_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_SECONDS)
        self._loop.close()
        self._reservation.close()

    def inject(
        self, fault: Fault, *, on: bytes = b"", times: int | None = 1, delay_seconds: float = 0.0
    ) -> None:
        """Strike the next requests that contain `on`, `times` of them, or all when it is None.

        REFUSE concerns connections, at once and until `heal`, and counts no strikes.
        """
        asyncio.run_coroutine_threadsafe(
            self._set(_Rule(fault, on, delay_seconds), times), self._loop
        ).result(_ANSWER_SECONDS)

    def release(self) -> None:
        """Let every request that is held now arrive."""
        self._loop.call_soon_threadsafe(self._let_go)

    def heal(self) -> None:
        """Strike nothing from now on, and let held requests arrive."""
        self.inject(Fault.PASS)
        self.release()

    def wait_struck(self, strikes: int = 1, *, timeout_seconds: float = 10.0) -> None:
        """Wait until so many strikes have happened; raises TimeoutError."""
        with self._struck:
            if not self._struck.wait_for(lambda: self._strikes >= strikes, timeout_seconds):
                raise TimeoutError(
                    f"{self._strikes} of {strikes} expected strikes after {timeout_seconds} s"
                )

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._serve, "127.0.0.1", self.port, reuse_port=True
            )

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        tasks = list(self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the loop's next turn

    async def _set(self, rule: _Rule, times: int | None) -> None:
        self._rule, self._times = rule, times
        if rule.fault is Fault.REFUSE:
            await self._close()
        else:
            await self._listen()

    def _let_go(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    def _take(self, before: bytes, chunk: bytes) -> _Rule:
        """Return the rule that strikes this chunk, and count the strike.

        A pattern may begin in what was sent before; an occurrence that ended there was judged then.
        """
        rule = self._rule
        begun = before[max(0, len(before) - len(rule.on) + 1) :] if rule.on else b""
        if rule.fault in (Fault.PASS, Fault.REFUSE) or rule.on not in begun + chunk:
            return _PASS
        if self._times is not None:
            self._times -= 1
            if self._times == 0:
                self._rule = _PASS
        with self._struck:
            self._strikes += 1
            self._struck.notify_all()
        return rule

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            if isinstance(self._target, Path):
                server = await asyncio.open_unix_connection(self._target)
            else:
                server = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()  # the server refuses, so the relay does
            return
        struck = _Struck()
        try:
            # One side that goes away ends the connection; it is the client's to complain.
            with suppress(ConnectionError):
                await asyncio.gather(
                    self._carry_requests(reader, server[1], struck),
                    _carry_replies(server[0], writer, struck),
                )
        finally:
            writer.transport.abort()
            server[1].transport.abort()

    async def _carry_requests(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, struck: _Struck
    ) -> None:
        before = b""
        while chunk := await _read_until_gone(client):
            rule = self._take(before, chunk)
            before = (before + chunk)[-_PATTERN_BYTES:]
            if rule.fault is Fault.LOSE_REQUEST:
                raise ConnectionAbortedError("the request was lost on purpose")
            if rule.fault is Fault.HOLD_REQUEST:
                await self._released.wait()
            elif rule.fault is Fault.DELAY_REQUEST:
                await asyncio.sleep(rule.delay_seconds)
            elif rule.fault in (Fault.LOSE_REPLY, Fault.CUT_REPLY):
                struck.reply = rule.fault
            server.write(chunk)
            await server.drain()
        server.write_eof()


def _parted(url: str) -> tuple[str, list[str]]:
    """Return what libpq reads of a URL, and the parts that name the schema: those are ours."""
    base, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    ours = [part for part in parts if part.startswith("schema=")]
    rest = [part for part in parts if part not in ours]
    return (f"{base}?{'&'.join(rest)}" if rest else base), ours


async def _read_until_gone(client: asyncio.StreamReader) -> bytes:
    try:
        return await client.read(_CHUNK_BYTES)
    except ConnectionError:
        return b""  # a client that broke off has sent all that it will


async def _carry_replies(
    server: asyncio.StreamReader, client: asyncio.StreamWriter, struck: _Struck
) -> None:
    # Read to the end even when the client is gone: a server that cannot answer may undo what it
    # was asked to do, and these faults are about answers that were given.
    while chunk := await server.read(_CHUNK_BYTES):
        if struck.reply is Fault.LOSE_REPLY:
            client.transport.abort()
        elif not client.is_closing():
            half = _half_of_body(chunk) if struck.reply is Fault.CUT_REPLY else 0
            with suppress(ConnectionError):
                client.write(chunk[:half] if half else chunk)
                await client.drain()
            if half:
                client.close()  # in order, so that the half arrives before the end does
    client.close()


def _half_of_body(chunk: bytes) -> int:
    """Return how much of a chunk to pass on so that its body is cut; 0 if it has none.

    An HTTP answer's body is what follows the empty line. Of any other protocol it is everything.
    """
    head, empty_line, body = chunk.partition(_EMPTY_LINE)
    if not empty_line:
        return len(chunk) // 2
    return len(head) + len(empty_line) + len(body) // 2 if body else 0
