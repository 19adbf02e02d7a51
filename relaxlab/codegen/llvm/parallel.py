"""A large program as several modules of LLVM, each compiled by a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.builder import is_unoptimised
from relaxlab.ir.processes import cores, map_forked
from relaxlab.ir.target import Target

LEAST = 100_000
"""Characters of LLVM IR in a module at least: more modules are more to load."""
SECONDS = 1.5e-6
"""Time to optimise a character of LLVM IR and make machine code of it."""
QUICK_SECONDS = 0.15e-6
"""Time to make machine code of a character of LLVM IR as it is."""


def compile_objects(
    functions: Sequence[str], declarations: Mapping[str, str], target: Target
) -> tuple[tuple[bytes, ...], bytes]:
    """Compile the texts of functions with all cores: object files, which call each other's
    functions, and the whole module, optimised, as bitcode."""
    optimised, long = list(functions), list[str]()
    if _are_separable(functions):
        # LLVM's allocator of registers for optimised code took 58 MB and 0.43 s for the function
        # that repacks a model's weights; the one for other code takes 16 MB and 0.09 s.
        long = [f for f in functions if is_unoptimised(f)]
        optimised = [f for f in functions if not is_unoptimised(f)]
    shares = [(jit.compile_object, s, SECONDS) for s in _shares(optimised, cores()) if s]
    shares += [(jit.compile_quickly, [f], QUICK_SECONDS) for f in long]
    if len(shares) == 1:
        ((compiled, _, _),) = shares
        code, bitcode = compiled(jit.module_text(functions, declarations, target), target)
        return (code,), bitcode
    items = [
        (compiled, jit.module_text(share, declarations, target, functions), seconds)
        for compiled, share, seconds in shares
    ]
    # So no other thread is inside of LLVM when the processes fork, with locks of its own.
    with jit.llvm_lock():
        results = map_forked(
            lambda item: item[0](item[1], target), items, [s * len(text) for _, text, s in items],
            keeps_memory=False,
        )  # fmt: skip
    whole = llvm.parse_bitcode(results[0][1])
    for _, bitcode in results[1:]:
        whole.link_in(llvm.parse_bitcode(bitcode))
    return tuple(code for code, _ in results), whole.as_bitcode()


def _shares(functions: Sequence[str], most: int) -> list[list[str]]:
    """Return the functions in at most `most` modules of about the same size, each in the given
    order; in one module if they are not separable."""
    size = sum(map(len, functions))
    count = min(most, size // LEAST)
    if count < 2 or not _are_separable(functions):
        return [list(functions)]
    sizes, share_of = [0] * count, dict[int, int]()
    # Longest first, each to the module that is shortest so far: the last process ends soon after
    # the others.
    for number in sorted(range(len(functions)), key=lambda i: -len(functions[i])):
        share_of[number] = min(range(count), key=sizes.__getitem__)
        sizes[share_of[number]] += len(functions[number])
    return [[f for i, f in enumerate(functions) if share_of[i] == share] for share in range(count)]


def _are_separable(functions: Sequence[str]) -> bool:
    """True unless constants belong to the functions, which several modules would have to share."""
    return all(f.startswith("define") for f in functions)
