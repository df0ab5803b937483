"""The parameters of an operation: exact, strict, and the same wherever they come from.

A kind declares its parameters as a subclass of `Params`. `parse` is the one way in (an instance,
a mapping, JSON text), `freeze` and `thaw` are the way to the journal and back, and `semantic` is
what the digest covers.

**Defaults and versions.** A field equal to its default is left out of what the digest covers.
Hence a default left out or given is one digest, and a release that adds one more optional field
recognises every operation that an older release stored: the new field is at its default, so the
digest is the one it always was. It is sound only while a default means what it meant. Changing a
default, a type or a name, or removing a field, is therefore a new `PARAMS_VERSION`, and the class
as it was stays in `OLD`. A duplicate start is judged by the class under which the operation was
stored (`under_version`), from what the caller gave: a field that was left out takes the default
it had then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from settled.domain.canonical import LIMIT_BYTES, canonical, problems
from settled.domain.errors import InvalidKind, InvalidParams, TooLarge
from settled.domain.fields import is_tag, normalised, unusable
from settled.domain.json_text import NUMBER_HINT, read_object
from settled.domain.money import Money, money_as_json

_LISTED_PROBLEMS = 20

P = TypeVar("P", bound="Params")


class Remark:
    """Marks a field that says something about the request and is no part of it.

    `note: Annotated[str, Remark()] = ""` is stored and shown, but another note does not make
    another request. Never mark what the provider is sent.
    """


class Params(BaseModel):
    """The base of every kind's parameters.

    Instances are frozen and validated strictly: no unknown fields, no floats, no `True` for 1.
    Text that says exactly the declared type is taken for it (`"7"` for an integer, `"30.00"` for
    a decimal). Constructing one raises `InvalidParams` or `TooLarge`. Declaring a field whose
    type has more than one reading raises `InvalidKind` at once.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        validate_default=True,
        revalidate_instances="always",
        allow_inf_nan=False,
    )

    PARAMS_VERSION: ClassVar[int] = 1
    """Raised when a default, a type or a name changes, or a field is removed."""

    OLD: ClassVar[Mapping[int, type[Params]]] = {}
    """The classes of earlier versions, by version, to judge late duplicates with."""

    if not TYPE_CHECKING:  # A checker takes the constructor of a subclass from its fields.

        def __init__(self, /, **given: Any) -> None:
            _refuse_problems(type(self), given)
            try:
                self.__pydantic_validator__.validate_python(given, self_instance=self)
            except ValidationError as error:
                _refuse(type(self), _described(error), error)

        # Tells pydantic to validate nested instances itself, which keeps the path of an error.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        """Refuse a declaration under which two meanings could look alike."""
        for name, field in cls.model_fields.items():
            reason = _unusable_field(field)
            if reason is not None:
                raise InvalidKind(f"{cls.__name__}.{name}: {reason}.")

    @field_validator("*", mode="before")
    @classmethod
    def _normalise(cls, value: object, info: ValidationInfo) -> object:
        declared = cls.__pydantic_fields__[cast(str, info.field_name)].annotation
        return normalised(declared, value)


def parse(model: type[P], given: Params | Mapping[str, object] | bytes | str) -> P:
    """Return the parameters that were given, validated.

    Accepts an instance of `model` (validated again, since `model_copy` and `model_construct`
    check nothing), a mapping, or JSON text. Raises `InvalidParams`, which lists every field, and
    `TooLarge` for more than 64 KiB, before anything is validated.
    """
    if isinstance(given, bytes | str):
        given = read_object(given)
    if isinstance(given, Params):
        if type(given) is not model:
            _refuse(model, [f"{type(given).__name__} was given in its place"])
        _refuse_problems(model, given)
        try:
            return model.model_validate(given)
        except ValidationError as error:
            _refuse(model, _described(error), error)
    return model(**_with_text_keys(model, given))


def semantic(params: Params) -> dict[str, object]:
    """Return the fields that make the request: without remarks, and without defaults.

    A tag (`Literal["card"]`) is always kept: it is what tells two variants apart.
    """
    kept: dict[str, object] = {}
    for name, field in type(params).model_fields.items():
        if is_remark(field):
            continue
        value = meaning(getattr(params, name))
        if is_tag(field.annotation) or not _is_default(field, value):
            kept[name] = value
    return kept


def freeze(params: Params) -> bytes:
    """Return the JSON body that is stored: every field, defaults too, always in one order.

    Defaults are written down so that a later release cannot change what was authorised. Raises
    `TooLarge` if the body, escapes included, is over 64 KiB.
    """
    body = as_json(params)
    if len(body) > LIMIT_BYTES:
        raise TooLarge(
            f"The parameters of {type(params).__name__} are over {LIMIT_BYTES // 1024} KiB.",
            hint="Store the content elsewhere and pass its address and its hash.",
        )
    return body


