"""Up to where the log is settled: found by asking who could still fill a hole.

Positions come from a sequence, and transactions end in another order than they drew them, so there
are holes: some will be filled, others never. An INSERT takes its lock on the events table before it
draws a position, and keeps it until its rows are visible. So when everybody who held that lock
after a position was seen has gone, no lower position can appear any more. No clock, no timeout, no
transaction id: a dump and restore invalidates nothing, and an old transaction that never wrote
events holds nobody up.
"""

from __future__ import annotations

import threading

from settled.infrastructure.journal.postgres.address import Connection, Texts

# One statement, because both answers have to come from one snapshot: the highest position, and the
# end of the run without a hole above the mark.
_TAIL = """
SELECT (SELECT max(e.position) FROM {schema}.events e),
       (SELECT max(run.position)
          FROM (SELECT e.position, %(mark)b::int8 + row_number() OVER (ORDER BY e.position) AS n
                  FROM (SELECT e.position FROM {schema}.events e
                         WHERE e.position > %(mark)b::int8 ORDER BY e.position LIMIT 2000) e) run
         WHERE run.position = run.n)"""

_HOLDERS = """
SELECT DISTINCT l.virtualtransaction FROM pg_locks l
 WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
   AND l.relation = '{schema}.events'::regclass
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"""


class HighWater:
    """The mark of one process: everything up to it is settled. Safe to use from several threads."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._mutex = threading.Lock()
        self._mark = 0
        self._pending: tuple[int, set[str]] | None = None

    @property
    def mark(self) -> int:
        """The position up to which nothing can appear any more, as far as was asked."""
        return self._mark

    def advance(self, connection: Connection) -> int:
        """Move the mark as far as it can be moved now, and return it. Waits for nobody."""
        with self._mutex:
            tail = connection.execute(self._texts[_TAIL], {"mark": self._mark}, prepare=True)
            highest, run_end = tail.fetchone() or (None, None)
            self._mark = max(self._mark, run_end or 0)
            if highest is None or highest <= self._mark:
                self._pending = None
                return self._mark
            # Asked after `highest` was seen: whoever comes later draws a higher position.
            found = connection.execute(self._texts[_HOLDERS], prepare=True)
            holders = {holder for (holder,) in found}
            pending = self._pending
            if pending is None or pending[0] <= self._mark:
                pending = highest, holders
            awaited, waited_for = pending[0], pending[1] & holders
            if waited_for:
                self._pending = awaited, waited_for
            else:
                self._mark = max(self._mark, awaited if holders else highest)
                self._pending = (highest, holders) if holders else None
            return self._mark
