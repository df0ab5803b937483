"""The options that commands have in common, each with the environment variable that gives it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def _user() -> str:
    """Return the operating system's name for who runs this."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that nobody named
        return f"uid-{os.getuid()}"


def url_option(command: Command) -> Command:
    """Take the store's URL."""
    return click.option(
        "--url",
        envvar="SETTLED_URL",
        required=True,
        help="The store: sqlite:///shop.db or postgresql://… [env: SETTLED_URL]",
    )(command)


def kinds_option(*, required: bool) -> Decorator:
    """Take the module in which kinds are declared."""

    def add(command: Command) -> Command:
        return click.option(
            "--kinds",
            "kinds_from",
            envvar="SETTLED_KINDS",
            required=required,
            metavar="MODULE",
            help="Where kinds are declared: package.module or path/file.py, and :name for one of"
            " them or a list. [env: SETTLED_KINDS]",
        )(command)

    return add


def tenant_option(*, required: bool) -> Decorator:
    """Take the tenant."""

    def add(command: Command) -> Command:
        return click.option(
            "--tenant",
            envvar="SETTLED_TENANT",
            required=required,
            help="The tenant. [env: SETTLED_TENANT]",
        )(command)

    return add


def actor_option(command: Command) -> Command:
    """Take the name under which a command is recorded."""
    return click.option(
        "--actor",
        envvar="SETTLED_ACTOR",
        default=_user,
        help="Who does this; it is recorded. [env: SETTLED_ACTOR; default: the user's name]",
    )(command)


def json_option(command: Command) -> Command:
    """Print for programs."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document, errors too."
    )(command)


def accept_unsafe_option(command: Command) -> Command:
    """Take a store that may lose commits."""
    return click.option(
        "--accept-unsafe-store",
        is_flag=True,
        envvar="SETTLED_ACCEPT_UNSAFE_STORE",
        help="Go on where `settled doctor` finds that commits can be lost: on a test server only."
        " [env: SETTLED_ACCEPT_UNSAFE_STORE]",
    )(command)


def identity_arguments(command: Command) -> Command:
    """Take an operation id, and its kind where the id alone does not say which one."""
    with_kind = click.option("--kind", help="The kind, where several have an operation of this id.")
    return click.argument("operation_id")(with_kind(command))


def reason_option(command: Command) -> Command:
    """Take a reason, which is recorded."""
    return click.option("--reason", required=True, help="Why; it is recorded.")(command)
