"""Writes a store that has every state of the lifecycle: `python drive.py URL`, with a wheel's code.

It is run where nothing but the wheel is installed, and prints the state of each operation as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import settled
from settled import Money, OperationView, Principal
from settled.domain.operation.lifecycle import LIFECYCLE

FOLDER = Path(__file__).resolve().parent
BY = Principal("acme", "support-agent")
OPERATOR = Principal("acme", "ada", frozenset({"operator"}))
APPROVER = Principal("acme", "grace", frozenset({"approver"}))
PATIENCE_SECONDS = 60.0
EVIDENCE: dict[str, Any] = {"by": BY, "provider": "shop"}


def main(url: str) -> None:
    """Write the store."""
    os.environ["SHOP_WRITES"] = "1"
    sys.path.insert(0, str(FOLDER))
    shop: Any = import_module("shop")
    with settled.open(url, kinds=shop.KINDS, migrate=True) as app:
        app.journal.set_ceiling("acme", "captured:order-72", 10_000)
        with_worker(app, shop)
    die(url, shop, "sent", "after_commit:Dispatching=kill")
    die(url, shop, "checked", "after_commit:Claimed=kill")
    with settled.open(url, kinds=shop.KINDS) as app:
        without_worker(app, shop)
        rows = app.journal.heads(limit=1_000)
        states = {f"{row.kind}/{row.identity}": row.state for row in rows}
        versions = len(app.journal.read(0, 10_000).events)
    missing = {name for name in LIFECYCLE.states} - set(states.values())
    assert not missing, f"no operation is {missing}"
    print(json.dumps({"settled": settled.__version__, "events": versions, "states": states}))


def begin(app: settled.App, kind: Any, order: str, how: str = "intend") -> OperationView:
    """Begin an operation that is called as its order."""
    params: dict[str, Any] = {"order": order, "amount": Money("30.00", "USD")}
    if not isinstance(kind, str):
        params["reason"] = "damaged"
    command = getattr(app.operations, how)
    begun: OperationView = command(kind, order, params, by=BY)
    return begun


def with_worker(app: settled.App, shop: Any) -> None:
    """Bring operations to where a worker brings them."""
    two = shop.refund
    app.start_worker(settled.WorkerSettings(name="writer", idle_seconds=0.02))
    reaches(app, begin(app, two, "order-performed"), "succeeded")
    reaches(app, begin_first(app, shop, "order-of-version-1"), "succeeded")
    reaches(app, begin(app, two, "order-refused"), "failed")
    reversed_ = reaches(app, begin(app, two, "order-reversed"), "succeeded")
    app.operations.record_evidence(
        **EVIDENCE, answered="reversed", reference=reversed_.reference, reason="charged back"
    )
    reaches(app, reversed_, "reversed")
    reaches(app, begin(app, "blind", "order-handed-over"), "handed_over")
    reaches(app, begin(app, "fleeting", "order-late"), "expired")

    approved = begin(app, "decided", "order-approved", "propose")
    app.operations.approve(approved, proposal_version=1, digest=approved.digest, by=APPROVER)
    reaches(app, approved, "succeeded")
    declined = begin(app, "decided", "order-declined", "propose")
    app.operations.reject(
        declined, proposal_version=1, digest=declined.digest, by=APPROVER, reason="too much"
    )
    withdrawn = begin(app, "decided", "order-withdrawn", "propose")
    app.operations.cancel(withdrawn, by=BY, reason="not wanted")
    purged = begin(app, "decided", "order-purged", "propose")
    purged = app.operations.cancel(purged, by=BY, reason="not wanted")
    app.operations.purge(purged, by=OPERATOR, reason="its time is over")
    # What is looked at again soon comes last: the worker is stopped before it is.
    reaches(app, begin(app, two, "order-accepted"), "accepted")
    reaches(app, begin(app, two, "order-unknown"), "outcome_unknown")


def begin_first(app: settled.App, shop: Any, order: str) -> OperationView:
    """Begin an operation of the first version of its kind."""
    params = {"order": order, "amount": Money("30.00", "USD")}
    return app.operations.intend(shop.refund_1, order, params, by=BY)


def reaches(app: settled.App, operation: OperationView, state: str) -> OperationView:
    """Wait until an operation is where it is to be."""
    deadline = app.clock.monotonic() + PATIENCE_SECONDS
    view = operation
    while view.state != state:
        assert app.clock.monotonic() < deadline, f"{operation.operation_id} is {view.state}"
        view = app.operations.get(operation.kind, operation.operation_id, by=BY)
    return view


def die(url: str, shop: Any, kind: str, fault: str) -> None:
    """Have a worker take one operation of a kind, and be killed once it has recorded that."""
    with settled.open(url, kinds=shop.KINDS) as app:
        begin(app, kind, f"order-{kind}")
    command = [sys.executable, "-m", "settled", "worker", "--name", kind, "--url", url]
    done = subprocess.run(
        [*command, "--leave-to-others", "--kinds", f"{FOLDER / 'shop.py'}:{kind}"],
        env={**os.environ, "SETTLED_FAULT": fault},
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == -signal.SIGKILL, f"the worker ended with {done.returncode}"


def without_worker(app: settled.App, shop: Any) -> None:
    """Begin what nobody has looked at yet."""
    begin(app, shop.refund, "order-ready")
    begin_first(app, shop, "order-ready-1")
    begin(app, "decided", "order-proposed", "propose")
    app.operations.record_evidence(**EVIDENCE, answered="performed", reference="nobody-knows")


if __name__ == "__main__":
    main(sys.argv[1])
