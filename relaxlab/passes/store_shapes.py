"""Symbols of graph functions become numbers in memory, a heap of shapes.

Afterwards no call has a symbol: what they stand for is taken from arguments and put into an int64
tensor (`match_shape`), computed there by loop functions, and read where shapes are made
(`make_shape`). Types still have symbols, which say what is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import Attrs, Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import all_bindings, leaf_type
from relaxlab.passes.lower_builtins import CALL_WITH_CONTEXT, packed
from relaxlab.passes.match_types import is_redundant
from relaxlab.passes.new_functions import NewFunctions

IS_IMMEDIATE, STORE, IGNORE, IS_STORED = range(4)
"""The ways in which `match_shape` takes a dimension: it has to be a number; it is stored in a slot;
it may be anything; it has to be what a slot has."""
IMMEDIATE, LOAD = range(2)
"""The ways in which `make_shape` takes a dimension: it is a number, or what a slot has."""
MAKE_SHAPE, MAKE_SCALAR = (
    graph.ExternFunc(f"vm.builtin.make_{what}") for what in ("shape", "prim_value")
)
HEAP_NAME = "shape_heap"
HEAP = types.TensorType(None, "int64", 1)
NOTHING = types.TupleType(())


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`contexts`: checks say in their messages what they are of."""

    contexts: bool = True


@module_pass("store_shapes", StoreOptions, needs=("normalize",))
def store_shapes(mod: Module, options: StoreOptions) -> Module:
    """Check the types of parameters, of casts and of results by calls of registered functions, and
    compute shapes in a tensor. Raises ValueError for a symbol that nothing defines."""
    made = NewFunctions[loops.PrimFunc](mod)
    updates = {
        name: _Function(name, fn, made, options.contexts).lowered()
        for name, fn in mod.graph_functions().items()
        if next((b.var.name for b in all_bindings(fn)), None) != HEAP_NAME  # stored already
    }
    return mod.with_functions({**made.made, **updates})


