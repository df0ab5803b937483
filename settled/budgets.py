"""The service's side of budgets: say what one allows, and see who draws on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from settled.domain.budget import Allowance, Allowed, allow, amount_in_words, key_of
from settled.domain.errors import InvalidInput, NotFound, PermissionDenied
from settled.domain.identity import Principal
from settled.domain.journal.port import GuardRow
from settled.domain.money import Money
from settled.operations import OPERATOR
from settled.processes.ledger import Ledger
from settled.projections.budgets import Draw, draws_on
from settled.projections.projector import Projector


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget as it stands, in minor units of its currency or in pieces.

    `ceiling` is what may be reserved and consumed in all, `reserved` what operations hold that may
    still have an effect, `consumed` what succeeded. `remaining` is below zero where evidence was
    counted past the ceiling, or where the ceiling was lowered.
    """

    key: str
    ceiling: int
    reserved: int
    consumed: int

    @property
    def remaining(self) -> int:
        """What can still be reserved."""
        return self.ceiling - self.reserved - self.consumed

    def words(self, amount: int) -> str:
        """Return an amount of this budget as a person writes it."""
        return amount_in_words(self.key, amount)


class Budgets:
    """Commands and questions about the budgets of a tenant."""

    def __init__(self, ledger: Ledger, projector: Callable[[], Projector]) -> None:
        self._ledger = ledger
        self._projector = projector

    def allow(self, name: str, ceiling: Money | int, *, by: Principal, reason: str) -> BudgetView:
        """Say what a budget allows in all; recorded with who said so and why. Returns it.

        `name` is that of a kind's `Budget`, filled in: `captured:payment-7`. A ceiling below what
        is drawn already is taken: nothing more can be reserved then. Raises PermissionDenied
        without the role `operator`, InvalidInput for what is no name or no amount.
        """
        if OPERATOR not in by.roles:
            raise PermissionDenied(
                f"{by.actor} may not change what a budget allows.",
                hint=f'Principal(…, roles=frozenset({{"{OPERATOR}"}})) may.',
            )
        currency = ceiling.currency if isinstance(ceiling, Money) else None
        number = ceiling.minor if isinstance(ceiling, Money) else ceiling
        if type(number) is not int or not 0 <= number < 1 << 62:
            raise InvalidInput(f"{ceiling!r} is no ceiling.", hint="Money, or a whole number.")
        key = key_of(name, currency)
        self._ledger.clock.refresh(older_than_seconds=10)
        stamp = self._ledger.stamp(by.actor)
        begun = self._ledger.begin(first := allow(by.tenant, key, number, reason, stamp))
        if begun is not first:
            begun, _ = self._ledger.execute(
                by.tenant,
                begun.id,
                lambda machine: machine.record(
                    Allowed,
                    stamp,
                    tenant=by.tenant,
                    identity=key,
                    ceiling=number,
                    reason=reason,
                ),
            )
        self._follow(begun)
        return self.get(key, by=by)

    def _follow(self, allowance: Allowance) -> None:
        """Give the guard row what was said last, whoever else says something meanwhile."""
        while True:
            self._ledger.journal.set_ceiling(
                allowance.tenant, allowance.identity, allowance.ceiling
            )
            newer = self._ledger.load(allowance.tenant, allowance.id)
            assert isinstance(newer, Allowance)
            if newer.version == allowance.version:
                return
            allowance = newer

    def get(self, key: str, *, by: Principal) -> BudgetView:
        """Return a budget as it stands: `captured:payment-7 USD`. Raises NotFound."""
        row = self._ledger.journal.guard(by.tenant, key)
        if row is None:
            raise NotFound(
                f"Tenant {by.tenant} has no budget {key!r}.",
                hint="`settled budgets list` shows them; `allow` makes one.",
            )
        return _view_of(row)

    def all(self, *, by: Principal, limit: int = 100) -> list[BudgetView]:
        """Return budgets of which somebody said what they allow, in no order."""
        rows = self._ledger.journal.heads(by.tenant, kind=Allowance.LIFECYCLE.name, limit=limit)
        found = [self._ledger.journal.guard(by.tenant, row.identity) for row in rows]
        return sorted((_view_of(row) for row in found if row), key=lambda view: view.key)

    def draws(self, key: str, *, by: Principal, limit: int = 1000) -> list[Draw]:
        """Return what operations hold of a budget, from the view `budgets`.

        Somebody has to run its projection; `settled projections status` says how far it is.
        Raises StoreNotMigrated where nobody ever has.
        """
        return draws_on(self._projector(), by.tenant, key, limit)


def _view_of(row: GuardRow) -> BudgetView:
    return BudgetView(row.key, row.ceiling, row.reserved, row.consumed)
