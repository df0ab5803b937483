"""The recovery decision: from an operation's situation and a finding to the one next step.

Pure and total. It is a table, `_TABLE`: a row for each thing that a provider may have answered, and
a column for what is left to do, in the order of preference:

- *window open*: the same request with the same key is certain not to be performed twice;
- *look-up left*: that is over or was never so, and the provider can be asked;
- *nothing left*: neither, and a person has to find out.

Before the table come the answers that speak for themselves (an outcome, "not found") and the first
and only attempt that was refused before anything was performed (`_REFUSED`). Findings by look-up
or webhook that say nothing about the effect change nothing. UNKNOWN in a contract never widens what
is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import Cached, Dedup, DuplicateCompleted, PreExecution
from settled.domain.obstacles import (
    absence_obstacle,
    resend_at,
    resend_obstacle,
    sending_obstacle,
    way_obstacle,
)
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.situation import Situation, Step, StepKind, later

__all__ = ["Situation", "Step", "StepKind", "recover"]

_ZERO = timedelta()
_CREDENTIAL_PAUSE = timedelta(seconds=30)


def recover(
    situation: Situation,
    contract: ProviderContract,
    finding: Finding | None,
    jitter: timedelta,
) -> Step:
    """Return the one next step.

    Without a finding: the owner is gone, or what was stored as unknown is due again. `jitter` is
    the backoff that the retry policy drew; what the provider asks for may lengthen it.
    """
    case = _Case(situation, contract, finding, jitter)
    if finding is None:
        return _due(case)
    step = _judge(case, finding)
    foreign = finding.echo is Echo.DIFFERS and step.kind is StepKind.HAND_OVER
    return replace(step, alert=True) if foreign or finding.answered in _ALERTING else step


_ALERTING = frozenset({Answered.UNAUTHORISED, Answered.KEY_MISMATCH})
"""What only a person can put right, however the operation itself goes on."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A situation under its contract, and what it allows."""

    situation: Situation
    contract: ProviderContract
    finding: Finding | None
    jitter: timedelta

    @property
    def delay(self) -> timedelta:
        """How long to leave the provider alone before the next request."""
        if self.finding is None:
            return max(self.jitter, _ZERO)  # the spacing was part of when this became due
        spacing = self.contract.limits.min_spacing
        return max(self.jitter, self.finding.retry_after or _ZERO, spacing, _ZERO)

    @property
    def first_and_only(self) -> bool:
        """Whether this answers the only request that may have been sent.

        A replayed answer does not: somebody has used the key before.
        """
        finding = self.finding
        return (
            finding is not None
            and finding.via is Via.REPLY
            and not finding.replayed
            and self.situation.sent <= 1
        )

    @property
    def handle(self) -> str | None:
        return self.situation.handle or (self.finding.reference if self.finding else None)

    @property
    def said(self) -> str:
        return self.finding.reason if self.finding else "it is not known what came of it"

    def after(self, wait: timedelta) -> datetime:
        return later(self.situation.now, wait)

    def resend_at(self, wait: timedelta) -> tuple[datetime, str | None]:
        """Return when a resend would leave, and what stands in its way."""
        until = self.finding.may_arrive_until if self.finding else None
        quiet = resend_at(self.situation, self.contract, self.after(wait), until)
        at = quiet or self.after(wait)
        beside = None if quiet else "a second request might be performed beside the first"
        return at, resend_obstacle(self.situation, self.contract, at) or beside

    def look_obstacle(self) -> str | None:
        if self.situation.now >= self.situation.give_up_at:
            return "its time for automatic steps is over"
        return way_obstacle(self.situation, self.contract, self.handle)


# Actions: what a cell of the table does. Each gets the case, the rule's name, and the least wait.

_Action = Callable[[_Case, str, timedelta], Step]


def _resend(case: _Case, rule: str, wait: timedelta) -> Step:
    at, obstacle = case.resend_at(wait)
    assert obstacle is None, f"{rule}: {obstacle}"  # The column was chosen by this.
    return Step(StepKind.RESEND, rule, f"{case.said}; the key still protects a resend", at)


def _wait(case: _Case, rule: str, wait: timedelta) -> Step:
    return Step(StepKind.WAIT, rule, case.said, _bounded(case, wait))


def _look_up(case: _Case, rule: str, wait: timedelta) -> Step:
    """Ask: at once the first time, unless the provider wants to be left alone."""
    asked = case.finding is not None and case.finding.retry_after is not None
    if case.situation.looked_up or asked:
        return _look_up_later(case, rule, case.delay)
    if case.look_obstacle() is not None:
        return _hand_over(case, rule, wait)
    return Step(StepKind.LOOK_UP, rule, f"{case.said}; the provider can be asked")


