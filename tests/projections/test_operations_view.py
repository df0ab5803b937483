"""The operations view on both databases: one test for both, so that both give the same answers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from settled import App, Identity, InvalidInput, NotFound, StoreNotMigrated, WaitTimeout
from settled.domain.operation.operation import Operation
from settled.infrastructure.seeding import seed
from settled.projections.operation_view import view_of
from settled.projections.operations import OperationsProjection
from settled.projections.operations_view import LISTS, NEXT_ACTIONS, OperationLine, OperationsView
from settled.testing import (
    assert_idempotent,
    assert_pages_do_not_matter,
    assert_parts_make_the_whole,
)

MANY = 300


@pytest.fixture
def view(app: App) -> OperationsView:
    """The view of a seeded store, caught up."""
    seed(app.journal, MANY)
    app.projector().catch_up(OperationsProjection(), page=77)
    return app.views.operations


def operations(app: App) -> list[Operation]:
    """Return every operation, as its stream says."""
    found = [app.ledger.load(row.tenant, row.stream) for row in app.journal.heads(limit=MANY + 1)]
    return [one for one in found if isinstance(one, Operation)]


def ids(lines: list[OperationLine]) -> list[str]:
    return sorted(line.operation_id for line in lines)


def test_every_line_is_what_its_stream_says(app: App, view: OperationsView) -> None:
    """A list that differs from the streams would send an operator to the wrong operation."""
    assert len(operations(app)) == MANY
    for operation in operations(app):
        said, line = view_of(operation), view.get(operation.business_identity)
        assert (line.state, line.version, line.label, line.attempts) == (
            *(said.state, said.version, said.label, said.attempts),
        )
        assert (line.reason, line.rule, line.owner, line.reference) == (
            *(said.reason, said.rule, said.owner, said.reference),
        )
        assert (line.next_at, line.changed_at) == (said.next_at, said.since)
        assert (line.next_action is None) == said.settled
    assert set(NEXT_ACTIONS) == set(Operation.OPEN)


def test_lists_are_what_operators_look_at(app: App, view: OperationsView) -> None:
    """Each ready-made list has exactly the operations that are so, of one tenant or of all."""
    now = app.journal.time()
    expected: dict[str, Callable[[Operation], bool]] = {
        "outcome_unknown": lambda o: o.state == "outcome_unknown",
        "retrying": lambda o: o.state == "ready" and bool(o.attempts),
        "waits_for_approval": lambda o: o.state == "proposed",
        "lapsed_lease": lambda o: o.state in ("claimed", "dispatching"),
        "handed_over": lambda o: o.state == "handed_over",
        "failed_today": lambda o: o.state == "failed" and o.modified_on.date() == now.date(),
    }
    assert set(expected) == set(LISTS)
    for name, belongs in expected.items():
        for tenant in ("acme", None):
            wanted = [
                o.identity for o in operations(app) if belongs(o) and tenant in (None, o.tenant)
            ]
            assert ids(view.listed(name, tenant, limit=MANY)) == sorted(wanted), name
    handed_over = view.listed("handed_over", None)
    assert {line.owner for line in handed_over} == {"payments-oncall"}
    assert [line.since for line in handed_over] == sorted(line.since for line in handed_over)
    assert {line.concern for line in handed_over} == {"contradicted", "reply_lost"}
    assert view.listed("handed_over", "acme", kind="email") == []
    assert len(view.listed("handed_over", None, limit=2)) == 2
    with pytest.raises(InvalidInput, match="no list"):
        view.listed("lost", None)


def test_counts_are_kept(app: App, view: OperationsView) -> None:
    """They are the operations by state, without anybody counting rows."""
    counted = Counter((o.tenant, o.kind, o.state) for o in operations(app))
    found = {(c.tenant, c.kind, c.state): c.number for c in view.counts(None)}
    assert found == counted
    assert {c.tenant for c in view.counts("acme")} == {"acme"}
    assert sum(c.number for c in view.counts("acme")) < MANY


def test_search_finds_by_the_beginnings_of_words(app: App, view: OperationsView) -> None:
    """Ids, labels, references and receipts, without case, every word of the query, any order."""
    everything = operations(app)
    done = next(o for o in everything if o.state == "succeeded")
    assert done.reference is not None

    def found(query: str, tenant: str | None = None) -> list[str]:
        return ids(view.find(query, tenant, limit=MANY))

    assert found(done.reference) == [done.identity]
    assert found(done.reference.upper()[:-2]) == [done.identity]
    assert found(done.reference, "nobody") == []
    by_id = sorted(o.identity for o in everything if o.identity.startswith("refund-request-12"))
    assert found("refund-request-12") == found("REQUEST refund-request-12") == by_id
    for query in ("refund usd", "USD, Refund!", "request refu"):
        assert len(found(query)) == MANY
    label = view_of(done).label
    assert done.identity in found(label)
    assert done.identity in found(" ".join(reversed(label.split())))
    assert found(f"{label} elsewhere") == []
    latest = view.find("refund", None)
    assert [line.changed_at for line in latest] == sorted(
        (line.changed_at for line in latest), reverse=True
    )
    assert len(found("% _ ' \\ refund")) == MANY
    with pytest.raises(InvalidInput, match="no word"):
        view.find(" -- ", None)


def test_tenants_do_not_meet(app: App, view: OperationsView) -> None:
    """The same id in two tenants is two rows, and a tenant's questions find its own alone."""
    for tenant in ("acme", "globex"):
        lines = view.find("refund", tenant, limit=MANY)
        assert lines and {line.tenant for line in lines} == {tenant}
    (first, *_) = view.find("refund", "acme")
    with pytest.raises(NotFound):
        view.get(Identity("globex", "refund", first.operation_id))


def test_pages_and_repetition_leave_the_same_rows(app: App) -> None:
    """The rules of every fold hold for ours."""
    seed(app.journal, 40)
    assert_idempotent(app.projector(), OperationsProjection())
    assert_pages_do_not_matter(app.projector(), OperationsProjection())
    assert_parts_make_the_whole(app.projector(), OperationsProjection())


def test_one_reads_what_one_wrote(app: App) -> None:
    """A token is where the commit stands in the log: waiting for it is enough, and bounded."""
    view, projection = app.views.operations, OperationsProjection()
    with pytest.raises(StoreNotMigrated, match="begun"):
        view.counts(None)
    app.projector().catch_up(projection)
    seed(app.journal, 3)
    identity = operations(app)[0].business_identity
    token = view.token(identity)
    with pytest.raises(WaitTimeout, match="not yet at"):
        view.wait(token, timeout_seconds=0)
    waiting = threading.Thread(target=view.wait, args=(token, 60))
    waiting.start()
    app.projector().catch_up(projection)
    waiting.join(30)
    assert not waiting.is_alive()
    assert view.get(identity).version == view_of(operations(app)[0]).version
    with pytest.raises(NotFound):
        view.token(Identity("acme", "refund", "nothing-such"))
