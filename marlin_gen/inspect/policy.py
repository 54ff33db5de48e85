"""Cache policies of asynchronous copies in SASS, and the form of them that faults.

A copy names a descriptor, ``desc[UR8][R2.64]``: a cache policy, or on sm_90 and newer the plain descriptor of global memory that
every access there names, which is loaded from a constant.
"""

from __future__ import annotations

import re

from marlin_gen.inspect.sass import Function, Instruction

_DESCRIPTOR = re.compile(r"desc\[UR(\d+)\]")
_UNIFORM_ADDRESS = re.compile(r"\[R\d+[.\w]*\+UR\d+")
_CONSTANT_LOADS = ("ULDC", "LDCU")


def faulting_address(instruction: Instruction) -> bool:
    """Whether a copy's shared address holds a uniform register and it names a descriptor.

    ptxas 13.0 and 13.5 write this form for copies with a cache policy only. On sm_90 it is an illegal instruction: the
    disassembly shows UR0 and UR1 where other registers are meant, as if the encoding had no place for them.
    """
    return (
        instruction.mnemonic == "LDGSTS"
        and _UNIFORM_ADDRESS.match(instruction.operands[0]) is not None
        and any(_DESCRIPTOR.match(operand) for operand in instruction.operands[1:])
    )


def has_policy(instruction: Instruction, function: Function) -> bool:
    """Whether an access carries a cache policy: a descriptor that was not loaded from a constant just before."""
    match = next((m for operand in instruction.operands if (m := _DESCRIPTOR.match(operand))), None)
    if match is None:
        return False
    pair = (f"UR{match[1]}", f"UR{int(match[1]) + 1}")
    before = (i for i in reversed(function.instructions) if i.address < instruction.address)
    writer = next((i for i in before if i.operands and i.operands[0] in pair), None)
    return writer is None or writer.mnemonic not in _CONSTANT_LOADS
