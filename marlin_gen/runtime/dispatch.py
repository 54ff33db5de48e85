"""Which kernel serves a product: one function refuses, one chooses, and ``explain`` shows both. Needs neither GPU nor torch.

Whether a layer can be served depends on K, N, group size, types and device, never on M. Among the kernels that can, the one
with the least predicted time (``marlin_gen.runtime.cost``) is chosen for every M.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from marlin_gen.config import ARCHS, KernelConfig
from marlin_gen.config.kernel_config import REDUCTIONS
from marlin_gen.errors import DispatchError
from marlin_gen.runtime.cost import Estimate, estimate, model_for
from marlin_gen.runtime.problem import Device, Kernel, Problem
from marlin_gen.runtime.quants import normal_group, quant_type
from marlin_gen.runtime.registry import built_kernels, current_device, kernel_of


def refusals(kernel: Kernel, problem: Problem, device: Device, reduction: str | None) -> list[str]:
    """Why a kernel cannot serve a layer on a device; empty if it can. The one source of truth for that.

    Args:
        reduction: the reduction asked for, or None where the kernel itself was.
    """
    c, shape, found = kernel.config, problem.shape, []
    if c.quant != problem.quant:
        found.append(f"is for quant type {c.quant}")
    if c.a_dtype != problem.a_dtype:
        found.append(f"is for {c.a_dtype}")
    if c.group_size != problem.group_size:
        found.append(f"is for group size {c.group_size}")
    if reduction is not None and c.reduction != reduction:
        found.append(f"reduces with {c.reduction}; {reduction} was asked for")
    if shape.n_pad % c.thread_n:
        found.append(f"thread_n {c.thread_n} does not divide the padded N {shape.n_pad}")
    if shape.k_pad % c.thread_k:
        found.append(f"thread_k {c.thread_k} does not divide the padded K {shape.k_pad}")
    if not ARCHS[c.arch].runs_on(device.capability):
        found.append("{} code does not run on compute capability {}.{}".format(c.arch, *device.capability))
    if kernel.shared_bytes > device.shared_limit:
        found.append(f"needs {kernel.shared_bytes} bytes of shared memory; the device has {device.shared_limit}")
    return found


@dataclass(frozen=True)
class Choice:
    """A kernel for one product, with its launch."""

    kernel: Kernel
    estimate: Estimate


def choose(
    kernels: Sequence[Kernel], problem: Problem, m: int, device: Device, reduction: str = "fp32", forced: str | None = None
) -> Choice:
    """The kernel of least predicted time, or the one that is ``forced`` by name.

    Raises:
        DispatchError: no kernel serves the layer, or the forced one does not; or the product has more tiles than any counts.
    """
    if forced is not None:
        kernel = next((k for k in kernels if k.config.name == forced), None)
        if kernel is None:
            near = get_close_matches(forced, [k.config.name for k in kernels], 3, 0)
            raise DispatchError(f"no kernel named {forced!r} is built", f"the nearest built ones: {', '.join(near) or 'none'}")
        if why := refusals(kernel, problem, device, None):
            raise DispatchError(f"kernel {forced} cannot serve {problem}: it {'; '.join(why)}", "give kernel=None")
        return Choice(kernel, _estimate(kernel, problem, m, device))
    choices, too_many_tiles = [], None
    for kernel in serving(kernels, problem, device, reduction):
        try:
            choices.append(Choice(kernel, _estimate(kernel, problem, m, device)))
        except DispatchError as error:  # a kernel of larger tiles may still count them
            too_many_tiles = error
    if not choices and too_many_tiles is not None:
        raise too_many_tiles
    return min(choices, key=lambda choice: (choice.estimate.us, choice.kernel.config.name))


def serving(kernels: Sequence[Kernel], problem: Problem, device: Device, reduction: str = "fp32") -> list[Kernel]:
    """All kernels that can serve a layer; the same for every M.

    Raises:
        DispatchError: there is none; names the nearest kernels and the lines that would build one.
    """
    check_reduction(reduction)
    able = [kernel for kernel in kernels if not refusals(kernel, problem, device, reduction)]
    if able:
        return able
    near = sorted((len(why), k.config.name, why) for k in kernels if (why := refusals(k, problem, device, reduction)))
    lines = [f"no built kernel serves {problem}, reduction {reduction}, on {device}"]
    lines += [f"  {name}: {'; '.join(why)}" for _, name, why in near[:3]]
    raise DispatchError("\n".join(lines), suggestion(problem, device, reduction))


def check_reduction(reduction: str) -> None:
    """Raise DispatchError for a reduction that does not exist."""
    if reduction not in REDUCTIONS:
        raise DispatchError(f"reduction {reduction!r} is none of {', '.join(REDUCTIONS)}")


def suggestion(problem: Problem, device: Device, reduction: str = "fp32") -> str:
    """What to do about a missing kernel: lines of a ``--configs`` file, or why no kernel can be made."""
    g = problem.group_size
    thread_k = next((t for t in (128, 64) if g == -1 or g % t == 0 or t % g == 0), None)
    if thread_k is None:
        return f"no tile fits group size {g}: quantise with 32, 64, 128 or -1"
    quant = quant_type(problem.quant)
    if problem.a_dtype not in quant.a_dtypes or (quant.group_sizes and g not in quant.group_sizes):
        return f"quant type {quant.name} has a_dtypes {list(quant.a_dtypes)}, group sizes {list(quant.group_sizes) or 'any'}"
    archs = [a for a in ARCHS.values() if a.runs_on(device.capability) and not a.name.endswith("a")]
    arch = max(archs, key=lambda a: a.capability)
    lines = [
        f'arch = "{arch.name}"', f'a_dtype = "{problem.a_dtype}"', f'quant = "{problem.quant}"', "m_tile = [8, 16, 32, 64]",
        f"tile = [{thread_k}, 64]", f"group_size = {g}", "stages = 4",
    ]  # fmt: skip
    if reduction != "fp32":
        lines.append(f'reduction = "{reduction}"')
    text = "".join(f"\n    {line}" for line in ["[[kernels]]", *lines])
    return f"add to a file, say layers.toml, and build it with `marlin-gen build --configs layers.toml`:{text}"


_NAMED = 3  # kernels named for each reason of refusal; `to_dict` has all


@dataclass(frozen=True)
class Verdict:
    """What dispatch thinks of one kernel.

    Attributes:
        kernel: its name.
        refused: why it cannot serve the layer; empty if it can.
        us: predicted time, microseconds; None if refused.
        grid, stripe: CTAs it would be launched with, and tiles of each; 0 if refused.
        k_tiles: tiles of an output column, which several CTAs share unless it divides ``stripe``; 0 if refused.
    """

    kernel: str
    refused: str
    us: float | None
    grid: int
    stripe: int
    k_tiles: int


@dataclass(frozen=True)
class Explanation:
    """Answer of ``explain``; ``str()`` is a table.

    Attributes:
        problem, m: the product.
        device: where it runs.
        chosen: name of the chosen kernel; empty if none can serve the layer.
        why: one sentence.
        verdicts: all kernels, fastest first, then the refused ones.
    """

    problem: Problem
    m: int
    device: Device
    chosen: str
    why: str
    verdicts: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        p, d = self.problem, self.device
        return {
            "m": self.m, "n": p.n, "k": p.k, "quant": p.quant, "group_size": p.group_size, "a_dtype": p.a_dtype,
            "capability": list(d.capability), "sms": d.sms, "chosen": self.chosen, "why": self.why,
            "kernels": [
                {"kernel": v.kernel, "refused": v.refused, "us": v.us, "grid": v.grid, "stripe": v.stripe, "k_tiles": v.k_tiles}
                for v in self.verdicts
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"M={self.m}, {self.problem} on {self.device}", self.why]
        able = [v for v in self.verdicts if v.us is not None]
        width = max((len(v.kernel) for v in able), default=0)
        for v in able:
            mark = "*" if v.kernel == self.chosen else " "
            lines.append(f"{mark} {v.kernel:{width}}  {v.us:8.2f} us, {v.grid} CTAs of {v.stripe} tiles, columns of {v.k_tiles}")
        reasons: dict[str, list[str]] = {}
        for v in self.verdicts:
            if v.us is None:
                reasons.setdefault(v.refused, []).append(v.kernel)
        for reason, names in sorted(reasons.items(), key=lambda item: (item[0].count(";"), item[0])):
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            lines.append(f"  refused, {reason}: {', '.join(names[:_NAMED])}{more}")
        return "\n".join(lines)


def explain(
    m: int,
    n: int,
    k: int,
    *,
    quant: str = "u4b8",
    group_size: int = 128,
    a_dtype: str = "f16",
    capability: tuple[int, int] | None = None,
    sms: int = 132,
    reduction: str = "fp32",
    kernels: Iterable[KernelConfig] | None = None,
) -> Explanation:
    """Which kernel would serve a product, and why not each other one. Works without a GPU.

    Args:
        m, n, k: rows, columns and depth of the product.
        quant, group_size, a_dtype: the layer's types; a group size of k is the same as -1.
        capability, sms: the device; without a capability that of this machine's GPU, or an H200's where there is none.
        reduction: ``fp32``, ``chain16`` or ``atomic``.
        kernels: configs to choose from; those that are built if not given.

    Raises:
        DispatchError: M or ``sms`` is not at least 1, the device is unknown, or nothing is built.
        LayoutError: K, N and the group size make no layer.
        ConfigError: the quant type is unknown.
    """
    if m < 1:
        raise DispatchError(f"M={m}: nothing is launched without rows")
    kind = quant_type(quant)
    problem = Problem(k, n, normal_group(k, group_size, kind), quant, a_dtype)
    device = Device.of_capability(capability, sms) if capability else current_device()
    rows = built_kernels() if kernels is None else [kernel_of(i, config) for i, config in enumerate(kernels)]
    verdicts = []
    for kernel in rows:
        why = refusals(kernel, problem, device, reduction)
        try:
            best = None if why else _estimate(kernel, problem, m, device)
        except DispatchError as error:
            best, why = None, [error.message]
        if best is None:
            verdicts.append(Verdict(kernel.config.name, "; ".join(why), None, 0, 0, 0))
        else:
            part = best.partition
            verdicts.append(Verdict(kernel.config.name, "", best.us, part.grid, part.stripe, part.k_tiles))
    verdicts.sort(key=lambda v: (v.us is None, v.us or 0.0, v.kernel))
    try:
        chosen = choose(rows, problem, m, device, reduction).kernel.config.name
        able = sum(v.us is not None for v in verdicts)
        why_chosen = f"chosen: {chosen}, the least predicted time of {able} kernel(s) that can serve this layer"
    except DispatchError as error:
        chosen, why_chosen = "", str(error)
    return Explanation(problem, m, device, chosen, why_chosen, tuple(verdicts))


def _estimate(kernel: Kernel, problem: Problem, m: int, device: Device) -> Estimate:
    bits = quant_type(problem.quant).bits
    return estimate(kernel.config, m, problem.shape, bits, device.sms, model_for(device.capability))
