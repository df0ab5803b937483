"""No commit and no call without a point at which a test can kill it, and no point unused.

A crash is only survived where somebody has tried it. The battery kills at these points; here it is
kept that each place has them: whoever adds a commit or a call directly, or by another name, finds
this red. What is looked for is not the call but the name, as a function can be handed on.
"""

from __future__ import annotations

import ast
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import settled
from settled import (
    Call,
    Finding,
    FunctionProvider,
    Lookup,
    Notice,
    Params,
    Principal,
    ProviderContract,
    Reply,
    WorkerSettings,
    presets,
)
from settled.domain.contract import FOREVER, Consistency, EchoField, LookupBy, LookupPromise
from settled.infrastructure.testing.journal_units import eventually
from settled.processes.adoption import adopt
from settled.processes.faults import FaultPoint, reach, set_hook

ROOT = Path(__file__).resolve().parents[2]

AROUND = {
    "submit": ("BEFORE_COMMIT", "AFTER_COMMIT"),
    "join": ("BEFORE_JOIN", "AFTER_JOIN"),
    "claim": ("BEFORE_CLAIM", "AFTER_CLAIM"),
}
"""What commits: the function that names it reaches the one point above it, and the other below."""

PERFORMED = {"send": "CALL", "look_up": "LOOKUP", "notify": "NOTIFY"}
"""What calls somebody else: the function that names it is the act of a Perform of that work."""

RUNS_ACTS = ("processes/runner.py", "Runner._result")
"""The one place that performs an act; `Runner._perform` reaches the points around it."""

