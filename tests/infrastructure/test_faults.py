"""Faults decide which process of a test dies where: one that is misread proves the wrong thing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from settled.domain.errors import InvalidInput
from settled.infrastructure.testing.faults import FaultRaised, install, parse
from settled.processes.faults import FaultPoint, reach, set_hook

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_hook_afterwards() -> Iterator[None]:
    yield
    set_hook(None)


@pytest.mark.parametrize("point", list(FaultPoint))
def test_every_point_can_be_named(point: FaultPoint) -> None:
    """A point that the specification cannot name is never exercised."""
    (fault,) = parse(f"{point}=kill")
    assert (fault.point, fault.detail, fault.time) == (point, None, 1)
    install({"SETTLED_FAULT": f"{point}:Dispatching@2=raise"})
    reach(point, "Claimed")
    reach(point, "Dispatching")
    with pytest.raises(FaultRaised):
        reach(point, "Dispatching")
    reach(point, "Dispatching")  # it strikes once


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("before_lunch=kill", "no fault point 'before_lunch'"),
        ("after_commit", "is no fault"),
        ("after_commit=", "is no fault"),
        ("after_commit@0=kill", "is no fault"),
        ("after_commit=explode", "no action"),
        ("after_commit=kill:now", "no action"),
        ("after_commit=touch:", "no action"),
        ("", "is no fault"),
        ("after_commit=kill,", "is no fault"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, word: str) -> None:
    """A typing error must not run the test without its fault."""
    with pytest.raises(InvalidInput, match=word):
        parse(text)


def test_files_let_two_processes_meet(tmp_path: Path) -> None:
    """`touch` tells a test where a process is, `wait` keeps it there."""
    here, go = tmp_path / "here", tmp_path / "go"
    install({"SETTLED_FAULT": f"before_call=touch:{here}, after_call=wait:{go}"})
    reach(FaultPoint.BEFORE_CALL, "refund")
    assert here.exists()
    go.touch()
    reach(FaultPoint.AFTER_CALL, "refund")


def test_a_kill_strikes_the_process_itself() -> None:
    """The process ends at the point, and not a moment later."""
    code = (
        "import os\n"
        "from settled.infrastructure.testing.faults import install\n"
        "from settled.processes.faults import FaultPoint, reach\n"
        "install(os.environ)\n"
        "reach(FaultPoint.AFTER_COMMIT, 'Claimed')\n"
        "print('before', flush=True)\n"
        "reach(FaultPoint.AFTER_COMMIT, 'Dispatching')\n"
        "print('after', flush=True)\n"
    )
    fault = "after_commit:Dispatching=kill"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SETTLED_FAULT": fault}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(60) == -signal.SIGKILL
        assert process.stdout is not None
        assert process.stdout.read() == "before\n"
