"""The command line on a host whose clock is wrong: `python shifted.py SECONDS FILE STEP …`.

The host's clock is SECONDS off, and steps by STEP seconds more when FILE appears. Clocks that
nobody can set (monotonic, since boot) go on as they are, as on a real host.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import time_machine


def main() -> None:
    """Shift the clock, then run `settled`."""
    offset, path, step, *arguments = sys.argv[1:]
    clock = time_machine.travel(0, tick=True).start()
    _set_off(clock, float(offset))

    def step_when_told() -> None:
        while not os.path.exists(path):
            time.sleep(0.005)  # nothing tells of a new file; only the stepping thread waits here
        _set_off(clock, float(offset) + float(step))
        os.rename(path, path + ".done")

    threading.Thread(target=step_when_told, daemon=True).start()
    from settled.cli import run

    sys.exit(run(arguments))


def _set_off(clock: time_machine.Traveller, seconds: float) -> None:
    """Set the clock so that it is this far from the host's true time."""
    off = datetime.now(UTC) - time_machine.escape_hatch.datetime.datetime.now(UTC)
    clock.shift(timedelta(seconds=seconds) - off)


if __name__ == "__main__":
    main()
