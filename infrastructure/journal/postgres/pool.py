"""Connections for reading, of which there are some again soon after an outage."""

from __future__ import annotations

from psycopg_pool import ConnectionPool, PoolTimeout

from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.postgres.address import Connection

AGAIN_SECONDS = 0.5
"""How often whoever waits tries to connect, for as long as the server is away."""


class Pool(ConnectionPool[Connection]):
    """A pool that is never slower to come back than `AGAIN_SECONDS` after its server.

    The library doubles the pause after each attempt that failed, so after an outage of a minute
    it may notice up to a minute late. Here attempts are given up at once, and made anew on behalf
    of those who wait: nobody waits, nobody tries.
    """

    def getconn(self, timeout: float | None = None) -> Connection:
        """Return a connection; raises PoolTimeout when there is none within so many seconds."""
        patience_seconds = self.timeout if timeout is None else timeout
        give_up_at = elapsed_seconds() + patience_seconds
        while True:
            left_seconds = give_up_at - elapsed_seconds()
            try:
                return super().getconn(min(AGAIN_SECONDS, max(left_seconds, 0.001)))
            except PoolTimeout as error:
                if left_seconds <= AGAIN_SECONDS:
                    raise PoolTimeout(
                        f"couldn't get a connection after {patience_seconds:.0f} s"
                    ) from error
