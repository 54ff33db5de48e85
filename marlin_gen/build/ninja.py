"""Writes a build.ninja and runs it, following its progress."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.errors import ToolchainError

_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] (.*)")
_NAME = re.compile(r"[A-Za-z0-9_./-]+")  # what needs no quoting in a build.ninja; all our paths in it are relative


@dataclass(frozen=True)
class Edge:
    """One command.

    Attributes:
        output: file that it makes; its output is kept in ``<output>.log``, an exit status other than 0 in ``<output>.exit``.
        inputs: files that must be made first.
        command: words of the command; run in the folder of the build.ninja.
        what: shown as progress.
    """

    output: str
    inputs: tuple[str, ...]
    command: tuple[str, ...]
    what: str


def build_file(edges: Iterable[Edge]) -> str:
    """Text of a build.ninja. A command that fails leaves no output behind."""
    lines = ["ninja_required_version = 1.8", "rule run", "  command = $command", "  description = $what", ""]
    for edge in edges:
        for name in (edge.output, *edge.inputs):
            assert _NAME.fullmatch(name), name
        words = shlex.join(edge.command)
        # PWD is what compilers write into debug information as the current folder: this way objects do not depend on it
        command = f"PWD=/proc/self/cwd {words} >{edge.output}.log 2>&1 || {{ s=$?; echo $s >{edge.output}.exit; exit $s; }}"
        escaped = command.replace("$", "$$")
        lines += [f"build {edge.output}: run {' '.join(edge.inputs)}", f"  command = {escaped}", f"  what = {edge.what}", ""]
    return "\n".join(lines)


def run(ninja: str, folder: Path, jobs: int, progress: Callable[[int, int, str], None]) -> bool:
    """Run ``folder/build.ninja``; go on after failures as far as possible.

    Args:
        progress: told (commands done, commands in all, what was done).

    Returns:
        Whether all commands succeeded.

    Raises:
        ToolchainError: ninja itself failed.
    """
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "PWD": str(folder)}
    command = [ninja, "-k", "0", "-j", str(jobs)]
    said: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := _PROGRESS.match(line):
                    progress(int(match[1]), int(match[2]), match[3])
                else:
                    said.append(line.rstrip())
        except BaseException:
            process.terminate()  # ninja stops its commands and waits for them
            raise
    code = process.returncode
    if code < 0 or (code and not any(line.startswith("FAILED") for line in said)):
        raise ToolchainError(f"ninja failed with exit code {code}: {' '.join(said)[-500:]}", memory_hint(code))
    return code == 0


def memory_hint(code: int) -> str:
    """What an exit code of a killed process means, else an empty text."""
    killed = code in (-9, 137)
    return "it was killed, probably for lack of memory: build with fewer jobs, --jobs 1 or MAX_JOBS=1" if killed else ""


def seconds(folder: Path) -> dict[str, float]:
    """Wall time of the command that made each output, from ninja's own log."""
    found: dict[str, float] = {}
    try:
        lines = (folder / ".ninja_log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split("\t")
        if len(fields) >= 4 and fields[0].isdecimal() and fields[1].isdecimal():
            found[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return found
