"""GPU tests: every test is marked ``gpu`` and, without a GPU, skipped by the name of its case.

Kernels must be built first: `marlin-gen build`, and `marlin-gen build --configs gpu-test` for one of each kind. A fixture
checks after every test that arrival counters are zero and that no launch wrote outside its room for partial tiles.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marlin_gen.config import KernelConfig, parse_arch_list
from marlin_gen.errors import MarlinGenError

HERE = Path(__file__).parent
GUARD = 64  # floats on both sides of the room for partial tiles


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def pytest_collection_modifyitems(items):
    gpu = has_gpu()
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if not gpu:
            case = re.match(r"test_(k\d+)", item.name)
            item.add_marker(pytest.mark.skip(reason=f"{case[1].upper() if case else item.name}: needs an NVIDIA GPU"))


def runnable_kernels() -> list[str]:
    """Built kernels for this machine's GPU; all built ones where there is none."""
    from marlin_gen.build import built_names

    try:
        names = built_names()
    except MarlinGenError:
        return []
    if not has_gpu():
        return names
    import torch

    here = torch.cuda.get_device_capability()
    return [name for name in names if parse_arch_list(KernelConfig.from_name(name).arch)[0][0].runs_on(here)]


def pytest_generate_tests(metafunc):
    if "kernel" in metafunc.fixturenames:
        metafunc.parametrize("kernel", runnable_kernels())


@pytest.fixture(autouse=True)
def guarded_workspace(monkeypatch):
    """Every launch's partial tiles lie between guards; counters are zero after the test."""
    import torch

    from marlin_gen.runtime import workspace

    real, rooms = workspace.partial, []

    def partial(device, stream, capture, floats, zeroed):
        if zeroed or capture:
            return real(device, stream, capture, floats, zeroed)
        room = torch.full((floats + 2 * GUARD,), 777.0, dtype=torch.float32, device=device)
        room[GUARD:-GUARD] = float("nan")  # nothing is read before it is written
        rooms.append((room[:GUARD], room[-GUARD:]))
        del rooms[:-50]
        return room[GUARD:-GUARD]

    monkeypatch.setattr(workspace, "partial", partial)
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        for guards in rooms:
            assert all((guard == 777.0).all() for guard in guards), "a kernel wrote outside its room for partial tiles"
        for rows in workspace._devices.values():
            assert not any(slab.any() for slab in rows.slabs), "an arrival counter is not zero after the launches"
        for sums in workspace._sums.values():
            assert not sums.any(), "an atomic kernel left sums behind"
