"""`settled bench` at toy sizes: it has to run, and to say what it found. No time is judged here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from settled.bench.curve import fill
from settled.bench.draining import intended
from settled.bench.figure import OURS, RAW, Better, Experiment, Figure, Sample, registered
from settled.bench.lab import QUICK, Lab, laboratory, with_database
from settled.bench.memory import ENOUGH, STEPS, sample_of
from settled.bench.picture import draw
from settled.bench.runner import Measured, Report, Verdict, choose, result_of, run
from settled.bench.settling import looking, nothing_open
from settled.bench.template import make
from settled.domain.errors import InvalidInput
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.testing.postgres_server import PostgresServer
from tests.cli.runner import CommandLine

TOY = replace(
    QUICK,
    rounds=1,
    operations=40,
    peer_operations=20,
    singles=10,
    pickups=2,
    idle_seconds=0.1,
    orphans=25,
    appends=16,
    delayed=30,
    open_operations=5_000,
    claims=3,
    worked_off=300,
    seeded=60,
    starts=1,
    threads=10,
    concurrency=20,
)
FAST = Figure("fast", "Something fast", "per_second", "ops/s", 100, Better.HIGHER)
SHORT = Figure("short", "Something short", "ms", "ms", 5, Better.LOWER)
AGAINST = Figure("against", "… against a peer", "per_second", "×", 10, Better.HIGHER, over="peer")
ABOUT = {"machine": "2 cores", "postgresql": "18", "python": "3.13"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A server that writes through, as the bench brings it."""
    with laboratory(None, TOY) as found:
        yield found


def measured(*rounds: dict[str, Sample], errors: dict[str, str] | None = None) -> Measured:
    figures = (FAST, SHORT, AGAINST)
    one = Experiment("some", "Some experiment", figures, lambda lab: {})
    return Measured(one, rounds, errors or {}, 1.0)


@pytest.mark.parametrize("name", [one.name for one in registered()])
def test_each_experiment_runs(lab: Lab, name: str) -> None:
    """An experiment that nobody runs is broken by the next change of what it measures."""
    (one,) = [experiment for experiment in registered() if experiment.name == name]
    report = run(lab, [one])
    (found,) = report.measured
    assert found.errors == {}
    assert [result.figure for result in report.results] == list(one.figures)
    for result in report.results:
        if result.spread is None:
            assert result.verdict is Verdict.NOT_MEASURED and result.why
        else:
            assert result.spread.least <= result.spread.median <= result.spread.greatest
            assert result.verdict in (Verdict.MET, Verdict.MISSED)
        if result.figure.beside == RAW and result.spread and result.figure.over is None:
            assert result.floor is not None, "each bar has its floor beside it"
    ElementTree.fromstring(draw(report))


def test_names_are_told_once() -> None:
    """--only takes names of figures, whatever the experiment."""
    names = [figure.name for one in registered() for figure in one.figures]
    assert len(names) == len(set(names)) > 12
    (one,) = choose(registered(), ["share"])
    assert [figure.name for figure in one.figures] == ["share"]
    with pytest.raises(InvalidInput, match="no figure nothing-such"):
        choose(registered(), ["share", "nothing-such"])


def test_a_bar_is_met_by_the_median() -> None:
    """One bad round on a busy machine is no miss, and one good round is no success."""
    found = measured(
        {OURS: {"per_second": 90, "ms": 6}, RAW: {"per_second": 200}},
        {OURS: {"per_second": 110, "ms": 7}, RAW: {"per_second": 400}},
        {OURS: {"per_second": 120, "ms": 4}, RAW: {"per_second": 300}},
    )
    fast, short, against = (result_of(figure, found) for figure in found.experiment.figures)
    assert fast.spread is not None
    assert (fast.spread.least, fast.spread.median, fast.spread.greatest) == (90, 110, 120)
    assert fast.verdict is Verdict.MET and fast.to_floor == pytest.approx(110 / 300)
    assert short.verdict is Verdict.MISSED and short.to_floor is None
    assert against.verdict is Verdict.NOT_MEASURED and "peer is not installed" in against.why
    assert Report(False, {}, [fast, against]).met
    assert not Report(False, {}, [fast, short]).met


def test_a_ratio_is_of_one_round() -> None:
    """The neighbours of one round slow down both: only within a round does a ratio say anything."""
    found = measured(
        {OURS: {"per_second": 100}, "peer": {"per_second": 5}},
        {OURS: {"per_second": 50}, "peer": {"per_second": 2}},
    )
    against = result_of(AGAINST, found)
    assert against.spread is not None and against.spread.median == pytest.approx(22.5)
    assert against.verdict is Verdict.MET


@pytest.mark.parametrize(
    ("who", "verdict"),
    [(OURS, Verdict.FAILED), (RAW, Verdict.FAILED), ("peer", Verdict.NOT_MEASURED)],
)
def test_who_fails_is_named(who: str, verdict: Verdict) -> None:
    """What broke off is no figure: ours and the floor fail the run, a peer its comparison."""
    rounds: dict[str, Sample] = {OURS: {"per_second": 200}, RAW: {"per_second": 300}}
    rounds.pop(who, None)
    found = measured(rounds, errors={who: "RuntimeError: it broke"})
    result = result_of(AGAINST if who == "peer" else FAST, found)
    assert result.verdict is verdict and f"{who}: RuntimeError: it broke" in result.why
    assert Report(False, {}, [result]).met is (who == "peer")


