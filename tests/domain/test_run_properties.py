"""Budgets and deadlines of runs, whatever the order of calls, crashes and resumes.

A count that starts afresh somewhere, or a deadline that moves, is found by the orders that nobody
would write down.
"""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from settled import Identity, OnRecovery, RunBudget, Stamp, Usage
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.unit import RecordedEvent
from settled.domain.keys import DerivedKeys
from settled.domain.run import events as ev
from settled.domain.run.records import Lack, Reason, Sort
from settled.domain.run.run import Run, descend, start
from settled.infrastructure.testing.manual_clock import ManualClock

LIMIT = 100
SECOND = timedelta(seconds=1)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abc"), st.integers(0, 60)),
        st.tuples(st.just("return"), st.sampled_from("abc"), st.integers(0, 1)),
        st.tuples(st.just("crash"), st.just(""), st.just(0)),
        st.tuples(st.just("replace"), st.just(""), st.just(0)),
        st.tuples(st.just("turn"), st.sampled_from("xy"), st.integers(1, 300)),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_nothing_is_given_back_and_no_deadline_moves(steps: list[tuple[str, str, int]]) -> None:
    """What is used and reserved never passes the limit where calls keep to what they reserved.

    A crash and a replacement give nothing back, and every deadline stays within its outer one.
    """
    clock = ManualClock()
    run = start(
        Stamp(clock.at, "ada"),
        Identity("acme", "support", "run-0"),
        agent_build="",
        state_version=1,
        session=600 * SECOND,
        budget=RunBudget(tokens=LIMIT),
        input=None,
    )
    until, replaced, taken = run.started.session_until, 0, 0
    run.claim(Stamp(clock.at, "w"), worker="w", membership=1)
    turns: dict[str, object] = {}
    log: list[RecordedEvent] = []
    for what, name, number in steps:
        clock.advance(SECOND)
        stamp = Stamp(clock.at, "w")
        match what:
            case "ask":
                deadline, level = run.deadline(stamp.at, number * SECOND)
                lack = run.request(
                    stamp,
                    sort=Sort.TOOL,
                    call_id=name,
                    called="tool",
                    on_recovery=OnRecovery.RETRY,
                    digest="d",
                    until=deadline.at,
                    level=level,
                    reserve=Usage(tokens=number),
                )
                assert isinstance(lack, Lack) or deadline.at <= until
            case "return" if name in run.reserved:
                used = run.reserved[name].get("tokens", 0) * number
                run.record(
                    ev.ToolCallReturned, stamp, call_id=name, result="1", used={"tokens": used}
                )
            case "turn":
                run.begin_turn(stamp, name, number * 5 * SECOND)
                assert turns.setdefault(name, run.turns[name]) == run.turns[name] <= until
            case "replace":
                replaced += 1
                parent = run
                run = descend(
                    *(parent, stamp, f"run-{replaced}", Reason.REPLACEMENT),
                    agent_build="",
                    state_version=1,
                )
                run.claim(stamp, worker="w", membership=1)
                turns.clear()
                log.clear()
                assert run.all_used == parent.all_used
            case _:
                run = _folded(run, log, clock)
                run.claim(stamp, worker="w", membership=2)
        total = run.all_used.get("tokens", 0)
        assert total <= LIMIT and run.left["tokens"] == LIMIT - total
        assert run.started.session_until == until
        gave_back = what == "return"
        assert gave_back or total >= taken
        taken = total


def _folded(run: Run, log: list[RecordedEvent], clock: ManualClock) -> Run:
    """Return the run as another process finds it in the store; `log` is what was stored of it."""
    mapper = EventMapper(DerivedKeys(b"k" * 32))
    log += mapper.seal(run, clock.new_ids)
    folded = mapper.fold(log)
    assert isinstance(folded, Run)
    assert (folded.left, folded.calls, folded.turns) == (run.left, run.calls, run.turns)
    return folded
