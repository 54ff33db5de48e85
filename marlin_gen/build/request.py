"""What is asked of a build, and which kernels that names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from marlin_gen.build.keys import digest
from marlin_gen.config import Arch, KernelConfig, load_matrix
from marlin_gen.config.arch import parse_arch
from marlin_gen.emit import Templates, check_legal
from marlin_gen.errors import ConfigError

_NAME_LENGTH = 100  # of a set, which is part of a file's name


@dataclass(frozen=True)
class Request:
    """What to build.

    Attributes:
        sources: TOML files, names of sets, names of kernels.
        archs: (architecture, embed PTX too) pairs to build for; empty takes those that the sources name, without PTX.
        template_dirs: searched before the packaged templates.
        nvcc: the user's nvcc; None finds one.
        jobs: compilers at once; None decides by cores and memory.
        verify: which kernels must pass the simulator before the module is put to use: none, sample or all.
    """

    sources: tuple[str, ...]
    archs: tuple[tuple[Arch, bool], ...] = ()
    template_dirs: tuple[str, ...] = ()
    nvcc: str | None = None
    jobs: int | None = None
    verify: str = "none"

    @property
    def set_name(self) -> str:
        """Name under which the module is known: that of its sources. Building a set again replaces its module."""
        name = "+".join(sorted({Path(s).stem if s.endswith(".toml") else s for s in self.sources}))
        return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 9]}-{digest([name])[:8]}"

    def ptx(self, arch: str) -> bool:
        """Whether PTX of an architecture is asked for."""
        return any(ptx for a, ptx in self.archs if a.name == arch)

    def named(self) -> list[KernelConfig]:
        """All kernels that the request names, legal or not: enough to tell one request from another, and quick.

        Raises:
            ConfigError: a source is unknown or malformed.
        """
        return self._sorted(c for source in self.sources for c in self._of_archs(load_matrix(source)))

    def configs(self, templates: Templates, note: Callable[[str], None]) -> list[KernelConfig]:
        """The kernels to build, sorted by name.

        Args:
            note: told about kernels that are left out because they do not fit an architecture that only the request names.

        Raises:
            ConfigError: a source is unknown or malformed, or names a kernel that breaks a rule.
        """
        found: list[KernelConfig] = []
        for source in self.sources:
            written = load_matrix(source, legal=lambda config: check_legal(config, templates))
            fitting, problems = [], []
            for config in self._of_archs(written):
                try:
                    check_legal(config, templates)
                    fitting.append(config)
                except ConfigError as error:
                    problems.append((config.name, error))
            if problems and not fitting:
                raise problems[0][1]
            if problems:
                names = ", ".join(name for name, _ in problems)
                note(f"{len(problems)} kernel(s) of {source} do not fit and are left out: {names}")
            found += fitting
        return self._sorted(found)

    def _of_archs(self, written: list[KernelConfig]) -> list[KernelConfig]:
        """Of the kernels of a source, those for the architectures asked for.

        An architecture that the source does not name takes over the kernels of the next older one that it does, or else of the
        oldest.
        """
        if not self.archs:
            return written
        known = sorted({config.arch for config in written}, key=lambda name: (parse_arch(name).capability, name))
        found: list[KernelConfig] = []
        for arch, _ in self.archs:
            older = [name for name in known if parse_arch(name).capability <= arch.capability]
            base = arch.name if arch.name in known else (older or known)[-1 if older else 0]
            found += [c for config in written if config.arch == base for c in load_matrix(config.name, [arch.name])]
        return found

    @staticmethod
    def _sorted(configs: Iterable[KernelConfig]) -> list[KernelConfig]:
        return sorted(set(configs), key=lambda config: config.name)
