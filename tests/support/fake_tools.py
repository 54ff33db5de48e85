"""A fake nvcc: takes the real one's command lines, compiles host code with g++ and stands in for kernels; and ways to use it.

What it does with kernels is told by the environment: ``FAKE_NVCC_FAIL`` fails those whose path contains the text,
``FAKE_NVCC_KILL`` dies of signal 9, ``FAKE_NVCC_LOG`` is a file that gets a line for each kernel compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from marlin_gen.build.driver import Outcome, build
from marlin_gen.build.paths import Store
from marlin_gen.build.request import Request

ROOT = Path(__file__).resolve().parents[2]
FAKE_TEMPLATES = Path(__file__).with_name("fake_templates")
NAME = "marlin_f16_u4b8_m16n64k128_g128_s4_sm90"
NAMES = [f"marlin_f16_u4b8_m{m}n64k128_g128_s4_sm90" for m in (16, 32, 48, 64, 8)]

_NVCC = r"""#!/usr/bin/env bash
if [[ $1 == --version ]]; then
  echo "nvcc: NVIDIA (R) Cuda compiler driver"; echo "Cuda compilation tools, release {release}, V{release}.1"; exit
fi
if [[ $1 == --list-gpu-arch ]]; then printf 'compute_%s\n' {archs}; exit; fi
args=() out= source= kernel=
while (($#)); do
  case $1 in
    -Xcompiler=*) IFS=, read -ra words <<<"${{1#-Xcompiler=}}"; args+=("${{words[@]}}") ;;
    -gencode|-ccbin|--keep-dir) shift ;;
    -optf) shift; while read -r line; do args+=("$line"); done <"$1" ;;
    -Xptxas=*|-lineinfo|--keep|-cudart=*|-Xlinker=*) ;;
    -isystem=*) args+=(-isystem "${{1#-isystem=}}") ;;
    -o) shift; out=$1; args+=(-o "$1") ;;
    *.cu) kernel=${{1%/*}}; source=$1 ;;
    *) args+=("$1") ;;
  esac
  shift
done
if [[ $kernel ]]; then
  [[ -z $FAKE_NVCC_LOG ]] || echo "$kernel" >>"$FAKE_NVCC_LOG"
  if [[ $FAKE_NVCC_FAIL && $kernel == *$FAKE_NVCC_FAIL* ]]; then
    echo "$source(7): error: identifier \"mma_f17\" is undefined" >&2; echo >&2; echo "1 error detected" >&2; exit 2
  fi
  if [[ $FAKE_NVCC_KILL && $kernel == *$FAKE_NVCC_KILL* ]]; then kill -9 $$; fi
  echo "ptxas info    : Compiling entry function '$kernel' for 'sm_90'"
  echo "ptxas info    : Used 42 registers, used 1 barriers"
  echo "    0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads"
  echo "extern \"C\" int ${{kernel}}_launch(const void*, int, void*) {{ return 0; }}
        extern \"C\" int ${{kernel}}_occupancy(int* n) {{ *n = ${{#kernel}}; return 0; }}" |
    g++ -x c++ -fPIC -c - -o "$out"
else
  exec g++ "${{args[@]}}"
fi
"""


def fake_nvcc(folder: Path, release: str = "13.0", archs: str = "80 86 87 89 90 100 120") -> str:
    """A fake nvcc of a release in a folder, written if it is not there yet; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvcc"
    if not path.exists():
        path.write_text(_NVCC.format(release=release, archs=archs), encoding="utf-8")
        path.chmod(0o755)
    return str(path)


class Quiet:
    """Keeps what a build tells."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, str]] = []
        self.notes: list[str] = []

    def progress(self, done: int, total: int, what: str) -> None:
        self.steps.append((done, total, what))

    def note(self, text: str) -> None:
        self.notes.append(text)


def fake_build(folder: Path, *sources: str, verify: str = "none", templates: tuple[str, ...] = (), **options: object) -> Outcome:
    """Build ``sources`` in ``folder/out`` with a fake nvcc in ``folder/bin``."""
    nvcc = options.pop("nvcc", None) or fake_nvcc(folder / "bin")
    request = Request(sources, template_dirs=(*templates, str(FAKE_TEMPLATES)), nvcc=str(nvcc), verify=verify, **options)  # type: ignore[arg-type]
    return build(request, Store(folder / "out"), Quiet())


def compiled(folder: Path) -> list[str]:
    """Kernels that the fake nvcc compiled, from ``folder/log``."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def marlin_gen(*words: str, cwd: Path | str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    env = {k: v for k, v in os.environ.items() if k not in ("MARLIN_GEN_CACHE", "MAX_JOBS")}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-m", "marlin_gen", *words], capture_output=True, text=True, cwd=cwd, env=env, check=False, timeout=300
    )
