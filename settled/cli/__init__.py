"""The command line: `settled --help`.

It is called in loops and by people who wait, so this module and the modules of its commands import
click and nothing else that takes time; a command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from settled.cli.audit import audit
from settled.cli.bench import bench
from settled.cli.budgets import budgets
from settled.cli.contract import contract
from settled.cli.decisions import (
    approve,
    cancel,
    intend,
    propose,
    purge,
    reject,
    resume,
    settle,
    unpark,
)
from settled.cli.demo import demo
from settled.cli.ops import find, history, list_operations, show
from settled.cli.output import ExitCode, print_called_off, print_error, print_usage_error
from settled.cli.projections import projections
from settled.cli.replay import replay
from settled.cli.runs import runs
from settled.cli.seeding import seed
from settled.cli.simulator import provider_sim
from settled.cli.store import adopt, doctor, migrate
from settled.cli.transfer import export, import_, schema
from settled.cli.verify import verify
from settled.cli.version import version
from settled.cli.why import diff, why
from settled.cli.worker import worker
from settled.domain.errors import SettledError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Operations with an outside effect that end settled, whatever crashes.

    Options may stand in the environment: SETTLED_URL, SETTLED_KINDS, SETTLED_TENANT, SETTLED_ACTOR.
    """


@cli.group()
def ops() -> None:
    """Look at operations, and decide what only a person can."""


for _command in (demo, verify, bench, worker, provider_sim, migrate, doctor, adopt, version):
    cli.add_command(_command)
for _command in (projections, budgets, runs, seed, audit, contract):
    cli.add_command(_command)
for _command in (schema, export, import_, replay):
    cli.add_command(_command)
for _command in (list_operations, find, show, history, intend, propose, approve, reject, cancel):
    ops.add_command(_command)
for _command in (why, diff, settle, resume, unpark, purge):
    ops.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are printed, none of settled's is raised."""
    # Asked of the words themselves, because a wrong word is an error before any option is read.
    as_json = "--json" in arguments
    try:
        code: int | None = cli.main(list(arguments), prog_name="settled", standalone_mode=False)
    except SettledError as error:
        return print_error(error, as_json)
    except click.ClickException as error:
        return print_usage_error(error, as_json)
    except click.Abort:
        return print_called_off(as_json)
    except Exception:
        traceback.print_exc()
        return ExitCode.BUG
    return code or ExitCode.DONE


def main() -> NoReturn:
    """Run the command that this process was started with."""
    sys.exit(run(sys.argv[1:]))
