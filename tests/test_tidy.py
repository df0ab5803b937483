"""The house rules that no linter knows, kept by a test.

A rule that is only written down is broken within a month. Each exception is data, with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("domain", "infrastructure", "processes", "projections", "settled")
NOT_OURS = {".git", ".hypothesis", ".venv", "build", "dist", "__pycache__"}

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_LINE_COLUMNS = 100

ANY = ""

MAY_READ_CLOCK_OR_CHANCE = [
    ("infrastructure/clock.py", ANY, "implements the Clock port"),
    ("infrastructure/testing/", ANY, "waits for servers, with deadlines"),
    ("settled/bench/", "uuid.uuid4", "the rows of a floor get ids of their own"),
    ("settled/verify/stage.py", "random.Random", "draws what a seed decides"),
    ("settled/verify/minded.py", "datetime.datetime.now", "puts a worker's clock wrong"),
    ("infrastructure/seeding.py", "random.Random", "draws what a seed decides"),
    ("infrastructure/audit/keys.py", "secrets.", "an auditor's key is made once"),
    ("infrastructure/simulator/", ANY, "is the outside world, with time and chance of its own"),
    ("infrastructure/journal/", "time.monotonic", "bounds its waits for the database"),
    ("infrastructure/journal/sqlite/", "datetime.datetime.now", "is the store's time there"),
    ("infrastructure/journal/sqlite/", "secrets.", "an installation's secret is made once"),
    ("infrastructure/journal/postgres/", "os.urandom", "an installation's secret is made once"),
    ("infrastructure/journal/", "uuid.uuid4", "an installation and a foreign event get an id once"),
]
"""Where, what (the beginning of the name), and why it may ask the machine for it."""

CLOCK_AND_CHANCE = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.urandom",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
}
"""What answers differently each time: everything else gets it passed in."""

NOT_IN_DOMAIN = {
    *("asyncio", "httpx2", "logging", "os", "psycopg", "random", "secrets"),
    *("socket", "sqlite3", "structlog", "subprocess", "threading", "time"),
}

MAY_PRINT = ("settled/cli", "settled/demo", "infrastructure/testing/postgres_supervisor.py")
"""The command line's output is its product; the supervisor answers its parent on a pipe."""

MACHINE_PATH = re.compile("(?<![\\w.*}])/(" + "|".join(["work", "root", "home"]) + ")/")
"""Absolute paths that exist on one machine only."""


@cache
def modules() -> list[Path]:
    """Return every Python file of ours, once: through its folder, not through a link."""
    found: list[Path] = []
    for name in SOURCES:
        for path in sorted((ROOT / name).rglob("*.py")):
            inside_link = any(parent.is_symlink() for parent in path.parents)
            if not inside_link and "__pycache__" not in path.parts:
                found.append(path)
    return found


@cache
def suites() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


