"""Views by the command line: run by processes that are killed, looked at, decided on, rebuilt."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from settled.infrastructure.clock import elapsed_seconds
from tests.cli.runner import PATIENCE_SECONDS, ROOT, CommandLine


@contextmanager
def running(settled_: CommandLine, *words: str) -> Generator[subprocess.Popen[str]]:
    """A process that runs projections, once it has said so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "settled", "projections", "run", "--json", *words],
        cwd=settled_.folder,
        env=settled_.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
            line = process.stdout.readline() if readable else ""
            assert line and json.loads(line)["ready"] is True
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


def status(settled_: CommandLine) -> dict[str, Any]:
    return named("operations", settled_("projections", "status", "--json").document["projections"])


def named(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is said of one view; the others are there too."""
    (one,) = (one for one in found if one["name"] == name)
    return one


def said(process: subprocess.Popen[str], event: str) -> None:
    """Wait until a process has logged an event."""
    assert process.stderr is not None
    give_up_at = elapsed_seconds() + PATIENCE_SECONDS
    while elapsed_seconds() < give_up_at:
        if event in process.stderr.readline():
            return
    raise AssertionError(f"{event} was not logged")


def until_caught_up(settled_: CommandLine, name: str = "operations") -> dict[str, Any]:
    give_up_at = elapsed_seconds() + PATIENCE_SECONDS
    while True:
        found = settled_("projections", "status", "--json").document["projections"]
        if found and not any(one["behind"] for one in found):
            return named(name, found)
        assert elapsed_seconds() < give_up_at, found
        time.sleep(0.05)


def test_a_store_is_seeded_run_found_and_rebuilt(settled_: CommandLine) -> None:
    """The way of whoever looks at the read side for the first time, with no kinds at all."""
    seeded = settled_("seed", "--operations", "50", "--json").document
    assert seeded["operations"] == 50 and seeded["events"] > 100
    assert "already" in settled_("seed", "--operations", "50").err
    assert "begun" in settled_("ops", "find", "refund").err
    assert settled_("projections", "status").out == "No projection was ever run on this store.\n"
    with running(settled_):
        assert until_caught_up(settled_)["state"] == "live"
    found = settled_("ops", "find", "refund-request-7", "--tenant", "acme", "--json").document
    assert [line["operation_id"] for line in found["operations"]] == ["refund-request-7"]
    shown = settled_("ops", "find", "refund-request-7", "--tenant", "acme").out
    assert "refund-request-7" in shown and "Refund" in shown
    assert "Nothing is found" in settled_("ops", "find", "unheard-of").out
    listed = settled_("ops", "find", "--list", "waits_for_approval", "--json").document
    assert {line["state"] for line in listed["operations"]} <= {"proposed"}
    assert settled_("ops", "find").code == 2
    assert settled_("ops", "find", "--list", "lost").code == 2
    again = settled_("projections", "rebuild", "operations", "--workers", "2", "--json")
    assert again.code == 0, again.err
    assert (again.document["version"], again.document["differences"]) == (2, [])
    told = settled_("projections", "rebuild", "operations").out
    assert "operations 3 is live" in told and "counts: the same as in version 2" in told
    assert status(settled_)["version"] == 3
    assert settled_("projections", "rebuild", "nothing").code == 2


def test_another_takes_over_from_a_killed_leader(settled_: CommandLine) -> None:
    """LOG 6, 9: the lock goes with its process, so the view is not behind for long."""
    with running(settled_) as leader:
        said(leader, "projection_led")
        with running(settled_) as follower:
            leader.kill()
            said(follower, "projection_led")
            settled_("seed", "--operations", "3")
            assert until_caught_up(settled_)["state"] == "live"
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(PATIENCE_SECONDS) == 0


PICKY = '''
from tests.projections.parcels import Counted

class Refuses(Counted):
    """Folds no operation that a seed made, but counts everything else."""

    on_poison = "park"

    def apply(self, event, record, rows):
        if event.originator_version > 1:
            raise ValueError("only beginnings are counted")
        super().apply(event, record, rows)

beginnings = Refuses(name="beginnings", topics=("settled.operation.",))
'''


@pytest.mark.parametrize("act", ["retry", "skip"])
def test_a_decision_is_recorded_with_its_actor(settled_: CommandLine, act: str) -> None:
    """What a person decided about a view is asked about later, as everything else is."""
    settled_("seed", "--operations", "4")
    (settled_.folder / "picky.py").write_text(PICKY, encoding="utf-8")
    own = {"SETTLED_PROJECTIONS": "picky.py:beginnings", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "settled", "projections", "run", "beginnings"],
        cwd=settled_.folder,
        env=settled_.environment | own,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    with process:
        found = until_caught_up(settled_, "beginnings")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (found["state"], found["name"]) == ("parked", "beginnings")
    assert settled_("projections", "status").code == 1
    aside = settled_("projections", "parked", "beginnings", "--json").document["events"]
    stream = aside[0]["stream"]
    decision = ("projections", act, "beginnings", stream, "--reason", "because", "--json")
    done = settled_(*decision, given=b"", **own)
    assert done.code == 1, done.err
    assert done.document["error"] == "ValueError: only beginnings are counted"
    assert done.document["skipped"] == (act == "skip")
    unknown = settled_(*decision)
    assert unknown.error["message"].startswith("There is no projection beginnings")


def test_a_role_is_let_in_where_there_are_roles(settled_: CommandLine) -> None:
    """Who asks for it on SQLite hears what to do instead, and a wrong name is not taken for one."""
    done = settled_("projections", "grant", "operations", "nobody_at_all", "--json")
    told = "no roles" if "sqlite" in settled_.url else "no role nobody_at_all"
    assert done.code in (1, 2) and told in done.error["message"]
    assert settled_("projections", "grant", "nothing", "nobody_at_all").code == 2
    if "sqlite" not in settled_.url:
        allowed = settled_("projections", "grant", "operations", "pg_monitor", "--json")
        assert allowed.document == {"role": "pg_monitor", "schema": ""}
