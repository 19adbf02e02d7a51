"""The layout of the memory that a program and its caller share, and facts that both need.

Loading a program reads this, so it imports no part of the compiler.
"""

from __future__ import annotations

import string

from relaxlab.codegen.llvm.lowlevel import Address, Record, Table, Word


class Block(Record):
    """The header of allocated memory. is_result: what a caller notes while it collects the results
    of a call."""

    next: Block
    size: Word
    is_result: Word


class Arena(Record):
    """A planned storage."""

    data: Address
    size: Word


class Context(Record):
    """Memory that a program and its caller share. axis, got, expected: details of the failed check.
    owned: the blocks allocated during the call. publish: a result that thread 0 has for the others.
    arenas: one for each planned storage. kernel_failed: zero, or the number of a failure in a
    kernel. spare: free blocks that earlier calls allocated. min_work: the number of operations from
    which on a call starts a team."""

    axis: Word
    got: Word
    expected: Word
    callback: Address
    args: Address
    out: Address
    constants: Address
    owned: Block
    publish: Address
    arenas: Table[Arena]
    packed: Address
    failed: Word
    kernel_failed: Word
    spare: Block
    min_work: Word


CONTEXT = tuple(Context.__annotations__)
"""Names of the context's words."""
GEMM = {"float32": "scipy_cblas_sgemm64_", "float64": "scipy_cblas_dgemm64_"}
"""The function of CBLAS for each dtype, as the wheel `scipy-openblas64` names it."""
TOO_MUCH = 1 << 60
"""The size of an allocation whose bytes do not fit in a word: none of this size succeeds."""
MIN_TEAM_WORK = 52_000
"""Operations from which on a call starts a team, 0.1 to 0.3 ns each on one thread
(benchmarks/NOTES.md, *When a team pays*). Waking threads takes two microseconds if they are still
waiting for it, and fifty or more if they sleep."""
BLOCK_HEADER = 64
"""Bytes of a block before its data, which keep the data aligned."""


def symbol_of(name: str) -> str:
    """The linker symbol of a function: unique, and never one of the C library's."""
    plain = f"{string.ascii_letters}{string.digits}_"
    return "rl." + "".join(c if c in plain else f".{ord(c):x}" for c in name)
