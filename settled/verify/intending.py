"""A process that intends one refund when it is told to, and those who start it.

`python -m settled.verify.intending URL ID` says "ready" when the store is open, intends at each
line that it reads, prints what it was given or which error it met, and ends when its standard input
does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import settled
from settled import Money, SettledError
from settled.verify.stage import AGENT, Stage

_READY = "ready\n"


class IntendingProcess:
    """Such a process, seen from the one that started it."""

    def __init__(self, stage: Stage, operation_id: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "settled.verify.intending", stage.url, operation_id],
            env=stage.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> IntendingProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)  # closes its pipes and waits: it ends by itself

    def wait_ready(self) -> None:
        """Wait until it has opened the store."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == _READY, "it could not open the store"

    def go(self) -> None:
        """Let it intend."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the key and the version that it was given, or the error and its message."""
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: it closes nothing."""
        self._process.kill()
        self._process.wait(10)


def main(url: str, operation_id: str) -> None:
    """Intend at the word of whoever started this process."""
    from settled.verify import kinds

    with settled.open(url, kinds=[kinds.refund]) as app:
        _say(_READY)
        params = kinds.RefundParams(order="order-72", amount=Money("30.00", "USD"))
        for _ in sys.stdin:
            try:
                view = app.operations.intend(kinds.refund, operation_id, params, by=AGENT)
                told = {"key": view.provider_key, "version": view.version}
            except SettledError as error:
                told = {"error": type(error).__name__, "message": str(error)}
            _say(json.dumps(told) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
