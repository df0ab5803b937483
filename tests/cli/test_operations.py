"""An operation's life by the command line alone, as an operator on call lives it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import psycopg
import pytest

from tests.cli.runner import PATIENCE_SECONDS, CommandLine

REFUND = '{"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}'
OTHER = REFUND.replace("30.00", "35.00")


def test_intend_is_done_once_and_shown(settled_: CommandLine) -> None:
    """The same command twice is one operation, and reading needs no module of kinds."""
    first = settled_("ops", "intend", "refund", "refund-request-9", REFUND, "--json")
    again = settled_("ops", "intend", "refund", "refund-request-9", REFUND, "--json")
    assert (first.code, again.code) == (0, 0)
    assert first.document == again.document
    assert settled_.stored() == (1, 1)

    listed = settled_("ops", "list", SETTLED_KINDS="")
    assert listed.code == 0
    assert listed.out.splitlines()[1].split()[:4] == ["acme", "refund", "refund-request-9", "ready"]
    shown = settled_("ops", "show", "refund-request-9", SETTLED_KINDS="")
    assert shown.out.startswith("Refund 30.00 USD for order-72\nacme/refund/refund-request-9\n")
    history = settled_("ops", "history", "refund-request-9", "--json", SETTLED_KINDS="").document
    assert [(e["name"], e["actor"]) for e in history["events"]] == [("Intended", "ada")]


def test_a_worker_performs_and_drains(settled_: CommandLine) -> None:
    """SIGTERM is how every supervisor stops a process: it must leave nothing half done."""
    settled_("ops", "intend", "refund", "refund-request-9", REFUND)
    with settled_.worker("--name", "one") as process:
        view = settled_.until("refund-request-9", lambda row: row.state == "succeeded")
        workers = settled_("doctor", "--json").document["workers"]
        assert [row["name"] for row in workers] == ["one"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (view["state"], view["reference"]) == ("succeeded", "acme/refund/refund-request-9")
    assert settled_.effects == ["acme/refund/refund-request-9"]
    assert settled_("doctor", "--json").document["workers"] == []
    told = settled_("ops", "history", "refund-request-9").out
    assert "attempt 1, key" in told and "by one" in told and "receipt acme/refund" in told


def test_a_decision_is_about_a_version_and_its_digest(settled_: CommandLine) -> None:
    """An approval of something else than what was looked at must not count."""
    proposed = settled_("ops", "propose", "large-refund", "r-1", REFUND, "--json").document
    digest = proposed["digest"]
    this = ("ops", "approve", "r-1", "--version", "1", "--json")
    unentitled = settled_(*this, "--digest", digest)
    assert (unentitled.code, unentitled.error["code"]) == (1, "SETTLED-204")
    other = settled_(*this, "--digest", "0" * 64, "--role", "lead")
    assert (other.code, other.error["name"]) == (1, "DecisionRefused")
    approved = settled_(*this, "--digest", digest, "--role", "lead")
    assert approved.document["state"] == "ready"
    assert approved.document["approved_by"] == "ada"
    late = ("ops", "reject", "r-1", "--version", "1", "--digest", digest, "--reason", "no")
    assert settled_(*late).code == 1

    settled_("ops", "propose", "large-refund", "r-2", REFUND)
    declined = settled_(
        *("ops", "reject", "r-2", "--version", "1", "--digest", digest, "--reason", "twice"),
        *("--role", "lead"),
    )
    assert (declined.code, declined.out) == (0, "Refund 30.00 USD for order-72: rejected\n")


def test_a_proposal_is_shown_edited_approved_and_withdrawn(settled_: CommandLine) -> None:
    """All that a decision needs is on one screen, and each step of it is a command."""
    settled_("ops", "propose", "large-refund", "r-1", REFUND)
    request = settled_("ops", "proposal", "r-1", "--json").document
    assert request["schema"]["required"] == ["order", "amount"]
    assert request["params"]["order"] == "order-72" and request["roles"] == ["lead"]
    assert (request["missing"], request["authors"]) == (1, ["ada"])
    revised = settled_("ops", "revise", "r-1", OTHER, "--json").document
    assert (revised["state"], revised["proposal_version"]) == ("proposed", 2)
    approve = ("ops", "approve", "r-1", "--version", "2", "--digest", revised["digest"])
    given = ("--role", "lead", "--evidence", "ticket-81", "--reason", "as agreed")
    wrong = settled_(*approve, *given, "--until", "7")
    assert wrong.code == 2
    approved = settled_(*approve, *given, "--until", "2999-01-01", "--json").document
    assert (approved["state"], approved["decided"]["authority"]) == ("ready", "role lead")
    shown = settled_("ops", "proposal", "r-1").out
    assert "having looked at ticket-81: as agreed" in shown and "35.00 USD" in shown
    told = settled_("ops", "history", "r-1").out
    assert "as role lead" in told
    revoke = ("ops", "revoke", "r-1", "--reason", "on second thoughts")
    assert settled_(*revoke).code == 1
    assert settled_(*revoke, "--role", "lead", "--json").document["state"] == "proposed"
    why = settled_("ops", "why", "r-1").out
    assert "waits for approval: 0 of 1, needs the role lead" in why
    assert "on second thoughts" in why
    direct = settled_("ops", "intend", "refund", "r-2", REFUND)
    assert direct.code == 0
    nothing = settled_("ops", "proposal", "r-2", "--json")
    assert (nothing.code, nothing.error["name"]) == (1, "NotPossible")


def test_cancel(settled_: CommandLine) -> None:
    """What has not been sent can be withdrawn, and is not sent afterwards."""
    settled_("ops", "intend", "refund", "r-1", REFUND)
    cancelled = settled_("ops", "cancel", "r-1", "--reason", "the customer called", "--json")
    assert cancelled.document["state"] == "cancelled"
    assert cancelled.document["reason"] == "the customer called"


def test_what_is_handed_over_is_told_settled_and_resumed(settled_: CommandLine) -> None:
    """A provider that promises nothing leaves the outcome to a person, who needs these commands."""
    for name in ("mail-1", "mail-2"):
        settled_("ops", "intend", "email", name, '{"to": "ada@acme.example"}')
    inbox = settled_.folder / "inbox"
    with settled_.worker("--notify-command", f"tee -a {inbox}"):
        settled_.until("mail-1", lambda row: row.state == "handed_over")
        settled_.until("mail-2", lambda row: row.state == "handed_over")
        # The notice is recorded once the command has taken it.
        told = settled_.until("mail-2", lambda row: row.version >= 6)
    assert told["owner"] == "support-lead"
    assert '"owner": "support-lead"' in inbox.read_text(encoding="utf-8")

    by_hand = ("ops", "settle", "mail-1", "--outcome", "succeeded", "--reason", "seen", "--json")
    bare = settled_(*by_hand, "--evidence", "{}")
    assert (bare.code, bare.error["name"]) == (2, "InvalidEvidence")
    settled = settled_(*by_hand, "--evidence", '{"server log": "line 7"}', "--reference", "m-1")
    assert settled.document["state"] == "succeeded"
    assert settled.document["reference"] == "m-1"
    resumed = settled_("ops", "resume", "mail-2", "--reason", "the server is back", "--json")
    assert resumed.document["state"] == "outcome_unknown"


def test_list_filters(settled_: CommandLine) -> None:
    """An on-call person asks for what is overdue, and gets no settled rows with it."""
    for number in (1, 2, 3):
        settled_("ops", "intend", "refund", f"r-{number}", REFUND)
    settled_("ops", "propose", "large-refund", "p-1", REFUND)
    settled_("ops", "cancel", "r-3", "--reason", "no")

    def listed(*filters: str) -> set[str]:
        rows = settled_("ops", "list", "--json", *filters).document["operations"]
        return {row["identity"] for row in rows}

    assert listed() == {"r-1", "r-2", "r-3", "p-1"}
    assert listed("--kind", "large-refund") == {"p-1"}
    assert listed("--state", "ready", "--state", "cancelled") == {"r-1", "r-2", "r-3"}
    assert listed("--overdue") == {"r-1", "r-2"}
    assert listed("--parked") == set()
    assert settled_("ops", "list", "--json", "--limit", "2").document["more"] is True
    nothing = settled_("ops", "list", "--tenant", "nobody")
    assert (nothing.code, nothing.out) == (0, "Tenant nobody has no operations.\n")
    hidden = settled_("ops", "list", "--state", "failed")
    assert hidden.out == "Tenant acme has no operations with state failed.\n"


def test_a_terminal_gets_a_table(settled_: CommandLine) -> None:
    """The table is another code path than the plain columns, and the one that people see."""
    settled_("ops", "intend", "refund", "refund-request-9", REFUND)
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "settled", "ops", "list"]
    wide = settled_.environment | {"COLUMNS": "120"}
    subprocess.run(command, env=wide, cwd=settled_.folder, stdout=secondary, check=True)
    shown = os.read(primary, 1 << 16).decode()
    os.close(secondary)
    os.close(primary)
    assert "refund-request-9" in shown and "───" in shown


def test_a_worker_that_is_asked_twice_ends_at_once(settled_: CommandLine) -> None:
    """Nobody can be made to wait for a call that hangs."""
    settled_("ops", "intend", "hang", "call-1", '{"to": "ada@acme.example"}')
    with settled_.worker() as process:
        settled_.until("call-1", lambda row: row.state == "dispatching")
        # The second one counts from when the first was handled. They are not sent without a pause:
        # CPython can lock itself up when its wake-up socket overflows with signals.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("command", ["adopt --yes", "doctor"])
def test_a_moved_store(settled_: CommandLine, command: str) -> None:
    """Nothing is dispatched from a copy until somebody has said that it is the one to go on."""
    settled_("ops", "intend", "refund", "refund-request-9", REFUND)
    copy = moved(settled_)
    refused = copy("worker", "--json")
    assert (refused.code, refused.error["name"]) == (3, "InstallationChanged")
    assert copy.effects == []
    done = copy(*command.split(), "--json")
    if command == "doctor":
        subjects = [finding["subject"] for finding in done.document["findings"]]
        assert "installation" in subjects
        return
    assert done.document["outcome_unknown"] == 1
    events = copy("ops", "history", "refund-request-9", "--json").document["events"]
    assert [event["name"] for event in events] == ["Intended", "OutcomeUnknown"]
    assert events[1]["fields"]["cause"] == "adopted" and events[1]["actor"] == "ada"
    again = copy("adopt", "--yes", "--json").document
    assert (again["changed"], again["outcome_unknown"]) == (None, 0)
    with copy.worker():
        view = copy.until("refund-request-9", lambda row: row.state == "handed_over")
    assert "adopted" in view["reason"] or view["attempts"] == 0
    assert copy.effects == [], "it may have been sent before: nobody sends it again unasked"


def test_adopt_asks(settled_: CommandLine) -> None:
    """Whoever says no changes nothing."""
    settled_("ops", "intend", "refund", "refund-request-9", REFUND)
    before = settled_.stored()
    called_off = settled_("adopt", given=b"n\n")
    assert called_off.code == 1 and "Called off" in called_off.err
    assert settled_.stored() == before


def moved(settled_: CommandLine) -> CommandLine:
    """Return the store as it is after a copy (SQLite) or a restore elsewhere (PostgreSQL)."""
    if settled_.url.startswith("sqlite"):
        source = settled_.folder / "settled.db"
        target = settled_.folder / "copy.db"
        subprocess.run(["cp", str(source), str(target)], check=True)
        return CommandLine(f"sqlite:///{target}", settled_.folder)
    with psycopg.connect(settled_.url) as connection:
        connection.execute(
            "UPDATE settled.installation"
            """ SET fingerprint = jsonb_set(fingerprint, '{system}', '"another"')"""
        )
    return settled_
