"""Both header trees offer the same functions: a kernel that compiles for one compiles for the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marlin_gen.emit import Templates
from marlin_gen.simulate import native

TEMPLATES = Templates()
# On the device only: the host's launcher, which kernels include outside of MG_SIM.
HOST_ONLY = {"launch.cuh"}
_FUNCTION = re.compile(r"MG_DEVICE\s+[\w:]+(?:\s*[*&]|\s+const\s*[*&])?\s*(?:char\s*\*\s*)?(\w+)\(([^)]*)\)\s*\{")


def _names(folder: str) -> set[str]:
    return {Path(name).name for name in TEMPLATES.find(folder, ".cuh")} - HOST_ONLY


def _functions(name: str) -> set[tuple[str, str, int]]:
    """(namespace, name, number of parameters without the call site) of every function of a header."""
    found, namespace = set(), ""
    for line in TEMPLATES.read(name).splitlines():
        if match := re.match(r"namespace (\w+) \{", line):
            namespace = match[1]
        elif line.startswith("}  // namespace"):
            namespace = ""
        for function, parameters in _FUNCTION.findall(line):
            kept = [p for p in parameters.split(",") if p.strip() not in ("", "MG_SITE")]
            found.add((namespace, function, len(kept)))
    return found


def test_same_headers() -> None:
    assert _names("sim") == _names("device")


@pytest.mark.parametrize("name", sorted(_names("device")))
def test_same_functions(name: str) -> None:
    device, sim = _functions(f"device/{name}"), _functions(f"sim/{name}")
    assert device == sim
    marked = TEMPLATES.read(f"device/{name}").count("MG_DEVICE") - (name == "prelude.cuh")  # the macro's own definition
    assert len(re.findall(_FUNCTION, TEMPLATES.read(f"device/{name}"))) == marked, "a function the pattern does not see"


def test_same_words() -> None:
    def structs(name: str) -> list[str]:
        return [" ".join(s.split()) for s in re.findall(r"struct \w+ \{[^}]*\};", TEMPLATES.read(name))]

    assert structs("sim/prelude.cuh") == structs("device/prelude.cuh")


def test_params_are_read_from_their_header() -> None:
    kind = native.params_type(TEMPLATES.read("device/params.cuh"))
    names = [field[0] for field in kind._fields_]
    assert names[:3] == ["a", "b", "scales"]
    assert {"lda", "ldc", "m", "n", "k", "counters"} <= set(names)
    assert native.make_params(kind, {"m": 3, "a": 7}).m == 3
    with pytest.raises(ValueError, match="no field mm"):
        native.make_params(kind, {"mm": 3})
    with pytest.raises(ValueError, match="neither a pointer"):
        native.params_type("struct GemmParams {\n  double x;\n};\n")
