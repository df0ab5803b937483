"""A runner of projections in a process of its own: `python -m tests.projections.runner URL WHAT`.

It waits for a line on its input, so that several begin together, and then catches up. When WHAT is
`die` it is killed inside the transaction: the rows of a page are written, nothing is committed.
With `die-after` it is killed once its second transaction is committed, and nobody has heard of it.
"""

from __future__ import annotations

import sys
from typing import Any

import settled
from settled import Projector
from tests.projections.parcels import PAGE, Counted, Deadly
from tests.projections.rebuilder import Killing

_, url, what = sys.argv
with settled.open(url, migrate=False, require_fsync=False) as app:
    print("ready", flush=True)
    sys.stdin.readline()
    projector = app.projector()
    if what == "die-after":
        views: Any = Killing(projector.views, "after", 2)
        projector = Projector(app.journal, app.ledger.mapper, views)
    print(projector.catch_up(Deadly() if what == "die" else Counted(), PAGE))
