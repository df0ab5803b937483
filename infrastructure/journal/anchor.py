"""How far a log had come, kept outside its database, so that a restore is noticed.

A database that was restored to an earlier point cannot know it. A small file of this host does:
the log may never end before the position that stands there.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path


def state_directory() -> Path:
    """Return where this host keeps its anchors: SETTLED_STATE_DIR, or the user's state folder."""
    if named := os.environ.get("SETTLED_STATE_DIR"):
        return Path(named)
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "settled"
    return Path.home() / ".local" / "state" / "settled"


class Anchor:
    """The highest settled position seen of one database; `name` tells databases apart.

    Every method raises OSError where the file or its folder cannot be used.
    """

    def __init__(self, name: str, directory: Path | None = None) -> None:
        self.path = (directory or state_directory()) / f"{name}.anchor"

    def position(self) -> int:
        """Return the position; 0 when none was ever recorded here."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return 0
        try:
            return int(json.loads(text)["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"{self.path} is damaged: {error}") from error

    def advance(self, position: int) -> None:
        """Record a position; one that is lower than the recorded one changes nothing."""
        self._write(position, lower=False)

    def reset(self, position: int) -> None:
        """Record a position, also a lower one: the database was bound anew."""
        self._write(position, lower=True)

    def _write(self, position: int, *, lower: bool) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The lock is on a file of its own, because the anchor itself is replaced.
        with self.path.with_suffix(".lock").open("ab") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not lower and position <= self.position():
                return
            fresh = self.path.with_suffix(".new")
            with fresh.open("w", encoding="utf-8") as file:
                json.dump({"position": position}, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
