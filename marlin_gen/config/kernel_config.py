"""KernelConfig: everything a kernel is specialised for. Its name is its identity everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from marlin_gen.config.arch import parse_arch
from marlin_gen.errors import ConfigError

A_DTYPES = ("f16", "bf16")
SCALE_LOADS = ("reload", "hoist")
REDUCTIONS = ("fp32", "chain16", "atomic")

_NAME = re.compile(
    r"(?P<family>[a-z0-9]+)_(?P<a_dtype>f16|bf16)_(?P<quant>[a-z0-9]+)_m(?P<m_tile>\d+)n(?P<thread_n>\d+)k(?P<thread_k>\d+)"
    r"_g(?P<group>ch|\d+)_s(?P<stages>\d+)_sm(?P<arch>\d+a?)"
    r"(?:_t(?P<threads>\d+))?(?:_c(?P<ctas>\d+))?(?:_(?P<hint>ef|noef))?(?P<noswz>_noswz)?(?P<hoist>_hoist)?"
    r"(?:_(?P<reduction>chain16|atomic))?"
)


@dataclass(frozen=True)
class KernelConfig:
    """One kernel. Values are checked by ``marlin_gen.config.rules``, not here.

    Attributes:
        family: template folder under ``templates/kernel``.
        arch: architecture name, ``sm_80`` ... (``marlin_gen.config.arch``).
        a_dtype: activations, scales and result: ``f16`` or ``bf16``.
        quant: quant type, a file in ``templates/quant``.
        m_tile: rows of a CTA tile: 8 (transposed product) or a multiple of 16.
        thread_n, thread_k: columns and depth of a CTA tile, elements.
        group_size: k rows that share a scale; -1 for one scale a column.
        stages: slots of the shared-memory ring.
        threads: threads of a CTA.
        ctas: CTAs that shall fit on an SM (bounds the registers).
        evict_first: weights carry the L2 evict_first hint; None takes the architecture's default.
        swizzle: activations are XOR-swizzled in shared memory (off only to measure what it gives).
        scale_load: ``reload`` reads scales for every k-subtile, ``hoist`` once a stage.
        reduction: of partial columns between CTAs: ``fp32`` (last arriver, deterministic), ``chain16`` (the article's
            in-place 16-bit chain), ``atomic`` (fp32 atomics, order not fixed).
    """

    arch: str
    a_dtype: str
    quant: str
    m_tile: int
    thread_n: int
    thread_k: int
    group_size: int
    stages: int
    family: str = "marlin"
    threads: int = 256
    ctas: int = 1
    evict_first: bool | None = None
    swizzle: bool = True
    scale_load: str = "reload"
    reduction: str = "fp32"

    def __post_init__(self) -> None:
        arch = parse_arch(self.arch)
        object.__setattr__(self, "arch", arch.name)
        if self.evict_first is None:
            object.__setattr__(self, "evict_first", arch.evict_first)

    @property
    def name(self) -> str:
        """The kernel's identity: folder, symbol, registry key and test id. ``from_name`` is its inverse."""
        group = "ch" if self.group_size == -1 else str(self.group_size)
        parts = [
            f"{self.family}_{self.a_dtype}_{self.quant}_m{self.m_tile}n{self.thread_n}k{self.thread_k}",
            f"_g{group}_s{self.stages}_sm{self.arch[3:]}",
        ]
        if self.threads != 256:
            parts.append(f"_t{self.threads}")
        if self.ctas != 1:
            parts.append(f"_c{self.ctas}")
        if self.evict_first != parse_arch(self.arch).evict_first:
            parts.append("_ef" if self.evict_first else "_noef")
        if not self.swizzle:
            parts.append("_noswz")
        if self.scale_load == "hoist":
            parts.append("_hoist")
        if self.reduction != "fp32":
            parts.append(f"_{self.reduction}")
        return "".join(parts)

    @classmethod
    def from_name(cls, name: str) -> KernelConfig:
        """The config whose ``name`` is given.

        Raises:
            ConfigError: the text is not the name of a config.
        """
        m = _NAME.fullmatch(name) if len(name) < 256 else None  # it names a folder
        if m is None:
            raise ConfigError(
                f"{name!r} is not a kernel name",
                "names look like marlin_f16_u4b8_m16n128k128_g128_s4_sm90; `marlin-gen list` prints those that are built",
            )
        config = cls(
            family=m["family"], arch=f"sm_{m['arch']}", a_dtype=m["a_dtype"], quant=m["quant"], m_tile=int(m["m_tile"]),
            thread_n=int(m["thread_n"]), thread_k=int(m["thread_k"]),
            group_size=-1 if m["group"] == "ch" else int(m["group"]), stages=int(m["stages"]),
            threads=int(m["threads"] or 256), ctas=int(m["ctas"] or 1),
            evict_first=None if m["hint"] is None else m["hint"] == "ef", swizzle=m["noswz"] is None,
            scale_load="hoist" if m["hoist"] else "reload", reduction=m["reduction"] or "fp32",
        )  # fmt: skip
        if config.name != name:  # a default written out, for instance
            raise ConfigError(f"{name!r} is not the canonical name of a kernel", f"write {config.name}")
        return config

    def as_dict(self) -> dict[str, Any]:
        """Field names to values, in the order of definition."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
