"""The demo is the first thing that anybody sees, so it has to hold everywhere, every time.

It is judged from outside: by its exit code, its words, and what it leaves behind.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[1]

SHAPE = re.compile(
    r"""1  intended         refund-request-9   Refund 30\.00 USD for order-72
2  claimed          worker (?P<first>\d+)
3  dispatching      attempt 1, key [0-9a-f]{4}…
   worker (?P=first) killed \(SIGKILL\) after the provider performed, before the reply was recorded
4  outcome_unknown  owner lost after [0-9.]+ m?s
5  dispatching      attempt 2, the same key, by worker (?P<second>\d+)
6  succeeded        receipt re_1, replayed by the provider

provider log   2 requests, 1 key, 1 effect
settled        1 operation, succeeded, 0 unknown, 0 in anybody's hands
"""
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SETTLED_")}
    return subprocess.run(
        [sys.executable, "-m", "settled", "demo", *arguments],
        cwd=folder,
        env=own | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def on(url: str) -> list[str]:
    return [] if url.startswith("sqlite") else ["--db", url]


def test_it_tells_what_happened(store_url: str, tmp_path: Path) -> None:
    """Another worker finishes what the killed one began: two requests, one key, one effect."""
    done = run(tmp_path, *on(store_url))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    told = SHAPE.fullmatch(done.stdout)
    assert told is not None, done.stdout
    assert told["first"] != told["second"]
    assert list(tmp_path.iterdir()) == [], "it cleans up"
    if not store_url.startswith("sqlite"):
        with psycopg.connect(store_url) as connection:
            query = "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'settled%'"
            assert connection.execute(query).fetchall() == []


def test_it_tells_programs_too(tmp_path: Path) -> None:
    """The events in JSON are those that were told; and what is kept can be looked at."""
    done = run(tmp_path, "--json", "--keep")
    story = json.loads(done.stdout)
    assert (done.returncode, story["problems"]) == (0, [])
    assert story["provider"] == {"requests": 2, "keys": 1, "effects": 1}
    names = [event["name"] for event in story["events"]]
    assert names == [
        *("Intended", "Claimed", "Dispatching"),
        *("OutcomeUnknown", "Dispatching", "Succeeded"),
    ]
    (folder,) = story["kept"]
    assert (Path(folder) / "demo.db").exists()


def test_the_readme_shows_what_it_prints() -> None:
    """A README that shows another output than one gets is the first broken promise."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\$ make demo\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert SHAPE.fullmatch(shown) is not None, shown


def test_it_needs_a_server_for_another_store(tmp_path: Path) -> None:
    """A mistyped URL is an error before anything is staged."""
    for url in ("sqlite:///mine.db", "mysql://x/y", "postgresql://127.0.0.1:1/x"):
        done = run(tmp_path, "--db", url)
        assert done.returncode in (2, 3) and "settled." in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert list(tmp_path.iterdir()) == []
