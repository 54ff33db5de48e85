"""Compiles the kernels that are missing and links a module, in a folder of its own that nobody sees until all is well."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from marlin_gen.build import commands, keys, ninja
from marlin_gen.build.failures import failures, raise_failures
from marlin_gen.build.manifest import EXT_SUFFIX
from marlin_gen.build.modules import MODULE_NAME, import_file
from marlin_gen.build.objects import Facts, find_object, keep_object
from marlin_gen.build.paths import Store, disk_errors
from marlin_gen.build.toolchain import Toolchain
from marlin_gen.config import Arch
from marlin_gen.emit import Rendered, Templates
from marlin_gen.emit.render import environment
from marlin_gen.errors import ToolchainError


class Events(Protocol):
    """Told what a build does."""

    def progress(self, done: int, total: int, what: str) -> None:
        """``done`` of ``total`` steps are done; ``what`` is the latest or the next."""

    def note(self, text: str) -> None:
        """Something the user should know."""


@dataclass(frozen=True)
class Unit:
    """A kernel to compile: one translation unit.

    Attributes:
        ptx: whether PTX is embedded beside the native code of ``arch``.
        key: of its object.
    """

    rendered: Rendered
    arch: Arch
    ptx: bool
    key: str

    @property
    def name(self) -> str:
        return self.rendered.name


@dataclass(frozen=True)
class Module:
    """A linked module in the store.

    Attributes:
        rows: as the module says them, one for each unit. facts: of the units' objects.
        compiled: names of the kernels that were not in the store before.
    """

    path: Path
    rows: list[Any]
    facts: list[Facts]
    compiled: tuple[str, ...]


@dataclass(frozen=True)
class Compiler:
    """Turns emitted kernels into modules.

    Attributes:
        jobs: commands at once.
    """

    store: Store
    tools: Toolchain
    templates: Templates
    jobs: int
    events: Events

    @cached_property
    def headers(self) -> dict[str, str]:
        """Device and host headers by name, ``device/mma.cuh``, and their contents."""
        texts = keys.folder_texts(self.templates, ("device", "host"))
        return {name: text for name, text in texts.items() if name.endswith((".cuh", ".hpp"))}

    def unit(self, rendered: Rendered, arch: Arch, ptx: bool) -> Unit:
        """A kernel with the key of its object."""
        return Unit(rendered, arch, ptx, commands.kernel_key(rendered.text, arch, ptx, self.headers, self.tools))

    def make(self, units: Sequence[Unit], set_name: str) -> Module:
        """Compile what is missing and link a module of ``units``, sorted by name.

        Raises:
            ToolchainError: commands failed; the objects of the others are in the store.
            CacheError: the store cannot be written.
        """
        facts = {unit.key: find_object(self.store, unit.key) for unit in units}
        missing = [unit for unit in units if facts[unit.key] is None]
        binding = self.templates.read("host/binding.cpp")
        binding_key = commands.binding_key(binding, self.headers, self.tools)
        fresh_binding = find_object(self.store, binding_key) is None
        registry_template = environment(self.templates).get_template("host/registry.cpp.j2")
        registry = registry_template.render(kernels=[unit.rendered for unit in units])
        objects = ["registry.o", "binding/binding.o" if fresh_binding else f"../../objects/{binding_key}/binding.o"]
        objects += [f"{u.name}/kernel.o" if facts[u.key] is None else f"../../objects/{u.key}/kernel.o" for u in units]
        edges = [commands.binding_edge(self.tools)] if fresh_binding else []  # first: it takes longest
        edges += [commands.kernel_edge(unit.name, unit.arch, unit.ptx, self.tools) for unit in missing]
        edges += [commands.registry_edge(self.tools), commands.link_edge(objects, [unit.arch for unit in units], self.tools)]
        sources = {
            **{f"{commands.INCLUDE}/{Path(name).name}": text for name, text in self.headers.items()},
            **{f"{unit.name}/kernel.cu": unit.rendered.text for unit in missing},
            "binding/binding.cpp": binding,
            "registry.cpp": registry,
            "objects.txt": "\n".join(objects) + "\n",
            "build.ninja": ninja.build_file(edges),
        }
        with self._work_folder() as work:
            for name, text in sources.items():
                _write(work / name, text)
            try:
                done = ninja.run(self.tools.ninja, work, self.jobs, self.events.progress)
            finally:
                failed, seconds = failures(work, edges), ninja.seconds(work)
                for unit in missing:
                    facts[unit.key] = keep_object(self.store, unit.key, work / unit.name, "kernel", seconds)
                keep_object(self.store, binding_key, work / "binding", "binding", seconds)
            if not done:
                raise_failures(failed, sum(fact is not None for fact in facts.values()))
            made = work / (MODULE_NAME + EXT_SUFFIX)
            rows = _checked_rows(made, units)
            key = commands.module_key([(unit.name, unit.key) for unit in units], registry, binding_key, self.tools)
            path = self.store.modules / f"{set_name}-{key[:12]}{EXT_SUFFIX}"
            os.replace(made, path)
        return Module(path, rows, [fact for unit in units if (fact := facts[unit.key])], tuple(unit.name for unit in missing))

    @contextmanager
    def _work_folder(self) -> Iterator[Path]:
        """A fresh folder on the store's file system. Folders of builds that died are removed: the lock is ours."""
        for stale in self.store.work.iterdir():
            shutil.rmtree(stale, ignore_errors=True)
        with disk_errors(self.store.root), tempfile.TemporaryDirectory(dir=self.store.work, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (0, 0))  # ptxas writes a source's time into the object


def _checked_rows(module: Path, units: Sequence[Unit]) -> list[Any]:
    """The rows of a fresh module, which must be those of the units."""
    rows: list[Any] = import_file(module).rows()
    if [row.name for row in rows] != [unit.name for unit in units]:
        raise ToolchainError(f"the module has {len(rows)} kernel(s) that are not the {len(units)} asked for", "build again")
    return rows
