"""Notifiers: one that writes to the log, and one that runs a command of the user's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from settled.domain.notifier import NotDelivered, Notice
from settled.processes.log import logger

_SHOWN_CHARACTERS = 500


class LogNotifier:
    """Writes each notice to the log as a warning: for a start, or where alerts read the log."""

    def __init__(self) -> None:
        self._log = logger("settled.notify")

    def notify(self, notice: Notice) -> None:
        """Write the notice."""
        self._log.warning("operation_handed_over", **notice.as_json())


class CommandNotifier:
    """Runs a command with the notice as one JSON object on its standard input.

    `command` is a program and its arguments; no shell reads them, so nothing in a notice can be
    taken for a command. Exit status 0 means delivered.
    """

    def __init__(self, command: Sequence[str], *, timeout_seconds: float = 30.0) -> None:
        self._command = tuple(command)
        self._timeout_seconds = timeout_seconds

    def notify(self, notice: Notice) -> None:
        """Run the command. Raises `NotDelivered` if it fails, is missing, or takes too long."""
        program = self._command[0]
        try:
            done = subprocess.run(
                self._command,
                input=json.dumps(notice.as_json()).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self._timeout_seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise NotDelivered(f"{program} took over {self._timeout_seconds:g} s") from error
        except OSError as error:
            raise NotDelivered(f"{program} cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[:_SHOWN_CHARACTERS]
            raise NotDelivered(f"{program} ended with {done.returncode}: {said}")
