"""The command line on a host whose clock is wrong: `python shifted.py SECONDS [FILE STEP] …`.

The host's clock is SECONDS off; with FILE, it steps by STEP seconds more when that file appears.
Clocks that nobody can set (monotonic, since boot) go on as they are, as on a real host.
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
    offset_seconds, path, step_seconds, *arguments = sys.argv[1:]
    with time_machine.travel(0):
        pass  # its first time takes long, and would be missing from the shifted clock
    shift = _shifted(float(offset_seconds))

    def step() -> None:
        while not os.path.exists(path):
            time.sleep(0.005)  # nothing tells of a new file; only the stepping thread waits here
        shift.stop()
        _shifted(float(offset_seconds) + float(step_seconds))
        os.rename(path, path + ".done")

    threading.Thread(target=step, daemon=True).start()
    from settled.cli import run

    sys.exit(run(arguments))


def _shifted(seconds: float) -> time_machine.travel:
    shift = time_machine.travel(datetime.now(UTC) + timedelta(seconds=seconds), tick=True)
    shift.start()
    return shift


if __name__ == "__main__":
    main()
