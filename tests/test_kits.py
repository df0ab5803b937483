"""The kits as a user has them: the installed wheel, an empty folder, and pytest.

A suite that passes whatever is put before it is worse than none. So a sound adapter is put before
it, and one with each mistake that it is there to find.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KITS = ROOT / "tests" / "kits"

FOUND_BY = {
    "TestRetrying": {
        "test_a_lost_reply_is_lost_and_not_repeated",
        "test_a_resend_is_the_same_request",
        "test_an_unavailable_server_is_not_asked_again",
    },
    "TestRedirected": {"test_a_redirect_is_not_followed"},
    "TestNewKey": {"test_a_resend_is_the_same_request"},
    "TestKeyOfProcess": {"test_a_resend_is_the_same_request"},
    "TestNumbered": {"test_a_resend_is_the_same_request"},
    "TestConflictRefused": {"test_a_duplicate_decides_nothing"},
    "TestConflictPerformed": {"test_a_duplicate_decides_nothing"},
    "TestUnconnected": {
        "test_a_lost_reply_is_lost_and_not_repeated",
        "test_a_resend_is_the_same_request",
    },
    "TestVague": {"test_a_refused_connection_is_not_sent"},
    "TestBlind": {"test_a_look_up_finds_what_was_performed"},
    "TestGreedy": {"test_a_look_up_does_not_find_what_another_has_performed"},
    "TestCareless": {"test_a_look_up_that_fails_is_no_evidence"},
}
"""The mistake that a class of `kits/adapters.py` makes -> the tests that must find it."""


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, and with nothing of this tree."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.unpack_archive(wheel, folder, "zip")
    return folder


def python(
    installed: Path, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python as a user who has installed the wheel, in a folder of theirs."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_adapter_suite_finds_each_mistake(installed: Path, tmp_path: Path) -> None:
    """A sound adapter passes; each mistake fails the tests that are about it."""
    shutil.copytree(KITS, tmp_path / "tests" / "kits")
    expected = {f"{name}::{test}" for name, tests in FOUND_BY.items() for test in tests}
    chosen = [f"tests/kits/adapters.py::{one}" for one in ("TestShop", *sorted(expected))]
    pytest = ("-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-W", "error")
    done = python(installed, tmp_path, *pytest, *chosen)
    failed = re.findall(r"^(?:FAILED|ERROR) tests/kits/adapters.py::(\w+::\w+)", done.stdout, re.M)
    assert done.returncode == 1, done.stdout + done.stderr
    assert set(failed) == expected, done.stdout
    assert "assert <Answered.LOST: 'lost'> is <Answered.NOT_SENT: 'not_sent'>" in done.stdout


def test_each_mistake_is_looked_for() -> None:
    """An adapter that nobody runs would show nothing."""
    classes = re.findall(r"^class (Test\w+)", (KITS / "adapters.py").read_text("utf-8"), re.M)
    assert classes == ["TestShop", *FOUND_BY]


def test_the_page_for_users_is_a_test_that_passes(installed: Path, tmp_path: Path) -> None:
    """What docs/testing.md shows is put into a test file, and pytest finds the fixtures by itself.

    Each test has a database of its own, and leaves nothing in the user's folder of anchors.
    """
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    shown, rest = page.split("## The provider and the wire")
    blocks = re.findall(r"^```python\n(.*?)^```$", shown, re.M | re.S)
    assert "AdapterSuite" not in rest
    (tmp_path / "test_shown.py").write_text("\n".join(blocks), encoding="utf-8")
    (tmp_path / "home").mkdir()
    done = python(
        installed,
        tmp_path,
        *("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-W", "error"),
        XDG_STATE_HOME=str(tmp_path / "home"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for test in (
        "TestMyAdapter::test_a_worker_sends_no_more_than_it_has_recorded",
        "test_a_lost_reply_is_one_refund[sqlite]",
        "test_a_lost_reply_is_one_refund[postgres]",
        "test_the_day_is_over",
    ):
        assert f"PASSED test_shown.py::{test}" in done.stdout
    assert not list((tmp_path / "home").iterdir())


def test_the_plugin_costs_a_start_of_pytest_next_to_nothing(
    installed: Path, tmp_path: Path
) -> None:
    """Every run of pytest in that environment pays for it, also where nothing of ours is tested."""
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\n\ndef test_nothing():\n"
        "    print(*sorted(n for n in sys.modules if n.partition('.')[0] in\n"
        "        ('settled', 'psycopg', 'pydantic', 'httpx2', 'orjson', 'structlog')))\n",
        encoding="utf-8",
    )
    done = python(installed, tmp_path, "-m", "pytest", "-qs", "-p", "no:cacheprovider")
    loaded = next(line for line in done.stdout.splitlines() if "settled" in line)
    assert loaded.removesuffix(".").split() == [
        "settled",
        "settled.infrastructure",
        "settled.infrastructure.testing",
        "settled.infrastructure.testing.pytest_plugin",
    ]
