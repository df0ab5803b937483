"""Every rule that an event can record is told in words: `ops why` and replay live on the names.

The names are taken from recovery itself and from the code around it, so that a new rule without
words is found here.
"""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from settled.domain import recovery
from settled.domain.provider import Answered
from settled.domain.recovery_rules import meaning_of, rule_named

ROOT = Path(__file__).resolve().parents[2]
INSIDE: Any = vars(recovery)
TABLE: Any = INSIDE["_TABLE"]
REFUSED: Any = INSIDE["_REFUSED"]
OUTCOMES: Any = INSIDE["_OUTCOMES"]
COLUMNS = ("window open", "look-up left", "nothing left")
AROUND_RECOVERY = (
    *("domain/operation/evidence.py", "processes/adoption.py", "processes/reconciler.py"),
    "settled/operations.py",
)


def table_rules() -> list[str]:
    rows = [*TABLE.values(), INSIDE["_UNANSWERED"], INSIDE["_SERVER_ERROR_KEPT"]]
    found = [f"{row.name}, {column}" for row, column in product(rows, COLUMNS)]
    found += [f"{TABLE[Answered.IN_PROGRESS].name}, window open, waited long enough"]
    for name, _, _ in REFUSED.values():
        found += [name, f"{name}, attempts exhausted", f"{name}, time over"]
    for _, name in OUTCOMES.values():
        found += [name, f"{name}, echo differs", f"{name}, not proven ours"]
        found += [f"{name}, not proven ours, webhook only", f"{name}, webhook only"]
    return found


def constants(path: str) -> list[str]:
    """Return what a module gives as a `rule`, or as the second argument of a Step."""
    found: list[str] = []
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
        if isinstance(node.func, ast.Name) and node.func.id in ("Step", "_poll", "_look_up_later"):
            given += node.args[1:2]
        found += [
            one.value
            for one in given
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
    return found


@pytest.mark.parametrize("name", sorted({*table_rules(), *constants("domain/recovery.py")}))
def test_every_rule_of_recovery_has_words(name: str) -> None:
    """An operator reads the meaning, not the name."""
    rule = rule_named(name)
    assert rule is not None and rule.automatic and len(rule.meaning) > 10
    assert meaning_of(name) == rule.meaning


@pytest.mark.parametrize("path", AROUND_RECOVERY)
def test_every_rule_around_recovery_has_words(path: str) -> None:
    """What is decided without recovery is told too, and is known to be no decision of its own."""
    names = constants(path)
    assert names, path
    for name in names:
        rule = rule_named(name)
        assert rule is not None and not rule.automatic, name


def test_a_rule_names_its_answer() -> None:
    """Replay takes from the rule what had been answered, where the event does not say it."""
    for answered, row in TABLE.items():
        rule = rule_named(f"{row.name}, nothing left")
        assert rule is not None and rule.answered is answered
    for answered, (name, _, _) in REFUSED.items():
        rule = rule_named(name)
        assert rule is not None and rule.answered is answered
    for answered, (_, name) in OUTCOMES.items():
        rule = rule_named(f"{name}, not proven ours, webhook only")
        assert rule is not None and rule.answered is answered


def test_the_longest_name_counts() -> None:
    """A name that is the beginning of another one does not take its place."""
    in_time, not_yet = "absent, not proven in time", "absent, not proven"
    assert meaning_of(in_time) != meaning_of(not_yet)
    exhausted = rule_named("absent, proven, attempts exhausted")
    assert exhausted is not None and "no request may be sent" in exhausted.meaning


@pytest.mark.parametrize("name", ["", "lost reply, window ajar", "a rule of tomorrow"])
def test_a_name_that_is_not_known_says_so(name: str) -> None:
    """A store written by newer code is read too."""
    assert rule_named(name) is None
    assert "no rule of that name" in meaning_of(name)
