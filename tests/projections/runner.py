"""A runner of projections in a process of its own: `python -m tests.projections.runner URL WHAT`.

It waits for a line on its input, so that several begin together, and then catches up. When WHAT is
`die` it is killed inside the transaction: the rows of a page are written, nothing is committed.
"""

from __future__ import annotations

import sys

import settled
from tests.projections.parcels import PAGE, Counted, Deadly

_, url, what = sys.argv
with settled.open(url, migrate=False, require_fsync=False) as app:
    print("ready", flush=True)
    sys.stdin.readline()
    print(app.projector().catch_up(Deadly() if what == "die" else Counted(), PAGE))
