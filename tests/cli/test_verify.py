"""`settled verify` as a user runs it, and what it says of a promise that does not hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from settled.cli.verify import NOT_SHOWN, exit_code
from settled.domain.errors import InvalidInput, InvalidStoreUrl
from settled.infrastructure.simulator.client import SimulatorClient
from settled.verify.catalogue import PROMISES
from settled.verify.check import Check, registered
from settled.verify.ground import Ground, ground
from settled.verify.runner import Result, Verdict, run
from settled.verify.soak import Figures
from settled.verify.stage import Stage
from tests.cli.runner import ROOT, CommandLine


@pytest.fixture
def place(store_url: str) -> Iterator[Ground]:
    """Where checks may run."""
    with ground(store_url, keep=False) as open_ground:
        yield open_ground


def left_over(url: str, folder: Path) -> list[str]:
    """Return what is left of runs: schemas, or folders beside the user's file."""
    if urlsplit(url).scheme == "sqlite":
        found = (*folder.glob("settled-verify-*"), *folder.glob("settled-kept-*"))
        return [path.name for path in found]
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname ~ '^settled_(verify|kept)_'"
        )
        return [name for (name,) in rows]


def test_it_holds_and_leaves_nothing(bare: CommandLine, tmp_path: Path) -> None:
    """Two promises on a user's database: the verdicts and figures, and nothing of it is left."""
    done = bare("verify", "--db", bare.url, "--only", "A1,A4", "--seed", "7", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert (document["verdict"], document["seed"]) == ("holds", 7)
    expected = [check.title for check in registered() if check.id in ("A1", "A4")]
    assert [result["title"] for result in document["results"]] == expected
    assert {result["verdict"] for result in document["results"]} == {"holds"}
    first, killed, *_ = document["results"]
    operation = ["acme/refund/refund-request-9"]
    assert first["evidence"] == {
        **{"attempts": 1, "requests": 1, "effects": 1, "receipt": "re_1"},
        **{"boundaries": [], "operations": operation},
    }
    assert killed["evidence"] == {
        **{"attempts": 2, "requests": 2, "effects": 1, "receipt": "re_1"},
        **{"boundaries": ["after_call:refund=kill"], "operations": operation},
    }
    assert len(document["run"]) == 8
    assert {"settled", "eventsourcing", "database"} <= set(document["versions"])
    assert document["kept"] == [] == left_over(bare.url, tmp_path)
    assert not (tmp_path / "settled.db").exists(), "the user's own file is not made"


def test_what_is_not_built_is_said(bare: CommandLine, tmp_path: Path) -> None:
    """A promise without a check is no success: it is listed, and the exit code is another one."""
    done = bare("verify", "--db", bare.url, "--only", "a14, a1", "--keep", TMPDIR=str(tmp_path))
    assert done.code == NOT_SHOWN, done.err
    lines = [line.split("  ") for line in done.out.splitlines() if line.startswith("A")]
    assert [(line[0], "not built" in line) for line in lines] == [("A1", False), ("A14", True)]
    assert len(left_over(bare.url, tmp_path)) == 1, "kept, as it was asked for"


def test_an_unknown_check_is_named(bare: CommandLine) -> None:
    """A mistyped id must not look like a run in which everything held."""
    done = bare("verify", "--db", bare.url, "--only", "A1,A99", "--json")
    assert done.code == 2
    assert "A99" in done.error["message"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """Nothing can be made beside a file in a folder that is not there."""
    with pytest.raises(InvalidStoreUrl, match="beside"):
        with ground(f"sqlite:///{tmp_path / 'missing' / 'shop.db'}", keep=False):
            pass


def wrong(stage: Stage) -> None:
    """Expect two effects of one refund: so a product that sends twice would look."""
    stage.worker()
    stage.wait(stage.intend(), "succeeded")
    stage.expect(requests=2, effects=2)


def right(stage: Stage) -> None:
    """Expect nothing of a store in which nothing is."""
    stage.expect(requests=0, effects=0)


def broken(stage: Stage) -> None:
    """End otherwise than by an assertion."""
    stage.simulator.wait(calls=1, seconds=0.01)


def never(stage: Stage) -> None:
    """Must not be run."""
    raise AssertionError("a check that does not belong here was run")


def test_what_falls_short_is_reported(place: Ground, simulator: SimulatorClient) -> None:
    """A promise that does not hold: the verdict, why, where, the figures, the events."""
    told: list[Result] = []
    checks = [Check("A1", "wrong", wrong), Check("A1", "broken", broken)]
    report = run(place, simulator, checks, only=["A1", "A2"], seed=1, tell=told.append)
    assert report.verdict is Verdict.FALLS_SHORT and exit_code(report) == 1
    first, second, third = report.results
    assert told == [first, second]
    assert first.verdict is second.verdict is Verdict.FALLS_SHORT
    assert "saw 1 requests" in first.why and "test_verify.py, line" in first.why
    assert first.evidence is not None
    assert (first.evidence.attempts, first.evidence.effects) == (1, 1)
    (events,) = first.streams.values()
    assert events == ["Intended", "Claimed", "Dispatching", "Succeeded"]
    assert second.why.startswith("TimeoutError: ")
    assert third.verdict is Verdict.NOT_BUILT
    assert list(place.folder.glob("A*")) == [], "what it worked with is gone"


def test_what_cannot_be_run_here_is_not_run(place: Ground, simulator: SimulatorClient) -> None:
    """A check for another database, and one that would stop the user's server: nothing holds."""
    others = frozenset({"sqlite", "postgresql"} - {place.dialect})
    checks = [
        Check("A25", "elsewhere", never, databases=others),
        Check("A28", "stops servers", never, own_server=True),
    ]
    report = run(place, simulator, checks, only=["A25", "A28"], seed=1)
    found = [result.verdict for result in report.results]
    assert found == [Verdict.DOES_NOT_APPLY, Verdict.NEEDS_OWN_SERVER]
    assert (report.verdict, exit_code(report)) == (Verdict.NEEDS_OWN_SERVER, NOT_SHOWN)


def test_what_holds_is_not_hidden_by_what_cannot_be_run_here(
    place: Ground, simulator: SimulatorClient
) -> None:
    """Where something was run and held, the rest of a run is listed, and is no failure."""
    checks = [Check("A1", "holds", right), Check("A28", "stops servers", never, own_server=True)]
    report = run(place, simulator, checks, only=["A1", "A28"], seed=1)
    assert [r.verdict for r in report.results] == [Verdict.HOLDS, Verdict.NEEDS_OWN_SERVER]
    assert (report.verdict, exit_code(report)) == (Verdict.HOLDS, 0)


def test_what_needs_a_package_is_not_run_without_it(
    place: Ground, simulator: SimulatorClient
) -> None:
    """Settled itself does not need what a check needs: it is named, and nothing was shown."""
    missing = Check("A27", "needs what is not there", never, package="no_such_package")
    report = run(place, simulator, [missing], only=["A27"], seed=1)
    (result,) = report.results
    assert (result.verdict, result.why) == (Verdict.NEEDS_PACKAGE, "pip install no_such_package")
    assert (report.verdict, exit_code(report)) == (Verdict.NEEDS_PACKAGE, NOT_SHOWN)


def crash(stage: Stage) -> None:
    """Stop the server, and break off before it is started again."""
    stage.worker()
    stage.wait(stage.intend(), "succeeded")
    stage.strike("PostgreSQL stopped")
    stage.server.stop("immediate")
    raise AssertionError("broken off")


def test_a_server_of_its_own(simulator: SimulatorClient) -> None:
    """Checks that stop servers get one; what they leave stopped is there again afterwards."""
    checks = [Check("A25", "crash", crash, own_server=True), Check("A1", "wrong", wrong)]
    with ground(None, keep=False, own_server=True) as place:
        assert place.dialect == "postgresql"
        report = run(place, simulator, checks, only=["A1", "A25"], seed=1)
        plain, crashed = report.results
        assert crashed.why.startswith("broken off") and crashed.evidence is not None
        assert crashed.evidence.effects == 1
        assert crashed.evidence.boundaries == ("PostgreSQL stopped",)
        assert plain.evidence is not None and plain.evidence.effects == 1
        assert place.server is not None and left_over(place.server.url(), place.folder) == []


def test_a_database_has_to_be_named(tmp_path: Path) -> None:
    """Without one, and without a server of its own, there is nowhere to check anything."""
    with pytest.raises(InvalidInput, match="No database"):
        with ground(None, keep=False):
            pass


def test_a_small_soak(bare: CommandLine, tmp_path: Path) -> None:
    """The soak through the command line: its figures agree, and nothing is left."""
    words = ("--soak", "--operations", "40", "--workers", "2", "--seed", "7", "--json")
    done = bare("verify", "--db", bare.url, *words)
    assert done.code == 0, done.err
    document = done.document
    figures = document["figures"]
    assert (document["verdict"], document["seed"], figures["operations"]) == ("holds", 7, 40)
    ended = figures["succeeded"] + figures["failed"] + figures["handed_over"]
    assert ended == 40
    wrong = ("duplicates", "lost", "untrue", "unaccounted", "given_up", "barren")
    assert [figures[name] for name in wrong] == [0] * len(wrong)
    assert figures["requests"] <= figures["dispatches"]
    assert figures["succeeded"] <= figures["effects"] <= 40
    assert "of 40 ended" in done.err
    assert left_over(bare.url, tmp_path) == []


@pytest.mark.parametrize(
    "words", [("--soak", "--only", "A1"), ("--operations", "5")], ids=["only", "operations"]
)
def test_options_that_do_not_go_together(bare: CommandLine, words: tuple[str, ...]) -> None:
    """A soak runs no checks, and checks have their own numbers."""
    assert bare("verify", "--db", bare.url, *words).code == 2


def test_a_wrong_soak_is_told() -> None:
    """Each way in which an operation can be wrong makes the soak fall short, by name."""
    nothing = dict.fromkeys((field.name for field in fields(Figures)), 0)
    Figures(**nothing).expect_nothing_wrong()
    for name in ("duplicates", "lost", "untrue", "unaccounted", "given_up", "barren"):
        with pytest.raises(AssertionError, match="1 "):
            Figures(**nothing | {name: 1}).expect_nothing_wrong()


def test_every_check_belongs_to_a_promise(place: Ground, simulator: SimulatorClient) -> None:
    """A check under an id that there is not would never run."""
    assert {check.id for check in registered()} <= set(PROMISES)
    assert list(PROMISES) == [f"A{number}" for number in range(1, 41)]
    titles = [(check.id, check.title) for check in registered()]
    assert len(set(titles)) == len(titles)
    with pytest.raises(InvalidInput):
        run(place, simulator, registered(), only=["A41"], seed=1)


TABLE_ROW = re.compile(r"\| (A\d+)(?: \*)? \| .* \| (.*) \|")


def test_the_page_and_the_catalogue_are_in_step() -> None:
    """Every promise is on the page once, and is said to be not built just where no check is."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = [(row[1], row[2]) for line in page.splitlines() if (row := TABLE_ROW.fullmatch(line))]
    assert [name for name, _ in rows] == list(PROMISES)
    built = {check.id for check in registered()}
    for name, shown in rows:
        if name in built:
            assert shown.startswith(f"`settled verify --only {name}"), name
        else:
            assert shown.startswith("not built"), name
