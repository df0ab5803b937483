"""A kind that needs an approval, with a field of each sort that two callers may write in two ways.

A kinds module for workers.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated

from settled import FullJitter, HttpProvider, Kind, Money, Params, Remark
from settled.infrastructure.simulator.contract import simulator_contract
from settled.verify.provider import PROVIDER_VARIABLE


class ParcelParams(Params):
    """A refund for a number of parcels."""

    order: str
    amount: Money
    parcels: int
    express: bool = False
    note: Annotated[str, Remark()] = ""


parcel = Kind(
    "parcel",
    ParcelParams,
    HttpProvider(
        f"{os.environ.get(PROVIDER_VARIABLE, 'http://127.0.0.1:9')}/v1/refunds",
        contract=simulator_contract(),
    ),
    "payments-oncall",
    retry=FullJitter(0.05, 0.2, 8),
    within=timedelta(minutes=10),
    approvers=frozenset({"approver"}),
)
