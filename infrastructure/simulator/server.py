"""The simulated provider on a socket of 127.0.0.1.

POST /v1/refunds                have an effect (any collection: /v1/messages, …)
GET  /v1/refunds/{id}           read it, which is also a poll
GET  /v1/refunds?key=…          look up, by key, reference or order
PUT, POST /v1/objects/{name}    an object whose name the client chooses; GET reads it
/admin/…                        the switches and the record, see `admin.py`
"""

from __future__ import annotations

import asyncio
import itertools

from settled.infrastructure.simulator.admin import administer
from settled.infrastructure.simulator.simulator import Simulator
from settled.infrastructure.simulator.wire import (
    MAX_HEAD_BYTES,
    Refused,
    read_request,
    write_answer,
)


class SimulatorServer:
    """Serves one simulator. There is no way to listen on another address: it is not for anybody."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._connections = itertools.count(1)
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> asyncio.Server:
        """Begin to listen, on a free port if none is given."""
        return await asyncio.start_server(
            self._accept, "127.0.0.1", port, limit=MAX_HEAD_BYTES, backlog=1024
        )

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio's (3.11) prints a traceback for each that shutdown cancels.
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = next(self._connections)
        try:
            while await self._serve_one(reader, writer, connection):
                pass
        finally:
            writer.close()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        try:
            incoming = await read_request(reader)
        except Refused as refused:
            await write_answer(writer, refused.status, {"Connection": "close"}, str(refused))
            return False
        if incoming is None:
            return False
        if incoming.path.startswith("/admin/"):
            answer = await administer(self._simulator, incoming)
            good = await write_answer(writer, answer.status, answer.headers, answer.body)
        else:
            good = await self._simulator.provide(incoming, writer, connection)
        return good and incoming.keeps_alive
