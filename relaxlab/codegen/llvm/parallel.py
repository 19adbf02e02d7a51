"""A large program as several modules of LLVM, each compiled by a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from relaxlab.codegen.llvm import jit
from relaxlab.ir.processes import cores, map_forked
from relaxlab.ir.target import Target

LEAST = 100_000
"""Characters of LLVM IR in a module at least: more modules are more to load."""
SECONDS = 1.5e-6
"""Time to optimise a character of LLVM IR and make machine code of it."""


def compile_objects(
    functions: Sequence[str], declarations: Mapping[str, str], target: Target
) -> tuple[tuple[bytes, ...], bytes]:
    """Compile the texts of functions with all cores: object files, which call each other's
    functions, and the whole optimised module as bitcode."""
    shares = _shares(functions, cores())
    if len(shares) == 1:
        code, bitcode = jit.compile_object(jit.module_text(functions, declarations, target), target)
        return (code,), bitcode
    texts = [jit.module_text(s, declarations, target, functions) for s in shares]
    # So no other thread is inside of LLVM when the processes fork, with locks of its own.
    with jit.llvm_lock():
        results = map_forked(
            lambda text: jit.compile_object(text, target), texts, [SECONDS * len(t) for t in texts]
        )
    whole = llvm.parse_bitcode(results[0][1])
    for _, bitcode in results[1:]:
        whole.link_in(llvm.parse_bitcode(bitcode))
    return tuple(code for code, _ in results), whole.as_bitcode()


def _shares(functions: Sequence[str], most: int) -> list[list[str]]:
    """Return the functions in at most `most` modules of about the same size, each in the given
    order; in one module if constants belong to them, which several would have to share."""
    size = sum(map(len, functions))
    count = min(most, size // LEAST)
    if count < 2 or not all(f.startswith("define") for f in functions):
        return [list(functions)]
    sizes, share_of = [0] * count, dict[int, int]()
    # Longest first, each to the module that is shortest so far: the last process ends soon after
    # the others.
    for number in sorted(range(len(functions)), key=lambda i: -len(functions[i])):
        share_of[number] = min(range(count), key=sizes.__getitem__)
        sizes[share_of[number]] += len(functions[number])
    return [[f for i, f in enumerate(functions) if share_of[i] == share] for share in range(count)]
