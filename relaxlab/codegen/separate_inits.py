"""Separate initialisation of reductions that may be empty.

A block's `init` runs where its reduce axes are at their first value. If an axis may be empty that
point may not exist, and yet the sum of nothing is 0: where the axes are not proved to have a first
value, `init` becomes a nest of its own, before the outermost loop that carries the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BlockRealize, Buffer, For, IfThenElse, LetStmt, Stmt
from relaxlab.ir.node import Node, children, map_children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.ranges import bind_stmt, by_data
from relaxlab.schedule.tree import conjuncts

OVER_NOTHING = "is over nothing"
"""Words of the assertion that refuses a reduction."""
Path = tuple[Stmt, ...]
"""The statements around a place, outermost first; of an `if` only the branch that is taken."""


def separate_inits(body: Stmt) -> Stmt:
    """Return `body` with the initialisations of possibly empty reductions separated.

    If a loop runs over spatial and reduce axes at once, or a condition mentions both, the elements
    to initialise are not those of a nest; there an assertion refuses empty reductions.
    """
    before: dict[For, list[Stmt]] = {}

    def visit(n: Node, path: Path) -> Node:
        if not isinstance(n, Stmt):
            return n
        if isinstance(n, IfThenElse):
            new = replace(
                n, then_case=visit(n.then_case, (*path, replace(n, else_case=None))),
                else_case=n.else_case and visit(n.else_case, (*path, _negated(n))),
            )  # fmt: skip
            return n if _same_branches(n, new) else new
        new = map_children(n, lambda c: visit(c, (*path, n)))
        if isinstance(new, BlockRealize) and new.block.init is not None:
            return _separate(new, path, before)
        if isinstance(new, loops.SeqStmt) and new is not n:
            return loops.seq(*new.stmts)
        if isinstance(n, For) and n in before:
            return loops.seq(*before.pop(n), new)  # type: ignore[arg-type]
        return new

    return visit(body, ())  # type: ignore[return-value]


def _negated(n: IfThenElse) -> IfThenElse:
    assert n.else_case is not None
    return IfThenElse(expr.Not(n.condition), n.else_case)


def _same_branches(a: IfThenElse, b: IfThenElse) -> bool:
    return a.then_case is b.then_case and a.else_case is b.else_case


def _separate(realize: BlockRealize, path: Path, before: dict[For, list[Stmt]]) -> BlockRealize:
    block = realize.block
    pairs = [(it, v) for it, v in zip(block.iter_vars, realize.iter_values, strict=True)
             if it.kind == "reduce"]  # fmt: skip
    claims = [expr.binary(expr.GE, it.dom.extent, expr.const(1)) for it, _ in pairs]
    analyzer = Analyzer()
    unsure = [claim for claim in claims if not analyzer.prove(claim)]
    if not unsure:
        return realize
    bindings = _bindings((*path, realize))
    carried = {v for _, value in pairs for v in _counting(substitute(value, bindings))}
    carried |= _loops_of_one_value(realize, path, bindings)
    carried -= _fixed_by_elements(realize, bindings)
    loops_ = [s for s in path if isinstance(s, For) and s.loop_var in carried]
    if not loops_:
        return realize
    first = path.index(loops_[0])
    inner = path[first:]
    nest = _init_nest(realize, path[:first], inner, {s.loop_var for s in loops_})
    if nest is not None:
        before.setdefault(loops_[0], []).append(nest)
        return replace(realize, block=replace(block, init=None))
    around = [s for s in path if not (isinstance(s, For) and s.loop_var in carried)]
    analyzer = Analyzer.for_shapes(realize)
    for s in around:
        bind_stmt(analyzer, s)
    if analyzer.prove(substitute(expr.all_of(unsure), bindings)):
        return realize  # whatever there is to initialise has terms
    table, elements = _elements(realize, bindings, _defined(inner))
    claim = substitute(substitute(expr.all_of(unsure), table), bindings)
    refusal = _refusal(block.name, claim, elements)
    _require_outside(block.name, refusal, inner)
    before.setdefault(loops_[0], []).append(refusal)
    return realize


def _elements(
    realize: BlockRealize, bindings: dict[Var, PrimExpr], inside: set[Var]
) -> tuple[dict[Var, PrimExpr], list[For]]:
    """The axes of a block at the first terms of its elements, and the loops over those axes whose
    values depend on variables that are defined `inside`: over their domains, as the loops of the
    program may have no iteration for an element without terms."""
    table: dict[Var, PrimExpr] = {}
    found: list[For] = []
    for it, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        first, extent = (substitute(substitute(e, table), bindings)
                         for e in (it.dom.min, it.dom.extent))  # fmt: skip
        at = first if it.kind == "reduce" else substitute(value, bindings)
        if inside & set(symbols_in(at)):
            at = Var(it.var.name)
            found.append(For(at, first, extent, "serial", loops.seq()))
        table[it.var] = at
    return table, found


def _refusal(name: str, claim: PrimExpr, elements: Sequence[For]) -> Stmt:
    """The assertion that elements have terms, for all of them that it is about."""
    message = (
        f"the reduction in block {name!r} {OVER_NOTHING}, and its elements cannot be "
        "initialised apart because a loop or a condition mixes spatial and reduce axes"
    )
    made: Stmt = loops.AssertStmt(claim, message)
    for loop in reversed(elements):
        if loop.loop_var in symbols_in(made):
            made = replace(loop, body=made)
    return made


def _require_outside(name: str, made: Stmt, inner: Path) -> None:
    """Raise CodegenError for statements about what is defined or stored in the loops that they are
    to run before."""
    inside = _allocated(inner) | _stored(inner[0])
    if _defined(inner) & set(symbols_in(made)) or inside & _buffers(made):
        raise CodegenError(
            f"the reduction in block {name!r} may be over nothing for some of its elements, which "
            "cannot be told apart: how many terms there are follows from values inside of its loops"
        )


def _fixed_by_elements(realize: BlockRealize, bindings: dict[Var, PrimExpr]) -> set[Var]:
    """The variables of loops that a spatial axis is the same as: all terms of an element have one
    value of these, also where that says how many terms there are."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    values = (substitute(v, bindings) for it, v in pairs if it.kind != "reduce")
    return {v for v in values if isinstance(v, Var)}


