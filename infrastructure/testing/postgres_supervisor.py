"""The parent of a PostgreSQL server: when whoever wanted the server dies, the server goes too.

A script of its own, which imports nothing but the standard library, so that it starts in
milliseconds. Being the parent, it can wait for the server and signal it with no doubt about whose
process id that is. It holds the reading end of a pipe: a word there says how to stop, and the end
of the file without a word says that the starting process died.

Arguments: the server's directory, the numeric user and group or -1, then the command. It prints the
server's process id, and exits with the server's exit status.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading

SIGNALS = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "": signal.SIGQUIT,
}
"""How to stop -> the signal that PostgreSQL takes for it; nothing said means nobody is left."""


def supervise(directory: str, user: int, group: int, command: list[str]) -> int:
    """Run the server until it ends, and return its exit status."""
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        user=None if user < 0 else user,
        group=None if group < 0 else group,
        extra_groups=None if group < 0 else [],
    )
    orphaned = threading.Event()

    def listen() -> None:
        word = sys.stdin.readline().strip()
        if not word:
            orphaned.set()
        server.send_signal(SIGNALS[word])

    print(server.pid, flush=True)
    threading.Thread(target=listen, daemon=True).start()
    status = server.wait()
    if orphaned.is_set():
        shutil.rmtree(directory)
    return status


if __name__ == "__main__":
    status = supervise(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    sys.stdout.flush()
    # The listening thread still reads: a normal exit would wait for its lock on standard input.
    os._exit(status if status >= 0 else 128 - status)
