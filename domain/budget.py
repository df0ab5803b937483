"""Budgets: what several operations draw on together, and what they never overspend.

"Never refund more than was captured" is true of all refunds of a payment at once, so no operation
can see to it alone. A budget has one guard row that changes in the same commit as the operation's
events: an intent reserves its amount or is refused, an unknown outcome keeps it, a success turns it
into use, and a definitive failure gives it back.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from settled.domain.clock import Stamp
from settled.domain.currencies import DECIMALS
from settled.domain.errors import InvalidInput, InvalidKind
from settled.domain.identity import stream_id
from settled.domain.machine import ABSENT, Arrow, Event, Lifecycle, State, StateMachine
from settled.domain.money import Money
from settled.domain.params import Params

Holds = Literal["nothing", "reserved", "consumed"]
"""What an operation has of its budgets."""

Act = Literal["reserve", "recount", "release", "consume"]


class Reservation(BaseModel):
    """What one operation takes of one budget. `amount` is in minor units, or in pieces."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    amount: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What operations of a kind draw on: `Budget("captured:{payment}", amount="amount")`.

    `name` is filled in with the parameters; every operation whose name comes out the same draws on
    the same budget, whatever its kind. `amount` names the field that says how much: `Money`, or a
    whole number of pieces. Money of another currency is another budget. The name is kept in the
    clear for as long as the events are: it is no place for a person's data.
    """

    name: str
    amount: str

    def check(self, kind: str, model: type[Params]) -> None:
        """Raise InvalidKind where the parameters of a kind do not have what is named."""
        named = {
            field.split(".")[0] for _, field, _, _ in string.Formatter().parse(self.name) if field
        }
        if missing := sorted({*named, self.amount} - set(model.model_fields)):
            raise InvalidKind(
                f"{kind}: the budget {self.name!r} needs {', '.join(missing)}, "
                f"which {model.__name__} does not have."
            )

    def draw(self, fields: Mapping[str, Any]) -> Reservation | None:
        """Return what an operation with these fields takes; None when it takes nothing.

        Raises InvalidInput for what is no amount.
        """
        amount = fields[self.amount]
        if isinstance(amount, Money):
            key, number = key_of(self.name.format(**fields), amount.currency), amount.minor
        elif type(amount) is int and amount >= 0:
            key, number = key_of(self.name.format(**fields)), amount
        else:
            raise InvalidInput(
                f"{self.amount} is {amount!r}, which no budget can count.",
                hint="Money, or a whole number from 0.",
            )
        return Reservation(key=key, amount=number) if number else None


def key_of(name: str, currency: str | None = None) -> str:
    """Return the key of a budget's guard row. Raises InvalidInput for what is no name."""
    if not name or not name.isprintable() or " " in name or len(name) > 200:
        raise InvalidInput(
            f"{name!r} cannot name a budget.",
            hint="1 to 200 printable characters without spaces, such as captured:payment-7.",
        )
    return f"{name} {currency}" if currency else name


def amount_in_words(key: str, amount: int) -> str:
    """Return an amount as a person writes it."""
    _, _, currency = key.rpartition(" ")
    if currency not in DECIMALS:
        return str(amount)
    return f"{'-' if amount < 0 else ''}{Money.of_minor(abs(amount), currency)}"


_ACTS: Mapping[tuple[Holds, Holds], Act] = {
    ("nothing", "reserved"): "reserve",
    ("reserved", "consumed"): "consume",
    ("reserved", "nothing"): "release",
    # Evidence of a second effect: it is counted beside the first.
    ("consumed", "reserved"): "recount",
}


def act_of(before: Holds, after: Holds, *, by_evidence: bool) -> Act | None:
    """Return how a guard row changes with what an operation holds; None when it does not.

    What evidence says has happened is counted even past the limit: it cannot be refused any more.
    """
    act = _ACTS.get((before, after))
    return "recount" if act == "reserve" and by_evidence else act


class Allowed(Event):
    """Somebody (`actor`) said how much a budget allows in all, and why."""

    TOPIC: ClassVar[str] = "settled.budget.Allowed"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    tenant: str
    identity: str
    ceiling: int
    reason: str | None = None

    def apply(self, budget: Allowance) -> None:
        """Fold."""
        budget.ceiling = self.ceiling


class Allowance(StateMachine):
    """What a budget allows, and who said so: the guard row only has the number."""

    TOPIC = "settled.budget"
    LIFECYCLE = Lifecycle(
        "budget",
        states=(State("allowed", "Says how much may be reserved and used in all.", settled=True),),
        arrows=(
            Arrow((ABSENT,), "Allowed", "allowed"),
            Arrow(("allowed",), "Allowed", None),
        ),
    )
    EVENTS = (Allowed,)

    def prepare(self) -> None:
        """Give every attribute its first value."""
        super().prepare()
        self.ceiling = 0

    def next_due(self) -> None:
        """Return None: nothing is ever due."""
        return


def allow(tenant: str, key: str, ceiling: int, reason: str, stamp: Stamp) -> Allowance:
    """Begin the stream of a budget."""
    return Allowance.begin(
        Allowed,
        stream_id(tenant, "budget", "budget", key),
        stamp,
        tenant=tenant,
        identity=key,
        ceiling=ceiling,
        reason=reason,
    )
