-- Events, the agenda beside them, and what claims and ownership need. See domain/journal/port.py.
-- Times are UTC texts of one width, so that text order is time order; identifiers are 16 bytes.

CREATE TABLE events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, also after a purge
    tenant TEXT NOT NULL,
    shard INTEGER NOT NULL,
    stream BLOB NOT NULL,
    version INTEGER NOT NULL,
    event_id BLOB NOT NULL,
    topic TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    min_reader INTEGER NOT NULL,
    recorded_at TEXT NOT NULL,
    actor TEXT NOT NULL,
    correlation TEXT,
    causation BLOB,
    key_id TEXT NOT NULL,
    previous_hash BLOB NOT NULL,
    hash BLOB NOT NULL,
    state BLOB NOT NULL,
    body BLOB,
    body_digest BLOB,
    UNIQUE (tenant, shard, stream, version)
) STRICT;

CREATE TABLE agenda (
    tenant TEXT NOT NULL,
    shard INTEGER NOT NULL,
    stream BLOB NOT NULL,
    kind TEXT NOT NULL,
    identity TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    due_at TEXT,
    lane TEXT NOT NULL,
    priority INTEGER NOT NULL,
    min_reader INTEGER NOT NULL,
    owner INTEGER,
    takes INTEGER NOT NULL DEFAULT 0,
    parked_at TEXT,
    PRIMARY KEY (tenant, shard, stream)
) STRICT, WITHOUT ROWID;

CREATE INDEX agenda_free ON agenda (lane, priority, due_at)
    WHERE due_at IS NOT NULL AND owner IS NULL AND parked_at IS NULL;
CREATE INDEX agenda_owned ON agenda (owner, lane) WHERE owner IS NOT NULL;
CREATE INDEX agenda_parked ON agenda (parked_at) WHERE parked_at IS NOT NULL;

CREATE TABLE guard (
    tenant TEXT NOT NULL,
    shard INTEGER NOT NULL,
    key TEXT NOT NULL,
    ceiling INTEGER NOT NULL,
    reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    consumed INTEGER NOT NULL DEFAULT 0 CHECK (consumed >= 0),
    PRIMARY KEY (tenant, shard, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE reference (
    tenant TEXT NOT NULL,
    shard INTEGER NOT NULL,
    provider TEXT NOT NULL,
    reference TEXT NOT NULL,
    stream BLOB NOT NULL,
    PRIMARY KEY (tenant, shard, provider, reference)
) STRICT, WITHOUT ROWID;

CREATE TABLE lane (
    lane TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    epoch INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    started_at TEXT NOT NULL,
    boot TEXT NOT NULL,           -- which run of the host the lease is counted in
    lease_seconds REAL NOT NULL,
    lease_until REAL NOT NULL     -- seconds since that boot; 0 once it was ended
) STRICT;

CREATE TABLE installation (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id BLOB NOT NULL,
    secret BLOB NOT NULL,
    created_at TEXT NOT NULL,
    file TEXT NOT NULL            -- which file this was when it was bound
) STRICT;
