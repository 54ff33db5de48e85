"""The text that ``marlin-gen new-quant`` writes: a quant type that already passes every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marlin_gen.errors import ConfigError

if TYPE_CHECKING:
    from marlin_gen.emit.templates import Templates

_BASE = "u4b8"


def skeleton(name: str, templates: Templates) -> str:
    """The text of a commented quant type ``name``, made from the template of u4b8.

    Args:
        name: lower-case letters and digits.
        templates: where u4b8 is read from.

    Raises:
        ConfigError: the name cannot be one.
    """
    if not (name.isalnum() and name.islower() and name.isascii()):
        raise ConfigError(f"{name!r} cannot name a quant type", "use lower-case letters and digits, for instance s4")
    guide = (
        "# A quant type is this one file. The head says what the codes mean; three macros print the CUDA.\n"
        "# This skeleton is u4b8 under another name: change it step by step, running `marlin-gen verify` between.\n"
        "#   slots   bit offset of a lane's 8 codes of a 16x16 tile; index = 4*n_hi + 2*k_hi + h\n"
        "#           for the code in row 8*k_hi + 2*(lane%4) + h, column 8*n_hi + lane/4 (lo: 0, hi: 1)\n"
        "#   value   of code q before the scale; with zero points also z.  Or: table = [value of every code]\n"
        "#           q is a NumPy array of floats: `q - 16 * (q > 7)` works, `if` and integer operators do not\n"
        "#   zero    none | int | float\n"
        "# Macros get k (the kernel's config). dequant turns q[] (words of one tile) into w[0..3], pairs of values for\n"
        "# (n_lo,k_lo) (n_lo,k_hi) (n_hi,k_lo) (n_hi,k_hi), with z_lo, z_hi if there are zero points;\n"
        "# scale multiplies by s_lo, s_hi. The low half of a pair is h = 0. What they may call is in templates/device/:\n"
        "# lop3 and prmt in bits.cuh (lop3<0xea> is (a & b) | c), f16:: and bf16:: in half.cuh.\n"
        "# `marlin-gen env` prints where the templates are.\n"
    )
    base = templates.read(f"quant/{_BASE}.cuh.j2")
    head, rest = base.split("\n", 1)
    rest = rest.replace(f'name = "{_BASE}"', f'name = "{name}"', 1)
    return f"{head}\n{guide}{rest}"
