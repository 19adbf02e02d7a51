"""One launch on simulated threads: its sizes, its memory, and its problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import Var, format_expr
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Evaluate, IfThenElse, SeqStmt
from relaxlab.ir.node import Node, walk
from relaxlab.runtime.interpreter.independence import is_independent
from relaxlab.runtime.simt.access import Site
from relaxlab.runtime.simt.memory import Memory
from relaxlab.runtime.simt.report import Geometry, Problem, ProblemKind, Problems, Triple


@dataclass(slots=True)
class Kernel:
    """A launch that is running. `scalars` are the values of its parameters and symbols, `memory`
    its buffers in main memory. `block` names the block of the loop function that the statement at
    hand came from."""

    launch: Launch
    scalars: Mapping[Var, Any]
    memory: Mapping[Buffer, Memory]
    shapes: Mapping[Buffer, tuple[int, ...]]
    geometry: Geometry
    problems: Problems
    block: str = ""
    sites: list[Site] = field(default_factory=list[Site])
    numbers: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    needs: dict[int, frozenset[Var] | None] = field(
        default_factory=dict[int, "frozenset[Var] | None"]
    )
    place_needs: dict[int, frozenset[Var] | None] = field(
        default_factory=dict[int, "frozenset[Var] | None"]
    )
    constants: dict[int, Any] = field(default_factory=dict[int, Any])
    independent: dict[int, bool] = field(default_factory=dict[int, bool])

    def site(self, stmt: loops.Stmt, access: BufferLoad | BufferStore) -> int:
        """The number of an access of a statement."""
        key = id(stmt), id(access)
        if key not in self.numbers:
            self.numbers[key] = len(self.sites)
            self.sites.append(self.describe(stmt, access))
        return self.numbers[key]

    def describe(self, stmt: loops.Stmt, access: BufferLoad | BufferStore | None = None) -> Site:
        """Return the place of a statement, and of one access in it, for messages."""
        buffer = None if access is None else access.buffer
        span = getattr(access, "span", None) or stmt.span
        write = isinstance(access, BufferStore) or _is_stored(stmt, access)
        return Site(buffer, write, statement_text(stmt), self.block, span)

    def needs_of(self, e: expr.PrimExpr) -> frozenset[Var] | None:
        """The variables that an integer expression depends on, None if it depends on more or
        may fail."""
        key = id(e)
        if key not in self.needs:
            self.needs[key] = _needs(e)
        return self.needs[key]

    def needs_of_all(
        self, access: BufferLoad | BufferStore, indices: tuple[expr.PrimExpr, ...]
    ) -> frozenset[Var] | None:
        """The variables that the place of an access depends on; None as in `needs_of`."""
        key = id(access)
        if key not in self.place_needs:
            each = [self.needs_of(i) for i in indices]
            known = [n for n in each if n is not None]
            needs = frozenset[Var]().union(*known) if len(known) == len(each) else None
            self.place_needs[key] = needs
        return self.place_needs[key]

    def constant(self, e: expr.IntImm | expr.FloatImm) -> Any:
        """The NumPy scalar of a constant."""
        key = id(e)
        if key not in self.constants:
            self.constants[key] = np.asarray(e.value).astype(numpy_dtype(e.dtype))[()]
        return self.constants[key]

    def is_independent(self, loop: loops.For) -> bool:
        """True if the iterations of a loop may run at once: statement by statement instead of one
        iteration after the other."""
        key = id(loop)
        if key not in self.independent:
            self.independent[key] = is_independent(loop, {}) or self._only_stores(loop.body)
        return self.independent[key]

    def _only_stores(self, body: loops.Stmt) -> bool:
        """True if `body` is one store, under conditions perhaps, that reads nothing it stores."""
        stores = [n for n in walk(body) if isinstance(n, BufferStore)]
        plain = all(
            isinstance(n, BufferStore | IfThenElse | SeqStmt)
            or (isinstance(n, Evaluate) and isinstance(n.value, expr.StringImm))
            for n in walk(body)
            if isinstance(n, loops.Stmt)
        )
        if not plain or len(stores) != 1:
            return False
        target = stores[0].buffer
        same = self.memory.get(target, target)
        read = {n.buffer for n in walk(body) if isinstance(n, BufferLoad)}
        return all(self.memory.get(b, b) is not same for b in read)

    def report(
        self, kind: ProblemKind, site: Site, count: int, message: str, threads: Sequence[int],
        buffer: Buffer | None = None, index: tuple[int, ...] = (), other: Site | None = None,
    ) -> None:  # fmt: skip
        """Note a problem that came `count` times; `threads` are the numbers of the first ones."""

        def make() -> Problem:
            who = tuple(self.geometry.thread(t) for t in threads)
            name = buffer.name if buffer else ""
            return Problem(kind, self.launch.name, message, who, name, index, site, other)

        self.problems.add((self.launch.name, kind, site, other, buffer), count, make)


def _is_stored(stmt: loops.Stmt, access: BufferLoad | None) -> bool:
    """True if a call stores at the address of an element: its first argument, as in `cp_async`."""
    match stmt:
        case Evaluate(expr.Call(args=(expr.Call(op="address_of", args=(stored,)), *_))):
            return stored is access
        case _:
            return False


def geometry_of(launch: Launch, scalars: Mapping[Var, Any]) -> Geometry:
    """The sizes of a launch for given values of its scalars."""

    def sizes(kind: str) -> Triple:
        x, y, z = (max(int(evaluate(e, scalars)), 0) for e in launch.extents(kind))
        return x, y, z

    return Geometry(sizes("blockIdx"), sizes("threadIdx"))


def broken_limits(launch: Launch, geometry: Geometry) -> list[str]:
    """Return the limits of its GPU that a launch exceeds, in words."""
    facts = launch.facts
    wrong: list[str] = []
    threads = geometry.threads
    if threads > facts.block_threads:
        most = facts.block_threads
        wrong.append(f"a block has {threads} threads, {most} at most are possible")
    for axis, size, most in zip("xyz", geometry.grid, facts.grid, strict=True):
        if size > most:
            wrong.append(f"the grid has {size} blocks along {axis}, {most} at most are possible")
    size = sum(
        numpy_dtype(b.dtype).itemsize * int(np.prod([evaluate(d, {}) for d in b.shape]))
        for b in launch.shared
    )
    if size > facts.most_shared:
        wrong.append(f"a block declares {size} bytes of shared memory, {facts.most_shared} at most")
    return wrong


def statement_text(s: loops.Stmt) -> str:
    """A statement in one line of at most 100 characters."""
    match s:
        case BufferStore(buffer, value, indices):
            text = f"{buffer.name}[{', '.join(map(format_expr, indices))}] = {format_expr(value)}"
        case IfThenElse(condition):
            text = f"if {format_expr(condition)}"
        case loops.While(condition):
            text = f"while {format_expr(condition)}"
        case loops.For(var, lo, extent):
            text = f"for {var.name} in range({format_expr(lo)}, {format_expr(lo + extent)})"
        case loops.LetStmt(var, value):
            text = f"{var.name} = {format_expr(value)}"
        case Evaluate(value):
            text = format_expr(value)
        case loops.AssertStmt(condition):
            text = f"assert {format_expr(condition)}"
        case _:
            text = type(s).__name__
    return text if len(text) <= 100 else f"{text[:99]}…"


_TOTAL = (
    expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max, expr.CmpOp, expr.And, expr.Or, expr.Not,
    expr.Cast, expr.Select, expr.BitOp, expr.Var, expr.IntImm,
)  # fmt: skip


def _needs(e: expr.PrimExpr) -> frozenset[Var] | None:
    found: set[Var] = set()
    for n in walk(e):
        match n:
            case Var():
                found.add(n)
            case expr.FloorDiv(_, expr.IntImm(c)) | expr.FloorMod(_, expr.IntImm(c)) if c != 0:
                pass
            case _ if not isinstance(n, _TOTAL):
                return None
    return frozenset(found)


def stored_buffers(body: Node) -> set[Buffer]:
    """The buffers that a statement writes."""
    return {n.buffer for n in walk(body) if isinstance(n, BufferStore)}
