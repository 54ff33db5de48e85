"""What a compiler said when it failed, in a few lines."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.build.ninja import Edge, memory_hint
from marlin_gen.errors import ToolchainError

_LINES = 6
_FULL = 1_000_000  # bytes free
_NOISE = re.compile(r"ptxas info|\s*\d+ bytes stack frame|^\s*$")
_TOLD = re.compile(r"error|fatal|undefined reference|No space left|Killed|terminated|not found", re.IGNORECASE)
_KILLED = re.compile(r"signal 9|\bKilled\b|out of memory|Cannot allocate memory", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """A command that failed.

    Attributes:
        what: what it was to make.
        code: its exit code.
        lines: the first lines of its output that tell why.
        hint: what to do, if it is known.
    """

    what: str
    code: int
    lines: tuple[str, ...]
    hint: str

    def __str__(self) -> str:
        return f"{self.what}: exit code {self.code}" + "".join(f"\n    {line}" for line in self.lines)


def failures(folder: Path, edges: Sequence[Edge]) -> list[Failure]:
    """The commands of a build that failed, in order. Those that never ran for that reason are not among them."""
    found = []
    for edge in edges:
        try:
            code = int((folder / f"{edge.output}.exit").read_text() or "1")
        except OSError:
            continue
        log = (folder / f"{edge.output}.log").read_text(encoding="utf-8", errors="replace")
        lines = [line.rstrip() for line in log.splitlines() if not _NOISE.match(line)]
        telling = [line for line in lines if _TOLD.search(line)] or lines
        found.append(Failure(edge.what, code, tuple(telling[:_LINES]), _hint(code, log, folder)))
    return found


def _hint(code: int, log: str, folder: Path) -> str:
    if hint := memory_hint(137 if _KILLED.search(log) else code):
        return hint
    if "No space left" in log or shutil.disk_usage(folder).free < _FULL:  # nor may there be room for the compiler's words
        return "the disk is full: free some (`marlin-gen clean` removes what is not in use), or build elsewhere with --out DIR"
    if "unsupported GNU version" in log or "unsupported clang version" in log:
        return "this nvcc does not support the host compiler: set CXX to an older one, for instance CXX=g++-12"
    return ""


def raise_failures(found: Sequence[Failure], kept: int) -> None:
    """Raise one ToolchainError for all failures. ``kept`` is the number of kernels that are compiled all the same."""
    if not found:
        raise ToolchainError("the build stopped and no command says why", "build again with --jobs 1; is the disk full?")
    hints = [failure.hint for failure in found if failure.hint] + [f"{kept} other kernel(s) are compiled and kept"]
    lines = [f"{len(found)} command(s) failed:", *(f"  {failure}" for failure in found)]
    raise ToolchainError("\n".join(lines), "; ".join(dict.fromkeys(hints)))
