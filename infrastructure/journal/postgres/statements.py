"""The statements of a commit, in the four steps: lock, read, (judge,) write.

Every list of things to look up comes as arrays, and every look-up is LATERAL with a locking clause
or a LIMIT, which is never flattened into a join: whatever the statistics say, it is one probe of
the primary key for each element, in order. A plain join, planned while its table was new, would
read the whole table for each group until the next ANALYZE.
"""

from __future__ import annotations

CREATIONS = 0x5E771ED
"""The first key of the advisory locks on streams that do not exist yet; the second is 32 bits of
the stream's id. Two streams that share them are at worst told to ask again."""

REFERENCES = 0x5E771EE
"""The first key of the advisory locks on providers' references; the second is 32 bits of a hash."""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

# Lock. Each answers with the ordinals that it got, and waits for nobody. A stream that does not
# exist yet has no row to lock: its creators meet at an advisory lock, so that no INSERT ever waits
# at the primary key for somebody's open transaction. The same holds for a provider's reference.

LOCK_KEYS = """
SELECT c.n
  FROM unnest(%(key)b::int4[]) WITH ORDINALITY AS c(key, n)
 WHERE pg_try_advisory_xact_lock(%(space)b::int4, c.key)"""

LOCK_HEADS = """
SELECT c.n
  FROM unnest(%(tenant)b::text[], %(stream)b::uuid[]) WITH ORDINALITY AS c(tenant, stream, n)
 CROSS JOIN LATERAL (
       SELECT FROM {schema}.agenda a
        WHERE a.tenant = c.tenant AND a.shard = %(shard)b::int2 AND a.stream = c.stream
          FOR UPDATE SKIP LOCKED) a"""

LOCK_GUARDS = """
SELECT c.n
  FROM unnest(%(tenant)b::text[], %(key)b::text[]) WITH ORDINALITY AS c(tenant, key, n)
 CROSS JOIN LATERAL (
       SELECT FROM {schema}.guard g
        WHERE g.tenant = c.tenant AND g.shard = %(shard)b::int2 AND g.key = c.key
          FOR UPDATE SKIP LOCKED) g"""

# The same three for the waiting form. Everybody who waits takes new streams, then heads, then
# guards, then references, each in ascending order.

WAIT_KEYS = """
SELECT c.n
  FROM unnest(%(key)b::int4[]) WITH ORDINALITY AS c(key, n)
 WHERE pg_advisory_xact_lock(%(space)b::int4, c.key) IS NOT NULL"""

WAIT_HEADS = LOCK_HEADS.replace(" SKIP LOCKED", "")
WAIT_GUARDS = LOCK_GUARDS.replace(" SKIP LOCKED", "")

# Read. Statements of their own, because only a snapshot taken after the locks shows what their
# last holders committed.

READ_STREAMS = """
SELECT c.n, coalesce(a.version, 0), a.owner, e.ids, e.positions
  FROM unnest(%(tenant)b::text[], %(stream)b::uuid[], %(expected)b::int8[], %(last)b::int8[])
       WITH ORDINALITY AS c(tenant, stream, expected, last, n)
  LEFT JOIN LATERAL (
       SELECT a.version, a.owner FROM {schema}.agenda a
        WHERE a.tenant = c.tenant AND a.shard = %(shard)b::int2 AND a.stream = c.stream
        LIMIT 1) a ON true
  LEFT JOIN LATERAL (
       SELECT array_agg(e.event_id ORDER BY e.version) AS ids,
              array_agg(e.position ORDER BY e.version) AS positions
         FROM {schema}.events e
        WHERE a.version > c.expected
          AND e.tenant = c.tenant AND e.shard = %(shard)b::int2 AND e.stream = c.stream
          AND e.version > c.expected AND e.version <= c.last) e ON true"""

READ_GUARDS = """
SELECT c.n, g.ceiling, g.reserved, g.consumed
  FROM unnest(%(tenant)b::text[], %(key)b::text[]) WITH ORDINALITY AS c(tenant, key, n)
 CROSS JOIN LATERAL (
       SELECT g.ceiling, g.reserved, g.consumed FROM {schema}.guard g
        WHERE g.tenant = c.tenant AND g.shard = %(shard)b::int2 AND g.key = c.key
        LIMIT 1) g"""

READ_REFERENCES = """
SELECT c.n, r.stream
  FROM unnest(%(tenant)b::text[], %(provider)b::text[], %(reference)b::text[])
       WITH ORDINALITY AS c(tenant, provider, reference, n)
 CROSS JOIN LATERAL (
       SELECT r.stream FROM {schema}.reference r
        WHERE r.tenant = c.tenant AND r.shard = %(shard)b::int2
          AND r.provider = c.provider AND r.reference = c.reference
        LIMIT 1) r"""

# Write. For admitted units only, so every row here is ours and nothing is conditional. Upserts,
# because their way to the row is the primary key and not a join plan. `owner` was read under the
# lock; `takes` of a proposed row is 0 where the count starts afresh and 1 where it goes on.

