"""The pages that list things list all of them: errors by code, commands by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import settled
from settled.cli import cli
from settled.cli.output import ExitCode, exit_code
from settled.domain.errors import (
    DeclarationError,
    InvalidStoreUrl,
    NotPossible,
    ParametersChanged,
    SettledError,
    StoreUnavailable,
    WaitTimeout,
)

ROOT = Path(__file__).resolve().parents[2]
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def below(error: type[SettledError]) -> Iterator[type[SettledError]]:
    for child in error.__subclasses__():
        if child.__module__ == "settled.domain.errors":
            yield child
            yield from below(child)


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_every_error_has_its_section() -> None:
    """An error message ends with a link: it has to lead somewhere, and to the right place."""
    sections = dict(re.findall(r"^## SETTLED-(\d+)\n\n`(\w+)`\.", ERRORS, re.MULTILINE))
    assert sections == {str(error.code): error.__name__ for error in below(SettledError)}
    for section in ERRORS.split("\n## ")[1:]:
        assert "**What to do.**" in section, section


def test_codes_are_told_once() -> None:
    """Two errors under one code cannot be searched for."""
    codes = [error.code for error in below(SettledError)]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(("name", "command"), list(commands(cli, "settled")))
def test_every_command_is_described(name: str, command: click.Command) -> None:
    """Whoever reads the page knows each command and each option of its own."""
    assert re.search(re.escape(name).replace(r"\ ", r"\s+") + r"\b", CLI), f"{name} is missing"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert any(f"`{option}" in CLI for option in parameter.opts), f"{name} {parameter.opts}"


def test_every_exit_code_is_described() -> None:
    """Scripts are written from this table."""
    table = re.findall(r"^\| (\d+) \|", CLI, re.MULTILINE)
    assert [int(code) for code in table] == sorted(ExitCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidStoreUrl(), 2),
        (ParametersChanged(), 2),
        (NotPossible(), 1),
        (WaitTimeout(), 1),
        (StoreUnavailable(), 3),
        (DeclarationError(), 4),
    ],
)
def test_errors_map_to_exit_codes(error: SettledError, code: int) -> None:
    """A script tells its own mistake from a store that is down."""
    assert exit_code(error) == code


def test_links_lead_somewhere() -> None:
    """A page that was renamed is a dead end for whoever reads on."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 5
    assert not [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()]


def test_public_names_are_there() -> None:
    """Names are imported at their first use, so one that is missing would be found by a user."""
    for name in settled.__all__:
        assert getattr(settled, name) is not None
    assert sorted(settled.__all__) == settled.__all__
    with pytest.raises(AttributeError, match="nothing_such"):
        settled.nothing_such  # noqa: B018 -- the access is the test
