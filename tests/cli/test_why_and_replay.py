"""`ops why`, `ops history --as-of`, `ops diff` and `replay`, as whoever debugs with them sees them.

One operation whose reply was lost at a provider that recognises nothing: a person has it.
"""

from __future__ import annotations

import pytest

from tests.audit.raw import Intruder
from tests.cli.runner import CommandLine

KEYED = """
from dataclasses import replace

import settled
from settled import Params, Reply, presets


class EmailParams(Params):
    to: str


KEEPS_KEYS = replace(presets.stripe_v1_refund, provider=presets.smtp.provider)


@settled.kind("email", contract=KEEPS_KEYS, hand_over_to="lead")
def email(call: settled.Call, params: EmailParams) -> Reply:
    raise AssertionError("a replay calls nobody")
"""


@pytest.fixture
def handed(settled_: CommandLine) -> CommandLine:
    """A store with an e-mail of which nobody knows whether it arrived."""
    done = settled_("ops", "intend", "email", "mail-9", '{"to": "grace@example.com"}')
    assert done.code == 0, done.err
    with settled_.worker():
        settled_.until("mail-9", lambda row: row.state == "handed_over")
    return settled_


def test_why(handed: CommandLine) -> None:
    """In words for people, in fields for programs; with and without the declared kind."""
    told = handed("ops", "why", "mail-9")
    assert told.code == 0, told.err
    for words in ("handed_over", "support-lead", "rule ", "settled ops settle", "given back now"):
        assert words in told.out, told.out
    document = handed("ops", "why", "mail-9", "--json").document
    assert document["state"] == "handed_over" and document["holder"].startswith("support-lead")
    assert document["today_rule"] == "unanswered, nothing left"
    assert document["rule_means"] and document["next_at"]
    unknown = handed("ops", "why", "mail-9", "--json", SETTLED_KINDS="").document
    assert "not declared" in unknown["today"] and unknown["today_rule"] is None
    assert handed("ops", "why", "mail-10", "--json").error["name"] == "NotFound"


def test_history_as_of_and_diff(handed: CommandLine) -> None:
    """How it stood at a version or a time, and what differs between two of them."""
    now = handed("ops", "history", "mail-9", "--json").document
    names = [event["name"] for event in now["events"]]
    at = names.index("Dispatching") + 1
    then = handed("ops", "history", "mail-9", "--as-of", str(at), "--json").document
    assert (then["state"], len(then["events"])) == ("dispatching", at)
    assert [gap["what"] for gap in now["gaps"]] == ["waiting", "answering"]
    moment = now["events"][0]["at"]
    assert handed("ops", "history", "mail-9", "--as-of", moment, "--json").document["events"]
    text = handed("ops", "history", "mail-9", "--as-of", str(at)).out
    assert "dispatching then" in text and "waiting " in text
    assert handed("ops", "history", "mail-9", "--as-of", "2020-01-01").code == 1
    assert handed("ops", "history", "mail-9", "--as-of", "yesterday").code == 2
    last = str(len(names))
    found = handed("ops", "diff", "mail-9", str(at), last, "--json").document
    (state,) = (change for change in found["changes"] if change["name"] == "state")
    assert (state["before"], state["after"]) == ("dispatching", "handed_over")
    told = handed("ops", "diff", "mail-9", str(at), last).out
    assert "state is handed_over, and was dispatching" in told
    assert "Nothing differs." in handed("ops", "diff", "mail-9", last, last).out


def test_erased_details_are_said(handed: CommandLine) -> None:
    """What was erased is not shown as if it had never been there."""
    Intruder(handed.url)("UPDATE events SET body = NULL WHERE version = 1")
    assert "(details erased)" in handed("ops", "history", "mail-9").out
    assert handed("ops", "diff", "mail-9", "1", "2", "--json").document["erased"] == [1]
    assert "event 1 were erased" in handed("ops", "diff", "mail-9", "1", "2").out
    assert "event 1 were erased" in handed("ops", "why", "mail-9").out


def test_historical_replay(handed: CommandLine) -> None:
    """A gate: 0 where all is read as it was written, 1 and the name of the stream where not."""
    sound = handed("replay", "--historical", "--json", SETTLED_KINDS="")
    assert (sound.code, sound.document["same"], sound.document["streams"]) == (0, True, 1)
    assert "reads them all" in handed("replay", "--historical").out
    Intruder(handed.url)("UPDATE agenda SET state = 'ready'")
    odd = handed("replay", "--historical", "--json")
    (one,) = odd.document["oddities"]
    assert (odd.code, one["odd"], one["identity"]) == (1, "head_differs", "mail-9")
    assert "head differs: acme/email/mail-9" in handed("replay", "--historical").out


def test_what_if_replay(handed: CommandLine) -> None:
    """The same contract decides the same; with a key it would have been sent again."""
    same = handed("replay", "mail-9", "--what-if", "--json")
    assert same.code == 0, same.err
    assert same.document["same"] and len(same.document["decisions"]) == 1
    assert "none would be another one today" in handed("replay", "mail-9", "--what-if").out
    (handed.folder / "keyed.py").write_text(KEYED, encoding="utf-8")
    other = handed("replay", "mail-9", "--what-if", "--json", SETTLED_KINDS="keyed.py")
    assert other.code == 1, other.err
    (decision,) = other.document["decisions"]
    assert decision["recorded"][-1].startswith("HandedOver")
    assert decision["today"] == ["OutcomeUnknown (lost reply, window open)"]
    told = handed("replay", "mail-9", "--what-if", SETTLED_KINDS="keyed.py").out
    assert "recorded: " in told and "today: " in told
    assert handed.effects == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay",),
        ("replay", "--historical", "--what-if"),
        ("replay", "mail-9", "--historical"),
        ("replay", "--what-if"),
    ],
)
def test_what_to_replay_has_to_be_said(settled_: CommandLine, arguments: tuple[str, ...]) -> None:
    """A gate that checks nothing would pass for ever."""
    assert settled_(*arguments).code == 2