def _loops_of_one_value(
    realize: BlockRealize, path: Path, bindings: dict[Var, PrimExpr]
) -> set[Var]:
    """The variables of loops over reduce axes that have one value or none, and are bound to that
    value instead of the loop's variable. A loop of one iteration always has it, whosever it is."""
    values = [substitute(v, bindings) for v in realize.iter_values]
    named = set(symbols_in(values))
    extents = [substitute(it.dom.extent, bindings)
               for it, v in zip(realize.block.iter_vars, values, strict=True)
               if it.kind == "reduce" and not symbols_in(v)]  # fmt: skip
    return {s.loop_var for s in path
            if isinstance(s, For) and s.loop_var not in named and s.extent != expr.const(1)
            and substitute(s.extent, bindings) in extents}  # fmt: skip


def _counting(e: Node) -> set[Var]:
    """The variables of an expression that are not only in places of what it loads: the length of a
    sequence takes part in the numbers of its terms, which sequence it is does not."""
    if isinstance(e, loops.BufferLoad):
        return set()
    if isinstance(e, Var):
        return {e}
    return {v for c in children(e) for v in _counting(c)}


def _bindings(path: Sequence[Stmt]) -> dict[Var, PrimExpr]:
    """Return the axes of blocks, let variables and loops of one iteration in terms of the other
    loops, without values that are read from memory."""
    table: dict[Var, PrimExpr] = {}
    for s in path:
        found: list[tuple[Var, PrimExpr]] = []
        if isinstance(s, BlockRealize):
            axes = (it.var for it in s.block.iter_vars)
            found = list(zip(axes, s.iter_values, strict=True))
        elif isinstance(s, LetStmt):
            found = [(s.var, s.value)]
        elif isinstance(s, For) and s.extent == expr.const(1):
            found = [(s.loop_var, s.min)]
        table |= {var: substitute(v, table) for var, v in found if not _reads_memory(v)}
    return table


def _reads_memory(e: PrimExpr) -> bool:
    """True if the value may be another one at another time: index functions stay as they are."""
    return any(isinstance(n, loops.BufferLoad) and not n.buffer.facts for n in walk(e))


def _defined(path: Sequence[Stmt]) -> set[Var]:
    """The variables that these statements define."""
    found = {s.loop_var for s in path if isinstance(s, For)}
    found |= {s.var for s in path if isinstance(s, LetStmt)}
    return found | {it.var for s in path if isinstance(s, Block) for it in s.iter_vars}


