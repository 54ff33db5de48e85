"""``build``: from names of kernels to a loadable module, doing only what is not done yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from marlin_gen.build import commands, keys
from marlin_gen.build.compiling import Compiler, Events, Module, Unit
from marlin_gen.build.jobs import job_count
from marlin_gen.build.manifest import EXT_SUFFIX, KernelRecord, Manifest, manifests, read_manifest, write_whole
from marlin_gen.build.paths import Store
from marlin_gen.build.request import Request
from marlin_gen.build.toolchain import Toolchain, discover
from marlin_gen.build.verification import choose, is_verified, verify_all
from marlin_gen.config import KernelConfig
from marlin_gen.config.arch import parse_arch
from marlin_gen.emit import Templates, render


@dataclass(frozen=True)
class Outcome:
    """What a build did: the module's record, the kernels that were ``compiled``, and those ``verified`` so far."""

    manifest: Manifest
    compiled: tuple[str, ...]
    verified: frozenset[str]


def build(request: Request, store: Store, events: Events) -> Outcome:
    """Make the module of a request the one in use for its set.

    Safe in any number of processes at once: the others wait, then find everything done.

    Raises:
        ConfigError, TemplateError: a source or a template is wrong.
        ToolchainError: a tool is missing or failed; every failed kernel is named, the others are kept.
        VerifyError: the simulator found a kernel wrong; the module is not put to use.
        CacheError: the store cannot be written.
    """
    tools, templates, jobs = discover(request.nvcc), Templates(request.template_dirs), job_count(request.jobs)
    store.make()
    wanted = [f"{c.name} {request.ptx(c.arch)}" for c in request.named()]
    inputs = commands.input_key(wanted, keys.template_digest(templates), keys.generator_digest(), tools)
    with _only_builder(store, events):
        compiled: tuple[str, ...] = ()
        manifest = read_manifest(store.modules / f"{request.set_name}.json")
        if manifest is not None and manifest.inputs == inputs and manifest.usable and manifest.intact(store):
            _verify(request, {k.name: k.object for k in manifest.kernels}, store, templates, events)
        else:
            manifest, compiled = _make(request, inputs, Compiler(store, tools, templates, jobs, events))
        newest = max((m.serial for m in manifests(store)), default=0)
        if manifest.serial < newest or newest == 0:
            manifest = replace(manifest, serial=newest + 1)
        manifest.write(store)
    verified = frozenset(k.name for k in manifest.kernels if is_verified(store, k.object))
    return Outcome(manifest, compiled, verified)


def emit_sources(request: Request, folder: Path, events: Events) -> list[str]:
    """Write ``<folder>/<name>/kernel.cu`` for each kernel of a request; files that already say this are left alone.

    Returns:
        The kernels' names, sorted.
    """
    templates = Templates(request.template_dirs)
    configs = request.configs(templates, events.note)
    for done, config in enumerate(configs):
        events.progress(done, len(configs), f"emit {config.name}")
        write_whole(folder / config.name / "kernel.cu", render(config, templates).text)
    return [config.name for config in configs]


def _make(request: Request, inputs: str, compiler: Compiler) -> tuple[Manifest, tuple[str, ...]]:
    """Render, compile what is missing, link, verify. Returns the new record, not yet written, and the kernels compiled."""
    store, tools, templates, events = compiler.store, compiler.tools, compiler.templates, compiler.events
    configs = request.configs(templates, events.note)
    archs = {config.arch: parse_arch(config.arch) for config in configs}
    tools.check_archs(list(archs.values()))
    units = []
    for done, config in enumerate(configs):
        events.progress(done, len(configs), f"emit {config.name}")
        units.append(compiler.unit(render(config, templates), archs[config.arch], request.ptx(config.arch)))
        write_whole(store.root / config.name / "kernel.cu", units[-1].rendered.text)
    module = compiler.make(units, request.set_name)
    _verify(request, {unit.name: unit.key for unit in units}, store, templates, events)
    return _manifest(request, inputs, tools, units, module), module.compiled


def _manifest(request: Request, inputs: str, tools: Toolchain, units: list[Unit], module: Module) -> Manifest:
    kernels = tuple(
        KernelRecord(
            **row._asdict(), object=unit.key, ptx=unit.ptx, registers=facts.registers, spill_stores=facts.spill_stores,
            spill_loads=facts.spill_loads, bytes=facts.bytes, seconds=facts.seconds,
        )
        for unit, row, facts in zip(units, module.rows, module.facts, strict=True)
    )  # fmt: skip
    return Manifest(
        request.set_name, module.path.name, module.path.stat().st_size, keys.file_digest(module.path), inputs,
        keys.contract_digest(), EXT_SUFFIX, ".".join(map(str, tools.release)), 0, kernels,
    )  # fmt: skip


def _verify(request: Request, objects: dict[str, str], store: Store, templates: Templates, events: Events) -> None:
    """Verify those of the chosen kernels that have no verdict yet. ``objects`` maps names to keys."""
    names = choose([KernelConfig.from_name(name) for name in objects], request.verify)
    open_names = [name for name in names if not is_verified(store, objects[name])]
    if open_names:
        kernels = [(render(KernelConfig.from_name(name), templates), objects[name]) for name in open_names]
        verify_all(kernels, store, templates, events.progress)


@contextmanager
def _only_builder(store: Store, events: Events) -> Iterator[None]:
    """Hold the store's lock, which ends with the process."""
    import filelock

    lock = filelock.FileLock(store.lock)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        events.note(f"waiting for another build in {store.root}")
        lock.acquire(poll_interval=0.1)
    try:
        yield
    finally:
        lock.release()
