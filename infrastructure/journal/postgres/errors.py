"""What PostgreSQL's errors mean in the tree of settled's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from settled.domain.errors import StoreError, StoreNotMigrated, StoreReadOnly, StoreUnavailable

POISON = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.CardinalityViolation,
    UnicodeError,
    OverflowError,
)
"""What PostgreSQL and its driver raise about a unit, never about the database: SQLSTATE classes
21, 22, 23 and 54, and values that cannot even be sent."""

IN_THE_WAY = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)
"""Somebody else held something for too long; the transaction is undone, and says nothing."""


@contextmanager
def translating() -> Generator[None]:
    """Turn the errors of the database into those of the tree; a mistake in our SQL stays one."""
    try:
        yield
    except psycopg.Error as error:
        translated = translate(error)
        if translated is None:
            raise
        raise translated from error


def translate(error: psycopg.Error) -> StoreError | None:
    """Return what an error means; None for what no operator can do anything about."""
    if isinstance(error, POISON):
        return None
    said = str(error).strip() or type(error).__name__
    told = f"PostgreSQL: {said}{'' if said.endswith('.') else '.'}"
    match error.sqlstate:
        case "25006":
            return StoreReadOnly(
                told, hint="Nothing was written. Name the primary server, not a standby."
            )
        case "53100":
            return StoreReadOnly(told, hint="Nothing was written. Make room on its disk.")
        case "42P01" | "3F000" | "42703":
            return StoreNotMigrated(told, hint="Run `settled migrate` first.")
        case "42501":
            return StoreUnavailable(told, hint="Grant the role what the message names.")
        case _ if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreUnavailable(
                told, hint="Check that the server runs, and that the URL names it and a role there."
            )
        case _:
            return None
