"""What ``ptxas -v`` says of a compilation: registers, spills, memory, warnings."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(?P<name>\S+)' for '(?P<arch>sm_\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"\b(\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[(\d+)\]")
_WARNING = re.compile(r"^.*(?:\bwarning\b|\(C\d{4}\)).*$", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(r"\((C\d{4})\)")


@dataclass(frozen=True)
class KernelUsage:
    """Resources of one kernel on one architecture.

    Attributes:
        registers: of a thread.
        stack, spill_stores, spill_loads: bytes of a thread in local memory.
        shared: static shared memory of a CTA, bytes; dynamic shared memory is the launch's affair.
        constant: bytes by bank.
        barriers: named barriers used.
    """

    name: str
    arch: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    constant: dict[int, int]
    barriers: int


@dataclass(frozen=True)
class PtxasReport:
    """All that ptxas said.

    Attributes:
        warnings: whole lines, nvcc's and the host compiler's among them.
    """

    kernels: tuple[KernelUsage, ...]
    warnings: tuple[str, ...]

    def of(self, name: str, arch: str | None = None) -> KernelUsage | None:
        """Usage of a kernel; the first architecture, or the one asked for. None if ptxas does not mention it."""
        return next((k for k in self.kernels if k.name == name and arch in (None, k.arch)), None)


def parse_ptxas(text: str) -> PtxasReport:
    """Read the text of ``nvcc -Xptxas=-v``, one kernel or many, one architecture or several."""
    marks = list(_ENTRY.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    kernels = tuple(_usage(mark, text[mark.end() : end]) for mark, end in zip(marks, ends, strict=False))
    return PtxasReport(kernels, tuple(line.strip() for line in _WARNING.findall(text)))


def warning_code(line: str) -> str:
    """The number of an advisory, ``C7510`` for instance; empty if it has none."""
    return match[1] if (match := _CODE.search(line)) else ""


def _usage(mark: re.Match[str], text: str) -> KernelUsage:
    stack, barriers = _STACK.search(text), _BARRIERS.search(text)
    return KernelUsage(
        name=mark["name"],
        arch=mark["arch"],
        registers=_number(_USED.search(text)),
        stack=_number(stack),
        spill_stores=_number(stack, 2),
        spill_loads=_number(stack, 3),
        shared=_number(_SHARED.search(text)),
        constant={int(bank): int(size) for size, bank in _CONSTANT.findall(text)},
        barriers=_number(barriers),
    )


def _number(match: re.Match[str] | None, group: int = 1) -> int:
    return int(match[group]) if match else 0
