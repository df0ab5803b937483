"""The kinds that a process knows, in the versions in which it knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from settled.domain.errors import InvalidKind, InvalidParams, UnknownKind
from settled.domain.kind import Kind
from settled.domain.operation.operation import Operation
from settled.domain.params import model_of_version


@dataclass(frozen=True)
class Kinds:
    """Declared kinds. `by_name` has the newest version of each, `versions` all of them.

    What is begun is begun under the newest version, unless the caller names another. What exists
    is judged by the version that it was authorised under.
    """

    by_name: Mapping[str, Kind[Any]]
    versions: Mapping[tuple[str, int], Kind[Any]]

    @classmethod
    def of(cls, kinds: Iterable[Kind[Any]]) -> Kinds:
        """Collect declared kinds.

        Raises UnknownKind for one version of a name that is declared twice, and InvalidKind where
        the newest version could not judge a duplicate of what an older one has begun.
        """
        versions: dict[tuple[str, int], Kind[Any]] = {}
        for kind in kinds:
            if (kind.name, kind.version) in versions:
                raise UnknownKind(
                    f"Two kinds are called {kind.name!r} in version {kind.version}.",
                    hint="Rename one, or give the newer declaration the next version.",
                )
            versions[kind.name, kind.version] = kind
        by_name = {kind.name: kind for _, kind in sorted(versions.items(), key=lambda one: one[0])}
        for kind in versions.values():
            _must_know_params_of(by_name[kind.name], kind)
        return cls(by_name, versions)

    def __getitem__(self, name: str) -> Kind[Any]:
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UnknownKind(
                f"No kind {name!r} is declared here; known: {known}.",
                hint="Pass it to settled.open(kinds=[…]), or name its module with --kinds.",
            ) from None

    @property
    def routes(self) -> tuple[str, ...]:
        """What a worker with these kinds serves: see `settled.domain.route`."""
        return tuple(kind.route for kind in self.versions.values())

    def named(self, kind: Kind[Any] | str) -> Kind[Any]:
        """Return what a caller means: the newest version of a name, or the very version given."""
        return self[kind] if isinstance(kind, str) else self.version(kind.name, kind.version)

    def version(self, name: str, version: int) -> Kind[Any]:
        """Return one version of a kind. Raises UnknownKind."""
        found = self.versions.get((name, version))
        if found is None:
            newest = self[name].version
            raise UnknownKind(
                f"Version {version} of kind {name} is not declared here; the newest is {newest}.",
                hint="Declare it beside the others, or leave it to code that has it.",
            )
        return found

    def of_operation(self, operation: Operation) -> Kind[Any]:
        """Return the version under which an operation was authorised. Raises UnknownKind."""
        return self.version(operation.kind, operation.terms.kind_version)

    def known(self, operation: Operation) -> Kind[Any] | None:
        """Return the version under which an operation was authorised; None where it is unknown."""
        return self.versions.get((operation.kind, operation.terms.kind_version))

    def serving(self, operation: Operation) -> Kind[Any]:
        """Return the kind of an operation, where it still goes to the provider authorised then."""
        kind = self.of_operation(operation)
        if kind.provider.name != operation.terms.provider:
            raise UnknownKind(
                f"{operation.label} was authorised for provider {operation.terms.provider}, and "
                f"{kind.name} is now declared with {kind.provider.name}.",
                hint="Let a worker with the old declaration finish what is open.",
            )
        return kind

    def judging(self, operation: Operation) -> Kind[Any]:
        """Return the declaration by which news of an operation is judged; it sends nothing.

        That of its version, or where this is retired, the newest one for the same provider: late
        news is kept, whatever has become of the code that sent the request.
        """
        kind = self.known(operation) or self[operation.kind]
        if kind.provider.name != operation.terms.provider:
            return self.serving(operation)  # raises
        return kind


def _must_know_params_of(newest: Kind[Any], kind: Kind[Any]) -> None:
    version = kind.params.PARAMS_VERSION
    try:
        model_of_version(newest.params, version)
    except InvalidParams as error:
        raise InvalidKind(
            f"{newest.name}: version {newest.version} does not know the parameters of version "
            f"{kind.version}, so it could not recognise what was begun with them.",
            hint=f"{newest.params.__name__}: OLD = {{{version}: {kind.params.__name__}}}.",
        ) from error
