"""Breaks rules on purpose, one at a time in a copy of the tree, and asks the tests who notices.

A rule that can be broken without a red test is a rule that nobody keeps. Run by `make mutations`,
not by pytest. Two kinds of mutations: rules of the whole, named in RULES, and each condition that
stands in a place where conditions are made automatically from the source: the guards of the
lifecycle, and what `settled.domain.obstacles` finds in the way. Prints caught or survived for each,
and exits 1 when one survives; docs/mutations.md says what those are worth.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
LONGEST_SECONDS = 300.0
"""A mutation that makes the tests hang is caught, after this long."""

LIFECYCLE = "domain/operation/lifecycle.py"
OBSTACLES = "domain/obstacles.py"

GUARD_TESTS = ("tests/domain/test_guards.py",)
OBSTACLE_TESTS = ("tests/domain/test_recovery_table.py", "tests/domain/test_obstacles.py")
OBSTACLE_FUNCTIONS = (
    "sending_obstacle",
    "resend_obstacle",
    "_key_obstacle",
    "_pin_obstacle",
    "_comparison_obstacle",
    "_window_obstacle",
    "absence_obstacle",
    "quiet_from",
    "resend_at",
)
"""The resend predicate and the proof of absence, with all that they ask."""


@dataclass(frozen=True)
class Rule:
    """A rule of the whole: the text that keeps it, what breaks it, and the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


RULES = (
    Rule(
        "drop the Dispatching append before the call",
        "processes/runner.py",
        "Perform():\n                    going_on = await self._record(machine, position.epoch)",
        "Perform():\n                    going_on = machine",
        ("tests/processes/test_fault_points.py",),
    ),
    Rule(
        "a new key on a retry",
        "processes/operations.py",
        "key=operation.provider_key,\n            attempt=attempt,",
        'key=f"{operation.provider_key}-{attempt}",\n            attempt=attempt,',
        ("tests/processes/test_histories.py",),
    ),
    Rule(
        "409 as success",
        "domain/contract/rules.py",
        "409: (Answered.DUPLICATE,",
        "409: (Answered.PERFORMED,",
        ("tests/domain/test_rules.py",),
    ),
    Rule(
        "release on an exception after the send, by the runner's understanding",
        "processes/operations.py",
        "Answered.LOST,\n        via,",
        "Answered.NOT_SENT,\n        via,",
        ("tests/processes/test_fault_points.py",),
    ),
    Rule(
        "release on an exception after the send, by the function's adapter",
        "infrastructure/function_provider.py",
        "return Finding(Answered.LOST, via, described,",
        "return Finding(Answered.NOT_SENT, via, described,",
        ("tests/infrastructure/test_function_provider.py",),
    ),
    Rule(
        "skip the digest check of a repeated intent",
        "settled/commanding.py",
        "if same_request(stored, params, kind.mode, key):",
        "if same_request(stored, params, kind.mode, key) or True:",
        ("tests/battery/test_battery.py", "-k", "A10 and sqlite"),
    ),
    Rule(
        "skip the digest check of a decision",
        "domain/operation/deciding.py",
        "return (said.proposal_version, said.digest) == (version, digest)",
        "return said.proposal_version == version",
        ("tests/battery/test_battery.py", "-k", "A15 and sqlite"),
    ),
    Rule(
        "count an approval of one's own proposal",
        "domain/operation/operation.py",
        "own = four_eyes and one.by in self.authors",
        "own = False",
        ("tests/domain/test_deciding.py",),
    ),
    Rule(
        "let the policy approve what somebody declined",
        "domain/operation/deciding.py",
        "if not operation.declined:",
        "if True:",
        ("tests/domain/test_deciding.py",),
    ),
    Rule(
        "approve an amount by the rule for smaller ones",
        "domain/approval.py",
        "if amount > each.limit]",
        "if amount > each.limit][:0]",
        ("tests/domain/test_approval.py",),
    ),
    Rule(
        "send on an approval that is over",
        "processes/dispatcher.py",
        "stamp.at >= machine.approved_until:",
        "stamp.at < machine.approved_until:",
        ("tests/processes/test_revalidation.py",),
    ),
    Rule(
        "take whatever is false for an answer of a revalidation",
        "processes/revalidation.py",
        "if answer is None:",
        "if not answer:",
        ("tests/processes/test_revalidation.py",),
    ),
    Rule(
        "ask no revalidation after a confirmed absence",
        "processes/revalidation.py",
        "machine.found_absent or stamp.at",
        "stamp.at",
        ("tests/processes/test_revalidation.py",),
    ),
    Rule(
        "resend beside a request that may still run",
        "domain/recovery.py",
        "resend_obstacle(self.situation, self.contract, at) or beside",
        "resend_obstacle(self.situation, self.contract, at)",
        ("tests/domain/test_recovery_table.py",),
    ),
    Rule(
        "ignore the send permit",
        "domain/permit.py",
        "if monotonic_now < self.until_monotonic:",
        "if monotonic_now == monotonic_now:",
        ("tests/processes/test_histories.py", "-k", "permit"),
    ),
    Rule(
        "ignore the send permit in the HTTP adapter",
        "infrastructure/http/json_provider.py",
        "forbidden=lambda: call.permit.check(elapsed_seconds()),",
        "forbidden=lambda: None,",
        ("tests/infrastructure/test_adapter_conformance.py", "-k", "permit"),
    ),
)


