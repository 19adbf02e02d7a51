"""Let kernels write their results over operands that nothing reads any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import NotAnIterMap, detect_iter_map
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import (
    TirCall,
    leaf_type,
    map_blocks,
    same_shape,
    tir_call,
    with_bindings,
)
from relaxlab.passes.inplace_updates import overwritable
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.tracing import may_apply

RULE = "overwrite_operands"
TRUE = expr.const(True)


@dataclass(frozen=True, slots=True)
class OverwriteOptions:
    """`constant_sizes`: also results of constant size lie over operands."""

    constant_sizes: bool = False


@module_pass(RULE, OverwriteOptions, needs=("normalize",))
def overwrite_operands(mod: Module, options: OverwriteOptions) -> Module:
    """A call of a loop function whose operand is read for the last time becomes one that has its
    result in the operand's memory, where every element is read by that iteration alone which writes
    the same place: of a residual sum after a product, say. The loop function gets a copy without
    the result's parameter.

    Unless `constant_sizes` is on, tensors of constant size have results of their own: their memory
    is planned to the byte, and every thread may run a small kernel by itself
    (`replicate_small_kernels`). Functions that are recorded (see `make_blocks`) run in another
    order than they are written in, and stay as they are.
    """
    state = _Overwriter(mod, NewFunctions[loops.PrimFunc](mod), options)
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        if "recorded" in fn.attrs:
            continue
        found = overwritable(fn, mod, state.places)
        if found:
            updates[name] = map_blocks(fn, lambda b, n=name, f=found: state.block(n, f, b))
    return mod.with_functions({**updates, **state.functions.made})


@dataclass(slots=True)
class _Overwriter:
    mod: Module
    functions: NewFunctions[loops.PrimFunc]
    options: OverwriteOptions
    known: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The operands that the result of a loop function can lie over, by its name."""

    def places(self, value: graph.Expr) -> list[int]:
        """The operands that a call's result could lie over."""
        call = tir_call(value)
        if call is None or len(call.outs) != 1 or call.inplace:
            return []
        func, out = self.mod.get(call.callee), call.outs[0]
        if not isinstance(func, loops.PrimFunc):
            return []
        if _is_known(out) and not self.options.constant_sizes:
            return []
        if call.callee not in self.known:
            *operands, result = func.buffers
            self.known[call.callee] = [
                i for i, operand in enumerate(operands) if is_overwritable(func, operand, result)
            ]
        return [
            i for i in self.known[call.callee]
            if isinstance(call.args[i], graph.Var) and same_shape(leaf_type(call.args[i]), out)
        ]  # fmt: skip

    def block(
        self, name: str, found: dict[graph.Var, int], blk: graph.BindingBlock
    ) -> graph.BindingBlock:
        """A block with the results that were found in the place of operands."""
        return with_bindings(blk, [self.binding(name, b, found.get(b.var)) for b in blk.bindings])

    def binding(self, name: str, b: graph.Binding, at: int | None) -> graph.Binding:
        call = tir_call(b.value)
        if call is None or at is None:
            return b
        operand = call.args[at]
        assert isinstance(operand, graph.Var)
        if not may_apply(RULE, f"{name}.{b.var.name}", f"is written over `{operand.name}`"):
            return b
        func = self.mod[call.callee]
        assert isinstance(func, loops.PrimFunc)
        *_, out = func.buffers
        merged = replace(
            func, params=tuple(p for p in func.params if p is not out),
            body=substitute(func.body, buffers={out: func.buffers[at]}),
        )  # fmt: skip
        callee = self.functions.name_of(merged, f"{call.callee}_inplace")
        new = TirCall(callee, call.args, call.symbols, call.outs, (at,)).build()
        return replace(b, value=replace(new, span=b.value.span))  # type: ignore[call-arg]


def _is_known(ty: types.Type) -> bool:
    """True for the type of a tensor of constant size."""
    return not symbols_in(ty)


