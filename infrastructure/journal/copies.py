"""Copies for debugging: how a store says that it is one, and what is refused on it.

The mark stands where the database is otherwise bound to its place, so there is no second thing to
ask: a copy is a database that is not where it was bound, and can never be bound again.
"""

from __future__ import annotations

from uuid import UUID

from settled.domain.errors import InstallationChanged

COPY_MARK = "copy of "
"""On SQLite, what the file that a database is bound to begins with in a copy."""

COPY_KEY = "copy_of"
"""On PostgreSQL, the part of the fingerprint that names a copy's original."""

_HINT = "Work on the original. A copy is there to look at: history, replay, projections, audit."


def is_a_copy(original: UUID) -> str:
    """Return in words what has changed about a copy."""
    return f"It is a copy of installation {original} that `settled import` made."


def refuse_to_work(original: UUID | None) -> None:
    """Raise InstallationChanged where a worker is to work on a copy."""
    if original is not None:
        raise InstallationChanged(
            f"{is_a_copy(original)} Nothing is dispatched from it.", hint=_HINT
        )


def refuse_to_adopt(original: UUID | None) -> None:
    """Raise InstallationChanged where a copy is to be bound to where it is."""
    if original is not None:
        raise InstallationChanged(f"{is_a_copy(original)} It cannot be adopted.", hint=_HINT)
