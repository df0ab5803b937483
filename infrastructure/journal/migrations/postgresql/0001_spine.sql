-- Events, the agenda beside them, and what claims and ownership need. See domain/journal/port.py.
-- Every name in a key is in the collation "C": it costs less to compare, its order is Python's,
-- and an upgrade of the operating system's locales cannot break an index on it.

CREATE TABLE events (
    tenant text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    stream uuid NOT NULL,
    version bigint NOT NULL,
    -- Always drawn by the default, one at a time: ordered readers rely on that an INSERT holds its
    -- lock on this table before it draws, and that a position is never drawn ahead of its use.
    position bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    event_id uuid NOT NULL,
    topic text NOT NULL,
    schema_version smallint NOT NULL,
    min_reader smallint NOT NULL,
    recorded_at timestamptz NOT NULL,
    actor text NOT NULL,
    correlation text,
    causation uuid,
    key_id text NOT NULL,
    previous_hash bytea NOT NULL,
    hash bytea NOT NULL,
    state bytea NOT NULL,
    body bytea,
    body_digest bytea,
    PRIMARY KEY (tenant, shard, stream, version)
);
CREATE UNIQUE INDEX events_position ON events (position);

CREATE TABLE agenda (
    tenant text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    stream uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    identity text NOT NULL,
    version bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    due_at timestamptz,
    lane text COLLATE "C" NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 2),  -- a claim probes each of them
    min_reader smallint NOT NULL,
    owner bigint,
    takes smallint NOT NULL DEFAULT 0,
    parked_at timestamptz,
    PRIMARY KEY (tenant, shard, stream)
) WITH (fillfactor = 80);

-- What a claim walks: free rows of a lane by age, and the rows of one owner.
CREATE INDEX agenda_free ON agenda (lane, priority, due_at)
    WHERE due_at IS NOT NULL AND owner IS NULL AND parked_at IS NULL;
CREATE INDEX agenda_owned ON agenda (owner, lane) WHERE owner IS NOT NULL AND parked_at IS NULL;
-- What people ask for: streams in a state, open streams that are late, parked ones.
CREATE INDEX agenda_state ON agenda (state, tenant, shard, stream);
CREATE INDEX agenda_open ON agenda (tenant, shard, stream, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX agenda_parked ON agenda (tenant, shard, stream) WHERE parked_at IS NOT NULL;

CREATE TABLE guard (
    tenant text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    ceiling bigint NOT NULL,
    reserved bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    consumed bigint NOT NULL DEFAULT 0 CHECK (consumed >= 0),
    PRIMARY KEY (tenant, shard, key)
) WITH (fillfactor = 50);

-- The shard is a function of the tenant, so this is one stream for each (provider, reference).
CREATE TABLE reference (
    tenant text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    stream uuid NOT NULL,
    PRIMARY KEY (tenant, shard, provider, reference)
);

CREATE TABLE lane (
    lane text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false
);

CREATE TABLE worker (
    epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    started_at timestamptz NOT NULL,
    lease_seconds double precision NOT NULL,
    lease_until timestamptz NOT NULL,
    -- The start of the server on which the worker took its liveness lock. On another one, be it
    -- restarted or a promoted standby, a missing lock means nothing, and only the lease counts.
    server_started_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL,
    secret bytea NOT NULL,
    created_at timestamptz NOT NULL,
    fingerprint jsonb NOT NULL  -- what the database was when it was bound
);
