"""A process that decides on proposals when it is told to: `python deciding.py URL ACTOR`.

It says "ready" when the store is open. Each line that it reads is one thing to do, as JSON: `what`
(approve, reject, revise, revoke), `id`, `kind`, and `version` and `digest` of the proposal as it
was seen, or `amount`. For each it prints what it was told: the operation as it is, or the error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import settled
from settled import DecisionRefused, Identity, OperationView, Principal, SettledError
from settled.operations import Operations
from settled.verify import kinds


def main(url: str, actor: str) -> None:
    by = Principal("acme", actor, frozenset({"approver", "finance-lead"}))
    with settled.open(url, kinds=[kinds.decided, kinds.ruled]) as app:
        _say("ready")
        for line in sys.stdin:
            _say(json.dumps(_told(app.operations, by, **json.loads(line))))


def _told(
    operations: Operations, by: Principal, *, what: str, id: str, kind: str, **given: Any
) -> dict[str, Any]:
    try:
        view = _done(operations, by, what, Identity("acme", kind, id), given)
    except DecisionRefused as error:
        stands = error.decision
        decision = None if stands is None else [stands.decided, stands.by]
        return {"refused": str(error), "decision": decision}
    except SettledError as error:
        return {"refused": str(error), "decision": None}
    return {
        "approved_by": view.approved_by,
        "state": view.state,
        "version": view.proposal_version,
        "decision": None if view.decided is None else [view.decided.decided, view.decided.by],
    }


def _done(
    operations: Operations, by: Principal, what: str, proposal: Identity, given: dict[str, Any]
) -> OperationView:
    about: dict[str, Any] = {
        "proposal_version": given.get("version"),
        "digest": given.get("digest"),
    }
    match what:
        case "approve":
            return operations.approve(proposal, **about, by=by)
        case "reject":
            return operations.reject(proposal, **about, by=by, reason="too much")
        case "revoke":
            return operations.revoke(proposal, by=by, reason="on second thoughts")
        case _:
            amount = {"amount": given["amount"], "currency": "USD"}
            return operations.revise(proposal, {"order": "order-72", "amount": amount}, by=by)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
