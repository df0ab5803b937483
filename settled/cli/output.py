"""What the command line prints, for people and for programs, and the codes that it exits with."""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import click

from settled.domain.errors import (
    DeclarationError,
    InvalidInput,
    InvalidStoreUrl,
    NotPossible,
    SettledError,
    StoreError,
    WaitTimeout,
)

_BETWEEN_COLUMNS = "  "


class ExitCode(enum.IntEnum):
    """What a script can tell apart. Documented in docs/cli.md."""

    DONE = 0
    REFUSED = 1
    WRONG_USE = 2
    STORE = 3
    DECLARATION = 4
    BUG = 70


_CODES: tuple[tuple[type[SettledError], ExitCode], ...] = (
    (InvalidStoreUrl, ExitCode.WRONG_USE),  # before its base: what was typed is wrong
    (InvalidInput, ExitCode.WRONG_USE),
    (NotPossible, ExitCode.REFUSED),
    (WaitTimeout, ExitCode.REFUSED),
    (StoreError, ExitCode.STORE),
    (DeclarationError, ExitCode.DECLARATION),
)
"""Branch of the error tree -> exit code; the first that fits counts."""


def exit_code(error: SettledError) -> ExitCode:
    """Return the exit code for an error."""
    return next((code for branch, code in _CODES if isinstance(error, branch)), ExitCode.REFUSED)


def print_json(document: object, *, err: bool = False, one_line: bool = False) -> None:
    """Print one JSON document."""
    import orjson

    option = 0 if one_line else orjson.OPT_INDENT_2
    click.echo(orjson.dumps(document, option=option).decode(), err=err)


def document_of(view: Any) -> dict[str, Any]:
    """Return a dataclass of ours as JSON has it: parameters as an object, not as text in text."""
    import orjson

    document = {field.name: getattr(view, field.name) for field in fields(view)}
    if isinstance(document.get("params"), str):
        document["params"] = orjson.loads(document["params"])
    return document


def print_error(error: SettledError, as_json: bool) -> ExitCode:
    """Print an error of settled's to standard error, and return its exit code."""
    name = type(error).__name__
    if as_json:
        _print_error_document(
            code=f"SETTLED-{error.code}",
            name=name,
            message=error.message,
            hint=error.hint,
            docs=f"docs/errors.md#settled-{error.code}",
        )
    else:
        click.echo(f"settled.{name}: {error}", err=True)
    return exit_code(error)


def print_usage_error(error: click.ClickException, as_json: bool) -> ExitCode:
    """Print that the command was used wrongly; click's own form for people."""
    if as_json:
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"`{context.command_path} --help` shows how it is used." if context else ""
        _print_error_document(
            code=None,
            name="UsageError",
            message=error.format_message(),
            hint=hint,
            docs="docs/cli.md",
        )
    else:
        error.show()
    return ExitCode.WRONG_USE


def print_called_off(as_json: bool) -> ExitCode:
    """Print that the person at the keyboard said no."""
    if as_json:
        _print_error_document(
            code=None, name="CalledOff", message="Called off.", hint="", docs="docs/cli.md"
        )
    else:
        click.echo("Called off.", err=True)
    return ExitCode.REFUSED


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their names: a table on a terminal, plain columns anywhere else."""
    if sys.stdout.isatty():
        _print_rich_table(names, rows)
        return
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(_BETWEEN_COLUMNS.join(cells).rstrip())


def print_fields(pairs: Sequence[tuple[str, str | None]]) -> None:
    """Print names and values below each other; what has no value is left out."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        if value:
            click.echo(f"{name.ljust(width)}  {value}")


def _print_rich_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*names, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: a name may look like markup
    Console().print(table)


def _print_error_document(**error: str | None) -> None:
    print_json({"error": error}, err=True)