def thaw(model: type[P], body: bytes) -> P:
    """Return the parameters of a stored body. Raises `InvalidParams` if they are not `model`'s.

    The model is that of the stored version: `thaw(model_of_version(model, 1), body)`. What `freeze`
    wrote passed `parse` before, so it is validated, and not searched once more for what no value
    may hold.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
        return cast(P, model.__pydantic_validator__.validate_python(given))
    except ValidationError as error:
        _refuse(model, _described(error), error)
    except ValueError as error:
        _refuse(model, [f"what is stored is not JSON ({error})"], error)


def model_of_version(model: type[Params], version: int) -> type[Params]:
    """Return the class of one params version. Raises `InvalidParams` if this code has none."""
    if version == model.PARAMS_VERSION:
        return model
    if version not in model.OLD:
        raise InvalidParams(
            f"{model.__name__} has no params version {version} here, only "
            f"{sorted({*model.OLD, model.PARAMS_VERSION})}.",
            hint="Deploy the release that knows it, or put the old class back into OLD.",
        )
    return model.OLD[version]


def under_version(params: Params, version: int) -> Params | None:
    """Return what the caller gave as an earlier version reads it, or None if it cannot say it.

    Only the fields that were given count, so one that was left out takes the default of that
    version. A field which that version lacks may be given at its default: it changes nothing.
    None means that these are other parameters.
    """
    model = model_of_version(type(params), version)
    if model is type(params):
        return params
    given: dict[str, object] = {}
    for name, value in _given(params).items():
        field = type(params).model_fields[name]
        unsaid = is_remark(field) or _is_default(field, meaning(getattr(params, name)))
        if name in model.model_fields or not unsaid:
            given[name] = value
    try:  # As text, because an enum of one version is another class than that of the next.
        return parse(model, as_json(given))
    except InvalidParams:
        return None


def is_remark(field: FieldInfo) -> bool:
    """Tell whether a field is declared as no part of the request."""
    return any(isinstance(mark, Remark) or mark is Remark for mark in field.metadata)


def as_json(value: object) -> bytes:
    """Return the JSON text of parameters, or of a value of one of their fields."""
    passed_on = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS | passed_on)


def _plain(value: object) -> object:
    match value:
        case BaseModel():
            return vars(value)
        case Money():
            return money_as_json(value)
        case Decimal():
            return f"{value:f}"
        case datetime():  # In UTC: orjson would round an offset of 19 minutes and 32 seconds.
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _given(params: Params) -> dict[str, object]:
    """Return what the caller wrote, here and in nested parameters, without what was filled in."""
    return {name: _within(getattr(params, name), _given) for name in params.model_fields_set}


def meaning(value: object) -> object:
    """Return a field's value with nested parameters reduced to what the digest covers."""
    return _within(value, semantic)


def _within(value: object, fields_of: Callable[[Params], dict[str, object]]) -> object:
    """Return the value with each `Params` in it replaced by some of its fields."""
    match value:
        case Params():
            return fields_of(value)
        case list() | tuple():
            items = cast(list[object] | tuple[object, ...], value)
            return [_within(item, fields_of) for item in items]
        case dict():
            fields = cast(dict[str, object], value)
            return {key: _within(item, fields_of) for key, item in fields.items()}
        case _:
            return value


def _is_default(field: FieldInfo, meant: object) -> bool:
    if field.is_required():
        return False
    default = normalised(field.annotation, field.default)
    return canonical(meant) == canonical(meaning(default))


def _unusable_field(field: FieldInfo) -> str | None:
    if field.default_factory is not None:
        return "a default factory can differ from start to start; give the default itself"
    if field.alias is not None or field.validation_alias is not None:
        return "an alias gives one field two names; name the field as callers name it"
    if not field.is_required():
        for _, text in problems(field.default):
            return f"the default {text}"
    return unusable(field.annotation)


def _with_text_keys(model: type[Params], given: object) -> dict[str, Any]:
    """Refuse, before they are arguments, what are no named fields at all."""
    if not isinstance(given, Mapping):
        _refuse(model, [f"a {type(given).__name__} was given in place of its fields"])
    _refuse_problems(model, cast(object, given))
    return dict(cast(Mapping[str, Any], given))


def _refuse_problems(model: type[Params], given: object) -> None:
    found = [f"{path} {text}" if path else text for path, text in problems(given)]
    if found:
        _refuse(model, found)


def _described(error: ValidationError) -> list[str]:
    words = {"missing": "is missing", "extra_forbidden": "is not a field"}
    described: list[str] = []
    for detail in error.errors(include_url=False, include_input=False):
        path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in detail["loc"])
        text = words.get(detail["type"], detail["msg"].removeprefix("Input "))
        described.append(f"{path.removeprefix('.')} {text}".strip())
    return described


def _refuse(model: type[Params], found: list[str], cause: Exception | None = None) -> NoReturn:
    listed = "; ".join(found[:_LISTED_PROBLEMS])
    more = f"; and {len(found) - _LISTED_PROBLEMS} more" if len(found) > _LISTED_PROBLEMS else ""
    names = ", ".join(model.model_fields)
    hint = NUMBER_HINT if "is the float" in listed else f"{model.__name__} takes: {names}."
    raise InvalidParams(f"{model.__name__}: {listed}{more}.", hint=hint) from cause
