"""The six answers that a run kind owes, derived from its declaration and the store."""

from __future__ import annotations

from settled.domain.answers import Answer, Card, Question, StoreFacts, survives
from settled.domain.run.kind import RunKind
from settled.domain.run.records import LIMIT_BYTES
from settled.domain.run.run import FIRST_LOOK, LONGEST_LOOK
from settled.domain.situation import in_words


def run_card(kind: RunKind, store: StoreFacts) -> Card:
    """Return the card of a run kind."""
    return Card(
        kind.name,
        "run",
        (
            _stored(kind),
            _identity(kind),
            survives(store),
            _wakes(kind),
            _repeats(kind),
            _resolved(kind),
        ),
    )


def _stored(kind: RunKind) -> Answer:
    budget = ", ".join(f"{limit} {unit}" for unit, limit in kind.budget.limits.items())
    return Answer(
        Question.STORED,
        (
            "Its input, its calls with what they returned, what it waits for, its deadlines, what"
            f" it used, and named checkpoints of at most {LIMIT_BYTES // 1024} KiB; no transcript.",
            f"It may use {budget}, whoever replaces it included."
            if budget
            else "No budget is declared: what it uses is counted, and not limited.",
        ),
    )


def _identity(kind: RunKind) -> Answer:
    return Answer(
        Question.IDENTITY,
        (
            f"Tenant, {kind.name}, and the run id. It permits nothing: what a person decides is"
            " decided on an operation, by its version and digest.",
            "It belongs to one worker at a time, under an owner epoch; what an earlier owner still"
            " writes is refused.",
        ),
    )


def _wakes(kind: RunKind) -> Answer:
    return Answer(
        Question.WAKES,
        (
            "Its agenda row, which always has one next time while it is open, and never later than"
            f" its session ends, {in_words(kind.session)} after its start.",
            "An operation that settles or is decided on, and an input, make it due at once. In case"
            f" nobody told, it looks after {in_words(FIRST_LOOK)}, then ever later, at most every"
            f" {in_words(LONGEST_LOOK)}.",
        ),
    )


def _repeats(kind: RunKind) -> Answer:
    return Answer(
        Question.REPEATS,
        (
            "Its function, from the first line, each time a worker takes it. A call that returned"
            " is given back by its name; only one that is declared fresh is made again.",
            "A call that had not returned is made again where it is declared retry or fresh; reuse"
            " counts it as lost.",
            f"What raises is tried {kind.retry.attempts} times in all.",
        ),
    )


def _resolved(kind: RunKind) -> Answer:
    return Answer(
        Question.RESOLVED,
        (
            "A run never decides whether an effect happened. What it wants done is an operation,"
            " bound by the business's identity: another call, run, fork or replacement meets the"
            " same one, and its own contract resolves it.",
        ),
    )
