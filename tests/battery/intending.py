"""A process that intends one refund when it is told to: `python -m tests.battery.intending URL ID`.

It says "ready" when the store is open, waits for a line, intends, and prints what it was given.
"""

from __future__ import annotations

import json
import sys

import settled
from settled import Money
from tests.battery import kinds
from tests.battery.stage import AGENT


def main(url: str, operation_id: str) -> None:
    """Intend at the word of whoever started this process."""
    with settled.open(url, kinds=[kinds.refund]) as app:
        print("ready", flush=True)
        sys.stdin.readline()
        params = kinds.RefundParams(order="order-72", amount=Money("30.00", "USD"))
        view = app.operations.intend(kinds.refund, operation_id, params, by=AGENT)
        print(json.dumps({"key": view.provider_key, "version": view.version}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
