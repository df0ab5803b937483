"""A process that decides on a proposal when it is told to: `python deciding.py URL WHAT DIGEST`.

It says "ready" when the store is open, decides at the line that it reads, and prints what it was
told: the operation as it is then, or the error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import settled
from settled import DecisionRefused, Identity, Principal
from settled.verify import kinds


def main(url: str, what: str, digest: str) -> None:
    by = Principal("acme", what, frozenset({"approver"}))
    proposal = Identity("acme", "decided", "refund-request-9")
    with settled.open(url, kinds=[kinds.decided]) as app:
        _say("ready")
        sys.stdin.readline()
        told: dict[str, Any]
        try:
            if what.startswith("approve"):
                view = app.operations.approve(proposal, proposal_version=1, digest=digest, by=by)
            else:
                view = app.operations.reject(
                    proposal, proposal_version=1, digest=digest, by=by, reason="too much"
                )
            told = {"approved_by": view.approved_by, "state": view.state}
        except DecisionRefused as error:
            told = {"refused": str(error)}
        _say(json.dumps(told))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
