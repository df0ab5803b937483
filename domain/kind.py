"""A kind: what operations of one sort are made of, and the policy under which they act.

Declared once, in a dozen lines, at import. Parameters, deadlines, attempts and the owner are
recorded with each intent: a changed declaration does not change them, and neither does it change
who may decide on a proposal that waits. The contract, the pauses between attempts, the second owner
and the revalidation are read from today's declaration.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from settled.domain.approval import BY_AN_APPROVER, Approval
from settled.domain.budget import Budget, Reservation
from settled.domain.digest import Mode, digest
from settled.domain.errors import InvalidKind
from settled.domain.identity import Identity
from settled.domain.keys import Keys
from settled.domain.operation.terms import Terms
from settled.domain.params import Params, freeze
from settled.domain.provider import Provider
from settled.domain.retry import FullJitter

P = TypeVar("P", bound=Params)

Revalidation = Callable[[Any], "str | Params | None"]
"""Looks at the parameters before they are sent: None when they still hold, why they must not be
sent any more, or the parameters as they would have to be now."""


@dataclass(frozen=True)
class Kind(Generic[P]):
    """One sort of operation.

    `within` ends the automatic steps, counted from the intent. `hand_over_to` names the person or
    queue that owns what cannot be resolved; told again every `notify_every`, and `second_owner`
    too after `second_owner_after` times without an answer. `call_timeout` bounds one request from
    its first byte to its answer, `permit` the time between recording Dispatching and that first
    byte. `approvers` is who must approve before anything is intended: roles, of which one person
    needs one, or an `Approval`; empty means nobody has to. `decide_within` ends the wait for them.
    `version` is raised with whatever code of before must not act on; a worker serves several
    versions of a kind where several are declared.
    `budgets` are what its operations draw on together.

    `revalidate` is asked after the claim and before a request is sent of which nothing can be out,
    where the intent is older than `revalidate_after`; after an absence was confirmed, always. It
    runs on a thread, has the time of a call, and may be asked more than once.
    """

    name: str
    params: type[P]
    provider: Provider
    hand_over_to: str
    label: str = ""
    retry: FullJitter = field(default_factory=lambda: FullJitter(1, 60, 8))
    within: timedelta = timedelta(hours=20)
    call_timeout: timedelta = timedelta(seconds=30)
    permit: timedelta = timedelta(seconds=5)
    approvers: frozenset[str] | Approval = frozenset()
    budgets: tuple[Budget, ...] = ()
    decide_within: timedelta = timedelta(days=7)
    revalidate: Revalidation | None = None
    revalidate_after: timedelta = timedelta()
    notify_every: timedelta = timedelta(hours=4)
    second_owner: str | None = None
    second_owner_after: int = 3
    priority: int = 1
    version: int = 1
    mode: Mode = "live"

    def __post_init__(self) -> None:
        Identity("tenant", self.name, "operation")  # raises for a name that cannot be used
        if not self.hand_over_to:
            raise InvalidKind(
                f"{self.name}: nobody is named to hand over to.",
                hint="hand_over_to='payments-oncall': some outcomes only a person can establish.",
            )
        if isinstance(self.version, bool) or self.version < 1:
            raise InvalidKind(
                f"{self.name}: versions of a kind count from 1, not {self.version!r}."
            )
        if self.priority not in (0, 1, 2):
            raise InvalidKind(f"{self.name}: a priority is 0, 1 or 2; 0 goes first.")
        for name in ("within", "call_timeout", "permit", "decide_within", "notify_every"):
            if getattr(self, name) <= timedelta():
                raise InvalidKind(f"{self.name}: {name} must be longer than nothing.")
        if self.revalidate_after < timedelta():
            raise InvalidKind(f"{self.name}: revalidate_after cannot be less than nothing.")
        self.policy.check_fits(self.name, self.params)
        unknown = set(_label_fields(self.label)) - set(self.params.model_fields)
        if unknown:
            raise InvalidKind(
                f"{self.name}: the label names {', '.join(sorted(unknown))}, "
                f"which {self.params.__name__} does not have."
            )
        for budget in self.budgets:
            budget.check(self.name, self.params)

    @property
    def needs_approval(self) -> bool:
        """Whether nothing of this kind is intended without an approval."""
        return bool(self.approvers)

    @property
    def policy(self) -> Approval:
        """Who may decide on its proposals."""
        if isinstance(self.approvers, Approval):
            return self.approvers
        return Approval(self.approvers) if self.approvers else BY_AN_APPROVER

    @property
    def route(self) -> str:
        """What a worker serves that has this declaration: `refund@2/psp.example`."""
        return f"{self.name}@{self.version}/{self.provider.name}"

    def terms(self, identity: Identity, params: P, keys: Keys, origin: Mapping[str, str]) -> Terms:
        """Return what an intent or proposal with these parameters authorises."""
        key_id = keys.current(identity.tenant)
        return Terms(
            tenant=identity.tenant,
            kind=self.name,
            identity=identity.operation_id,
            kind_version=self.version,
            mode=self.mode,
            label=self.describe(params),
            params=freeze(params).decode(),
            params_version=self.params.PARAMS_VERSION,
            digest=digest(params, self.name, self.mode, keys.key(identity.tenant, key_id), key_id),
            provider=self.provider.name,
            hand_over_to=self.hand_over_to,
            priority=self.priority,
            within_seconds=min(self.within.total_seconds(), self.retry.total_seconds or math.inf),
            attempts_allowed=self.retry.attempts,
            call_timeout_seconds=self.call_timeout.total_seconds(),
            permit_seconds=self.permit.total_seconds(),
            origin=dict(origin),
            reserves=self.reserves(params),
        )

    def reserves(self, params: P) -> tuple[Reservation, ...]:
        """Return what an operation with these parameters takes of budgets, one entry a budget."""
        if not self.budgets:
            return ()
        fields = {name: getattr(params, name) for name in type(params).model_fields}
        amounts: Counter[str] = Counter()
        for budget in self.budgets:
            if (drawn := budget.draw(fields)) is not None:
                amounts[drawn.key] += drawn.amount
        return tuple(Reservation(key=key, amount=amounts[key]) for key in sorted(amounts))

    def describe(self, params: P) -> str:
        """Return the label with the parameters filled in."""
        if not self.label:
            return self.name
        return self.label.format(
            **{name: getattr(params, name) for name in type(params).model_fields}
        )


def _label_fields(label: str) -> list[str]:
    return [name.split(".")[0] for _, name, _, _ in string.Formatter().parse(label) if name]
