"""`settled contract`: what each kind owes an answer to, and which answers are missing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from settled.cli.opening import open_kinds, opened_journal
from settled.cli.options import json_option, kinds_option, url_option
from settled.cli.output import ExitCode, print_json

if TYPE_CHECKING:
    from settled.domain.answers import Card

_COLUMNS = 100


@click.command()
@click.option("--check", "only_missing", is_flag=True, help="Print what is missing, and no more.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="A page for the terminal, Markdown, or JSON.",
)
@kinds_option(required=True)
@url_option
@json_option
def contract(only_missing: bool, form: str, kinds_from: str, url: str, as_json: bool) -> int:
    """Say of each kind what is stored, who owns it, where it survives, what wakes it, what can
    repeat, and how an uncertain outcome is resolved.

    Exit code 1 while an answer is missing, or the store does not survive a restart.
    """
    cards = _cards(kinds_from, url)
    missing = {card.kind: list(card.missing) for card in cards if card.missing}
    if as_json or form == "json":
        shown = [] if only_missing else [asdict(card) for card in cards]
        print_json({"complete": not missing, "missing": missing, "kinds": shown})
    else:
        marked = form == "md"
        for line in _missing_lines(cards) if only_missing else _page(cards, marked):
            click.echo(line)
    return ExitCode.REFUSED if missing else ExitCode.DONE


def _cards(kinds_from: str, url: str) -> list[Card]:
    from settled.cli.loading import load_declared
    from settled.domain.answers import cards
    from settled.domain.errors import StoreUnsafe
    from settled.domain.run.answers import run_card
    from settled.infrastructure.journal.survival import store_facts

    kinds, runs = load_declared(kinds_from)
    store = store_facts(url)
    unread: list[str] = []
    try:
        with opened_journal(url) as journal:
            unread = open_kinds(journal)
    except StoreUnsafe as error:  # one of the store's problems, which are told anyway
        assert error.message in store.problems
    return [*cards(kinds, store, unread), *(run_card(run, store) for run in runs)]


def _page(cards: list[Card], marked: bool) -> Iterator[str]:
    for card in cards:
        heading = f"{card.kind} ({card.provider})" if card.provider else card.kind
        yield f"## {heading}" if marked else click.style(heading, bold=True)
        yield ""
        for answer in card.answers:
            yield f"**{answer.question.capitalize()}.**" if marked else f"  {answer.question}"
            lines = [*answer.lines, *(f"MISSING: {what}" for what in answer.missing)]
            for line in lines:
                yield f"- {line}" if marked else _indented(line)
            yield ""
        if card.unknown:
            line = f"The contract leaves open: {', '.join(card.unknown)}."
            yield line if marked else _indented(line, 2)
            yield ""
    yield from _missing_lines(cards)


def _missing_lines(cards: list[Card]) -> Iterator[str]:
    for card in cards:
        for what in card.missing:
            yield f"{card.kind}: missing: {what}"
    if not any(card.missing for card in cards):
        yield "No answer is missing."


def _indented(line: str, blanks: int = 4) -> str:
    indent = " " * blanks
    return textwrap.fill(
        line,
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