@dataclass(slots=True)
class _Function:
    """A function, with the slots of its symbols and expressions, those that have values so far, and
    the values that are yet to be matched with dimensions."""

    name: str
    fn: graph.Function
    made: NewFunctions[loops.PrimFunc]
    contexts: bool
    slots: dict[expr.PrimExpr, int] = field(default_factory=dict[expr.PrimExpr, int])
    known: set[expr.PrimExpr] = field(default_factory=set[expr.PrimExpr])
    waiting: list[tuple[graph.Expr, Sequence[expr.PrimExpr], str]] = field(
        default_factory=list[tuple[graph.Expr, Sequence[expr.PrimExpr], str]]
    )
    made_shapes: dict[graph.Var, graph.Expr] = field(default_factory=dict[graph.Var, graph.Expr])
    """The variables of shapes that were made, of which the rank is known."""
    heap: graph.Var = field(default_factory=lambda: graph.Var(HEAP_NAME, HEAP))
    names: UniqueNames = field(default_factory=UniqueNames)

    def lowered(self) -> graph.Function:
        fn = self.fn
        self.names = UniqueNames(b.var.name for b in all_bindings(fn))
        for e in chain.from_iterable(map(_sizes, self.typed())):
            if not isinstance(e, expr.IntImm):
                self.slots.setdefault(e, len(self.slots))
        if not self.slots:
            self.heap = replace(self.heap, ty=types.ObjectType())
        body = self.sequence(fn.body, outermost=True)
        return replace(fn, body=substitute(body, values=self.made_shapes))

    @property
    def is_checked(self) -> bool:
        """True if the type of the result says more than that of what is returned."""
        ty, known = self.fn.ret_ty, leaf_type(self.fn.body.body)
        if ty is None or isinstance(ty, types.ShapeType | types.PrimType):
            return ty is not None
        return known is None or not is_redundant(known, ty)

    def typed(self) -> Iterator[Node]:
        """The nodes with symbols that run time needs, in the order of the program."""
        fn = self.fn
        yield from (p.ty for p in fn.params if p.ty is not None)
        for b in all_bindings(fn):
            if isinstance(b, graph.MatchCast):
                yield b.ty
            yield b.value
        yield fn.body.body
        if fn.ret_ty is not None and self.is_checked:
            yield fn.ret_ty

    def sequence(self, seq: graph.SeqExpr, *, outermost: bool = False) -> graph.SeqExpr:
        first: list[graph.Binding] = []
        if outermost:
            first += [graph.VarBinding(self.allocation(), self.heap)]
            for i, p in enumerate(self.fn.params):
                place = f"fn={self.name}, loc=param[{i}], param={p.name}"
                where = f"{place}, annotation={_written(p.ty)}"
                first += self.checks(p, p.ty, self.context(where), None)
            first += self.matches()
        blocks = [graph.BindingBlock(tuple(first))] if first else []
        for blk in seq.blocks:
            new = tuple(x for b in blk.bindings for x in self.binding(b))
            blocks.append(replace(blk, bindings=new))
        body, last = self.plain(seq.body)
        if outermost and self.fn.ret_ty is not None:
            where = f"fn={self.name}, loc=return, annotation={_written(self.fn.ret_ty)}"
            known = leaf_type(substitute(body, values=self.made_shapes))
            if self.is_checked and (known is None or not is_redundant(known, self.fn.ret_ty)):
                last += self.checks(body, self.fn.ret_ty, self.context(where), known)
                last += self.matches()
        if last:
            blocks.append(graph.BindingBlock(tuple(last)))
        plain = [b for b in blocks if b.bindings]
        return replace(seq, blocks=tuple(_joined(plain)), body=body)

    def allocation(self) -> graph.Call:
        if not self.slots:
            return graph.Call(graph.Op("null_value"), ())
        size = graph.Tuple((graph.PrimValue(expr.const(len(self.slots))),))
        called = (graph.ExternFunc("vm.builtin.alloc_shape_heap"), size)
        return graph.Call(CALL_WITH_CONTEXT, called, ty_args=(HEAP,))

    def context(self, where: str) -> graph.StringImm:
        return graph.StringImm(f"ErrorContext({where}) " if self.contexts else "")

    def binding(self, b: graph.Binding) -> list[graph.Binding]:
        if isinstance(b.value, graph.If):
            value = b.value
            true, false = (self.branch(s) for s in (value.true_branch, value.false_branch))
            return [replace(b, value=replace(value, true_branch=true, false_branch=false))]  # type: ignore[call-arg]
        value, new = self.plain(b.value, nested=False)
        if isinstance(b, graph.MatchCast):
            where = self.context(f"match_cast, ty={_written(b.ty)}")
            known = leaf_type(value)
            if known is None or not is_redundant(known, b.ty):
                new += self.checks(value, b.ty, where, known)
                new += self.matches()
            else:
                self.known |= {*symbols_in(b.ty)}
            return [*new, replace(b, value=value)]
        if isinstance(value, graph.Call) and value.op in (MAKE_SHAPE, MAKE_SCALAR):
            self.made_shapes[b.var] = var = replace(b.var, ty=value.ty_args[0])
            return [*new, replace(b, value=value, var=var)]
        return [*new, replace(b, value=value)]  # type: ignore[call-arg]

    def branch(self, seq: graph.SeqExpr) -> graph.SeqExpr:
        outside = {*self.known}
        new = self.sequence(seq)
        self.known = outside
        return new

    def plain(
        self, e: graph.Expr, *, nested: bool = True
    ) -> tuple[graph.Expr, list[graph.Binding]]:
        """An expression without symbols, with the bindings of shapes in it, but for itself."""
        new: list[graph.Binding] = []

        def visit(n: Node) -> Node | None:
            made = self.made_shape(n) if isinstance(n, graph.ShapeExpr | graph.PrimValue) else None
            if made is None or (n is e and not nested):
                return made
            var = graph.Var(self.names("gv"), made.ty_args[0])
            new.append(graph.VarBinding(made, var))
            return var

        return rewrite(e, visit), new

    def made_shape(self, e: graph.ShapeExpr | graph.PrimValue) -> graph.Call | None:
        values = e.values if isinstance(e, graph.ShapeExpr) else (e.value,)
        if not any(symbols_in(values)):
            return None
        if isinstance(e, graph.PrimValue):
            code = _numbers(self.slot(e.value))
            ty = types.PrimType(e.value.dtype)
            return packed("vm.builtin.make_prim_value", self.heap, *code, ty=ty)
        pairs = ((IMMEDIATE, v.value) if isinstance(v, expr.IntImm) else (LOAD, self.slot(v))
                 for v in values)  # fmt: skip
        code = _numbers(len(values), *chain.from_iterable(pairs))
        ty = types.ShapeType(None, len(values))
        return packed("vm.builtin.make_shape", self.heap, *code, ty=ty)

    def slot(self, e: expr.PrimExpr) -> int:
        if e not in self.known:
            names = ", ".join(s.name for s in symbols_in(e))
            raise ValueError(f"store_shapes: in `{self.name}`, nothing defines {names} in {e}")
        return self.slots[e]

    def checks(
        self, value: graph.Expr, ty: types.Type | None, where: graph.Expr, known: types.Type | None
    ) -> list[graph.Binding]:
        """The checks of a value's kind, rank and dtype that its type does not make needless; its
        dimensions wait."""
        if ty is None or isinstance(ty, types.ObjectType):
            return []
        new: list[graph.Binding] = []
        rank = _rank(ty)
        if known is None or not is_redundant(known, _without_dims(ty)):
            name, *given = _kind(ty)
            new.append(_effect(f"vm.builtin.check_{name}_info", value, *given, where))
        dims = _dims(ty)
        if isinstance(ty, types.TupleType):
            for i, part in enumerate(ty.fields):
                if isinstance(part, types.ObjectType):
                    continue
                var = graph.Var(self.names("gv"), part)
                new.append(graph.VarBinding(graph.TupleGetItem(value, i), var))
                new += self.checks(var, part, where, None)
        elif dims is not None and rank != 0:
            self.waiting.append((value, dims, where.value))  # type: ignore[attr-defined]
        elif isinstance(ty, types.PrimType) and ty.value is not None:
            self.waiting.append((value, (ty.value,), where.value))  # type: ignore[attr-defined]
        return new

    def matches(self) -> list[graph.Binding]:
        """The matches of all values that wait: those first that need no more than what is known."""
        new: list[graph.Binding] = []
        while self.waiting:
            later: list[tuple[graph.Expr, Sequence[expr.PrimExpr], str]] = []
            for value, dims, where in self.waiting:
                if all(isinstance(d, expr.Var | expr.IntImm) or d in self.known for d in dims):
                    new.append(self.match(value, dims, where))
                else:
                    later.append((value, dims, where))
            if len(later) == len(self.waiting):
                for value, dims, where in later:  # what never has a value is not matched
                    new.append(self.match(value, dims, where))
                later = []
            self.waiting = later
            new += self.computed()
        return new

    def match(
        self, value: graph.Expr, dims: Sequence[expr.PrimExpr], where: str
    ) -> graph.Binding:
        ty = leaf_type(value)
        context = graph.StringImm(where)
        code: list[int] = []
        for d in dims:
            if isinstance(d, expr.IntImm):
                code += (IS_IMMEDIATE, d.value)
            elif d in self.known:
                code += (IS_STORED, self.slots[d])
            elif isinstance(d, expr.Var):
                code += (STORE, self.slots[d])
                self.known.add(d)
            else:
                code += (IGNORE, 0)
        if isinstance(ty, types.PrimType):
            numbers = _numbers(*code)
            return _effect("vm.builtin.match_prim_value", value, self.heap, *numbers, context)
        numbers = _numbers(len(dims), *code)
        return _effect("vm.builtin.match_shape", value, self.heap, *numbers, context)

    def computed(self) -> list[graph.Binding]:
        """The call that computes the expressions whose symbols are known now."""
        unknown = (e for e in self.slots if e not in self.known and not isinstance(e, expr.Var))
        ready = [e for e in unknown if {*symbols_in(e)} <= self.known]
        if not ready:
            return []
        self.known |= {*ready}
        heap = loops.Buffer("H", (expr.const(len(self.slots)),), "int64")

        def at(slot: int) -> tuple[expr.PrimExpr, ...]:
            return (expr.const(slot),)

        stored = {s: loops.BufferLoad(heap, at(i)) for s, i in self.slots.items()
                  if isinstance(s, expr.Var)}  # fmt: skip
        stores = [loops.BufferStore(heap, substitute(e, stored), at(self.slots[e])) for e in ready]
        body = stores[0] if len(stores) == 1 else loops.SeqStmt(tuple(stores))
        root = loops.Block("root", (), (), (), body)
        realized = loops.BlockRealize((), expr.const(1, "bool"), root)
        attrs = Attrs({"tirx.is_host_func": True})
        func = loops.PrimFunc((heap,), realized, attrs, private=True)
        call = graph.Call(graph.GlobalVar(self.made.name_of(func, "shape_func")), (self.heap,))
        return [graph.VarBinding(call, graph.Var("_", NOTHING))]


