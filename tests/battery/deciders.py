"""People who decide, each in a process of their own, so that they meet in the store alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from settled.verify.stage import Stage

HERE = Path(__file__).parent


class Decider:
    """One person at one screen."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self.process = process
        self.name = name

    def ready(self) -> None:
        """Wait until the screen shows something."""
        assert self._line() == "ready", f"{self.name} did not start"

    def press(self, what: str, operation_id: str, kind: str = "decided", **given: Any) -> None:
        """Press a button, and do not wait for what comes of it."""
        assert self.process.stdin is not None
        line = json.dumps({"what": what, "id": operation_id, "kind": kind, **given})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        """Return what came of it."""
        told: dict[str, Any] = json.loads(self._line())
        return told

    def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def deciders(stage: Stage, *names: str) -> Generator[list[Decider]]:
    """Start a process for each of these people; they are gone at the end."""
    with ExitStack() as stack:
        found: list[Decider] = []
        for name in names:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(HERE / "deciding.py"), stage.url, name],
                    env=stage.environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            found.append(Decider(process, name))
        for decider in found:
            decider.ready()
        yield found