def _look_up_later(case: _Case, rule: str, wait: timedelta) -> Step:
    at = case.after(wait)
    if case.look_obstacle() is not None:
        return _hand_over(case, rule, wait)
    if at >= case.situation.give_up_at:
        # No time is left to ask again; until then a webhook may still tell.
        return _wait(case, rule, wait)
    return Step(StepKind.LOOK_UP, rule, f"{case.said}; the provider can be asked", at)


def _look_up_or_listen(case: _Case, rule: str, wait: timedelta) -> Step:
    over = case.situation.now >= case.situation.give_up_at
    if case.look_obstacle() and case.contract.outcomes.webhook_events and not over:
        return Step(
            StepKind.WAIT, rule, f"{case.said}; a webhook may tell", case.situation.give_up_at
        )
    return _look_up(case, rule, wait)


def _hand_over(case: _Case, rule: str, wait: timedelta) -> Step:
    _, no_resend = case.resend_at(wait)
    why = [case.said, *(part for part in (no_resend, case.look_obstacle()) if part)]
    return Step(StepKind.HAND_OVER, rule, "; ".join(dict.fromkeys(why)))


def _dispatch(case: _Case, rule: str, wait: timedelta) -> Step:
    """Nothing is out: send when due, or settle truthfully when nothing may be sent any more."""
    at = case.after(wait)
    over = sending_obstacle(case.situation, case.contract, at)
    if over:
        reason = f"{case.said}; nothing was performed, and {over}"
        return Step(StepKind.SETTLE_FAILED, f"{rule}, attempts exhausted", reason)
    return Step(StepKind.DISPATCH, rule, f"{case.said}; nothing was performed", at)


def _dispatch_with_credential(case: _Case, rule: str, wait: timedelta) -> Step:
    """A refused credential says nothing about the request: it is kept until its time is over.

    Somebody is told each time, and has to mend it; attempts are not used up.
    """
    at = case.after(max(wait, _CREDENTIAL_PAUSE))
    if at >= case.situation.give_up_at:
        reason = f"{case.said}; nothing was performed, and its time for automatic steps is over"
        return Step(StepKind.SETTLE_FAILED, f"{rule}, time over", reason)
    return Step(StepKind.DISPATCH, rule, f"{case.said}; nothing was performed", at)


def _settle_failed(case: _Case, rule: str, wait: timedelta) -> Step:
    return Step(StepKind.SETTLE_FAILED, rule, case.said)


def _bounded(case: _Case, wait: timedelta) -> datetime:
    """Return the end of a wait, at the latest when automatic steps end."""
    return max(min(case.after(wait), case.situation.give_up_at), case.situation.now)


# The table.


@dataclass(frozen=True, slots=True)
class _Row:
    """What to do in each column. `waits`: the answer asks for a pause before anything else."""

    name: str
    window_open: _Action
    lookup_left: _Action
    nothing_left: _Action = _hand_over
    waits: bool = False

    def decide(self, case: _Case) -> Step:
        """Choose the column and act."""
        wait = max(case.delay, _in_progress_wait(case)) if self.waits else case.delay
        _, no_resend = case.resend_at(wait)
        if no_resend is None:
            return self.window_open(case, f"{self.name}, window open", wait)
        if case.look_obstacle() is None:
            return self.lookup_left(case, f"{self.name}, look-up left", wait)
        return self.nothing_left(case, f"{self.name}, nothing left", wait)


def _in_progress_wait(case: _Case) -> timedelta:
    """A running request gets a quarter of the time that the provider may need for it."""
    running = case.finding is not None and case.finding.answered is Answered.IN_PROGRESS
    return (case.contract.max_in_flight or _ZERO) / 4 if running else _ZERO


def _stop(case: _Case, rule: str, wait: timedelta) -> Step:
    return Step(StepKind.HAND_OVER, rule, f"{case.said}; look up what the key was used for")


def _wait_for_running(case: _Case, rule: str, wait: timedelta) -> Step:
    if case.situation.waits >= case.situation.attempts_allowed:
        return _look_up(case, f"{rule}, waited long enough", wait)
    return _wait(case, rule, wait)


_UNANSWERED = _Row("unanswered", _resend, _look_up)
_SERVER_ERROR_KEPT = _Row("kept server error", _look_up_or_listen, _look_up)

