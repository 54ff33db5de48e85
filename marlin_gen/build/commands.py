"""The compiler's command lines, and the keys of what they make."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from marlin_gen.build.keys import digest
from marlin_gen.build.manifest import EXT_SUFFIX
from marlin_gen.build.modules import MODULE_NAME
from marlin_gen.build.ninja import Edge
from marlin_gen.build.toolchain import Toolchain
from marlin_gen.config.arch import Arch
from marlin_gen.errors import ToolchainError
from marlin_gen.version import __version__

INCLUDE = "include"  # folder of a build's work folder that holds all headers
_SHARED = ("-std=c++17", "-Xcompiler=-fPIC,-fvisibility=hidden", f"-I{INCLUDE}")
# Denormals and exact division stay: never -use_fast_math. --keep names intermediate files after the kernel, not after a process
# number that would end up in the object; the PTX and the cubin are kept beside it.
_KERNEL = ("-O3", *_SHARED, "-lineinfo", "-Xptxas=-v", "--keep")
_HOST = ("-O1", *_SHARED)  # nothing here is worth more of the compiler's time
_LINK = ("-shared", "-cudart=static", "-Xcompiler=-fPIC,-fvisibility=hidden", "-Xlinker=--strip-all")
_BINDING_HEADERS = ("host/row.hpp", "device/params.cuh")


def gencode(arch: Arch, ptx: bool) -> tuple[str, ...]:
    """nvcc's targets: native code of ``arch``, and its PTX if asked."""
    native = ("-gencode", arch.gencode)
    return (*native, "-gencode", f"arch=compute_{arch.number},code=compute_{arch.number}") if ptx else native


def kernel_key(text: str, arch: Arch, ptx: bool, headers: Mapping[str, str], tools: Toolchain) -> str:
    """Key of a compiled kernel: hash of all that determines its bytes. ``headers`` maps names to contents."""
    return digest(["kernel", __version__, text, *_KERNEL, *gencode(arch, ptx), *_tools(tools), *_flat(headers)])


def kernel_edge(name: str, arch: Arch, ptx: bool, tools: Toolchain) -> Edge:
    """Compiles ``<name>/kernel.cu``."""
    source, target = f"{name}/kernel.cu", f"{name}/kernel.o"
    words = (tools.nvcc, *_ccbin(tools), *_KERNEL, "--keep-dir", name, *gencode(arch, ptx), "-c", source, "-o", target)
    return Edge(target, (source,), words, f"kernel {name}")


def binding_key(source: str, headers: Mapping[str, str], tools: Toolchain) -> str:
    """Key of the compiled binding, which is the same for all modules."""
    import pybind11

    texts = [source, *(headers[name] for name in _BINDING_HEADERS)]
    return digest(["binding", __version__, *texts, *_HOST, EXT_SUFFIX, pybind11.__version__, *_tools(tools)])


def binding_edge(tools: Toolchain) -> Edge:
    """Compiles ``binding/binding.cpp``.

    Raises:
        ToolchainError: Python's headers are missing.
    """
    import pybind11

    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise ToolchainError(
            f"Python's headers are missing: no {python / 'Python.h'}", "install them (Debian, Ubuntu: apt install python3-dev)"
        )
    folders = [f"-isystem={folder}" for folder in (pybind11.get_include(), python)]
    words = (tools.nvcc, *_ccbin(tools), *_HOST, *folders, "-c", "binding/binding.cpp", "-o", "binding/binding.o")
    return Edge("binding/binding.o", ("binding/binding.cpp",), words, "Python binding")


def registry_edge(tools: Toolchain) -> Edge:
    """Compiles ``registry.cpp``, the list of a module's kernels."""
    words = (tools.nvcc, *_ccbin(tools), *_HOST, "-c", "registry.cpp", "-o", "registry.o")
    return Edge("registry.o", ("registry.cpp",), words, "registry")


def link_edge(objects: Iterable[str], archs: Iterable[Arch], tools: Toolchain) -> Edge:
    """Links objects into ``marlin_gen_kernels<suffix>``. Their names go through a file: there may be thousands.

    nvcc links device code too, of which there is none here, and would embed an empty image for its oldest architecture: it is
    told the kernels' own.
    """
    target, inputs = MODULE_NAME + EXT_SUFFIX, tuple(objects)
    folders = [f"-L{folder}" for folder in tools.library_dirs]
    targets = [word for arch in sorted(set(archs), key=lambda a: a.name) for word in gencode(arch, False)]
    words = (tools.nvcc, *_ccbin(tools), *_LINK, *targets, *folders, "-optf", "objects.txt", "-o", target)
    return Edge(target, inputs, words, "module")


def module_key(objects: Iterable[tuple[str, str]], registry: str, binding: str, tools: Toolchain) -> str:
    """Key of a module, from the (name, key) of its kernels, the text of its registry and the key of its binding."""
    return digest(["module", *_LINK, *_tools(tools), registry, binding, *(part for item in sorted(objects) for part in item)])


def input_key(names: Iterable[str], templates: str, generator: str, tools: Toolchain) -> str:
    """Key of a whole build before anything is rendered, by which a build with nothing to do ends early.

    Args:
        names: the kernels asked for, in any order, with what is wanted of each.
        templates, generator: digests of the template tree and of the Python that renders.
    """
    import pybind11

    return digest(["build", templates, generator, EXT_SUFFIX, pybind11.__version__, *_tools(tools), *sorted(names)])


def _ccbin(tools: Toolchain) -> tuple[str, ...]:
    return ("-ccbin", tools.cxx[0], *(f"-Xcompiler={word}" for word in tools.cxx[1:])) if tools.cxx != ("g++",) else ()


def _tools(tools: Toolchain) -> tuple[str, ...]:
    return tools.nvcc_version, " ".join(tools.cxx), tools.cxx_version


def _flat(texts: Mapping[str, str]) -> list[str]:
    return [part for item in sorted(texts.items()) for part in item]
