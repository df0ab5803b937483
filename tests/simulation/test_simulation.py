"""A short run of the simulation, and the proof that it would notice.

The long run is `make simulation`. What it finds stays here as a seed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from settled.domain import obstacles, recovery
from settled.processes.runner import Runner
from tests.simulation import contracts
from tests.simulation.chances import LARGEST
from tests.simulation.history import History
from tests.simulation.liveness import ends, shortfalls

ROOT = Path(__file__).resolve().parents[2]
SEEDS_OF_THE_LARGEST = (422, 806)
"""Seeds of two of the largest histories, under different mixtures of faults."""

SHORT = range(1_000_000, 1_000_040)
"""Seeds that `make test` always runs, so that it can be asked what they came to."""

SHORT_SECONDS = 5.0
"""What `make test` gives to these and to others after them, in time of the processor."""


def explained(history: History) -> str:
    """Return what broke, and the end of the trace, for who has to mend it."""
    broken = "\n".join(history.violations)
    return f"seed {history.seed}\n{broken}\n" + "\n".join(history.trace[-200:])


def digest(history: History) -> str:
    return hashlib.sha256("\n".join(history.trace).encode()).hexdigest()


def short_run() -> Counter[tuple[str, str]]:
    """Run the histories of the short run that are always run, and return how they ended."""
    counts: Counter[tuple[str, str]] = Counter()
    for seed in SHORT:
        history = History(seed).run()
        assert not history.violations, explained(history)
        counts += ends(history)
    return counts


def nothing(*_: object) -> None:
    """Stand in the way of nothing."""


def first_caught(seeds: range, kind: str | None = None) -> History:
    """Run histories until something does not hold; each of them is small enough to be quick."""
    for seed in seeds:
        history = History(seed)
        if kind is None or kind in history.chances.kinds:
            history.run()
            if history.violations:
                return history
    pytest.fail(f"none of the seeds {seeds} noticed")


def test_nothing_is_done_twice_and_nothing_is_lost_whatever_happens() -> None:
    """Random histories from a fixed seed on, for some seconds; the long run has thousands."""
    began, seed = time.process_time(), SHORT.stop
    short = short_run()
    assert shortfalls(short, contracts.CONDUCTS) == []
    while time.process_time() - began < SHORT_SECONDS:
        history = History(seed).run()
        assert not history.violations, explained(history)
        seed += 1


def test_a_recovery_that_hands_everything_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as safe as can be, and of no use; no step of it breaks a rule."""

    hand_over: Callable[..., Any] = getattr(recovery, "_hand_over")  # noqa: B009

    def give_up(row: Any, case: Any) -> Any:
        return hand_over(case, "unanswered, nothing left", timedelta())

    monkeypatch.setattr(getattr(recovery, "_Row"), "decide", give_up)  # noqa: B009
    found = shortfalls(short_run(), contracts.CONDUCTS)
    assert any("given up although all faults pass" in words for words in found), found


@pytest.mark.parametrize("seed", SEEDS_OF_THE_LARGEST)
def test_fifty_operations_at_once_hold(seed: int) -> None:
    """Operations meet in the agenda, the groups of a commit and the workers' places."""
    history = History(seed)
    assert history.chances.operations == LARGEST
    history.run()
    assert not history.violations, explained(history)


def test_a_seed_replays_exactly() -> None:
    """Within one process, and in another one whose sets and dictionaries hash differently."""
    seed = 2
    first, again = History(seed).run(), History(seed).run()
    assert len(first.trace) > 200
    assert first.trace == again.trace
    code = (
        "from tests.simulation.history import History\n"
        "from tests.simulation.test_simulation import digest\n"
        f"print(digest(History({seed}).run()))"
    )
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == digest(first)


def test_a_request_before_its_dispatching_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner that does not commit before it calls is the oldest bug of them all."""
    record: Callable[..., Any] = getattr(Runner, "_record")  # noqa: B009

    async def forgetful(self: Runner, machine: Any, epoch: int) -> Any:
        pending = list(machine.pending_events)
        if pending and pending[-1].name() == "Dispatching":
            return machine
        return await record(self, machine, epoch)

    monkeypatch.setattr(Runner, "_record", forgetful)
    history = first_caught(range(600))
    assert "without a Dispatching" in history.violations[0], explained(history)


def test_a_resend_outside_the_window_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that has forgotten the key performs a second time."""
    monkeypatch.setattr(obstacles, "_window_obstacle", nothing)
    history = first_caught(range(600))
    assert "is sent although the first one was" in history.violations[0], explained(history)


def test_taking_not_found_for_a_proof_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look-up does not show may still travel, run, or not be visible yet."""
    monkeypatch.setattr(recovery, "absence_obstacle", nothing)
    history = first_caught(range(600))
    claimed = (
        "ConfirmedAbsent beside",
        "ConfirmedAbsent while",
        "Dispatching beside an effect",
        "ends failed, ",
        "ends cancelled, ",
    )
    assert any(words in history.violations[0] for words in claimed), explained(history)


def test_a_provider_that_breaks_its_promise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can help it, so it has to be seen: the contract says keyed, and it keeps no keys."""
    liar = replace(contracts.CONDUCTS["keyed"], window_seconds=0.0)
    monkeypatch.setitem(contracts.CONDUCTS, "keyed", liar)
    history = first_caught(range(600), "keyed")
    seen = ("2 effects", "Failed beside an effect")
    assert any(words in history.violations[0] for words in seen), explained(history)
