"""`settled provider-sim`: a provider that misbehaves on request."""

from __future__ import annotations

import click


@click.command(
    "provider-sim",
    short_help="Run a provider that misbehaves on request, to try operations on.",
    add_help_option=False,  # the simulator has its own options, and its own help
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def provider_sim(arguments: tuple[str, ...]) -> None:
    """Hand the arguments on to the simulator."""
    from settled.infrastructure.simulator.__main__ import provider_sim as simulator

    simulator.main(list(arguments), prog_name="settled provider-sim", standalone_mode=False)