WRITE_HEADS = """
INSERT INTO {schema}.agenda
       (tenant, shard, stream, kind, identity, version, state, due_at, lane, priority, min_reader,
        owner, takes)
SELECT h.tenant, %(shard)b::int2, h.stream, h.kind, h.identity, h.version, h.state, h.due_at,
       h.lane, h.priority, h.min_reader, h.owner, h.takes
  FROM unnest(%(tenant)b::text[], %(stream)b::uuid[], %(version)b::int8[], %(kind)b::text[],
              %(identity)b::text[], %(state)b::text[], %(due_at)b::timestamptz[],
              %(lane)b::text[], %(priority)b::int2[], %(min_reader)b::int2[], %(owner)b::int8[],
              %(takes)b::int2[])
       AS h(tenant, stream, version, kind, identity, state, due_at, lane, priority, min_reader,
            owner, takes)
    ON CONFLICT (tenant, shard, stream) DO UPDATE
   SET kind = excluded.kind, identity = excluded.identity, version = excluded.version,
       state = excluded.state, due_at = excluded.due_at, lane = excluded.lane,
       priority = excluded.priority, min_reader = excluded.min_reader, owner = excluded.owner,
       takes = CASE WHEN excluded.takes = 0 THEN 0 ELSE agenda.takes END, parked_at = NULL"""

WRITE_GUARDS = """
INSERT INTO {schema}.guard (tenant, shard, key, ceiling, reserved, consumed)
SELECT g.tenant, %(shard)b::int2, g.key, g.ceiling, g.reserved, g.consumed
  FROM unnest(%(tenant)b::text[], %(key)b::text[], %(ceiling)b::int8[], %(reserved)b::int8[],
              %(consumed)b::int8[]) AS g(tenant, key, ceiling, reserved, consumed)
    ON CONFLICT (tenant, shard, key) DO UPDATE
   SET reserved = excluded.reserved, consumed = excluded.consumed"""

WRITE_REFERENCES = """
INSERT INTO {schema}.reference (tenant, shard, provider, reference, stream)
SELECT r.tenant, %(shard)b::int2, r.provider, r.reference, r.stream
  FROM unnest(%(tenant)b::text[], %(provider)b::text[], %(reference)b::text[],
              %(stream)b::uuid[])
       AS r(tenant, provider, reference, stream)"""

# Events go in in the order of the arrays, whatever plan the server has chosen: positions ascend
# with the versions of a stream.

WRITE_EVENTS = """
INSERT INTO {schema}.events
       (tenant, shard, stream, version, event_id, topic, schema_version, min_reader, recorded_at,
        actor, correlation, causation, key_id, previous_hash, hash, state, body, body_digest)
SELECT e.tenant, %(shard)b::int2, e.stream, e.version, e.event_id, e.topic, e.schema_version,
       e.min_reader, e.recorded_at, e.actor, e.correlation, e.causation, e.key_id,
       e.previous_hash, e.hash, e.state, e.body, e.body_digest
  FROM unnest(%(tenant)b::text[], %(stream)b::uuid[], %(version)b::int8[], %(event_id)b::uuid[],
              %(topic)b::text[], %(schema_version)b::int2[], %(min_reader)b::int2[],
              %(recorded_at)b::timestamptz[], %(actor)b::text[], %(correlation)b::text[],
              %(causation)b::uuid[], %(key_id)b::text[], %(previous_hash)b::bytea[],
              %(hash)b::bytea[], %(state)b::bytea[], %(body)b::bytea[], %(body_digest)b::bytea[])
       WITH ORDINALITY
       AS e(tenant, stream, version, event_id, topic, schema_version, min_reader, recorded_at,
            actor, correlation, causation, key_id, previous_hash, hash, state, body, body_digest,
            n)
 ORDER BY e.n
RETURNING stream, version, position"""

# What an event stands for goes with the transaction that brings it. Row by row, by their places on
# disk, so that no plan ever reads the whole table for it.

DROP_OLDER = """
DELETE FROM {schema}.events
 WHERE ctid = ANY (ARRAY(
       SELECT e.ctid
         FROM unnest(%(tenant)b::text[], %(stream)b::uuid[], %(version)b::int8[])
              AS c(tenant, stream, version)
        CROSS JOIN LATERAL (
              SELECT e.ctid FROM {schema}.events e
               WHERE e.tenant = c.tenant AND e.shard = %(shard)b::int2 AND e.stream = c.stream
                 AND e.version <= c.version
                 FOR UPDATE) e))"""

# A lane's row comes into being before its first unit, in a transaction of its own, so that no open
# transaction can hold a new lane back.

WRITE_LANES = """
INSERT INTO {schema}.lane (lane)
SELECT l.lane FROM unnest(%(lane)b::text[]) AS l(lane) ORDER BY l.lane
    ON CONFLICT DO NOTHING"""
