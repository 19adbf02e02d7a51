"""Random schedules: primitives drawn one after the other, for any loop function."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from relaxlab.analysis.private_buffers import shared_private_buffer
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.expr import IntImm
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import IS_SCHEDULED, Block, BlockRealize, Buffer, For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.schedule import BlockRV, LoopRV
from relaxlab.schedule.tree import all_blocks

LONG = 64
"""Iterations up to which a loop is unrolled or vectorized: four vectors of bytes' width."""
STEPS = 6
"""Primitives that are tried per loop function; about half of them are refused."""
COLLIDING = "lanes of a vectorized loop store into one element"
"""Part of the one message by which code generation may refuse a random schedule: it does not find
out that a condition leaves one lane, where loops around the vectorized one have a part in it."""


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """The seed that the schedules are drawn from."""

    seed: int = 0


@module_pass("schedule_at_random", RandomOptions)
def schedule_at_random(mod: Module, options: RandomOptions) -> Module:
    """Give loop functions that have no schedule yet a random one; those to which no primitive
    applied, or whose buffers have no place in memory then, are left to the rules."""
    updates: dict[str, PrimFunc] = {}
    for name, func in mod.items():
        if not isinstance(func, PrimFunc) or func.attrs.get(IS_SCHEDULED):
            continue
        sch, rng = Schedule(func), random.Random(f"{options.seed} {name}")
        for _ in range(STEPS):
            try:
                random_step(sch, rng)
            except ScheduleError:
                continue
        placed = with_buffers_placed(sch.func) if sch.func is not func else None
        if placed is not None:
            updates[name] = replace(placed, attrs=placed.attrs.with_(**{IS_SCHEDULED: True}))
    return mod.with_functions(updates)


def with_buffers_placed(func: PrimFunc) -> PrimFunc | None:
    """The function with private buffers only as large as one iteration needs, and those in main
    memory that several threads use or the stack of one cannot hold. None if main memory would be
    allocated within loops: code generation refuses that."""
    while True:
        compact = compact_buffers(func)
        wrong = {b.name for b in _allocated(compact) if b.scope != "global" and not _fits_stack(b)}
        if (shared := shared_private_buffer(compact.body)) is not None:
            wrong.add(shared.name)
        if not wrong:
            break
        moved = [b for b in _allocated(func) if b.name in wrong]
        func = substitute(func, buffers={b: replace(b, scope="global") for b in moved})
    root = compact.body.block if isinstance(compact.body, BlockRealize) else None
    inner = (b for block in all_blocks(compact) if block is not root for b in block.alloc_buffers)
    return None if any(b.scope == "global" for b in inner) else compact


def _allocated(func: PrimFunc) -> list[Buffer]:
    return [b for block in all_blocks(func) for b in block.alloc_buffers]


def _fits_stack(buffer: Buffer) -> bool:
    extents = [d.value for d in buffer.shape if isinstance(d, IntImm)]
    size = math.prod(extents) * bits_of(buffer.dtype) // 8
    return len(extents) == buffer.ndim and size <= Facts().stack // 4


