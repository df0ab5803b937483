"""One HTTP request, sent once, with proof of whether its first byte was written.

Every HTTP client repeats something behind one's back, or reports with one class of error what was
never sent and what was sent and lost. Here nothing is repeated: no retries, no redirects, no
proxy, no cookies; the connection pool is used without the client on top of it. And what happened
is judged by *phase*, not by class of error: the pool tells, through its trace hook, when it is
about to write the first byte. Before that, nothing was sent; after it, anything may have been.

Connections are kept for two seconds only. A server that closes an idle connection in the very
moment in which a request is written on it leaves an unknown outcome behind, which costs more
than a handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import httpx2

MAX_REPLY_BYTES = 1024 * 1024

_FIRST_BYTE_IS_NEXT = "http11.send_request_headers.started"
_KEEP_SECONDS = 2.0
_MAX_CONNECTIONS = 1_000
_CLOSE_DISCARDS = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""Closing a connection throws away what it has not delivered: without this, the kernel goes on
delivering a request that was given up, and "nothing can arrive any more" would not be true."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete answer. Names of headers are in lower case; repeated ones are joined by comma."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NoReply:
    """No usable answer. `begun` tells whether the first byte may have been written."""

    begun: bool
    reason: str
    error: str = ""
    """The class of the exception, where there was one."""
    status: int | None = None
    """The status of an answer that began, and is only a hint."""


class _Forbidden(Exception):
    """The permit was over when the first byte was next."""


class SingleAttempt:
    """Sends HTTP/1.1 requests, each once. Safe to use from several event loops.

    `tls` is for a private certificate authority or a client certificate; by default the public
    authorities are trusted and the environment is not asked.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        # A pool's connections belong to the event loop in which they were opened.
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncHTTPTransport] = (
            WeakKeyDictionary()
        )

    async def send(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        *,
        timeout_seconds: float,
        forbidden: Callable[[], str | None] = lambda: None,
    ) -> HttpReply | NoReply:
        """Send the request once and return what came of it; cancellation alone is raised.

        `forbidden` is asked immediately before the first byte: a reason keeps it from being
        written. The whole may take `timeout_seconds`, connecting at most half of it, because a
        request that begins late is more likely to be lost than to be answered.
        """
        begun = False
        status: int | None = None

        async def trace(event: str, _: Mapping[str, Any]) -> None:
            nonlocal begun
            if event == _FIRST_BYTE_IS_NEXT:
                reason = forbidden()
                if reason is not None:
                    raise _Forbidden(reason)
                begun = True

        half_seconds = timeout_seconds / 2
        limits = {"connect": half_seconds, "pool": half_seconds, "read": None, "write": None}
        try:
            request = httpx2.Request(
                method,
                url,
                headers=list(headers),
                content=body,
                extensions={"trace": trace, "timeout": limits},
            )
            # Made outside the time limit: reading the authorities takes a busy host a while.
            pool = self._pool()
            async with asyncio.timeout(timeout_seconds):
                response = await pool.handle_async_request(request)
                status = response.status_code
                return await _read(response)
        except _Forbidden as forbade:
            return NoReply(begun, str(forbade))
        except TimeoutError as error:
            reason = f"no complete answer within {timeout_seconds:g} s"
            return NoReply(begun, reason, type(error).__name__, status)
        except Exception as error:
            # Whatever it is: the phase decides what it means, and the finding records the class.
            return NoReply(begun, _described(error), type(error).__name__, status)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def _pool(self) -> httpx2.AsyncHTTPTransport:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = httpx2.AsyncHTTPTransport(
                verify=self._tls or True,
                trust_env=False,
                http1=True,
                http2=False,
                retries=0,
                limits=httpx2.Limits(
                    max_connections=_MAX_CONNECTIONS, keepalive_expiry=_KEEP_SECONDS
                ),
                socket_options=[_CLOSE_DISCARDS],
            )
        return pool


async def _read(response: httpx2.Response) -> HttpReply | NoReply:
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_REPLY_BYTES:
                reason = f"the reply is larger than {MAX_REPLY_BYTES} bytes"
                return NoReply(True, reason, status=response.status_code)
    finally:
        await response.aclose()
    return HttpReply(response.status_code, dict(response.headers), bytes(body))


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
