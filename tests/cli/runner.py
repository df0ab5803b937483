"""The command line as its users run it: a process of its own, with an environment of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settled.domain.journal.port import AgendaRow
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import open_journal

SHOP = Path(__file__).with_name("shop.py")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed with --json."""
        assert self.out, self.err
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error that it printed with --json."""
        assert self.out == ""
        error: dict[str, Any] = json.loads(self.err)["error"]
        return error


@dataclass(frozen=True)
class CommandLine:
    """Runs `settled` on one store."""

    url: str
    folder: Path

    @property
    def effects(self) -> list[str]:
        """What the shop's kinds have done."""
        file = self.folder / "effects.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """What the process finds in its environment; nothing of settled's but this."""
        own = {n: v for n, v in os.environ.items() if not n.startswith("SETTLED_")}
        return own | {
            "PYTHONPATH": str(ROOT),
            "SETTLED_URL": self.url,
            "SETTLED_KINDS": str(SHOP),
            "SETTLED_TENANT": "acme",
            "SETTLED_ACTOR": "ada",
            "SETTLED_STATE_DIR": str(self.folder / "state"),
            "SHOP_FILE": str(self.folder / "effects.txt"),
        }

    def __call__(self, *arguments: str, given: bytes = b"", **environment: str) -> Done:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "settled", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            input=given,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def stored(self) -> tuple[int, int]:
        """Return how many events and how many streams the store holds."""
        journal = open_journal(self.url, require_fsync=False)
        try:
            return len(journal.read(0, 1000).events), len(journal.heads(limit=1000))
        finally:
            journal.close()

    def until(self, operation_id: str, met: Callable[[AgendaRow], bool]) -> Any:
        """Wait until an operation's row is as it has to be; return what `ops show` says then."""
        give_up_at = elapsed_seconds() + PATIENCE_SECONDS
        journal = open_journal(self.url, require_fsync=False)
        try:
            while True:
                rows = [row for row in journal.heads() if row.identity == operation_id]
                if any(map(met, rows)):
                    break
                assert elapsed_seconds() < give_up_at, rows
                time.sleep(0.01)
        finally:
            journal.close()
        return self("ops", "show", operation_id, "--json").document

    @contextmanager
    def worker(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """Run a worker that works when the block begins, and is told to stop at its end."""
        command = [sys.executable, "-m", "settled", "worker", "--json", "--idle-seconds", "0.02"]
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout is not None
                readable, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
                line = process.stdout.readline() if readable else ""
                assert line and json.loads(line)["ready"] is True, process.stderr
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE_SECONDS)
