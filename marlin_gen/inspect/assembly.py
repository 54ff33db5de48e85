"""What the two assembly languages share: operands, and places in source files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of a source file, by the file's path as the compiler was given it."""

    file: str
    line: int

    @property
    def base(self) -> str:
        """The file's name without folders."""
        return self.file.rsplit("/", 1)[-1]


def operands(text: str) -> tuple[str, ...]:
    """Split a list of operands at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return tuple(part for part in [*parts, text[start:].strip()] if part)