def _written(ty: types.Type | None) -> str:
    """A type as the script language writes it with keywords."""
    return re.sub(r"(?:dtype=)?'(\w+)'", r'dtype="\1"', str(ty))


def _joined(blocks: Sequence[graph.BindingBlock]) -> Iterator[graph.BindingBlock]:
    """Blocks of which neighbours without dataflow are one."""
    last: graph.BindingBlock | None = None
    for blk in blocks:
        if last is not None and type(last) is type(blk) is graph.BindingBlock:
            last = replace(last, bindings=(*last.bindings, *blk.bindings))
            continue
        if last is not None:
            yield last
        last = blk
    if last is not None:
        yield last


def _effect(name: str, *args: graph.Expr) -> graph.Binding:
    return graph.VarBinding(packed(name, *args, ty=NOTHING), graph.Var("_", NOTHING))


def _numbers(*values: int) -> tuple[graph.PrimValue, ...]:
    return tuple(graph.PrimValue(expr.const(v)) for v in values)


def _sizes(n: Node) -> Iterator[expr.PrimExpr]:
    """The dimensions and scalars in a type or an expression, from the first on."""
    if isinstance(n, graph.Call):
        for a in n.args:
            yield from _sizes(a)
        return
    for x in walk(n):
        match x:
            case graph.ShapeExpr(values) | types.ShapeType(tuple(values)):
                yield from values
            case types.TensorType(shape=tuple(dims)):
                yield from dims
            case graph.PrimValue(value) | types.PrimType(value=expr.PrimExpr() as value):
                yield value
            case _:
                pass


