"""Running somebody else's blocking function from the loop, without letting it hold anything up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def on_thread(function: Callable[..., T], *arguments: Any, seconds: float) -> T:
    """Run a function on a thread of its own and return its result; TimeoutError after `seconds`.

    A thread cannot be ended: one that hangs goes on as a daemon, takes no place of a pool from
    anybody else, and does not keep the process from ending. Whatever the function raises, its
    caller gets.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # given up: nobody waits for it any more
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except Exception as caught:
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name=f"settled-{function!r:.60}", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await future
