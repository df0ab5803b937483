"""Run the simulated provider: `python -m settled.infrastructure.simulator --port 0 --log FILE`.

Prints one line of JSON, `{"url": …, "pid": …}`, when requests are taken, and runs until it gets
SIGTERM or SIGINT, or until its standard input ends if told to watch it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import click
from pydantic import ValidationError

from settled.infrastructure.simulator.plan import Plan
from settled.infrastructure.simulator.server import SimulatorServer
from settled.infrastructure.simulator.simulator import Simulator


@click.command("provider-sim")
@click.option("--port", default=0, show_default=True, help="Port on 127.0.0.1; 0 takes a free one.")
@click.option(
    "--log",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write every request, effect and answer to this new file (JSON Lines).",
)
@click.option("--plan", default="{}", help="The switches to start with, as JSON.")
@click.option("--until-stdin-ends", is_flag=True, help="Stop when standard input ends.")
def provider_sim(port: int, log: Path | None, plan: str, until_stdin_ends: bool) -> None:
    """Run a provider that misbehaves on request, to try operations on."""
    try:
        switches = Plan.model_validate_json(plan)
    except ValidationError as error:
        raise click.BadParameter(str(error), param_hint="--plan") from error
    asyncio.run(_run(port, log, switches, until_stdin_ends))


async def _run(port: int, log: Path | None, plan: Plan, until_stdin_ends: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        simulator = Simulator(plan, log)
    except OSError as error:
        raise click.BadParameter(f"{log}: {error.strerror}", param_hint="--log") from error
    server = await SimulatorServer(simulator).start(port)
    host, bound = server.sockets[0].getsockname()
    click.echo(json.dumps({"url": f"http://{host}:{bound}", "pid": os.getpid()}))
    if until_stdin_ends:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, stop)
    await stop.wait()
    server.close()
    simulator.close()


def _stop_at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1 << 12):
        stop.set()


if __name__ == "__main__":
    provider_sim()
