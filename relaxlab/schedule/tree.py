"""Finding statements in a loop function and replacing them, with everything above rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, TypeVar

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)
from relaxlab.ir.names import among, fresh_name
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError

TRUE = expr.IntImm(1, "bool")
S = TypeVar("S", bound=Stmt)


def child_stmts(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside `s`, in order of execution."""
    inside = _CHILD_STMTS.get(type(s))
    return () if inside is None else inside(s)


def _body(s: For | While | LetStmt) -> tuple[Stmt, ...]:
    return (s.body,)


# A table, as each primitive goes through the statements several times.
_CHILD_STMTS: dict[type[Stmt], Callable[[Any], tuple[Stmt, ...]]] = {
    For: _body,
    While: _body,
    LetStmt: _body,
    SeqStmt: lambda s: s.stmts,
    IfThenElse: lambda s: tuple(c for c in (s.then_case, s.else_case) if c is not None),
    BlockRealize: lambda s: (s.block,),
    Block: lambda s: (s.body,) if s.init is None else (s.init, s.body),
}


def walk_stmts(s: Stmt) -> Iterator[Stmt]:
    """`s` and all statements inside it, parents first."""
    stack = [s]
    while stack:
        top = stack.pop()
        yield top
        stack += reversed(child_stmts(top))


