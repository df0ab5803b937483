"""Opening what a command works on, and finding the operation that it names.

No command but `settled migrate` makes tables, so that a mistyped file name makes no database.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from settled.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from settled.app import App
    from settled.domain.identity import Identity
    from settled.domain.journal.port import Journal


@contextmanager
def opened_journal(url: str) -> Generator[Journal]:
    """Open a store to read from, be it safe to write to or not."""
    from settled.infrastructure.journal.opening import open_journal

    with closing(open_journal(url, require_fsync=False)) as journal:
        yield journal


@contextmanager
def opened_app(
    url: str, kinds_from: str | None = None, *, accept_unsafe_store: bool
) -> Generator[App]:
    """Open an application to give commands to."""
    from settled.app import App
    from settled.cli.loading import load_declared
    from settled.cli.logs import configure_logging

    configure_logging()
    kinds, runs = load_declared(kinds_from) if kinds_from else ([], [])
    fsync = not accept_unsafe_store
    with App(url, kinds=kinds, runs=runs, migrate=False, require_fsync=fsync) as app:
        yield app


def locate(journal: Journal, tenant: str, operation_id: str, kind: str | None) -> Identity:
    """Return the identity of an operation that was named by its id, and by its kind if need be.

    Raises NotFound, which says whether it is the tenant, the kind or the id that is unknown, and
    InvalidInput where several kinds have an operation of this id.
    """
    from settled.domain.identity import Identity
    from settled.domain.operation.operation import Operation

    wanted = [Identity(tenant, kind or "any", operation_id)]  # raises for what is no name
    kinds = kinds_of(journal, tenant)
    if not kinds:
        raise NotFound(
            f"There is no tenant {tenant} in this store.",
            hint="`settled ops list` without --tenant shows what is there.",
        )
    if kind is not None and kind not in kinds:
        raise NotFound(
            f"Tenant {tenant} has no operations of kind {kind}.",
            hint=f"It has: {', '.join(kinds)}.",
        )
    if kind is None:
        wanted = [Identity(tenant, known, operation_id) for known in kinds]
    found = [one for one in wanted if journal.head(tenant, Operation.stream(one)) is not None]
    if not found:
        what = kind or "operation"
        raise NotFound(
            f"Tenant {tenant} has no {what} {operation_id}.",
            hint=f"`settled ops list --tenant {tenant}` shows what is there.",
        )
    if len(found) > 1:
        raise InvalidInput(
            f"{operation_id} is the id of several: {', '.join(one.kind for one in found)}.",
            hint="Say which one with --kind.",
        )
    return found[0]


def kinds_of(journal: Journal, tenant: str | None = None) -> list[str]:
    """Return the kinds of which a tenant, or anybody, ever had a stream: each made a lane."""
    from settled.domain.route import Route

    lanes = [lane for lane in journal.lanes() if tenant in (None, lane.partition("/")[0])]
    return sorted({Route.of_lane(lane).kind for lane in lanes})


def open_kinds(journal: Journal) -> list[str]:
    """Return the kinds of which there are open operations, for all tenants."""
    from settled.domain.operation.operation import Operation

    states = Operation.OPEN
    return [kind for kind in kinds_of(journal) if journal.heads(kind=kind, states=states, limit=1)]
