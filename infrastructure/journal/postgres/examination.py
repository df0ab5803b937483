"""What doctor looks at: settings and states under which commits can be lost or nothing moves."""

from __future__ import annotations

from collections.abc import Iterator

from settled.domain.journal.port import Diagnosis
from settled.infrastructure.journal.postgres import installation
from settled.infrastructure.journal.postgres.address import Connection, Texts

UNSAFE = {
    "fsync": "a crash of the machine can lose what was committed, and break the database",
    "full_page_writes": "a crash of the machine can leave half a page, and with it a broken table",
    "synchronous_commit": "the last commits before a crash are lost after they were acknowledged",
}
"""Server setting -> what can happen while it is off."""

_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)"

_STATES = {
    "standby": """
        SELECT format('The standby %s replicates asynchronously: a failover to it loses the last'
                      ' commits, and with them what was sent.',
                      coalesce(nullif(r.application_name, ''), r.pid::text))
          FROM pg_stat_replication r WHERE r.sync_state = 'async'""",
    "snapshot": """
        SELECT format('Session %s (%s) has kept a snapshot for %s s: %s transactions cannot be'
                      ' cleaned up after, and claims slow down.', a.pid, a.application_name,
                      extract(epoch FROM clock_timestamp() - a.xact_start)::int8,
                      age(a.backend_xmin))
          FROM pg_stat_activity a
         WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
           AND a.xact_start < clock_timestamp() - interval '5 minutes'
         ORDER BY age(a.backend_xmin) DESC LIMIT 1""",
    "holder": """
        SELECT format('Session %s (%s) has events that it neither commits nor rolls back since'
                      ' %s s: every reader of the log stops in front of them.', a.pid,
                      a.application_name,
                      extract(epoch FROM clock_timestamp() - a.state_change)::int8)
          FROM pg_stat_activity a
         WHERE a.state LIKE 'idle in transaction%' AND EXISTS (
               SELECT FROM pg_locks l
                WHERE l.pid = a.pid AND l.relation = '{schema}.events'::regclass
                  AND l.mode = 'RowExclusiveLock')""",
    "prepared": """
        SELECT format('The prepared transaction %s is open since %s: readers of the log may wait'
                      ' for it, and nothing can be cleaned up after it.', p.gid, p.prepared)
          FROM pg_prepared_xacts p WHERE p.database = current_database()""",
    "workers": """
        SELECT 'No worker is alive: nothing is dispatched or reconciled.'
         WHERE NOT EXISTS (
               SELECT FROM {schema}.worker w WHERE w.lease_until > clock_timestamp())""",
    "parked": """
        SELECT format('%s streams are parked: they were taken again and again without progress.',
                      count(*))
          FROM {schema}.agenda a WHERE a.parked_at IS NOT NULL HAVING count(*) > 0""",
}
"""Subject -> the query that returns one message for each diagnosis about it."""


def unsafe_settings(connection: Connection) -> list[str]:
    """Return those settings that are off and must not be."""
    rows = connection.execute(_SETTINGS, (list(UNSAFE),))
    return sorted(name for name, setting in rows if setting == "off")


def examine(connection: Connection, texts: Texts) -> Iterator[Diagnosis]:
    """Yield what needs somebody's attention, the dangerous first."""
    for name in unsafe_settings(connection):
        yield Diagnosis("fail", name, f"{name} is off: {UNSAFE[name]}.")
    bound = installation.read(connection, texts)
    changed = bound.changed
    if bound.copy_of:
        yield Diagnosis("fail", "installation", str(changed))
    elif changed:
        yield Diagnosis(
            "fail",
            "installation",
            f"Not the database that was bound: {changed}. Run `settled adopt`.",
        )
    for subject, query in _STATES.items():
        for (message,) in connection.execute(texts[query]).fetchall():
            yield Diagnosis("warn", subject, message)
    anchor = installation.anchor(connection, texts)
    try:
        anchor.advance(anchor.position())
    except OSError as error:
        yield Diagnosis(
            "warn",
            "anchor",
            f"A restore to an earlier point would not be noticed: {error}. Let SETTLED_STATE_DIR"
            " name a folder that can be written.",
        )
