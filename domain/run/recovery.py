"""What a call of a run gets that was made before: a pure, total table."""

from __future__ import annotations

import enum

from settled.domain.run.records import CallRecord, OnRecovery


class Recovered(enum.StrEnum):
    """What is done for a call: `ask`, give what is `recorded`, or count it as `lost`."""

    ASK = "ask"
    RECORDED = "recorded"
    LOST = "lost"


def recovered(call: CallRecord | None, on_recovery: OnRecovery, epoch: int) -> Recovered:
    """Return what the owner of this epoch does for a call of this name.

    What one owner asked and got it never asks again under the same name. What timed out has timed
    out: the deadline of a call is not begun anew.
    """
    if call is None:
        return Recovered.ASK
    if call.state == "timed_out":
        return Recovered.RECORDED
    if call.state == "returned":
        another = on_recovery is OnRecovery.FRESH and call.epoch != epoch
        return Recovered.ASK if another else Recovered.RECORDED
    if on_recovery is not OnRecovery.REUSE:
        return Recovered.ASK
    return Recovered.LOST if call.state == "pending" else Recovered.RECORDED