def test_a_failing_contender_leaves_the_others(lab: Lab) -> None:
    """A peer that breaks in the first round costs neither its rivals nor the rounds to come."""

    def broken() -> Sample:
        raise RuntimeError("it broke")

    contenders = {"peer": broken, OURS: lambda: {"per_second": 1_000.0}}
    one = Experiment("some", "Some experiment", (FAST, AGAINST), lambda lab: contenders)
    report = run(replace(lab, sizes=replace(TOY, rounds=3)), [one])
    (found,) = report.measured
    assert [list(each) for each in found.rounds] == [[OURS]] * 3
    assert found.errors == {"peer": "RuntimeError: it broke"}
    assert [result.verdict for result in report.results] == [Verdict.MET, Verdict.NOT_MEASURED]


def test_memory_is_told_by_its_slope() -> None:
    """A process that grows by 100 bytes an operation is over the bar long before a million."""
    step = ENOUGH // STEPS
    flat = sample_of([50_000_000, *[60_000_000] * STEPS], step)
    grows = sample_of([60_000_000 + 100 * step * n for n in range(STEPS + 1)], step)
    assert flat["bytes_per_operation"] == 0 and flat["projected_mb"] == 60
    assert grows["bytes_per_operation"] == pytest.approx(100)
    assert grows["projected_mb"] == pytest.approx(160)
    assert "projected_mb" not in sample_of([60_000_000] * (STEPS + 1), step - 1)


def test_a_store_is_filled_with_settled_operations(lab: Lab) -> None:
    """A curve over the size of the store is about stored operations, not about work."""
    with lab.postgres() as url:
        make(url, lab.folder)
        fill(url, 50)
        with looking(url, nothing_open(url)) as idle:
            assert idle()
        journal = open_journal(url)
        assert len(journal.heads(states=["succeeded"])) == 51
        assert len(journal.read(0, 1_000).events) == 51 * 4
        journal.close()
        intended(lab, url, 25)
        with looking(url, nothing_open(url)) as idle:
            assert not idle()


def test_the_picture_has_every_bar() -> None:
    """Who reads the picture alone sees who was measured, the bar and whether it was met."""
    found = measured(
        {
            OURS: {"per_second": 2_000, "ms": 7},
            RAW: {"per_second": 4_000, "ms": 1},
            "a<b": {"per_second": 50},
        }
    )
    results = [result_of(figure, found) for figure in found.experiment.figures]
    drawn = draw(Report(True, ABOUT, results, [found]))
    text = " ".join(ElementTree.fromstring(drawn).itertext())
    for word in (OURS, RAW, "a<b", "2,000 ops/s", "≥ 100 ops/s: met", "≤ 5 ms: missed", "quick"):
        assert word in text, word
    assert "settled is 0.5 × this" in text


def test_a_database_takes_the_place_of_another() -> None:
    """The databases of a run are beside the one that the URL names, however it is written."""
    assert with_database("postgresql://u@h/shop?x=1", "b") == "postgresql://u@h/b?x=1"
    assert with_database("postgresql://u@/?host=/run/pg", "b") == "postgresql://u@/b?host=/run/pg"


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    """The command line. The bench brings its own stores."""
    return CommandLine("sqlite:///settled.db", tmp_path)


def test_the_command(command: CommandLine, tmp_path: Path) -> None:
    """A quick run of one figure: JSON on standard output, a picture, and the exit code of it."""
    done = command("bench", "--quick", "--only", "help", "--json", "--svg", "help.svg")
    document = json.loads(done.out)
    assert done.code == (0 if document["met"] else 1), done.err
    (figure,) = document["figures"]
    assert figure["name"] == "help" and figure["verdict"] in ("met", "missed")
    assert figure["value"]["min"] <= figure["value"]["median"] <= figure["value"]["max"]
    assert document["quick"] is True and document["about"]["fsync"] == "on"
    (experiment,) = document["experiments"]
    assert set(experiment["contenders"]) == {OURS, RAW} and experiment["errors"] == {}
    ElementTree.parse(tmp_path / "help.svg")


def test_it_is_not_measured_where_commits_are_lost(command: CommandLine) -> None:
    """What a server without fsync is fast at is something else."""
    with PostgresServer() as server:
        done = command("bench", "--db", server.url(), "--only", "help", "--json")
    assert done.code == 3
    assert "fsync = off" in done.error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "nothing-such"],
        ["--curve", "--only", "help"],
        ["--stored", "1000"],
        ["--db", "sqlite:///settled.db"],
    ],
)
def test_wrong_words_are_told_at_once(command: CommandLine, arguments: list[str]) -> None:
    """Nobody waits for a server to hear of a typing error."""
    assert command("bench", *arguments).code == 2
