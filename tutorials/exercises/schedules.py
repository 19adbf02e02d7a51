"""Applying the schedule of an answer, and saying in words which loops come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import relaxlab as rl
from relaxlab.ir.loops import For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk

from .compare import Array, Reference, loop_function, loops_compute
from relaxlab.lab.verdict import ask

Answer: TypeAlias = Callable[[rl.Schedule], None]


def scheduled(
    mod: Module, name: str, answer: Answer, inputs: Sequence[Array], reference: Reference
) -> PrimFunc:
    """Return the loop function after the answer's steps. Raises Hint where it computes something
    else."""
    sch = rl.Schedule(loop_function(mod, name))
    ask(answer, sch)
    changed = mod.with_functions({name: sch.func})
    loops_compute(changed, name, inputs, reference)
    return sch.func


def loops_of(func: PrimFunc) -> list[For]:
    """Return the loops, as they are printed from top to bottom."""
    return [n for n in walk(func.body) if isinstance(n, For)]


def describe(loops: Sequence[For]) -> str:
    """Return names, extents and kinds of loops."""
    return ", ".join(f"{f.loop_var.name} ({f.extent}, {f.kind})" for f in loops)
