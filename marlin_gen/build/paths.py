"""Where built things live, and what to say when they cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.errors import MarlinGenError

ENV_CACHE = "MARLIN_GEN_CACHE"
_PACKAGE = Path(__file__).resolve().parent.parent
# emit.templates.PACKAGED, found without loading Jinja: listing what is built must be quick
TEMPLATES = _PACKAGE / "_templates" if (_PACKAGE / "_templates").is_dir() else _PACKAGE.parent / "templates"
_HINT = f"give another folder: --out DIR, or set {ENV_CACHE}"


class CacheError(MarlinGenError):
    """The folder of built things cannot be read or written; names the folder and the reason."""


@dataclass(frozen=True)
class Store:
    """The folder of built things. Everything in it is a function of configs, templates and toolchain, and may be deleted.

    ``<kernel>/kernel.cu`` is the emitted source, ``objects/<key>/`` a compiled kernel, ``modules/<set>.json`` the record of
    the module in use for a set of kernels, beside the module itself; ``work/`` holds builds under way,
    ``simulator/`` kernels compiled for the CPU.
    """

    root: Path

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def modules(self) -> Path:
        return self.root / "modules"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def simulator(self) -> Path:
        return self.root / "simulator"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    def make(self) -> None:
        """Create the folders.

        Raises:
            CacheError: the folder cannot be written.
        """
        import tempfile

        with disk_errors(self.root):
            try:
                for folder in (self.objects, self.modules, self.work):
                    folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.work):  # a read-only mount passes mkdir of what exists
                    pass
            except FileNotFoundError as error:
                raise CacheError(f"cannot make {error.filename}: {error.strerror}", _HINT) from None


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Turn what a disk refuses into CacheError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC or error.errno == errno.EDQUOT:
            hint = f"free some (`marlin-gen clean` removes what is not in use), or {_HINT}"
            raise CacheError(f"no space left in {root}", hint) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG):
            raise CacheError(f"cannot write to {error.filename or root}: {error.strerror}", _HINT) from None
        raise


def checkout() -> Path | None:
    """The source checkout this package runs from, or None if it is installed."""
    root = TEMPLATES.parent
    return root if root != _PACKAGE and (root / "pyproject.toml").is_file() else None


def candidate_roots() -> list[Path]:
    """Folders that may hold built things, the preferred one first.

    The environment variable ``MARLIN_GEN_CACHE`` or, without it, ``generated/`` of a source checkout is the only one. An
    installed package uses the user's cache folder, and a folder of its own under the temporary one where that cannot be written
    (no HOME, a read-only one).
    """
    if named := os.environ.get(ENV_CACHE):
        return [Path(named).expanduser().absolute()]
    if (root := checkout()) is not None:
        return [root / "generated"]
    import tempfile

    import platformdirs

    user = Path(platformdirs.user_cache_dir("marlin-gen", appauthor=False))
    return [user, Path(tempfile.gettempdir()) / f"marlin-gen-{os.getuid()}"]


def default_store() -> tuple[Store, str]:
    """The store to build into, and a remark if it is not the preferred one.

    Raises:
        CacheError: no candidate can be written.
    """
    roots = candidate_roots()
    for root in roots:
        store = Store(root)
        try:
            store.make()
        except CacheError:
            if root == roots[-1]:
                raise
            continue
        if root.stat().st_uid != os.getuid() and root != roots[0]:  # somebody else made it
            raise CacheError(f"{root} belongs to another user", _HINT)
        return store, "" if root == roots[0] else f"{roots[0]} cannot be written; building in {root}"
    raise AssertionError("there is always a candidate")