_TABLE: Mapping[Answered, _Row] = {
    Answered.NOT_SENT: _Row("not sent, earlier unknown", _resend, _look_up),
    Answered.LOST: _Row("lost reply", _resend, _look_up),
    Answered.UNAVAILABLE: _Row("unavailable", _resend, _look_up),
    Answered.STORE_UNAVAILABLE: _Row("key store unavailable", _resend, _look_up, waits=True),
    Answered.SERVER_ERROR: _Row("server error", _resend, _look_up),
    Answered.RATE_LIMITED: _Row("rate limited", _resend, _look_up_later, waits=True),
    Answered.IN_PROGRESS: _Row("in progress", _wait_for_running, _look_up_later, waits=True),
    Answered.UNAUTHORISED: _Row("credential refused", _wait, _look_up),
    Answered.REJECTED: _Row("rejected, effect possible", _look_up, _look_up),
    Answered.NO_TARGET: _Row("no target, effect possible", _look_up, _look_up),
    Answered.DUPLICATE: _Row("duplicate", _look_up, _look_up),
    Answered.DUPLICATE_OF: _Row("duplicate with reference", _look_up, _look_up),
    Answered.NAME_TAKEN: _Row("name taken", _look_up, _look_up),
    Answered.PRECONDITION: _Row("precondition failed", _look_up, _look_up),
    Answered.KEY_MISMATCH: _Row("key mismatch", _stop, _stop, _stop),
    # A reply never says "not found" or leaves its outcome to this table; were one to, it is lost.
    Answered.ABSENT: _Row("absent out of place", _resend, _look_up),
}
"""What an answer means for a request that may have had an effect."""

_REFUSED: Mapping[Answered, tuple[str, PreExecution | None, _Action]] = {
    Answered.NOT_SENT: ("never sent", None, _dispatch),
    Answered.NO_TARGET: ("no target", None, _settle_failed),
    Answered.REJECTED: ("rejected", PreExecution.VALIDATION, _settle_failed),
    Answered.UNAUTHORISED: (
        "credential refused at first",
        PreExecution.AUTH,
        _dispatch_with_credential,
    ),
    Answered.RATE_LIMITED: ("rate limited at first", PreExecution.RATE_LIMIT, _dispatch),
}
"""What it means for the first and only request, where the contract says that such a refusal comes
before anything is performed. For NOT_SENT and NO_TARGET nothing needs to be said."""


def _judge(case: _Case, finding: Finding) -> Step:
    answered = finding.answered
    if answered in _OUTCOMES:
        return _settle(case, finding)
    if answered is Answered.KEY_MISMATCH:
        return _TABLE[answered].decide(case)
    if case.situation.accepted_at is not None:
        return _poll(case, "accepted")
    if finding.via is Via.LOOKUP:
        if answered in (Answered.ABSENT, Answered.NO_TARGET):
            return _absent(case, finding)
        if answered in _SAYS_SOMETHING:
            return _TABLE[answered].decide(case)
        return _look_up_later(case, "look-up failed", case.delay)
    if finding.via is not Via.REPLY:
        absent = finding.via is Via.HAND and answered is Answered.ABSENT
        if absent:
            return _absent(case, finding)
        return _TABLE[answered].decide(case) if answered in _SAYS_SOMETHING else _due(case)
    refused = _REFUSED.get(answered)
    if refused is not None and case.first_and_only:
        name, needed, action = refused
        if needed is None or needed in case.contract.uncached_pre_execution:
            return action(case, name, case.delay)
    if answered is Answered.SERVER_ERROR and _keeps_server_errors(case.contract):
        return _SERVER_ERROR_KEPT.decide(case)
    return _TABLE[answered].decide(case)


_SAYS_SOMETHING = frozenset(
    {
        Answered.IN_PROGRESS,
        Answered.DUPLICATE,
        Answered.DUPLICATE_OF,
        Answered.NAME_TAKEN,
        Answered.PRECONDITION,
    }
)
"""What tells something about the effect even if it does not answer our request."""


def _keeps_server_errors(contract: ProviderContract) -> bool:
    """Whether a resend would only be given the same error again."""
    return contract.cached is None or Cached.SERVER_ERROR in contract.cached


def _due(case: _Case) -> Step:
    """Nobody answered, or the answer said nothing: go on with what the situation allows."""
    if case.situation.accepted_at is not None:
        return _poll(case, "accepted")
    if case.situation.sent <= 0:
        return _dispatch(case, "never sent", _ZERO)
    if case.situation.looked_up and case.look_obstacle() is None:
        # Looking began because a resend was pointless or not safe, and that has not changed.
        return Step(StepKind.LOOK_UP, "look again", f"{case.said}; the provider can be asked")
    return _UNANSWERED.decide(case)


