"""A worker of the battery: a process that really dies, and does not outlive the run."""

from __future__ import annotations

import select
import signal
import subprocess
from collections.abc import Callable

_KILL_SECONDS = 10.0


class WorkerProcess:
    """A `settled worker` in a process of its own. `strike` is told what is done to it."""

    def __init__(
        self, name: str, process: subprocess.Popen[str], strike: Callable[[str], None]
    ) -> None:
        self.name = name
        self.process = process
        self._strike = strike
        self._said = ""
        self._thawer: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def ready(self, timeout_seconds: float) -> bool:
        """Tell whether it has said, within this time, that it has its place among the others."""
        if not self._said:
            assert self.process.stdout is not None
            readable, _, _ = select.select([self.process.stdout], [], [], timeout_seconds)
            self._said = self.process.stdout.readline() if readable else ""
        return bool(self._said)

    def kill(self) -> None:
        """SIGKILL: no handler runs."""
        self._strike("SIGKILL")
        self.process.kill()
        self.process.wait(_KILL_SECONDS)

    def freeze(self) -> None:
        """SIGSTOP: it stands still between two instructions."""
        self._strike("SIGSTOP")
        self._see_thawed()
        self.process.send_signal(signal.SIGSTOP)

    def _see_thawed(self) -> None:
        """Make sure that it is thawed if this process dies: what stands still sees no end of us."""
        if self._thawer is None:
            self._thawer = subprocess.Popen(
                ["/bin/sh", "-c", 'read _; kill -CONT "$0"', str(self.pid)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, timeout_seconds: float = 30) -> int:
        """SIGTERM, and wait for the drained end; returns the exit status."""
        self.process.terminate()
        return self.process.wait(timeout_seconds)

    def wait_killed(self, timeout_seconds: float = 30) -> None:
        """Wait until a fault point has killed it."""
        assert self.process.wait(timeout_seconds) == -signal.SIGKILL

    def end(self) -> None:
        """Kill it if it still runs, and close what we hold of it."""
        if self.running:
            self.process.kill()
            self.process.wait(_KILL_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        if self._thawer is not None:
            self._thawer.kill()
            self._thawer.communicate()
            self._thawer = None
