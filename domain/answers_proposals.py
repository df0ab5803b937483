"""The six answers about a kind's proposals: what is kept of a decision, and who makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from settled.domain.answers import Answer, Card, Question, StoreFacts, survives
from settled.domain.approval import Requirement
from settled.domain.kind import Kind
from settled.domain.situation import in_words


def proposals_card(kind: Kind[Any], store: StoreFacts) -> Card | None:
    """Return the card of a kind's proposals; None where nothing of it ever waits for a decision."""
    if not kind.needs_approval and kind.revalidate is None:
        return None
    return Card(
        f"proposals of {kind.name}",
        f"policy version {kind.policy.version}",
        (
            Answer(Question.STORED, tuple(_stored(kind))),
            Answer(Question.IDENTITY, tuple(_identity(kind))),
            survives(store),
            Answer(Question.WAKES, tuple(_wakes(kind))),
            Answer(Question.REPEATS, tuple(_repeats())),
            Answer(Question.RESOLVED, tuple(_resolved(kind))),
        ),
    )


def _stored(kind: Kind[Any]) -> Iterator[str]:
    yield (
        "Each version of the proposal with its exact parameters, its digest, and what the policy"
        " asked for it; each decision with who made it, what let them, version, digest, reason,"
        " what they looked at, and until when it holds."
    )
    if kind.revalidate is not None:
        yield "What a revalidation changed is a version of its own, with the reason."


def _identity(kind: Kind[Any]) -> Iterator[str]:
    policy = kind.policy
    yield "That of its operation; a decision names a version and its digest beside it."
    if not kind.needs_approval:
        yield "Nothing waits at first: only terms that a revalidation has changed are decided on."
    for limit in policy.auto_below:
        yield f"Less than {limit} is approved by the policy itself, which is recorded."
    yield f"It belongs to whoever may decide: {_asked(policy.asks_without_limits)}."
    for rule in sorted(policy.above, key=lambda one: (one.limit.currency, one.limit.minor)):
        roles = " or ".join(sorted(rule.roles))
        yield f"More than {rule.limit}: {_people(rule.count)} with the role {roles}."


def _asked(asked: Requirement) -> str:
    besides = ", none of whom proposed or revised it" if asked.four_eyes else ""
    return f"{_people(asked.count)} with the role {asked.named_roles}{besides}"


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count} different people"


def _wakes(kind: Kind[Any]) -> Iterator[str]:
    yield (
        f"A decision, at once. Without one its agenda row, {in_words(kind.decide_within)} after the"
        " version was put up."
    )
    if kind.revalidate is not None:
        age = in_words(kind.revalidate_after)
        older = f" where the intent is older than {age}" if kind.revalidate_after else ""
        yield (
            f"The worker that claims it asks the kind's revalidation{older}, and again after an"
            " absence was confirmed; never while a request may be out."
        )


def _repeats() -> Iterator[str]:
    yield "Nothing is sent before the decision, and one approval leads to one intent."
    yield (
        "The same decision again records nothing; the opposite is refused with the one that stands."
        " The first claim uses an approval up; other terms need a decision of their own."
    )


def _resolved(kind: Kind[Any]) -> Iterator[str]:
    yield "There is none: nothing is out. Undecided in time it expires; one rejection ends it."
    if kind.policy.valid_for is not None:
        yield (
            f"An approval holds for {in_words(kind.policy.valid_for)}: what has not been sent by"
            " then waits for a decision again."
        )
    if kind.revalidate is not None:
        yield (
            "A revalidation without a clear answer sends nothing: it is asked again until the time"
            f" of the intent, {in_words(kind.within)}, is over."
        )
