"""The command line is called in loops: what a command does not need, it must not import.

Judged by what was imported, as times depend on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.runner import CommandLine

SLOW = {
    *("asyncio", "eventsourcing", "httpx2", "orjson", "psycopg", "pydantic", "rich"),
    *("sqlite3", "structlog", "transitions"),
}

RUN = """
import json, sys
from settled.cli import run
code = run(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""


def imported(settled_: CommandLine, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=settled_.environment,
        cwd=settled_.folder,
        stdout=subprocess.PIPE,
        check=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["code"] == 0
    return SLOW & set(report["modules"])


@pytest.mark.parametrize(
    "arguments", ["--help", "ops --help", "worker --help", "ops intend --help"]
)
def test_help_imports_nothing_slow(settled_: CommandLine, arguments: str) -> None:
    """Help is what a person waits for who has just forgotten a word."""
    assert imported(settled_, *arguments.split()) == set()


def test_a_list_imports_its_database_alone(settled_: CommandLine) -> None:
    """An empty list, piped: no models, no HTTP, no tables for a terminal."""
    found = imported(settled_, "ops", "list")
    if settled_.url.startswith("sqlite"):
        assert found <= {"eventsourcing", "sqlite3"}
    else:
        assert found <= {"asyncio", "eventsourcing", "psycopg"}
