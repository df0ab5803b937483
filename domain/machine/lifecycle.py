"""A lifecycle written once, as data: states with their meaning, and the arrows between them.

The table is the single source of what may happen. `transitions` holds it as the validated
definition, one machine a lifecycle, built at import and compiled to a lookup table; no aggregate
is ever bound to it. Guard, pictures and property tests come from the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from transitions import Machine as TransitionsMachine
from transitions import MachineError
from transitions.extensions import GraphMachine

from settled.domain.errors import InvalidLifecycle, NotPossible, TransitionRefused

ABSENT = "absent"
"""Where a stream is before its first event."""


@dataclass(frozen=True, slots=True)
class State:
    """One state: what it means, and how one enters and leaves it, in a paragraph.

    `settled` says that nothing is due any more; `held` that the stream belongs to the worker that
    claimed it.
    """

    name: str
    meaning: str
    settled: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """From any of `sources`, `event` leads to `target`; a `target` of None stays where it is.

    `guard` names a method of the aggregate that raises where the step may not be taken.
    """

    sources: tuple[str, ...]
    event: str
    target: str | None
    guard: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why `events` are refused in `states`: a named error with its reason and what to do."""

    states: tuple[str, ...]
    events: tuple[str, ...]
    error: type[NotPossible]
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """A pair (state, event) that may happen: where it leads, and the guard before it."""

    target: str
    guard: str | None


class Lifecycle:
    """The compiled table. Total: each pair of a state and an event is a step or a refusal."""

    def __init__(
        self,
        name: str,
        *,
        states: Sequence[State],
        arrows: Sequence[Arrow],
        refusals: Sequence[Refusal] = (),
    ) -> None:
        """Validate the definition with `transitions` and compile it.

        Raises InvalidLifecycle for an unknown state, two arrows for one pair, a state that cannot
        be reached or an open state that cannot be left.
        """
        self.name = name
        self.states = {state.name: state for state in states}
        self.arrows = tuple(arrows)
        self.refusals = tuple(refusals)
        self.events = tuple(dict.fromkeys(arrow.event for arrow in arrows))
        if len(self.states) < len(states) or ABSENT in self.states:
            raise InvalidLifecycle(f"{name}: a state is named twice, or {ABSENT!r} is declared.")
        self._machine = self._define()
        self._steps = self._compile()
        self._refused = self._compile_refusals()
        self._check_reachable()

    def step(self, state: str, event: str) -> Transition:
        """Return the step for a pair, or raise the error that the table names for it."""
        step = self._steps.get((state, event))
        if step is None:
            raise self.refusal(state, event)
        return step

    def allows(self, state: str, event: str) -> bool:
        """Tell whether the table has a step for this pair (its guard may still refuse it)."""
        return (state, event) in self._steps

    def refusal(self, state: str, event: str) -> NotPossible:
        """Return the error for a pair that has no step."""
        rule = self._refused.get((state, event))
        if rule is not None:
            return rule.error(rule.reason, hint=rule.hint)
        allowed = [e for (s, e) in self._steps if s == state]
        return TransitionRefused(
            f"{event} does not happen to a {self.name} that is {state}.",
            hint=f"From {state} it can go on by: {', '.join(allowed) or 'nothing'}.",
        )

    def pairs(self) -> Iterator[tuple[str, str, Transition | None]]:
        """Yield every (state, event) pair with its step, or None where it is refused."""
        for state in (ABSENT, *self.states):
            for event in self.events:
                yield state, event, self._steps.get((state, event))

    def mermaid(self, current: str | None = None) -> str:
        """Return the picture as Mermaid text; with `current`, that state is marked.

        Self-loops are left out: they say nothing about where a stream can go.
        """
        arrows = [t for t in self._transitions() if t["source"] != t["dest"]]
        machine = GraphMachine(
            model=None,
            states=[ABSENT, *self.states],
            transitions=arrows,
            initial=ABSENT,
            auto_transitions=False,
            graph_engine="mermaid",
            title=self.name,
            show_conditions=True,
        )
        holder: Any = SimpleNamespace()  # `transitions` draws only for a model bound to it
        machine.add_model(holder, initial=current or ABSENT)
        return str(holder.get_graph().source).strip() + "\n"

    def _transitions(self) -> list[dict[str, Any]]:
        return [
            {
                "trigger": arrow.event,
                "source": source,
                "dest": arrow.target or source,
                "conditions": [arrow.guard] if arrow.guard else [],
            }
            for arrow in self.arrows
            for source in arrow.sources
        ]

    def _define(self) -> TransitionsMachine:
        try:
            return TransitionsMachine(
                model=None,
                states=[ABSENT, *self.states],
                transitions=self._transitions(),
                initial=ABSENT,
                auto_transitions=False,
            )
        except (ValueError, MachineError) as error:
            raise InvalidLifecycle(f"{self.name}: {error}") from error

    def _compile(self) -> Mapping[tuple[str, str], Transition]:
        known = {ABSENT, *self.states}
        steps: dict[tuple[str, str], Transition] = {}
        for name, event in self._machine.events.items():
            for source, transitions in event.transitions.items():
                for transition in transitions:
                    if source not in known or transition.dest not in known:
                        raise InvalidLifecycle(
                            f"{self.name}: {name} goes from {source} to {transition.dest}, "
                            "and one of the two is no state."
                        )
                    if (source, name) in steps:
                        raise InvalidLifecycle(f"{self.name}: two arrows for {name} in {source}.")
                    guards = [str(condition.func) for condition in transition.conditions]
                    steps[source, name] = Transition(transition.dest, guards[0] if guards else None)
        return steps

    def _compile_refusals(self) -> Mapping[tuple[str, str], Refusal]:
        refused: dict[tuple[str, str], Refusal] = {}
        for rule in self.refusals:
            for state in rule.states:
                for event in rule.events:
                    if (state, event) in self._steps or (state, event) in refused:
                        raise InvalidLifecycle(f"{self.name}: {event} in {state} is decided twice.")
                    if state not in self.states or event not in self.events:
                        raise InvalidLifecycle(
                            f"{self.name}: nothing is called {event} in {state}."
                        )
                    refused[state, event] = rule
        return refused

    def _check_reachable(self) -> None:
        reached, grown = {ABSENT}, True
        while grown:
            targets = {s.target for (state, _), s in self._steps.items() if state in reached}
            grown = not targets <= reached
            reached |= targets
        if missing := set(self.states) - reached:
            raise InvalidLifecycle(f"{self.name}: nothing leads to {', '.join(sorted(missing))}.")
        left = {state for (state, _), s in self._steps.items() if s.target != state}
        stuck = [s.name for s in self.states.values() if not s.settled and s.name not in left]
        if stuck:
            raise InvalidLifecycle(f"{self.name}: nothing leads out of {', '.join(stuck)}.")
