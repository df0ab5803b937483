"""The names of rules that events record, in words, and the answer that each of them is about.

A rule's name begins with what was answered and ends with the column of recovery's table in which it
was decided, or with what else came to it: "lost reply, window open". Names are stable, and stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from settled.domain.provider import Answered


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its stored name, the answer that it is about, if it is about one, and its meaning.

    `automatic` is False for what a person decided, or what was recorded without asking recovery.
    """

    name: str
    answered: Answered | None
    meaning: str
    automatic: bool = True


def rule_named(name: str) -> Rule | None:
    """Return the rule of this name, or None where this code has none."""
    for base in _BY_LENGTH:
        if name != base and not name.startswith(f"{base}, "):
            continue
        ends = name[len(base) :].removeprefix(", ").split(", ") if name != base else []
        if not all(end in _ENDS for end in ends):
            continue
        answered, meaning, automatic = _BASES[base]
        return Rule(name, answered, "; ".join([meaning, *(_ENDS[e] for e in ends)]), automatic)
    return None


def meaning_of(name: str) -> str:
    """Return what a recorded rule means; never empty, also for a name that is not known here."""
    rule = rule_named(name)
    return rule.meaning if rule else "this version of settled has no rule of that name"


_ENDS: Mapping[str, str] = {
    "window open": "the provider still knows the key, so the same request is safe",
    "look-up left": "a resend is not safe any more or was never, and the provider can be asked",
    "nothing left": "neither a resend nor a look-up is safe and possible: a person finds out",
    "waited long enough": "it has waited as often as attempts are allowed",
    "attempts exhausted": "no request may be sent any more",
    "time over": "the time for automatic steps is over",
    "echo differs": "what the provider says it did is not what was intended",
    "not proven ours": "nothing shows that it answers our request and no other",
    "webhook only": "the provider cannot be asked, so a webhook has to tell",
}
"""How the name of a rule may end."""

_AUTOMATIC: Mapping[str, tuple[Answered | None, str]] = {
    # What may have had an effect.
    "unanswered": (None, "nobody answered, or the answer said nothing about the effect"),
    "not sent, earlier unknown": (
        Answered.NOT_SENT,
        "this request was not sent, and an earlier one may have had an effect",
    ),
    "lost reply": (Answered.LOST, "the request may have arrived, and no usable reply came back"),
    "unavailable": (Answered.UNAVAILABLE, "the provider could not serve the request just then"),
    "key store unavailable": (
        Answered.STORE_UNAVAILABLE,
        "the provider could not read its own record of keys",
    ),
    "server error": (Answered.SERVER_ERROR, "the provider failed, maybe after performing"),
    "kept server error": (
        Answered.SERVER_ERROR,
        "the provider failed and keeps that answer for the key, so a resend tells nothing new",
    ),
    "rate limited": (Answered.RATE_LIMITED, "there were too many requests"),
    "in progress": (Answered.IN_PROGRESS, "a request with this key is running at the provider"),
    "credential refused": (
        Answered.UNAUTHORISED,
        "the credential was refused, and an earlier request may have had an effect",
    ),
    "rejected, effect possible": (
        Answered.REJECTED,
        "the request was refused, and that does not say that nothing was performed",
    ),
    "no target, effect possible": (
        Answered.NO_TARGET,
        "what the request is about is not there, maybe because of an earlier request",
    ),
    "duplicate": (Answered.DUPLICATE, "the provider has had this request, and says no more"),
    "duplicate with reference": (
        Answered.DUPLICATE_OF,
        "the provider has had this request and names its object, which has to be compared",
    ),
    "name taken": (
        Answered.NAME_TAKEN,
        "an object of the name that we chose exists, which may be ours or somebody else's",
    ),
    "precondition failed": (
        Answered.PRECONDITION,
        "a version or total at the provider was not the one expected",
    ),
    "key mismatch": (
        Answered.KEY_MISMATCH,
        "the provider knows the key with another request: nothing more is sent under it",
    ),
    "absent out of place": (Answered.ABSENT, "not found, said where it proves nothing"),
    # Refused before anything was performed, as the first and only request.
    "never sent": (Answered.NOT_SENT, "nothing is out"),
    "no target": (
        Answered.NO_TARGET,
        "what the only request is about does not exist, so nothing was performed",
    ),
    "rejected": (
        Answered.REJECTED,
        "the only request was refused, and the contract says: before anything is performed",
    ),
    "credential refused at first": (
        Answered.UNAUTHORISED,
        "the only request was refused for its credential, before anything was performed",
    ),
    "rate limited at first": (
        Answered.RATE_LIMITED,
        "the only request was one too many, and was refused before anything was performed",
    ),
    # Asking.
    "look-up failed": (Answered.LOST, "the provider was asked, and its answer said nothing"),
    "look again": (None, "the provider has been asked before, and is asked again"),
    "absent, proven": (
        Answered.ABSENT,
        "the provider has nothing, its contract makes that a proof, and nothing can still arrive",
    ),
    "absent, not proven": (
        Answered.ABSENT,
        "the provider has nothing yet, and that proves nothing until no request can arrive",
    ),
    "absent, not proven in time": (
        Answered.ABSENT,
        "the provider has nothing, that proves nothing, and it cannot be asked again: a person"
        " finds out",
    ),
    # Outcomes.
    "performed": (Answered.PERFORMED, "the provider reports the effect, and it is ours"),
    "failed at the provider": (
        Answered.FAILED,
        "the provider reports a final outcome without an effect",
    ),
    "reversed at the provider": (
        Answered.REVERSED,
        "the provider says that it took the effect back",
    ),
    "pending": (Answered.PENDING, "the provider has the request, and its outcome is to come"),
    "accepted": (None, "the provider has the request, and is asked for its outcome in time"),
    "pending too long": (
        None,
        "the outcome did not come in the time that the contract gives it: a person finds out",
    ),
}

_OTHERS: Mapping[str, tuple[Answered | None, str]] = {
    "settled by hand": (None, "a person said what is true, with evidence and a reason"),
    "contradicted": (None, "evidence disagrees with how it had ended: a person says what is true"),
    "evidence of an effect": (None, "an effect was reported while nothing of ours was out"),
    "effect before any request": (
        None,
        "an effect was reported before anything was sent, and nothing shows whose it is",
    ),
    "told otherwise": (
        None,
        "evidence that had come by itself disagrees with this end: a person says what is true",
    ),
    "evidence after hand-over": (
        Answered.PERFORMED,
        "evidence that is equal to the intent came while a person was to find out",
    ),
    "request cannot be made": (
        None,
        "today's adapter could not make the request to compare it with the one that was sent",
    ),
    "cancel requested": (
        None,
        "a cancel was requested, and only a resend could tell what came of the request",
    ),
    "adopted": (None, "the store was a copy or was restored: what was ready may have been sent"),
}

_BASES: Mapping[str, tuple[Answered | None, str, bool]] = {
    **{name: (answered, meaning, True) for name, (answered, meaning) in _AUTOMATIC.items()},
    **{name: (answered, meaning, False) for name, (answered, meaning) in _OTHERS.items()},
}
_BY_LENGTH = sorted(_BASES, key=len, reverse=True)
"""The longest first: "absent, not proven in time" is no "absent, not proven"."""