def _init_nest(
    realize: BlockRealize, outer: Path, inner: Path, carried: set[Var]
) -> Stmt | None:
    """Return the initialisation over all loops of `inner` that do not carry the reduction; None if
    these are not the elements to initialise."""
    bindings = _bindings(inner)
    ends = _ends_of_terms(realize, _bindings((*inner, realize)))
    conditions = _spatial_conditions([*inner, realize], bindings, carried, ends)
    block = realize.block
    if conditions is None or block.init is None:
        return None
    kept = [i for i, it in enumerate(block.iter_vars) if it.kind != "reduce"]
    used = _buffers(block.init)
    around = [*outer, *(s for s in inner if isinstance(s, For) and s.loop_var not in carried)]
    conditions += _unproved_ranges(realize, around, _bindings((*inner, realize)), conditions)
    init = replace(
        block, iter_vars=tuple(block.iter_vars[i] for i in kept), reads=(), body=block.init,
        init=None, alloc_buffers=(),
        match_buffers=tuple(m for m in block.match_buffers if m.buffer in used),
    )  # fmt: skip
    values = tuple(realize.iter_values[i] for i in kept)
    nest: Stmt = substitute(BlockRealize(values, expr.all_of(conditions), init), bindings)
    # A variable is defined in one place: the nest's copies of loops and axes need their own.
    fresh: dict[Var, PrimExpr] = {it.var: Var(it.var.name) for it in init.iter_vars}
    for loop in reversed([s for s in inner if isinstance(s, For)]):
        if loop.loop_var in carried or loop.loop_var not in symbols_in(nest):
            continue
        nest = replace(loop, min=substitute(loop.min, bindings),
                       extent=substitute(loop.extent, bindings), body=nest)  # fmt: skip
        fresh[loop.loop_var] = Var(loop.loop_var.name)
    nest = substitute(nest, fresh)
    gone = {it.var for it in block.iter_vars} | _defined(inner)
    inside = _allocated(inner) | _stored(inner[0]) - _stored(block.init)
    outside = not gone & set(symbols_in(nest)) and not inside & _buffers(nest)
    return nest if outside else None


def _allocated(path: Sequence[Stmt]) -> set[loops.Buffer]:
    """The buffers that exist inside of blocks alone, views among them."""
    found = {b for s in path if isinstance(s, Block) for b in s.alloc_buffers}
    return found | {m.buffer for s in path if isinstance(s, Block) for m in s.match_buffers}


def _stored(s: Stmt) -> set[loops.Buffer]:
    return {n.buffer for n in walk(s) if isinstance(n, loops.BufferStore)}


def _unproved_ranges(
    realize: BlockRealize, around: Sequence[Stmt], bindings: dict[Var, PrimExpr],
    conditions: Sequence[PrimExpr],
) -> list[PrimExpr]:  # fmt: skip
    """Conditions under which spatial axes are in their ranges, where neither what is around the
    initialisation nor its other conditions say so. Terms may need none: `r < n - i` has none for
    an `i` beyond n."""
    an = Analyzer.for_shapes(realize)
    for s in around:
        if isinstance(s, For):
            an.bind_range(s.loop_var, substitute(loops.Range(s.min, s.extent), bindings))
        else:
            bind_stmt(an, s)
        if isinstance(s, IfThenElse):
            an.assume(s.condition)
    for c in conditions:
        an.assume(c)
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    ranges = [(it.dom, v) for it, v in pairs if it.kind != "reduce"]
    ends = [substitute(expr.LT(v, dom.min + dom.extent), bindings) for dom, v in ranges]
    return [end for end in ends if not by_data(end) and an.prove(end) is not True]


def _ends_of_terms(realize: BlockRealize, bindings: dict[Var, PrimExpr]) -> list[PrimExpr]:
    """The distances of the terms from the ends of their axes: guards that ask for more than none
    leave out no element, whatever they depend on."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return [
        substitute(it.dom.min + it.dom.extent - value, bindings)
        for it, value in pairs if it.kind == "reduce"
    ]  # fmt: skip


def _spatial_conditions(
    path: Sequence[Stmt], bindings: dict[Var, PrimExpr], carried: set[Var],
    ends: Sequence[PrimExpr],
) -> list[PrimExpr] | None:  # fmt: skip
    """Return the conditions along the path that do not depend on the loops of the reduction; None
    if one depends on both kinds of loops, or on memory, and is no end of the terms."""
    found: list[PrimExpr] = []
    an = Analyzer()
    own = {s.loop_var for s in path if isinstance(s, For)} - carried
    for s in path:
        whole = s.predicate if isinstance(s, BlockRealize) else None
        whole = s.condition if isinstance(s, IfThenElse) else whole
        for part in conjuncts(whole) if whole is not None else ():
            condition = substitute(part, bindings)
            mentioned = set(symbols_in(condition))
            match condition:
                case expr.LT(a, b) if any(an.prove_equal(b - a, end) for end in ends):
                    continue
                case _:
                    pass
            if _reads_memory(condition) or (mentioned & carried and mentioned & own):
                return None
            if not mentioned & carried:
                found.append(condition)
    return found


def _buffers(n: Node) -> set[Buffer]:
    return {b for b in walk(n) if isinstance(b, Buffer)}
