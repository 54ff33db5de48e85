"""Where templates are found: folders given by the user first, then the packaged ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marlin_gen.errors import TemplateError

_PACKAGE = Path(__file__).resolve().parent.parent
PACKAGED = _PACKAGE / "_templates" if (_PACKAGE / "_templates").is_dir() else _PACKAGE.parent / "templates"


class Templates:
    """The template tree: several folders seen as one, the first one winning file by file.

    Args:
        extra_dirs: folders laid out like ``templates/`` (``--template-dir``), searched before the packaged one.
    """

    def __init__(self, extra_dirs: Sequence[str | Path] = ()) -> None:
        self.dirs = [Path(d) for d in extra_dirs] + [PACKAGED]
        for folder in self.dirs:
            if not folder.is_dir():
                raise TemplateError(f"template folder {folder} does not exist", "give an existing --template-dir")

    def path(self, name: str) -> Path:
        """The file that serves ``name``, a path relative to the tree such as ``quant/u4b8.cuh.j2``."""
        for folder in self.dirs:
            if (folder / name).is_file():
                return folder / name
        raise TemplateError(f"template {name} is in none of {', '.join(map(str, self.dirs))}")

    def read(self, name: str) -> str:
        """Text of ``name``. Raises TemplateError if it is missing or no UTF-8."""
        path = self.path(name)
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise TemplateError(f"{path}: {error}", "templates are UTF-8") from None

    def describe(self, name: str) -> str:
        """How messages and emitted files name a template: relative for packaged ones, the full path for others."""
        path = self.path(name)
        return f"templates/{name}" if path.is_relative_to(PACKAGED) else str(path)

    def find(self, folder: str, suffix: str) -> list[str]:
        """Sorted names of all files of ``folder`` that end in ``suffix``, over all folders."""
        found = {f"{folder}/{p.name}" for base in self.dirs for p in (base / folder).glob(f"*{suffix}") if p.is_file()}
        return sorted(found)
