"""Declaring a kind from a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.errors import InvalidKind
from settled.domain.kind import Kind
from settled.domain.params import Params
from settled.infrastructure.function_provider import FunctionProvider


def kind(
    name: str, *, contract: ProviderContract, hand_over_to: str, **policy: Any
) -> Callable[[Callable[..., Any]], Kind[Any]]:
    """Declare a kind whose provider is the decorated function.

    The function takes a `Call` and the parameters, and returns a `Reply`; an exception is an
    unknown outcome. Its parameters' model is the annotation of its second argument. `policy` are
    the other fields of `Kind`. Raises InvalidKind when the annotation is missing.
    """

    def declare(function: Callable[..., Any]) -> Kind[Any]:
        model = _params_of(function, name)
        provider = FunctionProvider(contract.provider, contract, function)
        return Kind(name, model, provider, hand_over_to, **policy)

    return declare


def _params_of(function: Callable[..., Any], name: str) -> type[Params]:
    arguments = list(inspect.signature(function).parameters)
    hints = get_type_hints(function)
    model = hints.get(arguments[1]) if len(arguments) > 1 else None
    if not (isinstance(model, type) and issubclass(model, Params)):
        raise InvalidKind(
            f"{name}: the second argument of {function.__name__} is not annotated with its Params.",
            hint="def send_email(call: settled.Call, params: EmailParams) -> settled.Reply: …",
        )
    return model
