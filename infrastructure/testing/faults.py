"""Faults at named points, chosen by an environment variable: how a test kills a real process.

    SETTLED_FAULT=after_commit:Dispatching=kill
    SETTLED_FAULT='before_call:refund@2=kill,before_claim=wait:go.flag'

A fault is `point[:detail][@n]=action`; several are separated by commas. The point is one of
`FaultPoint`, the detail the name of the last event or the kind, `n` the time at which it strikes
(the first by default; it strikes once). The action is one of

    kill        SIGKILL to this process
    raise       raise FaultRaised
    touch:PATH  make a file
    wait:PATH   wait until a file is there, for at most a minute
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from settled.domain.errors import InvalidInput
from settled.processes.faults import FaultPoint, set_hook

VARIABLE = "SETTLED_FAULT"

_SPEC = re.compile(
    r"(?P<point>\w+)(?::(?P<detail>[^@=:]+))?(?:@(?P<time>[1-9][0-9]{0,5}))?=(?P<action>.+)"
)
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.005


class FaultRaised(Exception):
    """A fault was asked for, and this is it."""


@dataclass
class Fault:
    """One fault; `seen` counts how often its point was reached."""

    point: FaultPoint
    detail: str | None
    time: int
    act: Callable[[], None]
    seen: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def strikes(self, point: FaultPoint, detail: str) -> bool:
        """Count a point that was reached, and tell whether it is this fault's turn."""
        if point is not self.point or self.detail not in (None, detail):
            return False
        with self._mutex:  # points are reached on the loop, and on the committer's thread
            self.seen += 1
            return self.seen == self.time


def install(environment: Mapping[str, str]) -> None:
    """Install the faults that the variable names. Raises InvalidInput for what is no fault."""
    faults = parse(environment[VARIABLE])

    def hook(point: FaultPoint, detail: str) -> None:
        for fault in faults:
            if fault.strikes(point, detail):
                fault.act()

    set_hook(hook)


def parse(text: str) -> Sequence[Fault]:
    """Return the faults that a text describes. Raises InvalidInput."""
    return [_fault(part.strip()) for part in text.split(",")]


def _fault(text: str) -> Fault:
    found = _SPEC.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"{text!r} is no fault.",
            hint="It is point[:detail][@n]=action, such as after_commit:Dispatching=kill.",
        )
    if found["point"] not in set(FaultPoint):
        raise InvalidInput(
            f"There is no fault point {found['point']!r}.",
            hint=f"There are: {', '.join(FaultPoint)}.",
        )
    return Fault(
        FaultPoint(found["point"]),
        found["detail"],
        int(found["time"] or 1),
        _action(found["action"]),
    )


def _action(text: str) -> Callable[[], None]:
    name, _, argument = text.partition(":")
    path = Path(argument)
    match name, bool(argument):
        case "kill", False:
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "raise", False:
            return _raise
        case "touch", True:
            return path.touch
        case "wait", True:
            return lambda: _wait_for(path)
        case _:
            raise InvalidInput(
                f"{text!r} is no action of a fault.",
                hint="There are: kill, raise, touch:PATH, wait:PATH.",
            )


def _raise() -> None:
    raise FaultRaised("a fault was asked for")


def _wait_for(path: Path) -> None:
    give_up_at = time.monotonic() + _WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > give_up_at:
            raise FaultRaised(f"{path} did not appear within {_WAIT_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
