"""What the database is bound to, and whether it still is that database.

A copy, a restore to an earlier point and a failover that lost commits have one thing in common:
effects were brought about of which this log knows nothing. The server tells a copy from what it was
copied from; a position kept outside the database tells how far the log had come.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID, uuid4

import psycopg

from settled.domain.errors import StoreNotMigrated
from settled.domain.journal.port import Installation
from settled.infrastructure.journal.anchor import Anchor
from settled.infrastructure.journal.copies import COPY_KEY, is_a_copy, refuse_to_adopt
from settled.infrastructure.journal.postgres.address import Connection, Texts

Fingerprint = Mapping[str, str]
"""What tells this database from others; a part that the server does not tell is left out."""

_PARTS = {
    "system": (
        "SELECT system_identifier::text FROM pg_control_system()",
        "it runs in another cluster",
    ),
    "database": (
        "SELECT oid::text FROM pg_database WHERE datname = current_database()",
        "it is another database of the cluster",
    ),
    "events": ("SELECT '{schema}.events'::regclass::oid::text", "its tables were made anew"),
    # Of the log that is written now: a checkpoint may still be of the time before a promotion.
    "timeline": (
        "SELECT CASE WHEN NOT pg_is_in_recovery()"
        " THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END",
        "the server was restored or a standby was promoted",
    ),
}
"""Part -> the query for it, and what it means that it differs."""

_NOT_TOLD = (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported)

_BOUND = "SELECT id, secret, created_at, fingerprint FROM {schema}.installation"

_BIND = """
INSERT INTO {schema}.installation (id, secret, created_at, fingerprint)
VALUES (%(id)s, %(secret)b, clock_timestamp(), %(fingerprint)s::jsonb)
    ON CONFLICT DO NOTHING"""

_ADOPT = "UPDATE {schema}.installation SET fingerprint = %(fingerprint)s::jsonb"

_HIGHEST = "SELECT coalesce(max(position), 0) FROM {schema}.events"

_SECRET_BYTES = 32


def bind(connection: Connection, texts: Texts) -> None:
    """Bind the database to where it is, if it never was bound."""
    if connection.execute(texts[_BOUND]).fetchone() is None:
        arguments = {
            "id": uuid4(),
            "secret": os.urandom(_SECRET_BYTES),
            "fingerprint": json.dumps(_fingerprint(connection, texts)),
        }
        connection.execute(texts[_BIND], arguments)


def read(connection: Connection, texts: Texts) -> Installation:
    """Return what the database is bound to, and what differs from then.

    An anchor that cannot be read is no difference; `examine` reports it.
    """
    identifier, secret, created_at, bound = _bound(connection, texts)
    now = _fingerprint(connection, texts)
    changes = [
        meaning
        for part, (_, meaning) in _PARTS.items()
        if part in bound and part in now and bound[part] != now[part]
    ]
    try:
        anchored = anchor_of(str(identifier), bound).position()
    except OSError:
        anchored = 0
    highest = _highest(connection, texts)
    if highest < anchored:
        changes.append(f"its log ends at {highest}, and had come to {anchored}")
    copy_of = UUID(bound[COPY_KEY]) if COPY_KEY in bound else None
    changed = is_a_copy(copy_of) if copy_of else "; ".join(changes) or None
    return Installation(identifier, bytes(secret), created_at, changed, copy_of)


def adopt(connection: Connection, texts: Texts) -> None:
    """Bind the database to where it is now. Raises OSError where the anchor cannot be written.

    And InstallationChanged for a copy, which is never worked on.
    """
    identifier, _, _, bound = _bound(connection, texts)
    refuse_to_adopt(UUID(bound[COPY_KEY]) if COPY_KEY in bound else None)
    now = _fingerprint(connection, texts)
    connection.execute(texts[_ADOPT], {"fingerprint": json.dumps(now)})
    anchor_of(str(identifier), now).reset(_highest(connection, texts))


def anchor(connection: Connection, texts: Texts) -> Anchor:
    """Return the anchor of the database as it is bound."""
    identifier, _, _, bound = _bound(connection, texts)
    return anchor_of(str(identifier), bound)


def anchor_of(identifier: str, fingerprint: Fingerprint) -> Anchor:
    """Return the anchor of an installation in one database.

    A copy that was adopted is the same installation and another database: each has its own. The
    timeline is left out, because a database that is restored goes on under another one.
    """
    place = json.dumps([fingerprint.get(part) for part in ("system", "database", "events")])
    return Anchor(f"{identifier}-{hashlib.sha256(place.encode()).hexdigest()[:12]}")


def _bound(connection: Connection, texts: Texts) -> tuple[UUID, bytes, datetime, Fingerprint]:
    row = connection.execute(texts[_BOUND]).fetchone()
    if row is None:
        raise StoreNotMigrated(
            "The database is not bound to an installation.",
            hint="Its tables were emptied; open the journal again to bind it.",
        )
    identifier, secret, created_at, fingerprint = row
    return identifier, secret, created_at, fingerprint


def _highest(connection: Connection, texts: Texts) -> int:
    (highest,) = connection.execute(texts[_HIGHEST]).fetchone() or (0,)
    return int(highest)


def _fingerprint(connection: Connection, texts: Texts) -> dict[str, str]:
    found: dict[str, str] = {}
    for part, (query, _) in _PARTS.items():
        try:
            row = connection.execute(texts[query]).fetchone()
        except _NOT_TOLD:
            continue  # a hosted server that does not tell: the other parts and the anchor remain
        if row is not None and row[0] is not None:
            found[part] = row[0]
    return found
