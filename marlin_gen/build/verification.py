"""Which built kernels the simulator has verified. A verdict belongs to an object: another text, another object."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from marlin_gen.build.keys import digest
from marlin_gen.build.manifest import write_whole
from marlin_gen.build.paths import TEMPLATES, Store
from marlin_gen.errors import VerifyError

if TYPE_CHECKING:
    from marlin_gen.build.request import Request
    from marlin_gen.config.kernel_config import KernelConfig
    from marlin_gen.emit.render import Rendered
    from marlin_gen.emit.templates import Templates
    from marlin_gen.simulate import VerifyReport

MODES = ("none", "sample", "all")
_VERDICT = "verified.json"
_SIMULATOR = Path(__file__).resolve().parent.parent / "simulate"


@cache
def simulator_digest() -> str:
    """Digest of the packaged simulator; a verdict of another simulator counts for nothing."""
    files = [*_SIMULATOR.glob("*.py"), *(path for path in (TEMPLATES / "sim").rglob("*") if path.is_file())]
    return digest(path.read_bytes() for path in sorted(files))


def is_verified(store: Store, key: str) -> bool:
    """Whether the simulator found the object right."""
    try:
        verdict = json.loads((store.objects / key / _VERDICT).read_text(encoding="utf-8"))
        return bool(verdict["simulator"] == simulator_digest())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def remember(store: Store, key: str, runs: Sequence[str]) -> None:
    """Keep the verdict that an object is right, with the launches that showed it."""
    verdict = {"simulator": simulator_digest(), "runs": list(runs)}
    write_whole(store.objects / key / _VERDICT, json.dumps(verdict, indent=1) + "\n")


def choose(configs: Iterable[KernelConfig], mode: str) -> list[str]:
    """Names of the kernels to verify: all, none, or a sample: the smallest tile of each kind of kernel.

    A kind is what makes the emitted text differ in more than numbers: formats, transposition, groups, reduction, switches.
    """
    if mode != "sample":
        return [config.name for config in configs] if mode == "all" else []
    chosen: dict[tuple[object, ...], KernelConfig] = {}
    for c in sorted(configs, key=lambda c: (c.m_tile * c.thread_n * c.thread_k, c.stages, c.name)):
        grouped = "column" if c.group_size == -1 else "rows" if c.group_size < c.thread_k else "stages"
        kind = (c.family, c.quant, c.a_dtype, c.m_tile == 8, grouped, c.reduction, c.swizzle, c.scale_load, c.evict_first)
        chosen.setdefault(kind, c)
    return sorted(config.name for config in chosen.values())


def verify_all(
    kernels: Sequence[tuple[Rendered, str]], store: Store, templates: Templates, progress: Callable[[int, int, str], None]
) -> None:
    """Run kernels in the simulator and keep the verdicts.

    Args:
        kernels: what was emitted, with the key of its object.
        progress: told (kernels done, kernels in all, what is being verified).

    Raises:
        VerifyError: a kernel is wrong; names every such kernel with its first finding.
    """
    from marlin_gen.simulate import verify

    wrong: list[str] = []
    for done, (rendered, key) in enumerate(kernels):
        progress(done, len(kernels), f"verify {rendered.name}")
        report = verify(rendered, cache_dir=store.simulator, templates=templates, quick=True)
        if report.ok:
            remember(store, key, report.runs)
        else:
            wrong.append(f"  {rendered.name}: {report.findings[0]}")
    progress(len(kernels), len(kernels), "verified")
    if wrong:
        hint = "`marlin-gen verify NAME` shows every finding with its line"
        raise VerifyError("\n".join([f"the simulator found {len(wrong)} kernel(s) wrong:", *wrong]), hint)


def verify_request(
    request: Request, quick: bool, progress: Callable[[int, int, str], None]
) -> list[VerifyReport]:
    """Run the kernels of a request in the simulator, built or not; a built one that is right is remembered as verified.

    Raises:
        VerifyError: a kernel is wrong; lists all its findings.
    """
    from marlin_gen.build.modules import built_kernels
    from marlin_gen.build.paths import default_store
    from marlin_gen.emit import Templates, render
    from marlin_gen.simulate import verify

    templates, store = Templates(request.template_dirs), default_store()[0]
    built = {kernel.record.name: kernel for kernel in built_kernels()}
    reports = []
    configs = request.configs(templates, lambda _: None)
    for done, config in enumerate(configs):
        rendered = render(config, templates)

        def on_run(what: str, done: int = done, name: str = config.name) -> None:
            progress(done, len(configs), f"{name}: {what}")

        report = verify(rendered, cache_dir=store.simulator, templates=templates, quick=quick, on_run=on_run)
        report.check()
        kernel = built.get(config.name)
        if kernel and _source(kernel.object_dir) == rendered.text:
            remember(kernel.store, kernel.record.object, report.runs)
        reports.append(report)
    return reports


def _source(object_dir: Path) -> str | None:
    """What an object was compiled from; None if somebody has removed it."""
    try:
        return (object_dir / "kernel.cu").read_text(encoding="utf-8")
    except OSError:
        return None
