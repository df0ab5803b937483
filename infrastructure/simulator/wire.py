"""HTTP/1.1 as far as the simulated provider needs it: read a request, write or break an answer."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from settled.infrastructure.simulator.plan import Delivery

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 1_000_000

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_GARBAGE = b"\x16\x03\x01 this is not HTTP\r\n\r\n"


class Refused(Exception):
    """The request cannot be read: it is answered with this status, and the connection closed."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(HTTPStatus(status).phrase)


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came over the wire. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants to send another request over this connection."""
        return self.headers.get("connection", "").lower() != "close"


async def read_request(reader: asyncio.StreamReader) -> Incoming | None:
    """Return the next request, or None when the client is gone, even in the middle of one.

    Raises `Refused` for what is malformed or too large.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError:
        raise Refused(431) from None
    request_line, *lines = head[:-4].decode("latin-1").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Refused(400)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise Refused(400)
        headers[name.lower()] = value.strip()
    url = urlsplit(parts[1])
    body = await _read_body(reader, headers)
    if body is None:
        return None
    return Incoming(parts[0], unquote(url.path), dict(parse_qsl(url.query)), headers, body)


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes | None:
    if "transfer-encoding" in headers:
        raise Refused(411)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise Refused(400)
    if len(length) > 12 or int(length) > MAX_BODY_BYTES:
        raise Refused(413)
    try:
        return await reader.readexactly(int(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def encoded(body: Any) -> tuple[bytes, str]:
    """Return a body and its content type: text stays as it is, anything else becomes JSON."""
    if body is None:
        return b"", "text/plain"
    if isinstance(body, str):
        return body.encode(), "text/plain"
    return json.dumps(body).encode(), "application/json"


async def write_answer(
    writer: asyncio.StreamWriter,
    status: int,
    headers: dict[str, str],
    body: Any,
    reply: Delivery = Delivery.ANSWER,
) -> bool:
    """Send the answer, or break it as told. Return whether the connection is still good."""
    content, content_type = encoded(body)
    sent = {"content-type": content_type, "content-length": str(len(content))}
    sent |= {name.lower(): value for name, value in headers.items()}
    phrase = _PHRASES.get(status, "Status")
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{n}: {v}" for n, v in sent.items())]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    match reply:
        case Delivery.ANSWER:
            writer.write(head + content)
        case Delivery.CUT_STATUS_LINE:
            writer.write(head[: len("HTTP/1.1 201 Cre")])
        case Delivery.CUT_BODY:
            writer.write(head + content[: len(content) // 2])
        case Delivery.GARBAGE:
            writer.write(_GARBAGE)
        case Delivery.RESET if not writer.is_closing():
            # With lingering on and zero seconds of it, closing sends RST in place of FIN.
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        case Delivery.CLOSE | Delivery.RESET:
            pass  # a client that was killed in its call has closed the connection itself
    try:
        await writer.drain()
    except ConnectionError:
        return False  # The client has left: whether it heard is what the test is about.
    return reply is Delivery.ANSWER