@dataclass(frozen=True)
class Mutation:
    """One broken rule: the whole text of a file as it is then, and the tests that must notice."""

    name: str
    file: str
    text: str
    tests: tuple[str, ...]


def mutations(root: Path) -> Iterator[Mutation]:
    """Yield what is broken in this tree, one after the other."""
    for rule in RULES:
        text = (root / rule.file).read_text(encoding="utf-8")
        if text.count(rule.old) != 1:
            sys.exit(
                f"{rule.name}: {rule.file} has its text {text.count(rule.old)} times, not once."
            )
        yield Mutation(rule.name, rule.file, text.replace(rule.old, rule.new), rule.tests)
    yield from guards(Source(root / LIFECYCLE))
    yield from obstacles(Source(root / OBSTACLES))


def guards(source: Source) -> Iterator[Mutation]:
    """Yield the lifecycle without each of its guards."""
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        for keyword in node.keywords:
            if node.func.id == "Arrow" and keyword.arg == "guard":
                event, guard = ast.literal_eval(node.args[1]), ast.literal_eval(keyword.value)
                text = source.replaced(keyword.value, "None")
                yield Mutation(f"lifecycle: {event} without {guard}", LIFECYCLE, text, GUARD_TESTS)


def obstacles(source: Source) -> Iterator[Mutation]:
    """Yield the predicates without each of their conditions, and without each part of one."""
    functions = {f.name: f for f in source.tree.body if isinstance(f, ast.FunctionDef)}
    for name in OBSTACLE_FUNCTIONS:
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.If | ast.IfExp):
                text = source.replaced(node.test, "False")
                told = f"{name}: never if {source.of(node.test)}"
                yield Mutation(told, OBSTACLES, text, OBSTACLE_TESTS)
            elif isinstance(node, ast.BoolOp):
                neutral = "False" if isinstance(node.op, ast.Or) else "True"
                for part in node.values:
                    text = source.replaced(part, neutral)
                    told = f"{name}: without {source.of(part)}"
                    yield Mutation(told, OBSTACLES, text, OBSTACLE_TESTS)


class Source:
    """A file with its tree, of which single expressions can be replaced."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    def of(self, node: ast.expr) -> str:
        return " ".join((ast.get_source_segment(self.text, node) or "?").split())

    def replaced(self, node: ast.expr, new: str) -> str:
        lines = self.text.splitlines(keepends=True)
        begin, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        after = lines[end].encode()[node.end_col_offset :].decode()
        before = lines[begin].encode()[: node.col_offset].decode()
        return "".join([*lines[:begin], before + new + after, *lines[end + 1 :]])


class Copy:
    """A copy of the tree, in which one file at a time is another."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=NOT_COPIED)
        self._moments = itertools.count(int(time.time()) + 10)

    def fails(self, tests: tuple[str, ...]) -> str | None:
        """Run tests; what failed, None when they pass. Exits when they could not even be run."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=os.environ | {"PYTHONPATH": str(self.root)},
                capture_output=True,
                text=True,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return "the tests did not end"
        if done.returncode == 0:
            return None
        if done.returncode != 1:
            sys.exit(f"pytest could not run {' '.join(tests)}:\n{done.stdout}{done.stderr}")
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].partition(" - ")[0] if failed else "a test failed"

    def write(self, file: str, text: str) -> None:
        """Write a file under a time of its own, so that no compiled one is taken for it."""
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        moment = next(self._moments)
        os.utime(path, (moment, moment))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run those whose name contains this")
    parser.add_argument("--list", action="store_true", help="print their names, and run nothing")
    given = parser.parse_args()
    if given.list:
        print("\n".join(one.name for one in mutations(ROOT) if given.only in one.name))
        return 0
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="settled-mutations-") as folder:
        copy = Copy(Path(folder))
        chosen = [one for one in mutations(copy.root) if given.only in one.name]
        if not chosen:
            sys.exit(f"No mutation has {given.only!r} in its name; --list names them.")
        for tests in dict.fromkeys(one.tests for one in chosen):
            if failed := copy.fails(tests):
                sys.exit(f"Unbroken code fails already: {failed}")
        for one in chosen:
            whole = (copy.root / one.file).read_text(encoding="utf-8")
            copy.write(one.file, one.text)
            failed = copy.fails(one.tests)
            copy.write(one.file, whole)
            told = f"caught   {one.name}\n         {failed}" if failed else f"SURVIVED {one.name}"
            print(told, flush=True)
            if failed is None:
                survivors.append(one.name)
    print(f"{len(chosen) - len(survivors)} caught, {len(survivors)} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