HARMLESS = {
    ("processes/worker.py", "self.join"): "waits for a thread",
    ("settled/app.py", "self.join"): "waits for a thread",
    ("settled/cli/worker.py", "announcing.join"): "waits for a thread",
    ("settled/cli/output.py", "_BETWEEN_COLUMNS.join"): "puts text together",
    ("processes/reconciler.py", "self.desk.look_up"): "decides; the act is in the desk",
    ("processes/ledger.py", "one.act"): "what a guard row is to do",
    ("processes/runs.py", "run.claim"): "records who has the run; the ledger commits it",
    ("processes/wakeups.py", "self._telling.submit"): "hands work to a thread",
}
"""Names that are none of these things."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("processes", "settled"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT)
            if name.parts[:2] in (("settled", "verify"), ("settled", "bench")):
                continue  # they are no service: they do on purpose what nobody else may
            if not any((ROOT / parent).is_symlink() for parent in name.parents):
                yield name.as_posix(), ast.parse(path.read_text(encoding="utf-8"))


@dataclass
class Place:
    """Where a name stands: the functions around it, the innermost last."""

    node: ast.Attribute
    functions: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]
    owner: str = ""

    @property
    def qualified(self) -> str:
        return ".".join(part for part in (self.owner, *(f.name for f in self.functions)) if part)


def places(
    node: ast.AST,
    around: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...] = (),
    owner: str = "",
) -> Iterator[Place]:
    """Yield each attribute that is read, with what is around it."""
    for child in ast.iter_child_nodes(node):
        functions, owned = around, owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            functions = (*around, child)
        elif isinstance(child, ast.ClassDef):
            owned = child.name
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
            yield Place(child, functions, owned)
        yield from places(child, functions, owned)


def lacking(file: str, tree: ast.Module) -> list[str]:
    """Return the places of a file that commit or call without the points around them."""
    found: list[str] = []
    for place in places(tree):
        name, node = place.node.attr, place.node
        text = isinstance(node.value, ast.Constant | ast.JoinedStr)  # ", ".join(…)
        if text or (file, ast.unparse(node)) in HARMLESS:
            continue
        kept = True
        if name in AROUND:
            kept = any(_reached_around(f, node, *AROUND[name]) for f in place.functions)
        elif name in PERFORMED:
            kept = _is_performed(place, PERFORMED[name])
        elif name == "act":
            kept = (file, place.qualified) == RUNS_ACTS
        if not kept:
            found.append(f"{file}:{node.lineno} {ast.unparse(node)}")
    return found


def _reached_around(function: ast.AST, node: ast.expr, before: str, after: str) -> bool:
    lines: dict[str, list[int]] = {before: [], after: []}
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "reach":
            point = ast.unparse(call.args[0]).rpartition(".")[2]
            lines.setdefault(point, []).append(call.lineno)
    above = any(at < node.lineno for at in lines[before])
    return above and any(at > node.lineno for at in lines[after])


def _is_performed(place: Place, work: str) -> bool:
    """Tell whether one of the functions around it is handed to Perform, as work of this name."""
    for outer, inner in zip(place.functions, place.functions[1:], strict=False):
        for call in ast.walk(outer):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Perform":
                what, _, act = (ast.unparse(argument) for argument in call.args[:3])
                if (what, act) == (f"Work.{work}", inner.name):
                    return True
    return False


def test_each_commit_and_each_call_has_its_points() -> None:
    """What cannot be killed there has never been killed there."""
    found = [line for file, tree in sources() for line in lacking(file, tree)]
    assert not found, "without a fault point before and after it:\n" + "\n".join(found)


def test_what_is_looked_for_is_there() -> None:
    """A name that nothing has would let everything pass; an excuse for nothing hides the next."""
    seen: dict[tuple[str, str], str] = {}
    for file, tree in sources():
        seen |= {(file, ast.unparse(place.node)): place.node.attr for place in places(tree)}
    assert {*AROUND, *PERFORMED, "act"} <= {attr for at, attr in seen.items() if at not in HARMLESS}
    assert HARMLESS.keys() <= seen.keys()


def test_acts_are_performed_between_the_points() -> None:
    """`_perform` alone asks for the result of an act, and reaches a point on both sides of it."""
    tree = dict(sources())["processes/runner.py"]
    (asked,) = [place for place in places(tree) if place.node.attr == "_result"]
    assert asked.qualified == "Runner._perform"
    reached = {
        ast.unparse(call.args[0]): call.lineno
        for call in ast.walk(asked.functions[-1])
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "reach"
    }
    assert reached["before"] < asked.node.lineno < reached["after"]


BARE = {
    "a commit": "def f(q, u):\n    q.submit(u).result()",
    "no point after": "def f(q, u):\n    reach(FaultPoint.BEFORE_COMMIT)\n    q.submit(u)",
    "no point before": "def f(q, u):\n    q.submit(u)\n    reach(FaultPoint.AFTER_COMMIT)",
    "points of another kind": (
        "def f(j, c, u):\n    reach(FaultPoint.BEFORE_COMMIT)\n    j.join(c, u)\n"
        "    reach(FaultPoint.AFTER_COMMIT)"
    ),
    "a claim": "def f(committer):\n    return committer.claim(want=1)",
    "a claim handed on": "def f(committer, run):\n    return run(committer.claim)",
    "a call": "async def f(kind, call):\n    return await kind.provider.send(call)",
    "a call by another name": "async def f(p, c):\n    go = p.send\n    return await go(c)",
    "a look-up in an act that is none": (
        "def f(p):\n    async def ask():\n        return await p.look_up(1)\n    return ask"
    ),
    "a look-up as other work": (
        "def f(p):\n    async def ask():\n        return await p.look_up(1)\n"
        "    return Perform(Work.CALL, 'refund', ask, None)"
    ),
    "a notice": "def f(notifier, notice):\n    notifier.notify(notice)",
    "an act performed elsewhere": "async def f(decision):\n    return await decision.act()",
}


@pytest.mark.parametrize("code", BARE.values(), ids=BARE.keys())
def test_a_place_without_points_is_found(code: str) -> None:
    """Whoever adds one sees it here, whatever it is called."""
    assert len(lacking("processes/new.py", ast.parse(code))) == 1


# Each point is reached.

BY = Principal("acme", "support-agent")
PACE = WorkerSettings(name="embedded", lease_seconds=5, idle_seconds=0.02, drain_seconds=5)


class NoteParams(Params):
    """A note to somebody."""

    to: str


LISTED = ProviderContract(
    provider="notes",
    operation="note",
    max_in_flight=timedelta(seconds=1),
    lookups=(
        LookupPromise(by=LookupBy.PARENT_LIST, consistency=Consistency.STRONG, horizon=FOREVER),
    ),
    echo=(EchoField(field="to", path="to"),),
)
"""No key, but a list of what there is: a lost reply is looked up."""


@dataclass
class Notes:
    """A provider whose replies are lost on the way, and what it has."""

    made: list[str] = field(default_factory=list[str])
    states: list[str] = field(default_factory=list[str])
    app: settled.App | None = None

    def perform(self, call: Call, params: NoteParams) -> Reply:
        assert self.app is not None
        identity = call.identity
        durable = self.app.operations.get(identity.kind, identity.operation_id, by=BY)
        self.states.append(durable.state)
        self.made.append(params.to)
        return Reply.performed({"to": params.to}, "note-1")

    def find(self, lookup: Lookup) -> Reply | None:
        to = lookup.params.to
        return Reply.performed({"to": to}, "note-1") if to in self.made else None


class LostReplies(FunctionProvider):
    """An adapter that fails once its request has been performed."""

    async def send(self, call: Call) -> Finding:
        await super().send(call)
        raise ConnectionResetError("cut off after the request")


@dataclass
class Told:
    """A notifier that says when it has been asked."""

    asked: threading.Event = field(default_factory=threading.Event)

    def notify(self, notice: Notice) -> None:
        self.asked.set()


@dataclass
class Log:
    """The points that were reached, in order; of claims only that there was one."""

    reached: list[tuple[FaultPoint, str]] = field(default_factory=list[tuple[FaultPoint, str]])
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, point: FaultPoint, detail: str) -> None:
        with self._mutex:  # on the loop, and on the committer's thread
            self.reached.append((point, detail))

    def steps(self) -> list[str]:
        """Return what was reached since the last time, without the claims."""
        with self._mutex:
            taken, self.reached = self.reached, []
        return [f"{point} {detail}" for point, detail in taken if "claim" not in point]


@pytest.fixture
def log() -> Iterator[Log]:
    reached = Log()
    set_hook(reached)
    yield reached
    set_hook(None)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def app(sqlite_url: str, notes: Notes, told: Told) -> Iterator[settled.App]:
    listed = LostReplies("notes", LISTED, notes.perform, lookup=notes.find)
    unlisted = LostReplies("mail", presets.smtp, notes.perform)
    kinds: list[settled.Kind[Any]] = [
        settled.Kind("note", NoteParams, listed, "support-lead"),
        settled.Kind("mail", NoteParams, unlisted, "support-lead"),
    ]
    with settled.open(sqlite_url, kinds=kinds, notifier=told) as opened:
        notes.app = opened
        yield opened


def around(point: str, detail: str) -> list[str]:
    return [f"before_{point} {detail}", f"after_{point} {detail}"]


def test_a_lost_reply_passes_its_points_in_order(app: settled.App, log: Log, notes: Notes) -> None:
    """Dispatching is durable before the call begins, and an exception after it is no proof."""
    app.start_worker(PACE)
    note = app.operations.intend("note", "note-1", {"to": "ada"}, by=BY)
    assert app.operations.wait(note, timeout_seconds=20).state == "succeeded"
    eventually(lambda: ("after_commit", "Succeeded") in log.reached)
    assert log.steps() == [
        *around("commit", "Intended"),
        *around("commit", "Dispatching"),
        *around("call", "note"),
        *around("commit", "OutcomeUnknown"),
        *around("lookup", "note"),
        *around("commit", "Succeeded"),
    ]
    assert (notes.states, notes.made) == (["dispatching"], ["ada"])


def test_every_point_is_reached(app: settled.App, log: Log, told: Told, tmp_path: Path) -> None:
    """A point that nothing passes tests nothing; each says what it is about."""
    app.operations.intend("note", "note-1", {"to": "ada"}, by=BY)
    assert adopt(app.ledger, "ada") == 1
    assert log.steps() == [*around("commit", "Intended"), *around("commit", "OutcomeUnknown")]
    connection = sqlite3.connect(tmp_path / "settled.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    app.operations.intend("mail", "mail-1", {"to": "bob"}, by=BY, connection=connection)
    connection.execute("COMMIT")
    connection.close()
    reached = set(log.reached)
    app.start_worker(PACE)
    assert told.asked.wait(20)
    app.close()
    reached |= set(log.reached)
    assert {point for point, _ in reached} == set(FaultPoint)
    assert {
        *((point, "Intended") for point in (FaultPoint.BEFORE_JOIN, FaultPoint.AFTER_JOIN)),
        *((point, "mail") for point in (FaultPoint.BEFORE_CALL, FaultPoint.AFTER_CALL)),
        *((point, "note") for point in (FaultPoint.BEFORE_LOOKUP, FaultPoint.AFTER_LOOKUP)),
        *((point, "mail") for point in (FaultPoint.BEFORE_NOTIFY, FaultPoint.AFTER_NOTIFY)),
        (FaultPoint.AFTER_COMMIT, "HandedOver"),
        (FaultPoint.AFTER_COMMIT, "OwnerNotified"),
        (FaultPoint.BEFORE_CLAIM, ""),
        (FaultPoint.AFTER_CLAIM, ""),
    } <= reached


def test_a_hook_that_was_removed_is_not_called(log: Log) -> None:
    """In production there is none, and a point costs one comparison."""
    set_hook(None)
    reach(FaultPoint.BEFORE_CALL, "note")
    assert log.steps() == []
