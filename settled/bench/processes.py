"""The processes of an experiment: they say JSON lines, do what they are told, and end with us."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import settled
from settled.infrastructure.clock import elapsed_seconds

READY_SECONDS = 60.0
ANSWER_SECONDS = 1_800.0
_END_SECONDS = 30.0

WORKER = ("settled.verify.minded", "worker", "--json", "--kinds", "settled.bench.kinds")
"""`settled worker`, which ends with whoever started it; --url and more are to be added."""


class Process:
    """A Python module that runs as a process of its own."""

    def __init__(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._words = " ".join(words)
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=log.parent,
                env={**os.environ, **path_to_us(), **(environment or {})},
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def answer(self, timeout_seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Return the next line that it says; raises RuntimeError with its log when there is none.

        A line that is no JSON object is somebody else's word (a library greets), and passed over.
        """
        assert self._process.stdout is not None
        give_up_at = elapsed_seconds() + timeout_seconds
        while True:
            left_seconds = max(0.0, give_up_at - elapsed_seconds())
            readable, _, _ = select.select([self._process.stdout], [], [], left_seconds)
            line = self._process.stdout.readline() if readable else ""
            if not line:
                said = self._log.read_text(encoding="utf-8", errors="replace")[-2_000:]
                raise RuntimeError(f"{self._words} said nothing more. {said}")
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                return told

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: it closes nothing."""
        self._process.kill()
        self._process.wait(_END_SECONDS)

    def end(self) -> None:
        """Ask it to end, and wait; what does not end is killed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def running(
    folder: Path, *words: str, environment: Mapping[str, str] | None = None
) -> Generator[Process]:
    """Run a module until the end of the block; the block begins when it has said a first line."""
    with started(folder, *words, environment=environment) as process:
        process.answer(READY_SECONDS)
        yield process


@contextmanager
def started(
    folder: Path, *words: str, environment: Mapping[str, str] | None = None
) -> Generator[Process]:
    """Run a module until the end of the block, and begin at once: it has said nothing yet."""
    process = Process(words, folder / f"{words[0]}.log", environment)
    try:
        yield process
    finally:
        process.end()


def serve(ready: dict[str, Any] | None = None) -> None:
    """In such a process: say that it is ready, and wait until it may go on."""
    say({"ready": True, **(ready or {})})
    if not sys.stdin.readline():
        raise SystemExit(0)


def say(told: dict[str, Any]) -> None:
    """In such a process: say a line."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def stay() -> None:
    """In such a process: work on threads of its own until it is ended, or its starter is gone."""
    while sys.stdin.readline():
        pass
    os._exit(0)


def mind() -> None:
    """In such a process: end when the starter is gone, whatever the main thread does then."""
    threading.Thread(target=stay, daemon=True).start()


def pause_seconds(number: int) -> float:
    """Return how long to wait before the next single operation: until a worker is idle.

    The pauses differ, so that they do not fall into step with anybody's looking.
    """
    return 0.3 + 0.1 * (number * 0.618 % 1)


def path_to_us() -> dict[str, str]:
    """Return the environment under which a child finds this package, installed or not."""
    ours = str(Path(settled.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{ours}{os.pathsep}{path}" if path else ours}
