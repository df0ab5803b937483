"""`settled runs`, as an operator uses it beside a worker, on both databases."""

from __future__ import annotations

from pathlib import Path

from settled import App, Principal
from tests.cli import agents
from tests.cli.runner import CommandLine

AGENTS = str(Path(__file__).with_name("agents.py"))


def test_a_run_is_seen_decided_and_cancelled(settled_: CommandLine) -> None:
    """What it waits for is shown; a decision needs version, digest and role; a cancel a reason."""
    by = Principal("acme", "service")
    kinds = [agents.agent_refund]
    with App(settled_.url, kinds=kinds, runs=[agents.support], require_fsync=False) as app:
        app.start_worker()
        run = app.runs.start("support", "ticket-17", by=by)
        app.runs.wait(run, timeout_seconds=30, states=("waiting",))
        (listed,) = settled_("runs", "list", "--json").document["runs"]
        waits_for = "a decision on version 1 of agent-refund refund-request-9"
        assert (listed["run_id"], listed["waits_for"]) == ("ticket-17", waits_for)
        assert settled_("runs", "list", "--state-version", "2", "--json").document["runs"] == []
        assert f"it waits for {waits_for}" in settled_("runs", "why", "ticket-17").out
        digest = settled_("ops", "show", "refund-request-9", "--json").document["digest"]
        words = ["runs", "resume", "ticket-17", "--operation", "agent-refund/refund-request-9"]
        words += ["--version", "1", "--json"]
        refused = settled_(*words, "--digest", "0" * 64, "--role", "lead", SETTLED_KINDS=AGENTS)
        assert (refused.code, refused.error["code"]) == (1, "SETTLED-205")
        nobody = settled_(*words, "--digest", digest, SETTLED_KINDS=AGENTS)
        assert nobody.error["code"] == "SETTLED-204"
        for _ in range(2):
            decided = settled_(*words, "--digest", digest, "--role", "lead", SETTLED_KINDS=AGENTS)
            assert decided.document["approved_by"] == "ada"
        assert app.runs.wait(run, timeout_seconds=30).result == "succeeded"
    told = settled_("runs", "history", "ticket-17", "--json").document
    names = [event["name"] for event in told["events"]]
    assert names[0] == "Started" and names[-1] == "Completed"
    assert "agent-refund refund-request-9" in settled_("runs", "show", "ticket-17").out
    with App(settled_.url, runs=[agents.support], require_fsync=False) as app:
        app.runs.start("support", "ticket-18", by=by)
    assert "cancelled" in settled_("runs", "cancel", "ticket-18", "--reason", "enough").out
    assert settled_("replay", "--historical", "--json").document["same"]
    assert settled_("export", "--all", "--to", "all.jsonl").code == 0
    copy = CommandLine(f"sqlite:///{settled_.folder}/copy.db", settled_.folder)
    assert copy("migrate").code == 0
    assert copy("import", "--from", "all.jsonl", "--json").document["unread"] == []
    assert copy("runs", "why", "ticket-17").code == 0
    missing = settled_("runs", "show", "ticket-19", "--json")
    assert (missing.code, missing.error["code"]) == (1, "SETTLED-201")


def test_a_run_kind_owes_its_six_answers(settled_: CommandLine) -> None:
    """The contract of a run kind is on the same page as those of operations."""
    cards = settled_("contract", "--json", SETTLED_KINDS=AGENTS).document["kinds"]
    (card,) = [card for card in cards if card["kind"] == "support"]
    assert len(card["answers"]) == 6 and all(answer["lines"] for answer in card["answers"])
