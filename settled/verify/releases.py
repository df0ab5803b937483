"""What three releases of a user's code declare: the kinds of the checks about versions.

`OLD` is the release before, `NEW` the one after it, and `RETAINED` the one after it that still has
what was begun before. The first knows a kind that the others have dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from settled import FullJitter, HttpProvider, Kind, Money, Params
from settled.verify.kinds import BY_KEY, FULL, PSP_URL


class VoucherParams1(Params):
    """A voucher, as the older release has it."""

    order: str
    amount: Money


class VoucherParams(Params):
    """As the newer one has it: with a reason that must be given."""

    PARAMS_VERSION: ClassVar[int] = 2
    OLD: ClassVar[Mapping[int, type[Params]]] = {1: VoucherParams1}
    order: str
    amount: Money
    reason: str


voucher: Kind[Any] = Kind(
    "voucher",
    VoucherParams,
    HttpProvider(f"{PSP_URL}/v1/refunds", contract=FULL, lookups=BY_KEY),
    "payments-oncall",
    label="Voucher of {amount} for {order}",
    retry=FullJitter(0.05, 0.2, 8),
    within=timedelta(minutes=10),
    call_timeout=timedelta(seconds=10),
    permit=timedelta(seconds=10),
    version=2,
)
voucher_1 = replace(voucher, version=1, params=VoucherParams1)
courier = replace(voucher_1, name="courier", label="Courier for {order}")

OLD = [voucher_1, courier]
NEW = [voucher]
RETAINED = [voucher, voucher_1]
