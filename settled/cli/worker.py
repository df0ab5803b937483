"""`settled worker`: performs what is due until it is told to stop."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from settled.cli.options import accept_unsafe_option, json_option, kinds_option, url_option
from settled.cli.output import print_json

if TYPE_CHECKING:
    import threading

    from settled.app import App
    from settled.domain.journal.port import Journal
    from settled.domain.notifier import Notifier
    from settled.processes.worker import WorkerSettings

_LOOK_SECONDS = 0.02
"""How often the list of workers is looked at until this one is on it."""


def _default_name() -> str:
    return f"{os.uname().nodename}-{os.getpid()}"


@click.command()
@url_option
@kinds_option(required=True)
@click.option("--name", default=_default_name, help="What it is called. [default: host and pid]")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--lease-seconds", type=click.FloatRange(0.1), default=10.0, show_default=True)
@click.option("--idle-seconds", type=click.FloatRange(0.001), default=0.25, show_default=True)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="How long running calls may go on once it is told to stop.",
)
@click.option(
    "--leave-to-others",
    is_flag=True,
    help="Start although something is open that neither these kinds nor a running worker serves.",
)
@click.option("--notify-command", help="Told of what is handed over: gets JSON on its input.")
@accept_unsafe_option
@json_option
def worker(
    url: str,
    kinds_from: str,
    name: str,
    concurrency: int,
    lease_seconds: float,
    idle_seconds: float,
    drain_seconds: float,
    leave_to_others: bool,
    notify_command: str | None,
    accept_unsafe_store: bool,
    as_json: bool,
) -> None:
    """Perform what is due, until SIGTERM or SIGINT.

    The first of them lets running calls end; the second ends the process at once. One line on
    standard output says that it works; the log goes to standard error.

    It does not start over work that is open in a kind, or a version of one, that neither --kinds
    declares nor a running worker serves: nobody would ever do it.
    """
    from settled.app import App
    from settled.cli.loading import load_declared
    from settled.cli.logs import configure_logging
    from settled.processes.worker import WorkerSettings

    configure_logging()
    _install_faults()
    settings = WorkerSettings(
        name=name,
        concurrency=concurrency,
        lease_seconds=lease_seconds,
        idle_seconds=idle_seconds,
        drain_seconds=drain_seconds,
        leave_to_others=leave_to_others,
    )
    kinds, runs = load_declared(kinds_from)
    with App(
        url,
        kinds=kinds,
        runs=runs,
        notifier=_notifier(notify_command),
        migrate=False,
        require_fsync=not accept_unsafe_store,
    ) as app:
        if not accept_unsafe_store:
            _refuse_unsafe(app.journal)
        if leave_to_others:
            _name_unserved(app)
        _work(app, settings, as_json)


def _work(app: App, settings: WorkerSettings, as_json: bool) -> None:
    import gc
    import threading

    # What is loaded by now lives as long as the process: the collector need not walk it again.
    gc.collect()
    gc.freeze()

    before = {row.epoch for row in app.journal.workers()}
    over = threading.Event()
    announcing = threading.Thread(
        target=_announce, args=(app, settings.name, before, as_json, over), daemon=True
    )
    announcing.start()
    try:
        app.run_worker(settings)
    finally:
        over.set()
        announcing.join()


def _announce(app: App, name: str, before: set[int], as_json: bool, over: threading.Event) -> None:
    """Say that the worker has its place among the others, once it has it."""
    from settled.domain.errors import StoreUnavailable

    while not over.wait(_LOOK_SECONDS):
        try:
            rows = app.journal.workers()
        except StoreUnavailable:
            continue  # the worker itself says so in the log, and goes on trying
        if any(row.name == name and row.epoch not in before for row in rows):
            break
    else:
        return
    versions = (f"{name}@{version}" for name, version in app.kinds.versions)
    kinds = sorted([*versions, *app.run_kinds])
    if as_json:
        ready = {"ready": True, "worker": name, "pid": os.getpid(), "kinds": kinds}
        print_json(ready, one_line=True)
    else:
        click.echo(f"{name} works on {', '.join(kinds)} (pid {os.getpid()})")


def _notifier(command: str | None) -> Notifier | None:
    if command is None:
        return None
    from settled.infrastructure.notify import CommandNotifier

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--notify-command") from error
    if not words:
        raise click.BadParameter("It is empty.", param_hint="--notify-command")
    return CommandNotifier(words)


def _refuse_unsafe(journal: Journal) -> None:
    """Refuse to work where committed intents can be lost. A moved store has an error of its own."""
    from settled.domain.errors import StoreUnsafe

    for finding in journal.examine():
        if finding.severity == "fail" and finding.subject != "installation":
            raise StoreUnsafe(
                finding.message,
                hint="`settled doctor` shows everything; on a test server only, go on with"
                " --accept-unsafe-store.",
            )


def _name_unserved(app: App) -> None:
    """Name what is open and served by nobody: it waits for others to start."""
    import structlog

    from settled.processes.unserved import unserved

    log = structlog.get_logger("settled.worker")
    for alone in unserved(app.journal, app.served):
        log.warning("left_for_others", route=alone.route, open=alone.count, named=alone.named)


def _install_faults() -> None:
    """Let a test say where this process has to die."""
    if os.environ.get("SETTLED_FAULT"):
        from settled.infrastructure.testing import faults

        faults.install(os.environ)
