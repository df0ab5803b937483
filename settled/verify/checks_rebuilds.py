"""A19: every projection is rebuilt while workers and a service write, killed in the middle once."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from settled import Principal
from settled.domain.identity import Identity
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.testing.journal_units import eventually
from settled.projections import register
from settled.projections.operations import OperationsProjection
from settled.projections.reading import settled_position
from settled.verify.check import check
from settled.verify.invariant import check_invariant
from settled.verify.provider import PROVIDER_VARIABLE
from settled.verify.receipts import Receipts
from settled.verify.service import Service
from settled.verify.soak import OPEN
from settled.verify.stage import Stage

PROJECTIONS = (OperationsProjection(), Receipts())
"""Each in a schema of its own."""

KINDS = ("soaked", "soaked-resend", "soaked-lookup")
BEGUN_BEFORE = 150
AT_MOST = 6_000
"""More operations than are begun while three rebuilds last."""

STEP_SECONDS = 0.02
PATIENCE_SECONDS = 120.0
KILLS = 20
"""How often a rebuild may be over before it is killed."""


@check("A19", "every projection rebuilt while a service and workers write")
def a19_rebuilt_while_others_write(stage: Stage) -> None:
    """Row for row what is live, no request, and killed in the middle it goes on where it was."""
    stage.simulator.fault(reply="close", times=15)
    stage.simulator.fault(execute=False, status=429, headers={"Retry-After": "0"}, times=15)
    stage.simulator.fault(status=500, times=15)
    names = [(KINDS[number % len(KINDS)], f"refund-{number}") for number in range(AT_MOST)]
    with ExitStack() as stack:
        trap = stack.enter_context(_trap())
        environment = _environment(stage, trap)
        stack.enter_context(_running(stage, environment))
        stage.crew()
        service = Service(stage, names, room=BEGUN_BEFORE)
        stack.callback(service.stop)
        service.wait_begun(BEGUN_BEFORE)
        begun = _kill_in_the_middle(stage, service, environment)
        done = _rebuilt(stage, service, environment, "operations")
        assert done["version"] == begun, f"it began anew as {done}, and did not go on"
        _rebuilt(stage, service, environment, "receipts")
        service.stop()
        eventually(lambda: not stage.app.journal.heads(states=OPEN, limit=1), PATIENCE_SECONDS)
        stage.end_workers()
        _expect_caught_up(stage)
        before = stage.requests()
        live = [_content(stage, projection) for projection in PROJECTIONS]
        for projection in PROJECTIONS:
            _rebuilt(stage, None, environment, projection.name)
        assert [_content(stage, projection) for projection in PROJECTIONS] == live
        assert stage.requests() == before, "a rebuild has asked the provider"
        readable, _, _ = select.select([trap], [], [], 0)
        assert not readable, "what rebuilds or runs projections has looked for a provider"
    _expect_as_the_agenda_says(stage)
    _expect_one_request_a_dispatch(stage)


@contextmanager
def _trap() -> Generator[socket.socket]:
    """Listen where a provider would be, for whoever may not ask one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def _environment(stage: Stage, trap: socket.socket) -> dict[str, str]:
    """What folds and rebuilds knows no kind, and of a provider only the address of the trap."""
    environment = stage.environment()
    del environment["SETTLED_KINDS"]
    host, port = trap.getsockname()
    own = {"SETTLED_PROJECTIONS": "settled.verify.receipts:receipts"}
    return environment | own | {PROVIDER_VARIABLE: f"http://{host}:{port}"}


@contextmanager
def _running(stage: Stage, environment: Mapping[str, str]) -> Generator[None]:
    """Keep the projections up with the log, in a process of their own."""
    with (stage.folder / "projections.log").open("w") as log:
        process = _command(stage, environment, "run", "--json", stderr=log)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, (stage.folder / "projections.log").read_text()


def _command(
    stage: Stage, environment: Mapping[str, str], *words: str, stderr: Any = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "settled", "projections", *words],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=stage.folder,
    )


def _kill_in_the_middle(stage: Stage, service: Service, environment: Mapping[str, str]) -> int:
    """SIGKILL a rebuild that has begun a version and not finished it; return that version."""
    for _ in range(KILLS):
        process = _command(stage, environment, "rebuild", "operations", "--workers", "2")
        while process.poll() is None and _building(stage) is None:
            _go_on(service)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)
        version = _building(stage)
        if version is not None:
            stage.strike(f"the rebuild of operations {version} killed")
            return version
    raise AssertionError(f"{KILLS} rebuilds were over before they could be killed")


def _building(stage: Stage) -> int | None:
    with stage.app.projector().views.of().reading() as rows:
        found = register.in_role(rows, "operations", "building")
    return found.version if found else None


def _rebuilt(
    stage: Stage, service: Service | None, environment: Mapping[str, str], name: str
) -> dict[str, Any]:
    """Rebuild a projection to its end, and check that it says that the two are the same."""
    before = settled_position(stage.app.journal)
    process = _command(stage, environment, "rebuild", name, "--workers", "2", "--json")
    give_up_at = elapsed_seconds() + PATIENCE_SECONDS
    while process.poll() is None and elapsed_seconds() < give_up_at:
        _go_on(service)
    out, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, f"rebuilding {name} failed: {said}"
    if service is not None:
        written = settled_position(stage.app.journal) - before
        assert written > 0, f"nobody wrote while {name} was rebuilt"
    told: dict[str, Any] = json.loads(out)
    assert told["compared"] and not told["differences"] and not told["parked"], told
    return told


def _go_on(service: Service | None) -> None:
    """Let one more operation be begun."""
    if service is not None:
        service.check()
        service.make_room(1)
    select.select([], [], [], STEP_SECONDS)


def _expect_caught_up(stage: Stage) -> None:
    end = settled_position(stage.app.journal)
    projector = stage.app.projector()

    def all_are() -> bool:
        lives = (projector.live(declared) for declared in PROJECTIONS)
        return all(projector.position(live) >= end for live in lives)

    eventually(all_are, PATIENCE_SECONDS)


def _content(stage: Stage, declared: Any) -> list[list[str]]:
    """Every row of the live version, without the version's number."""
    projector = stage.app.projector()
    live = projector.live(declared)
    with projector.store(live).reading() as rows:
        return [sorted(map(repr, rows.fetch(query))) for query in live.contents().values()]


def _expect_as_the_agenda_says(stage: Stage) -> None:
    """The journal's own heads, which nothing folded, say the same of each operation."""
    heads = stage.app.journal.heads(limit=AT_MOST + 1)
    view = stage.app.views.operations
    assert len(heads) > BEGUN_BEFORE
    for head in heads:
        line = view.get(Identity(head.tenant, head.kind, head.identity))
        assert (line.state, line.version) == (head.state, head.version), (line, head)


def _expect_one_request_a_dispatch(stage: Stage) -> None:
    histories = [
        stage.app.operations.history(
            Identity(head.tenant, head.kind, head.identity), by=Principal(head.tenant, "reader")
        )
        for head in stage.app.journal.heads(limit=AT_MOST + 1)
    ]
    check_invariant(histories, stage.simulator.log().calls())