def random_step(sch: Schedule, rng: random.Random) -> str:
    """Try one random primitive at a random place; returns its name. Raises ScheduleError."""
    names = [b.name for b in all_blocks(sch.func) if b.name != "root"]
    if not names:
        return ""
    block = sch.get_block(rng.choice(names))
    loops = sch.get_loops(block)
    loop = rng.choice(loops) if loops else None
    found = sch.get(block)
    assert isinstance(found, Block)
    choice = rng.choice(STEP_NAMES)
    other = sch.get_block(rng.choice(names))
    places = sch.get_loops(other)
    match choice:
        case "compute_inline" | "reverse_compute_inline":
            getattr(sch, choice)(block)
        case "compute_at" | "reverse_compute_at" if places:
            unit, index = rng.random() < 0.3, rng.choice([-1, -2])
            getattr(sch, choice)(block, rng.choice(places), unit, index)
        case "cache_read" if found.reads:
            sch.cache_read(block, rng.randrange(len(found.reads)), rng.choice(["global", "local"]))
        case "cache_write" if found.writes:
            sch.cache_write(block, 0, rng.choice(["global", "local"]))
        case "set_scope":
            sch.set_scope(block, 0, "local")
        case "transform_layout":
            _random_layout(sch, block, found, rng)
        case "split" if loop:
            factor = rng.choice([2, 3, 4, 8])
            sch.split(loop, rng.choice([[None, factor], [factor, None], [None, 2, factor]]))
        case "fuse" if len(loops) > 1:
            first = rng.randrange(len(loops) - 1)
            sch.fuse(*loops[first : first + rng.choice([2, 3])])
        case "reorder" if len(loops) > 1:
            sch.reorder(*rng.sample(loops, rng.randint(2, len(loops))))
        case "vectorize" | "unroll" if loop and _is_long(sch, loop):
            pass
        case "parallel" | "vectorize" | "unroll" | "decompose_reduction" | "rfactor" if loop:
            _loop_step(sch, choice, block, loop, rng)
        case "blockize" if loop:
            sch.blockize(loop)
        case "cache_index":
            sch.cache_index(block, rng.choice(["global", "local"]), rng.choice([0, 2]))
        case "cache_inplace" if found.reads:
            sch.cache_inplace(block, rng.randrange(len(found.reads)), "global")
        case "loop_partition" if loop:
            sch.loop_partition(loop, rng.choice([[2, None], [None, 1], [1]]))
        case "pad_einsum":
            sch.pad_einsum(block, [rng.choice([1, 2, 4]) for _ in found.iter_vars])
        case "pad_axis" if found.iter_vars:
            axis = rng.randrange(len(found.iter_vars))
            sch.pad_axis(block, axis, rng.choice([2, 3, 8]), rng.choice([0, 2]))
        case "add_unit_loop":
            sch.add_unit_loop(block)
        case _:
            pass
    return choice


def _is_long(sch: Schedule, loop: LoopRV) -> bool:
    """True if LLVM would take long for all iterations of the loop at once."""
    found = sch.get(loop)
    return isinstance(found, For) and isinstance(found.extent, IntImm) and found.extent.value > LONG


def _loop_step(
    sch: Schedule, choice: str, block: BlockRV, loop: LoopRV, rng: random.Random
) -> None:
    if choice == "decompose_reduction":
        sch.decompose_reduction(block, loop)
    elif choice == "rfactor":
        sch.rfactor(loop, rng.choice([0, -1]))
    else:
        getattr(sch, choice)(loop)


def _random_layout(sch: Schedule, block: BlockRV, found: Block, rng: random.Random) -> None:
    target = found.writes[0].buffer
    if not target.ndim or any(p is target for p in sch.func.params):
        return
    tile = rng.choice([2, 4])
    if target.ndim == 1:
        fn = rng.choice([lambda i: (i // tile, i % tile), lambda i: (i % tile, i // tile)])
    else:
        fn = rng.choice([
            lambda i, j, *r: (j, i, *r), lambda i, j, *r: (i, j // tile, *r, j % tile),
        ])  # fmt: skip
    sch.transform_layout(block, ("write", 0), fn, pad_value=rng.choice([None, 0.0]))


STEP_NAMES = (
    *("split", "split", "split", "fuse", "reorder", "reorder", "compute_at", "compute_at"),
    *("reverse_compute_at", "reverse_compute_at", "compute_inline", "reverse_compute_inline"),
    *("cache_read", "cache_write", "set_scope", "parallel", "vectorize", "unroll"),
    *("decompose_reduction", "rfactor", "blockize", "transform_layout", "add_unit_loop"),
    *("pad_einsum", "pad_axis", "cache_index", "cache_inplace", "loop_partition"),
)