def _dims(ty: types.Type) -> Sequence[expr.PrimExpr] | None:
    match ty:
        case types.TensorType(shape=dims) | types.ShapeType(dims):
            return dims
        case _:
            return None


def _rank(ty: types.Type) -> int:
    return ty.ndim if isinstance(ty, types.TensorType | types.ShapeType) else -1


def _without_dims(ty: types.Type) -> types.Type:
    match ty:
        case types.TensorType():
            return types.TensorType(None, ty.dtype, ty.ndim)
        case types.ShapeType():
            return types.ShapeType(None, ty.ndim)
        case types.PrimType():
            return types.PrimType(ty.dtype)
        case _:
            return ty


def _kind(ty: types.Type) -> tuple[str, *tuple[graph.Expr, ...]]:
    """The name of a type's check, and what it is given besides the value."""
    match ty:
        case types.TensorType():
            dtype = graph.DataTypeImm(ty.dtype) if ty.dtype else graph.DataTypeImm("void")
            return "tensor", *_numbers(ty.ndim), dtype
        case types.ShapeType():
            return "shape", *_numbers(ty.ndim)
        case types.PrimType():
            return "prim_value", graph.DataTypeImm(ty.dtype)
        case types.TupleType():
            return "tuple", *_numbers(len(ty.fields))
        case _:
            return ("func",)
