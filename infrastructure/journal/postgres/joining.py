"""Appending inside a caller's own transaction: the order row and its intent commit together.

From here to the caller's COMMIT its transaction holds an advisory lock for each stream that is
created and each reference, the head and guard rows, and drawn positions, in front of which ordered
readers stop. So this is the last thing to do before COMMIT, and one unit a transaction: two joins
in one transaction can deadlock with another such caller.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from settled.domain.errors import InvalidInput
from settled.domain.journal.judge import invalid, judge
from settled.domain.journal.unit import Answer, Busy, Invalid, Unit
from settled.infrastructure.journal.postgres.address import Texts
from settled.infrastructure.journal.postgres.errors import IN_THE_WAY, POISON, translating
from settled.infrastructure.journal.postgres.group import (
    Group,
    committed,
    pipeline,
    plain,
    positions_of,
    writes,
)

# An intent that commits without waiting for the disk can be lost after its effect came about, so
# for the rest of the caller's transaction that is not left to the session.
_SETTINGS = """
SELECT current_setting('transaction_isolation'),
       CASE WHEN current_setting('synchronous_commit') = 'off'
            THEN set_config('synchronous_commit', 'on', true) END"""


def check_caller(connection: object) -> psycopg.Connection[Any]:
    """Return a connection that can be joined; raises InvalidInput for any other."""
    if not _is_connection(connection):
        raise InvalidInput(
            f"A psycopg.Connection can be joined, not {type(connection).__name__}.",
            hint="Pass the connection of your own open transaction.",
        )
    status = connection.info.transaction_status
    begins = status == TransactionStatus.IDLE and not connection.autocommit
    if not begins and status != TransactionStatus.INTRANS:
        raise InvalidInput(
            f"The connection is not inside a transaction that can be joined ({status.name}).",
            hint="Use `with connection.transaction():` around it.",
        )
    return connection


def join(connection: psycopg.Connection[Any], texts: Texts, unit: Unit) -> Answer:
    """Run the statements of a commit in the waiting form, inside a savepoint of the caller's.

    What fails in there does not spoil the caller's transaction.
    """
    if reason := invalid(unit):
        return Invalid(reason)
    with translating():
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        ((level, _),) = cursor.execute(_SETTINGS).fetchall()
        if level != "read committed":
            raise InvalidInput(
                f"The transaction is {level}: it reads an older state than it would write to.",
                hint="Join a READ COMMITTED transaction.",
            )
        try:
            with connection.transaction():
                return _append(connection, texts, unit)
        except POISON as error:
            return Invalid(f"{type(error).__name__}: {error}")
        except IN_THE_WAY as error:
            return Busy(str(error).splitlines()[0])


def _is_connection(connection: object) -> TypeGuard[psycopg.Connection[Any]]:
    return isinstance(connection, psycopg.Connection)


def _append(connection: psycopg.Connection[Any], texts: Texts, unit: Unit) -> Answer:
    group = Group([unit])
    locked = pipeline(connection, texts, *group.locks(wait=True))
    seen = group.seen(locked, plain(connection, texts, group.read()))
    verdict = judge(unit, *seen)
    if verdict is not None:
        return verdict
    *_, appended = pipeline(connection, texts, *writes([unit], *seen))
    return committed(unit, positions_of(appended))
