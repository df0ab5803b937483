"""What is read from the journal, as statements and the turning of rows into values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from settled.domain.journal.unit import SHARD
from settled.infrastructure.journal.postgres.rows import AGENDA, EVENT

PAGE = f"""
SELECT {EVENT} FROM {{schema}}.events
 WHERE position > %(after)b::int8 AND position <= %(upto)b::int8
 ORDER BY position LIMIT %(limit)b::int8"""

EVENTS = f"""
SELECT {EVENT} FROM {{schema}}.events
 WHERE tenant = %(tenant)b::text AND shard = %(shard)b::int2 AND stream = %(stream)b::uuid
   AND version > %(after)b::int8 AND version <= %(upto)b::int8
 ORDER BY version"""

STREAMS = f"""
SELECT e.*
  FROM unnest(%(tenant)b::text[], %(stream)b::uuid[]) WITH ORDINALITY AS c(tenant, stream, n)
 CROSS JOIN LATERAL (
       SELECT {EVENT} FROM {{schema}}.events e
        WHERE e.tenant = c.tenant AND e.shard = %(shard)b::int2 AND e.stream = c.stream
        ORDER BY e.version) e
 ORDER BY c.n, e.version"""

HEAD = f"""
SELECT {AGENDA} FROM {{schema}}.agenda
 WHERE tenant = %(tenant)b::text AND shard = %(shard)b::int2 AND stream = %(stream)b::uuid"""

REFERENCED = """
SELECT stream FROM {schema}.reference
 WHERE tenant = %(tenant)b::text AND shard = %(shard)b::int2
   AND provider = %(provider)b::text AND reference = %(reference)b::text"""

GUARD = """
SELECT tenant, key, ceiling, reserved, consumed FROM {schema}.guard
 WHERE tenant = %(tenant)b::text AND shard = %(shard)b::int2 AND key = %(key)b::text"""

SET_CEILING = """
INSERT INTO {schema}.guard (tenant, shard, key, ceiling)
VALUES (%(tenant)b::text, %(shard)b::int2, %(key)b::text, %(ceiling)b::int8)
    ON CONFLICT (tenant, shard, key) DO UPDATE SET ceiling = excluded.ceiling"""

LANES = "SELECT lane, paused FROM {schema}.lane ORDER BY lane"

# Each part has an index: what waits by lane, what is owned, what is parked.
OPEN_LANES = """
SELECT l.lane FROM {schema}.lane l CROSS JOIN LATERAL (
       SELECT FROM {schema}.agenda a
        WHERE a.lane = l.lane AND a.due_at IS NOT NULL AND a.owner IS NULL AND a.parked_at IS NULL
        LIMIT 1) a
 UNION SELECT a.lane FROM {schema}.agenda a WHERE a.owner IS NOT NULL AND a.parked_at IS NULL
 UNION SELECT a.lane FROM {schema}.agenda a WHERE a.parked_at IS NOT NULL AND a.due_at IS NOT NULL
 ORDER BY lane"""

PAUSE = """
INSERT INTO {schema}.lane (lane, paused) VALUES (%(lane)b::text, %(paused)b::bool)
    ON CONFLICT (lane) DO UPDATE SET paused = excluded.paused"""

UNPARK = """
UPDATE {schema}.agenda SET parked_at = NULL, takes = 0, owner = NULL
 WHERE tenant = %(tenant)b::text AND shard = %(shard)b::int2 AND stream = %(stream)b::uuid
   AND parked_at IS NOT NULL
RETURNING stream"""

WORKERS = """
SELECT w.epoch, w.name, w.started_at, w.lease_until, w.lease_until <= clock_timestamp(), w.serves
  FROM {schema}.worker w
 WHERE w.lease_until > clock_timestamp()
    OR EXISTS (SELECT FROM {schema}.agenda a WHERE a.owner = w.epoch AND a.parked_at IS NULL)
 ORDER BY w.epoch"""


def heads(
    tenant: str | None,
    *,
    kind: str | None,
    lane: str | None,
    states: Sequence[str],
    overdue_at: datetime | None,
    parked: bool | None,
    after: tuple[str, UUID] | None,
    limit: int,
) -> tuple[str, dict[str, Any]]:
    """Return the query for agenda rows that meet every given filter, and its parameters.

    Each filter has an index in the order of the rows. For states it is one walk of that index for
    each state, cut at the limit, so that rare states are found without reading the others.
    """
    where = ["a.shard = %(shard)b::int2"]
    values: dict[str, Any] = {"shard": SHARD, "limit": limit}
    if tenant is not None:
        where.append("a.tenant = %(tenant)b::text")
        values["tenant"] = tenant
    if kind is not None:
        where.append("a.kind = %(kind)b::text")
        values["kind"] = kind
    if lane is not None:
        where.append("a.lane = %(lane)b::text")
        values["lane"] = lane
    if overdue_at is not None:
        where.append("a.due_at IS NOT NULL AND a.due_at <= %(overdue_at)b::timestamptz")
        values["overdue_at"] = overdue_at
    if parked is not None:
        where.append(f"a.parked_at IS {'NOT ' if parked else ''}NULL")
    if after is not None:
        where.append(
            "(a.tenant, a.shard, a.stream)"
            " > (%(after_tenant)b::text, %(shard)b::int2, %(after_stream)b::uuid)"
        )
        values["after_tenant"], values["after_stream"] = after
    conditions = " AND ".join(where)
    order = "ORDER BY a.tenant, a.shard, a.stream LIMIT %(limit)b::int8"
    if not states:
        return f"SELECT {AGENDA} FROM {{schema}}.agenda a WHERE {conditions} {order}", values
    values["states"] = sorted(set(states))
    return (
        f"SELECT {AGENDA} FROM unnest(%(states)b::text[]) AS s(sought) CROSS JOIN LATERAL ("
        f"SELECT a.* FROM {{schema}}.agenda a WHERE a.state = s.sought AND {conditions} {order}) a"
        f" {order}",
        values,
    )
