"""Counts of the work of one block of threads: memory accesses, tensor products, arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.node import Node, walk
from relaxlab.runtime.simt.access import Cost, Site

Pipe: TypeAlias = Literal["fma", "alu", "fp64", "xu", "lsu"]
"""The pipes of a multiprocessor, by the names that Nsight Compute has for them: products and sums
of float32; integers, comparisons and conversions; float64; reciprocals and exponentials; loads,
stores and exchanges."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The work of one block of threads.

    costs:    of its loads and stores of main and shared memory, in the order in which they came.
    pipes:    warp instructions by pipe. Those that all threads agree on are left out, as are
              addresses but for their quotients: a GPU has a unit for the former, compilers simplify
              the latter.
    products: floating-point operations of tensor cores.
    barriers: of the whole block.
    """

    costs: Mapping[Site, Cost]
    pipes: Mapping[Pipe, float]
    products: float
    barriers: float

    def by_buffer(self) -> dict[tuple[str, bool], Cost]:
        """The costs by the name of the buffer and whether it is written."""
        found: dict[tuple[str, bool], Cost] = {}
        for site, cost in self.costs.items():
            key = site.buffer.name if site.buffer else "", site.write
            before = found.get(key)
            found[key] = cost if before is None else before + cost
        return found

    def lines(self) -> list[str]:
        """The counts as text: a line for each load and store with its place, one for each buffer
        that has several, and one for arithmetic."""
        width = max((len(s.buffer.name) for s in self.costs if s.buffer), default=0)
        text = [
            _line(site.write, site.buffer.name if site.buffer else "", width, cost, _place(site))
            for site, cost in self.costs.items()
        ]
        sites = Counter((s.buffer.name if s.buffer else "", s.write) for s in self.costs)
        text += [
            _line(write, name, width, cost, f"{sites[name, write]} places together")
            for (name, write), cost in self.by_buffer().items()
            if sites[name, write] > 1
        ]
        work = [f"{n:.0f} {pipe}" for pipe, n in self.pipes.items() if n]
        if work:
            text.append(f"warp instructions: {', '.join(work)}")
        if self.products:
            text.append(f"tensor cores: {self.products:.0f} floating-point operations")
        return text


def _line(write: bool, name: str, width: int, cost: Cost, place: str) -> str:
    instructions = counted(round(cost.instructions), "instruction")
    return (
        f"{'store' if write else 'load':5} {name:{width}} {cost.count:7.0f} {cost.unit:15} "
        f"{cost.excess:6.2f} x the least, {instructions}  {place}"
    )


def _place(site: Site) -> str:
    place = site.block or site.text
    return f"{place} ({site.span})" if site.span else place


Work: TypeAlias = Mapping[Pipe, float]

COSTLY: Work = {"fma": 12, "xu": 1}
"""A function such as `exp`: a reduction of its argument, the instruction, a correction."""
DIVISION: Work = {"fma": 8, "xu": 1}
"""A quotient of float32, rounded as IEEE 754 says."""
BY_CONSTANT: Work = {"alu": 4}
"""An integer divided by a constant: the upper half of a product, shifts, a correction."""
BY_VARIABLE: Work = {"alu": 16, "xu": 1}
CALLS: Mapping[str, Work] = {"likely": {}, "reinterpret": {}, "warp_shuffle_xor": {"lsu": 1}}
"""Calls that are no arithmetic."""
QUOTIENTS = (expr.Div, expr.Mod, expr.FloorDiv, expr.FloorMod)


def work_of(e: PrimExpr, fused: bool = False) -> Work:
    """Return the warp instructions of an operation by themselves, without its operands;
    `fused`: it is the product of a fused multiply-add."""
    match e:
        case _ if fused:
            return {}
        case expr.Call(op=op) if op in CALLS:
            return CALLS[op]
        case expr.Call(op=op) if op in INTRINSICS:
            row = INTRINSICS[op]
            return COSTLY if row.costly else {"fma": row.flops} if row.flops else {"alu": 1}
        case expr.Cast(to, value):
            return {} if to == value.dtype else {"alu": 1}
        case expr.Select() | expr.Not() | expr.CmpOp() | expr.Min() | expr.Max():
            return {"alu": 1}
        case expr.BinaryOp(a, b):
            return _of_binary(e, a, b)
        case _:
            return {}


def _of_binary(e: expr.BinaryOp, a: PrimExpr, b: PrimExpr) -> Work:
    if is_float(a.dtype):
        work: Work = DIVISION if isinstance(e, expr.Div) else {"fma": 1}
        if a.dtype == "float64":
            return {"fp64": sum(work.values())}
        # Half precision is computed in float32 and rounded.
        return work if a.dtype == "float32" else {**work, "alu": 1}
    if isinstance(e, QUOTIENTS):
        if not isinstance(b, expr.IntImm):
            return BY_VARIABLE
        return {"alu": 1} if b.value & (b.value - 1) == 0 else BY_CONSTANT
    return {"alu": 1}


def fused_products(body: Node) -> frozenset[int]:
    """The products that are one instruction with the sum they are an operand of, by `id`."""
    found: set[int] = set()
    for n in walk(body):
        if isinstance(n, expr.Add | expr.Sub) and n.a.dtype in ("float32", "float64"):
            factor = next((x for x in (n.b, n.a) if isinstance(x, expr.Mul)), None)
            if factor is not None:
                found.add(id(factor))
    return frozenset(found)
