"""The run view on both databases says what the runs' own streams say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from settled import ActiveRun, App, Principal, RunKind, StoreNotMigrated, WorkerSettings
from settled.projections.runs import RunsProjection
from settled.testing import assert_idempotent

AGENT = Principal("acme", "support-agent")


async def support(run: ActiveRun) -> Any:
    """End in as many ways as a run can."""
    match run.given:
        case "waits":
            await run.input("answer")
        case "fails":
            run.fail("the model refuses")
        case "sleeps":
            await run.sleep("long", timedelta(hours=1))
        case _:
            return run.given


def test_every_line_is_what_its_stream_says(store_url: str) -> None:
    """A board that shows another state than the stream would send somebody to the wrong run."""
    kinds = [RunKind("support", support)]
    with App(store_url, runs=kinds, migrate=True, require_fsync=False) as app:
        with pytest.raises(StoreNotMigrated):
            app.views.runs.listed(None)
        app.start_worker(WorkerSettings(idle_seconds=0.02))
        for what in ("waits", "fails", "sleeps", "ends"):
            run = app.runs.start("support", f"run-{what}", input=what, by=AGENT)
            app.runs.wait(run, timeout_seconds=20, states=("waiting",))
        app.runs.cancel(app.runs.get("support", "run-sleeps", by=AGENT), by=AGENT, reason="enough")
        app.projector().catch_up(RunsProjection())
        lines = app.views.runs.listed("acme")
        assert {line.state for line in lines} == {"waiting", "failed", "cancelled", "completed"}
        for line in lines:
            said = app.runs.get("support", line.run_id, by=AGENT)
            assert (line.state, line.version, line.epoch, line.worker) == (
                *(said.state, said.version, said.epoch, said.worker),
            )
            assert (line.waits_for, line.waits_until, line.session_until, line.last_reason) == (
                *(said.waits_for, said.waits_until, said.session_until, said.last_reason),
            )
        (waiting,) = app.views.runs.listed(None, state="waiting")
        assert waiting.run_id == "run-waits" and app.views.runs.listed("other") == []
        assert_idempotent(app.projector(), RunsProjection())
