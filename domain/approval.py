"""Who has to approve what: a policy, what it asks of one proposal, and a decision that was made.

A policy is declared with its kind. What it asks for the parameters of one version is worked out
when that version is proposed, and is recorded with it. Decisions on the version are judged under
what was recorded: no release changes who may decide on what waits already, and an auditor reads
from the stream alone why a decision counted. To put what waits under a new policy, revise it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict

from settled.domain.errors import InvalidKind, PermissionDenied
from settled.domain.identity import Principal
from settled.domain.money import Money
from settled.domain.params import Params

POLICY = "policy"
"""The authority of a decision that no person made: the policy's own rule did."""


class Requirement(BaseModel):
    """What has to be there before one version of a proposal is approved, as it is recorded.

    `count` different people, each with one of `roles`; with `four_eyes`, none of them anybody who
    proposed or revised it. An approval holds for `valid_seconds` (None: until it is used).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    roles: tuple[str, ...]
    count: int = 1
    four_eyes: bool = False
    policy_version: int = 1
    valid_seconds: float | None = None

    def authority(self, by: Principal) -> str | None:
        """Return the role in which somebody may decide; None where they have none of them."""
        return next((f"role {role}" for role in self.roles if role in by.roles), None)

    @property
    def named_roles(self) -> str:
        """The roles, as a sentence names them."""
        return " or ".join(self.roles)


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One word on one version of a proposal, as it was recorded.

    `by` is who decided and `authority` what let them: "role …", or "policy" where the policy's own
    rule did; empty in streams from before it was recorded. `evidence` names what they looked at.
    An approval does not let anything be sent from `valid_until` on.
    """

    decided: Literal["approved", "rejected"]
    proposal_version: int
    digest: str
    by: str
    at: datetime
    authority: str = ""
    policy_version: int | None = None
    valid_until: datetime | None = None
    reason: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Above:
    """What is asked for more than `limit`, in its currency: `count` people with one of `roles`."""

    limit: Money
    roles: frozenset[str]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Approval:
    """The policy of a kind: who has to approve its proposals. Raises InvalidKind.

    `count` different people with one of `roles`; with `four_eyes`, nobody who proposed or revised
    it. `amount` names the parameter that limits are about: of `above` the highest limit that is
    exceeded counts, and what is less than the limit of its currency in `auto_below` is approved by
    the policy itself. `valid_for` is how long an approval lets something be sent. Raise `version`
    with each change: it is recorded with what is asked.
    """

    roles: frozenset[str]
    count: int = 1
    four_eyes: bool = False
    amount: str = "amount"
    above: tuple[Above, ...] = ()
    auto_below: tuple[Money, ...] = ()
    valid_for: timedelta | None = None
    version: int = 1

    def __post_init__(self) -> None:
        rules: tuple[Approval | Above, ...] = (self, *self.above)
        for what in rules:
            if isinstance(cast(object, what.roles), str) or not all(what.roles) or not what.roles:
                raise InvalidKind(
                    "An approval names nobody who may give it.",
                    hint='Write roles=frozenset({"finance-lead"}).',
                )
            if what.count < 1:
                raise InvalidKind(f"{what.count} people cannot approve anything.")
        if self.valid_for is not None and self.valid_for <= timedelta():
            raise InvalidKind("An approval has to be valid for longer than nothing.")
        limits = [rule.limit for rule in self.above]
        if len(set(limits)) < len(limits):
            raise InvalidKind("Two rules of an approval are about more than the same limit.")
        below = {limit.currency: limit for limit in self.auto_below}
        if len(below) < len(self.auto_below):
            raise InvalidKind("auto_below has two limits in one currency.")
        for limit in limits:
            if limit.currency in below and below[limit.currency] > limit:
                raise InvalidKind(
                    f"What is more than {limit} needs people, and less than"
                    f" {below[limit.currency]} needs nobody: the two overlap."
                )

    @property
    def has_limits(self) -> bool:
        """Whether what is asked depends on an amount."""
        return bool(self.above or self.auto_below)

    def check_fits(self, name: str, params: type[Params]) -> None:
        """Raise InvalidKind where the limits are about an amount that is no field of `params`."""
        field = params.model_fields.get(self.amount)
        if self.has_limits and (field is None or field.annotation is not Money):
            raise InvalidKind(
                f"{name}: its limits need Money, which {params.__name__}.{self.amount} is not.",
                hint="Name the field: Approval(…, amount='total').",
            )

    def asks(self, params: Params) -> Requirement:
        """Return what has to be there before these parameters are approved.

        Raises PermissionDenied for an amount in a currency that the limits say nothing about:
        neither the lowest nor the highest of them can be right for it.
        """
        rule: Approval | Above = self
        if self.has_limits:
            amount: Money = getattr(params, self.amount)
            known = {each.limit.currency for each in self.above} or {amount.currency}
            if amount.currency not in known:
                raise PermissionDenied(
                    f"The limits of this approval are in {', '.join(sorted(known))}, and none is"
                    f" in {amount.currency}: nobody can say who may approve {amount}.",
                    hint=f"Declare one: Above(Money('…', '{amount.currency}'), roles=…).",
                )
            mine = [each for each in self.above if each.limit.currency == amount.currency]
            exceeded = [each for each in mine if amount > each.limit]
            rule = max(exceeded, key=lambda each: each.limit.minor, default=self)
        return self._requirement(rule)

    def approves(self, params: Params) -> bool:
        """Tell whether the policy approves these parameters by itself."""
        if not self.auto_below:
            return False
        amount: Money = getattr(params, self.amount)
        limits = [limit for limit in self.auto_below if limit.currency == amount.currency]
        return any(amount < limit for limit in limits)

    @property
    def asks_without_limits(self) -> Requirement:
        """What has to be there where no limit is exceeded."""
        return self._requirement(self)

    def _requirement(self, rule: Approval | Above) -> Requirement:
        return Requirement(
            roles=tuple(sorted(rule.roles)),
            count=rule.count,
            four_eyes=self.four_eyes,
            policy_version=self.version,
            valid_seconds=self.valid_for.total_seconds() if self.valid_for else None,
        )


BY_AN_APPROVER = Approval(frozenset({"approver"}))
"""What counts for a proposal of a kind that declares no policy: one person with the role approver.

A proposal that anybody could approve would be approved by whoever knows its id."""