def _absent(case: _Case, finding: Finding) -> Step:
    """A look-up found nothing."""
    obstacle = absence_obstacle(case.situation, case.contract, finding.may_arrive_until)
    if obstacle is None:
        at = case.after(case.delay)
        reason = f"{case.said}, and nothing can arrive now"
        over = sending_obstacle(case.situation, case.contract, at)
        if over:
            return Step(
                StepKind.SETTLE_FAILED, "absent, proven, attempts exhausted", f"{reason}; {over}"
            )
        return Step(StepKind.CONFIRM_ABSENT, "absent, proven", reason, at)
    reason = f"{case.said}, which proves nothing: {obstacle}"
    if case.look_obstacle() is not None:
        return Step(StepKind.HAND_OVER, "absent, not proven in time", reason)
    return Step(StepKind.WAIT, "absent, not proven", reason, _bounded(case, case.delay))


# Outcomes that the provider reports.

_OUTCOMES: Mapping[Answered, tuple[StepKind, str]] = {
    Answered.PERFORMED: (StepKind.SETTLE_SUCCEEDED, "performed"),
    Answered.FAILED: (StepKind.SETTLE_FAILED, "failed at the provider"),
    Answered.REVERSED: (StepKind.SETTLE_REVERSED, "reversed at the provider"),
    Answered.PENDING: (StepKind.ACCEPT, "pending"),
}


def _settle(case: _Case, finding: Finding) -> Step:
    """Settle by an outcome that is ours, stop at a foreign one, and ask about the rest."""
    kind, name = _OUTCOMES[finding.answered]
    if finding.echo is Echo.DIFFERS:
        reason = f"{case.said}, but it differs in {finding.differs_in or 'what was intended'}"
        return Step(StepKind.HAND_OVER, f"{name}, echo differs", reason)
    if not _is_ours(case, finding) or (
        finding.answered is Answered.FAILED and not _one_effect_at_most(case)
    ):
        return _ask_whose(case, finding, f"{name}, not proven ours")
    if kind is StepKind.ACCEPT:
        return _poll(case, name)
    return Step(kind, name, case.said)


def _ask_whose(case: _Case, finding: Finding, rule: str) -> Step:
    """An outcome without anything that ties it to our intent: look, or let a person look."""
    if case.situation.accepted_at is not None:
        return _poll(case, rule)
    if finding.via is not Via.LOOKUP and case.look_obstacle() is None:
        return _look_up(case, rule, case.delay)
    return Step(StepKind.HAND_OVER, rule, f"{case.said}; nothing shows that it is all of ours")


def _is_ours(case: _Case, finding: Finding) -> bool:
    """Whether what is reported is the effect of our requests and not of somebody else's."""
    situation, contract = case.situation, case.contract
    if finding.echo is Echo.EQUAL or finding.via is Via.HAND or case.first_and_only:
        return True
    if situation.accepted_at is not None and situation.handle is not None:
        by_handle = finding.via is Via.LOOKUP and finding.reference is None
        if by_handle or finding.reference == situation.handle:
            return True
    if finding.via is Via.REPLY and not contract.keyed and not finding.replayed:
        return True  # Without a key there is no replay: the answer is to this very request.
    # A name that we chose may have been chosen by others too, whatever the provider compares.
    told_apart = contract.matching.compares and contract.dedup is not Dedup.NATURAL_KEY
    return told_apart and situation.sent > 0


def _one_effect_at_most(case: _Case) -> bool:
    """Whether an object that failed is the only one that our requests can have made."""
    return case.situation.sent <= 1 or (
        case.contract.keyed
        and case.situation.key_on_every_attempt
        and case.contract.duplicate_completed is not DuplicateCompleted.UNKNOWN
    )


def _poll(case: _Case, rule: str) -> Step:
    """Wait for a final outcome; never create the object again."""
    situation, outcomes = case.situation, case.contract.outcomes
    now, since = situation.now, situation.accepted_at
    until = situation.give_up_at
    if outcomes.max_pending is not None:
        until = later(since or now, outcomes.max_pending)
    accepting = since is None
    if not accepting and now >= until:
        return Step(StepKind.HAND_OVER, "pending too long", f"{case.said}; no outcome in time")
    kind = StepKind.ACCEPT if accepting else StepKind.POLL
    if way_obstacle(situation, case.contract, case.handle) is not None:
        kind = kind if accepting else StepKind.WAIT
        at = max(until, now)
        return Step(kind, f"{rule}, webhook only", f"{case.said}; a webhook will tell", at)
    if case.finding is None:
        return Step(kind, rule, "its final outcome is not known yet")
    wait = max(outcomes.poll.wait(situation.looked_up), case.delay)
    return Step(kind, rule, case.said, max(min(case.after(wait), until), now))
