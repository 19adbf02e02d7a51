"""`tvm.tir.analysis`: facts about loop functions."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from relaxlab.analysis.costs import cost_of
from relaxlab.analysis.regions import access_regions
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import substitute
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.expr import Call, IntImm, Let, Var
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import (
    Block,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    PrimFunc,
    Stmt,
)
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, children, walk
from relaxlab.runtime.programs import as_module
from relaxlab.schedule.compact import accesses, common_path
from relaxlab.schedule.regions import addressed_buffers
from relaxlab.schedule.tree import all_blocks


def verify_well_formed(obj: Any, assert_mode: bool = True) -> bool:
    """True if nothing is wrong with a loop function or module; raises ValueError with all that is
    instead, unless `assert_mode` is False."""
    problems = check_well_formed(as_module(obj))
    if problems and assert_mode:
        raise ValueError("\n".join(str(p) for p in problems))
    return not problems


def undefined_vars(node: Any, defs: Any = ()) -> list[Var]:
    """The variables of a statement or expression that nothing in it defines."""
    return [v for v in substitute.free_symbols(node) if v not in set(defs)]


expr_deep_equal = structural_equal


# --- Regions and places of accesses ---------------------------------------------------------------


def get_sblock_access_region(block: Block, buffer_var_map: Any) -> list[list[BufferRegion]]:
    """The regions that a block reads, those that it writes, and those of which it takes an address,
    by which it may do either."""
    reads, writes = access_regions(block)
    opaque = addressed_buffers(block)
    return [
        [r for r in reads if r.buffer not in opaque],
        [w for w in writes if w.buffer not in opaque],
        [r for r in reads if r.buffer in opaque],
    ]


def get_sblock_read_write_region(block: Block, buffer_var_map: Any) -> list[list[BufferRegion]]:
    """The regions that a block reads, and those that it writes."""
    return [[*regions] for regions in access_regions(block)]


get_block_access_region = get_sblock_access_region
get_block_read_write_region = get_sblock_read_write_region


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, Stmt]:
    """The innermost block or loop around all accesses of each buffer, by buffer."""
    allocated = [b for block in all_blocks(func) for b in block.alloc_buffers]
    found: dict[Buffer, Stmt] = {}
    for buffer in (*func.buffers, *allocated):
        paths = accesses(func, buffer)
        around = [s for s in common_path(paths) if isinstance(s, Block | For)] if paths else []
        if around:
            found[buffer] = around[-1]
    return found


# --- Costs ----------------------------------------------------------------------------------------


def calculate_allocated_bytes(func_or_mod: PrimFunc | Module) -> dict[str, dict[str, int]]:
    """The bytes of memory of constant size that each function allocates, by scope. A function alone
    is called `main`."""
    if isinstance(func_or_mod, PrimFunc):
        return {"main": _allocated(func_or_mod)}
    return {name: _allocated(f) for name, f in as_module(func_or_mod).loop_functions().items()}


def _allocated(func: PrimFunc) -> dict[str, int]:
    total: dict[str, int] = {}
    for buffer in (b for block in all_blocks(func) for b in block.alloc_buffers):
        sizes = [d.value for d in buffer.shape if isinstance(d, IntImm)]
        if len(sizes) == buffer.ndim:
            bits = prod(sizes) * bits_of(buffer.dtype)
            total[buffer.scope] = total.get(buffer.scope, 0) + bits // 8
    return total


def estimate_tir_flops(stmt_or_mod: Stmt | Module) -> float:
    """The operations on data of a statement, or of all loop functions of a module.

    Raises ValueError where the loops do not say how many there are.
    """
    if isinstance(stmt_or_mod, Module):
        functions = [*stmt_or_mod.loop_functions().values()]
    else:
        functions = [PrimFunc((), stmt_or_mod)]
    return sum(map(_flops, functions))


def _flops(func: PrimFunc) -> float:
    cost = cost_of(func)
    if cost is None or not isinstance(cost.flops, IntImm):
        known = "nothing" if cost is None else str(cost.flops)
        raise ValueError(f"the loops do not say how many operations there are: {known} is known")
    return float(cost.flops.value)


def find_anchor_sblock(mod: Module) -> Block | None:
    """The block with an initialisation that has most instances; None where no block has one."""
    found = [
        (prod(d.value for iv in b.iter_vars if isinstance(d := iv.dom.extent, IntImm)), b)
        for func in mod.loop_functions().values()
        for b in all_blocks(func)
        if b.init is not None
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


find_anchor_block = find_anchor_sblock


def verify_memory(func: PrimFunc) -> bool:
    """True unless the target of a function is a GPU and the host would read or write an element of
    an argument: outside of all loops whose iterations are threads."""
    target = func.attrs.get("target")
    kind = target.get("kind") if isinstance(target, Mapping) else str(target or "").split(" ")[0]
    if kind not in GPUS:
        return True
    outside: list[Node] = [func.body]
    while outside:
        n = outside.pop()
        if isinstance(n, BufferLoad | BufferStore) and n.buffer in func.buffers:
            return False
        if not (isinstance(n, For) and n.kind == "thread_binding"):
            outside += children(n)
    return True


GPUS = ("cuda", "metal", "opencl", "rocm", "vulkan", "webgpu")
"""The kinds of targets whose memory the host does not see."""


def is_pure_function(func: PrimFunc, assert_on_error: bool = False) -> bool:
    """True if a loop function neither writes its arguments nor calls what may have effects; raises
    ValueError instead of returning False with `assert_on_error`."""
    found = next((text for n in walk(func.body) if (text := _effect(n, func))), None)
    if found is not None and assert_on_error:
        raise ValueError(f"the function is not pure: it {found}")
    return found is None


def assert_pure_function(func: PrimFunc) -> bool:
    """True for a loop function without effects. Raises ValueError for another one."""
    return is_pure_function(func, assert_on_error=True)


def _effect(n: Node, func: PrimFunc) -> str | None:
    if isinstance(n, BufferStore) and n.buffer in func.buffers:
        return f"writes {n.buffer.name}"
    if isinstance(n, Call) and n.op not in ("ret", "assume"):
        row = INTRINSICS.get(n.op)
        return None if row is not None and row.pure else f"calls {n.op}"
    return None


def verify_ssa(func: PrimFunc) -> bool:
    """True if every variable has one definition."""
    defined = [n.loop_var for n in walk(func.body) if isinstance(n, For)]
    defined += [n.var for n in walk(func.body) if isinstance(n, IterVar | LetStmt | Let)]
    return len(defined) == len(set(defined))