@cache
def texts() -> list[tuple[Path, str]]:
    """Return every text file of the tree with what is in it."""
    found: list[tuple[Path, str]] = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        generated = any(p in NOT_OURS or p.endswith((".egg-info", "_cache")) for p in parts)
        if generated or path.is_symlink() or not path.is_file():
            continue
        try:
            found.append((path, path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # not text
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def imported(tree: ast.Module) -> dict[str, str]:
    """Return each local name that an import binds -> the full dotted name that it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def clock_and_chance(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of what asks the machine for the time or for chance."""
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            first, dot, rest = dotted(node).partition(".")
            full = names.get(first, "") + dot + rest
            if full in CLOCK_AND_CHANCE or full.startswith(("random.", "secrets.")):
                yield node.lineno, full


def exceptions(path: Path, name: str) -> list[tuple[str, str, str]]:
    """Return the exceptions under which a file may use a name."""
    relative = path.relative_to(ROOT).as_posix()
    return [
        entry
        for entry in MAY_READ_CLOCK_OR_CHANCE
        if relative.startswith(entry[0]) and name.startswith(entry[1])
    ]


def test_the_rules_look_at_something() -> None:
    """An empty list of files would make every rule below hold."""
    assert len(modules()) > 10
    assert Path(__file__) in suites()


def test_every_module_says_what_it_is() -> None:
    """A reader learns from the first line whether to read on."""
    silent = [at(p, 1) for p in (*modules(), *suites()) if not ast.get_docstring(parsed(p))]
    assert not silent, "\n".join(silent)


def test_time_and_chance_are_passed_in() -> None:
    """What decides by the clock or by chance cannot be replayed, and cannot be tested."""
    uses: list[str] = []
    unneeded = list(MAY_READ_CLOCK_OR_CHANCE)
    for path in modules():
        for line, name in clock_and_chance(parsed(path)):
            entries = exceptions(path, name)
            unneeded = [entry for entry in unneeded if entry not in entries]
            if not entries:
                uses.append(f"{at(path, line)} {name}")
    assert not uses, "\n".join(uses)
    assert not unneeded, f"exceptions that nothing needs any more: {unneeded}"


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.monotonic()",
        "from time import time\ntime()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as moment\nmoment.now()",
        "import random\nrandom.randint(1, 6)",
        "from random import randint\nrandint(1, 6)",
        "from uuid import uuid4\nids = field(default_factory=uuid4)",
    ],
)
def test_the_clock_rule_sees_each_spelling(code: str) -> None:
    """The rule is about what is used, not how it was imported."""
    assert len(list(clock_and_chance(ast.parse(code)))) == 1


def test_the_domain_is_pure() -> None:
    """Decisions that touch nothing can be tested as tables and run again on any stored stream."""
    impure = [
        f"{at(path, 1)} imports {full}"
        for path in modules()
        if path.is_relative_to(ROOT / "domain")
        for full in imported(parsed(path)).values()
        if full.partition(".")[0] in NOT_IN_DOMAIN
    ]
    assert not impure, "\n".join(impure)


def test_imports_are_absolute() -> None:
    """A file here has two paths and one name: the name is what an import says."""
    relative = [
        at(path, node.lineno)
        for path in (*modules(), *suites())
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative, "\n".join(relative)


def test_no_error_is_swallowed() -> None:
    """An error that nobody hears of is the bug that this project exists to end."""
    swallowed: list[str] = []
    for path in (*modules(), *suites()):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ExceptHandler):
                wide = node.type is None or dotted(node.type) in ("Exception", "BaseException")
                idle = all(
                    isinstance(step, ast.Pass | ast.Continue)
                    or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
                    for step in node.body
                )
                if node.type is None or (wide and idle):
                    swallowed.append(at(path, node.lineno))
            elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
                if {dotted(arg) for arg in node.args} & {"Exception", "BaseException"}:
                    swallowed.append(at(path, node.lineno))
    assert not swallowed, "\n".join(swallowed)


def test_only_the_command_line_prints() -> None:
    """A library's words go to its caller or to the log."""
    printing = [
        at(path, node.lineno)
        for path in modules()
        if not path.relative_to(ROOT).as_posix().startswith(MAY_PRINT)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and dotted(node.func) == "print"
    ]
    assert not printing, "\n".join(printing)


def test_files_and_functions_stay_small() -> None:
    """What does not fit in one's head hides what is wrong with it."""
    large: list[str] = []
    for path in (*modules(), *suites()):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_FILE_LINES:
            large.append(f"{at(path, 1)} has {lines} lines")
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    large.append(f"{at(path, node.lineno)} {node.name} has {length} lines")
    assert not large, "\n".join(large)


def test_lines_fit_the_page() -> None:
    """Python and SQL are read side by side."""
    wide = [
        at(path, number)
        for path, text in texts()
        if path.suffix in (".py", ".sql")
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_LINE_COLUMNS
    ]
    assert not wide, "\n".join(wide)


def test_file_names_are_plain() -> None:
    """Names that every system can write, in every archive."""
    odd = [str(path) for path, _ in texts() if not str(path.relative_to(ROOT)).isascii()]
    assert not odd, "\n".join(odd)


def test_no_path_of_one_machine() -> None:
    """What names a folder of somebody's machine works for nobody else."""
    named = [
        f"{at(path, number)} {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not named, "\n".join(named)