def is_overwritable(func: loops.PrimFunc, operand: loops.Buffer, out: loops.Buffer) -> bool:
    """True if a loop function may write `out` over the memory of `operand`: each element of it is
    read by that iteration alone which then writes the same place of `out`, once."""
    plain = (b.dtype == out.dtype and not b.strides and b.elem_offset is None and not b.facts
             for b in (operand, out))  # fmt: skip
    an = Analyzer.for_shapes(operand.shape, out.shape)
    same = len(operand.shape) == len(out.shape) and all(
        an.prove_equal(a, b) is True for a, b in zip(operand.shape, out.shape, strict=True)
    )
    if not same or not all(plain):
        return False
    try:
        return _Stores(operand, out, an).count(func.body, _Around()) == 1
    except (_Elsewhere, NotAnIterMap):
        return False


class _Elsewhere(Exception):
    """The operand is read, or the result written, in another way than element by element."""


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops around a statement, the values of the axes of the blocks around it, and the
    condition under which these run."""

    ranges: tuple[tuple[expr.Var, loops.Range], ...] = ()
    values: tuple[tuple[expr.Var, expr.PrimExpr], ...] = ()
    where: expr.PrimExpr = TRUE

    def at(self, e: expr.PrimExpr) -> expr.PrimExpr:
        """An expression over the loops alone."""
        return substitute(e, dict(self.values))


@dataclass(frozen=True, slots=True)
class _Stores:
    operand: loops.Buffer
    out: loops.Buffer
    an: Analyzer

    def count(self, s: loops.Stmt, around: _Around) -> int:
        """The number of statements that store elements of the result, the most of any version.
        Raises _Elsewhere, or NotAnIterMap, where one does not write each of its elements once."""
        match s:
            case loops.SeqStmt(stmts):
                return sum(self.count(x, around) for x in stmts)
            case loops.For(var, low, extent, body=body):
                self.refuse(low, extent)
                ranged = (var, loops.Range(around.at(low), around.at(extent)))
                return self.count(body, changed(around, ranges=(*around.ranges, ranged)))
            case loops.IfThenElse(condition, yes, no):
                self.refuse(condition)
                arms = [self.count(x, around) for x in (yes, no) if x is not None]
                return sum(arms) if around.ranges else max(arms)
            case loops.LetStmt(var, value, body):
                self.refuse(value)
                bound = (*around.values, (var, around.at(value)))
                return self.count(body, changed(around, values=bound))
            case loops.BlockRealize(values, predicate, block):
                return self.of_block(values, predicate, block, around)
            case loops.BufferStore(buffer, value, indices) if buffer is self.out:
                return self.of_store(value, indices, around)
            case _:
                self.refuse(s)
                return 0

    def of_block(
        self, values: tuple[expr.PrimExpr, ...], predicate: expr.PrimExpr, block: loops.Block,
        around: _Around,
    ) -> int:  # fmt: skip
        self.refuse(*values, predicate, *block.match_buffers)
        given = tuple((v.var, around.at(e)) for v, e in zip(block.iter_vars, values, strict=True))
        where = around.at(predicate)
        if around.where != TRUE:
            where = expr.And(around.where, where)
        inside = _Around(around.ranges, (*around.values, *given), where)
        parts = (block.body,) if block.init is None else (block.init, block.body)
        return sum(self.count(part, inside) for part in parts)

    def of_store(
        self, value: expr.PrimExpr, indices: tuple[expr.PrimExpr, ...], around: _Around
    ) -> int:
        self.refuse(*indices)
        loads = [n for n in walk(value) if isinstance(n, loops.BufferLoad)]
        mine = [n for n in loads if n.buffer in (self.operand, self.out)]
        addressed = any(isinstance(n, expr.Call) and n.op == "address_of" for n in walk(value))
        if addressed or any(n.buffer is self.out or n.indices != indices for n in mine):
            raise _Elsewhere
        where = None if around.where == TRUE else around.where
        places = tuple(map(around.at, indices))
        if not detect_iter_map(places, dict(around.ranges), where, self.an).injective:
            raise _Elsewhere
        return 1

    def refuse(self, *parts: Node) -> None:
        """Raise _Elsewhere if the parts mention the operand or the result."""
        if any(n in (self.operand, self.out) for p in parts for n in walk(p)):
            raise _Elsewhere