def with_child(parent: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """`parent` with its child `old` replaced; None (also as the result) means removed."""
    match parent:
        case SeqStmt(stmts):
            at = next(i for i, s in enumerate(stmts) if s is old)
            kept = [*stmts[:at], *([] if new is None else [new]), *stmts[at + 1 :]]
            return loops.seq(*kept) if kept else None
        case IfThenElse(condition, _, else_case):
            if else_case is old:
                return replace(parent, else_case=new)
            if new is not None:
                return replace(parent, then_case=new)
            return None if else_case is None else IfThenElse(expr.Not(condition), else_case)
        case BlockRealize():
            return None if new is None else replace(parent, block=new)
        case Block():
            if parent.init is old:
                return replace(parent, init=new)
            return None if new is None else replace(parent, body=new)
        case For() | While() | LetStmt():
            return None if new is None else replace(parent, body=new)
        case _:
            raise AssertionError(f"{type(parent).__name__} has no child statements")


@dataclass(frozen=True, slots=True)
class Place:
    """A statement of `func` with its ancestors: `path` runs from the body down to it."""

    func: PrimFunc
    path: tuple[Stmt, ...]

    @property
    def stmt(self) -> Stmt:
        """The statement itself."""
        return self.path[-1]

    @property
    def scope(self) -> Block:
        """The nearest enclosing block."""
        return self.path[self.scope_depth]  # type: ignore[return-value]

    @property
    def scope_depth(self) -> int:
        """The index in `path` of the nearest enclosing block."""
        depths = [i for i, s in enumerate(self.path[:-1]) if isinstance(s, Block)]
        return depths[-1]

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops between the enclosing block and the statement, outermost first."""
        around = takewhile(lambda s: not isinstance(s, Block), reversed(self.path[:-1]))
        return tuple(s for s in around if isinstance(s, For))[::-1]

    @property
    def outer_loops(self) -> tuple[For, ...]:
        """All loops around the statement, those outside enclosing blocks included."""
        return tuple(s for s in self.path[:-1] if isinstance(s, For))

    def replaced(self, new: Stmt | None, depth: int = -1) -> PrimFunc:
        """The function with the statement at `depth` of the path replaced (None: removed,
        together with loops that become empty)."""
        depth = depth % len(self.path)
        current: Stmt | None = new
        for i in range(depth - 1, -1, -1):
            current = with_child(self.path[i], self.path[i + 1], current)
        if current is None:
            raise AssertionError("a function cannot lose its whole body")
        return replace(self.func, body=current)


@dataclass(frozen=True, slots=True)
class BlockPlace(Place):
    """The place of a `BlockRealize`."""

    @property
    def realize(self) -> BlockRealize:
        """The realisation of the block."""
        return self.path[-1]  # type: ignore[return-value]

    @property
    def block(self) -> Block:
        """The block."""
        return self.realize.block


@dataclass(frozen=True, slots=True)
class LoopPlace(Place):
    """The place of a `For`."""

    @property
    def loop(self) -> For:
        """The loop."""
        return self.path[-1]  # type: ignore[return-value]


def path_to(root: Stmt, test: Callable[[Stmt], bool]) -> tuple[Stmt, ...] | None:
    """The statements from `root` down to the first one that passes `test`."""
    if test(root):
        return (root,)
    for c in child_stmts(root):
        found = path_to(c, test)
        if found is not None:
            return (root, *found)
    return None


def find_block(func: PrimFunc, name: str, primitive: str = "get_block") -> BlockPlace:
    """The place of the block called `name`. Raises ScheduleError."""
    path = path_to(func.body, lambda s: isinstance(s, BlockRealize) and s.block.name == name)
    if path is None:
        names = among(name, (b.name for b in all_blocks(func)))
        raise ScheduleError(
            primitive, f"block {name!r}", f"the function has a block of that name; it has: {names}",
            about=(name,),
        )  # fmt: skip
    return BlockPlace(func, path)


def find_loop(func: PrimFunc, var: Var, primitive: str = "get_loops") -> LoopPlace:
    """The place of the loop over `var`. Raises ScheduleError."""
    path = path_to(func.body, lambda s: isinstance(s, For) and s.loop_var is var)
    if path is None:
        raise ScheduleError(
            primitive, f"loop {var.name}", "the loop still exists", about=(var,),
            suggestion="take the loops again with get_loops(block)",
        )  # fmt: skip
    return LoopPlace(func, path)


def all_blocks(root: PrimFunc | Stmt) -> list[Block]:
    """All blocks of a function or statement, parents first."""
    body = root.body if isinstance(root, PrimFunc) else root
    return [s for s in walk_stmts(body) if isinstance(s, Block)]


def realizes_under(s: Stmt) -> list[BlockRealize]:
    """The blocks directly inside `s` (not those inside other blocks); `s` itself may be one."""
    if isinstance(s, BlockRealize):
        return [s]
    return [r for c in child_stmts(s) for r in realizes_under(c)]


def map_realizes(s: S, fn: Callable[[BlockRealize], BlockRealize]) -> S:
    """`s` with `fn` applied to the blocks directly inside it."""
    if isinstance(s, BlockRealize):
        return fn(s)  # type: ignore[return-value]
    new: Stmt = s
    for c in child_stmts(s):
        mapped = map_realizes(c, fn)
        if mapped is not c:
            new = with_child(new, c, mapped)  # type: ignore[assignment]
    return new  # type: ignore[return-value]


def guard(s: Stmt, condition: expr.PrimExpr) -> Stmt:
    """`s` run only where `condition` holds: blocks take it into their predicate."""
    match s:
        case For() | While() | LetStmt():
            return replace(s, body=guard(s.body, condition))
        case SeqStmt(stmts):
            return replace(s, stmts=tuple(guard(c, condition) for c in stmts))
        case BlockRealize(_, predicate):
            return replace(s, predicate=expr.all_of([predicate, condition]))
        case _:
            return IfThenElse(condition, s)


def reading_within(s: S, var: Var, last: expr.PrimExpr) -> S:
    """`s` with what its loops, conditions and bindings load at `var` loaded at `last` where `var`
    is beyond. What is under a predicate does not run there, but loops around it ask for their
    extents."""
    nearest = Var(var.name)

    def load(n: Node) -> Node | None:
        return substitute(n, {var: nearest}) if isinstance(n, loops.BufferLoad) else None

    def visit(s: Stmt) -> Stmt:
        match s:
            case Block():
                return s
            case For(_, low, extent, _, body):
                low, extent = rewrite(low, load), rewrite(extent, load)
                return replace(s, min=low, extent=extent, body=visit(body))
            case BlockRealize(values, predicate):
                values = tuple(rewrite(v, load) for v in values)
                return replace(s, iter_values=values, predicate=rewrite(predicate, load))
            case IfThenElse(condition) | While(condition):
                s = replace(s, condition=rewrite(condition, load))
            case LetStmt(_, value):
                s = replace(s, value=rewrite(value, load))
            case _:
                pass
        for c in child_stmts(s):
            s = with_child(s, c, visit(c)) or s
        return s

    return substitute(visit(s), {nearest: expr.Min(var, last)})  # type: ignore[return-value]


def conjuncts(condition: expr.PrimExpr) -> list[expr.PrimExpr]:
    """The operands of a conjunction; none for True."""
    match condition:
        case expr.And(a, b):
            return conjuncts(a) + conjuncts(b)
        case _:
            return [] if condition == TRUE else [condition]


def bound_inside(s: Stmt) -> set[Var]:
    """The variables that loops, blocks and lets in a statement define."""
    found: set[Var] = set()
    for n in walk(s):
        match n:
            case For(var) | LetStmt(var) | expr.Let(var) | IterVar(var):
                found.add(var)
            case _:
                pass
    return found


def vars_in(root: Node) -> frozenset[Var]:
    """The scalar variables that occur in an expression or statement."""
    if isinstance(root, expr.PrimExpr):
        return _expr_vars(root)
    return frozenset(n for n in walk(root) if isinstance(n, Var))


@lru_cache(maxsize=1 << 14)
def _expr_vars(e: expr.PrimExpr) -> frozenset[Var]:
    return frozenset(n for n in walk(e) if isinstance(n, Var))


def fresh_block_name(func: PrimFunc, hint: str) -> str:
    """`hint`, or `hint_1`, `hint_2`, … when a block has that name."""
    return fresh_name(hint, {b.name for b in all_blocks(func)}.__contains__)


def fresh_buffer_name(func: PrimFunc, hint: str) -> str:
    """`hint`, or `hint_1`, `hint_2`, … when a buffer has that name."""
    taken = {p.name for p in func.params}
    for b in all_blocks(func):
        taken |= {a.name for a in b.alloc_buffers} | {m.buffer.name for m in b.match_buffers}
    return fresh_name(hint, taken.__contains__)


def normalized(func: PrimFunc) -> PrimFunc:
    """`func` with a root block and with every block's name different."""
    body = func.body
    if not _is_root(body):
        body = BlockRealize((), TRUE, Block("root", (), (), (), body))
    body = with_other_names(body, set())
    return func if body is func.body else replace(func, body=body)


def with_other_names(s: S, taken: set[str]) -> S:
    """`s` with every block's name different from the others and from those in `taken`, to which its
    names are added."""
    new: Stmt = s
    if isinstance(s, Block):
        name = fresh_name(s.name or "block", taken.__contains__)
        taken.add(name)
        new = s if name == s.name else replace(s, name=name)
    for c in child_stmts(s):
        renamed = with_other_names(c, taken)
        if renamed is not c:
            new = with_child(new, c, renamed) or new
    return new  # type: ignore[return-value]


def _is_root(body: Stmt) -> bool:
    if not isinstance(body, BlockRealize) or body.iter_values:
        return False
    block = body.block
    return block.name == "root" or bool(block.alloc_buffers or realizes_under(block.body))


def alloc_sites(func: PrimFunc) -> dict[Buffer, Block]:
    """The block that allocates each intermediate buffer."""
    return {a: b for b in all_blocks(func) for a in b.alloc_buffers}


def describe_loop(loop: For) -> str:
    """A loop as messages name it: `loop k (0 ≤ k < 128)`."""
    end = loop.min + loop.extent
    return f"loop {loop.loop_var.name} ({loop.min} ≤ {loop.loop_var.name} < {end})"


def describe_block(block: Block) -> str:
    """A block as messages name it, with its axes: `block 'C' (spatial vi, reduce vk)`."""
    axes = ", ".join(f"{iv.kind} {iv.var.name}" for iv in block.iter_vars)
    return f"block {block.name!r} ({axes or 'no axes'})"


def with_fresh_binders(s: Stmt) -> Stmt:
    """A copy of `s` that defines loop, axis and let variables, and buffers, of its own."""
    blocks = [n for n in walk_stmts(s) if isinstance(n, Block)]
    own = [b for n in blocks for b in (*n.alloc_buffers, *(m.buffer for m in n.match_buffers))]
    s = substitute(s, buffers={b: replace(b) for b in own})
    table: dict[Var, expr.PrimExpr] = {}
    for n in walk_stmts(s):
        match n:
            case For(var) | LetStmt(var):
                table[var] = Var(var.name, var.var_dtype)
            case Block(_, iter_vars):
                table |= {iv.var: Var(iv.var.name, iv.var.var_dtype) for iv in iter_vars}
            case _:
                pass
    return substitute(s, table)
