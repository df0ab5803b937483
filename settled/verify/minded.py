"""`settled`, as long as whoever started it lives: `python -m settled.verify.minded worker …`.

A run of the battery may itself be killed, and its workers must not go on without it: they would
hold the user's database for nobody. Standard input is a pipe whose other end is the starter's. It
ends when the starter does, and that is the end of this process too.

SETTLED_VERIFY_CLOCK puts the clock of this process wrong: `SECONDS STEP FILE` is SECONDS off, and
steps by STEP seconds more when FILE appears. What this process then takes for the time is in
FILE.shifted and, after the step, in FILE.stepped, in seconds since 1970. The system, whose clock is
right, stamps these files, so that a check can see that the clock is really wrong. Clocks that
nobody can set (monotonic, since boot) go on as they are, as on a real host.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import time_machine

CLOCK_VARIABLE = "SETTLED_VERIFY_CLOCK"
_LOOK_SECONDS = 0.005


def main() -> None:
    """Mind the starter, put the clock wrong if that is wanted, then run `settled`."""
    threading.Thread(target=mind, daemon=True).start()
    if wrong := os.environ.get(CLOCK_VARIABLE):
        seconds, step, file = wrong.split(" ", 2)
        _shift(float(seconds), Path(file), float(step))
    from settled.cli import run

    sys.exit(run(sys.argv[1:]))


def mind() -> None:
    """Kill this process when its standard input ends: whoever started it is gone."""
    # Read without a buffer: its lock would keep the interpreter from ending while this waits.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _shift(seconds: float, file: Path, step_seconds: float) -> None:
    import time_machine

    clock = time_machine.travel(0, tick=True).start()
    _set_off(clock, seconds)
    _tell_time(told_file(file, "shifted"))

    def step_when_told() -> None:
        while not file.exists():
            select.select([], [], [], _LOOK_SECONDS)  # nothing tells of a new file
        _set_off(clock, seconds + step_seconds)
        _tell_time(told_file(file, "stepped"))

    threading.Thread(target=step_when_told, daemon=True).start()


def told_file(file: Path, when: str) -> Path:
    """Return where a process whose clock is wrong writes what it takes for the time."""
    return file.with_name(f"{file.name}.{when}")


def _tell_time(file: Path) -> None:
    unfinished = file.with_name(f"{file.name}.part")
    unfinished.write_text(str(datetime.now(UTC).timestamp()))
    unfinished.rename(file)  # at once, for whoever waits for it


def _set_off(clock: time_machine.Traveller, seconds: float) -> None:
    """Set the clock so that it is this far from the host's true time."""
    import time_machine

    off = datetime.now(UTC) - time_machine.escape_hatch.datetime.datetime.now(UTC)
    clock.shift(timedelta(seconds=seconds) - off)


if __name__ == "__main__":
    main()
