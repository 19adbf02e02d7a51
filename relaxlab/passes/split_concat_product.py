"""Take the part of a product out that all steps of a recursion can compute at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, known_shape, leaf_type, map_blocks, with_bindings
from relaxlab.passes.host_values import host_values
from relaxlab.passes.make_blocks import RECORDED, entry_of
from relaxlab.passes.shared_values import SharedValues, shared_values
from relaxlab.passes.static_depth import DYNAMIC, StaticDepths, static_depths
from relaxlab.tracing import may_apply


@module_pass("split_concat_product", needs=("normalize", "lambda_lifting"))
def split_concat_product(mod: Module, _: NoOptions) -> Module:
    """Make `concat((x, h), axis=1) @ W` two products, `x @ W[:k] + h @ W[k:]`, where exactly one of
    `x` and `h` is static (see `static_depth`) and W is a weight.

    A recurrent cell is written with one product over its input and its state. The input's part
    depends on no state, so that one kernel computes it for all steps of all instances.
    """
    entry = entry_of(mod)
    if RECORDED in mod[entry].attrs:  # type: ignore[union-attr]
        return mod
    depths, shared = static_depths(mod, entry), shared_values(mod, entry)
    updates: dict[str, graph.Function] = {}
    for name in host_values(mod, entry).functions:
        fn = mod[name]
        assert isinstance(fn, graph.Function)
        splitter = _Splitter(name, depths, shared, {b.var: b.value for b in all_bindings(fn)})
        updates[name] = map_blocks(fn, splitter.block)
    return mod.with_functions(updates)


@dataclass(frozen=True, slots=True)
class _Splitter:
    name: str
    depths: StaticDepths
    shared: SharedValues
    made_by: dict[graph.Var, graph.Expr]

    def block(self, blk: graph.BindingBlock) -> graph.BindingBlock:
        kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
        return with_bindings(blk, [x for b in blk.bindings for x in self.binding(b, kind)])

    def binding(self, b: graph.Binding, kind: type[graph.Var]) -> Iterator[graph.Binding]:
        match b.value:
            case graph.Call(graph.Op("matmul"), (graph.Var() as whole, graph.Var() as weight)):
                parts = self.parts(whole)
                subject = f"{self.name}.{b.var.name}"
                if len(parts) == 2 and self.shared.source(self.name, weight) is not None:
                    static = [self.depths.of(p) < DYNAMIC for p in parts]
                    reason = "one part of the rows is known before the recursion"
                    if sum(static) == 1 and may_apply("split_concat_product", subject, reason):
                        yield from _products(b, parts, weight, kind)
                        return
            case _:
                pass
        yield b

    def parts(self, whole: graph.Var) -> tuple[graph.Expr, ...]:
        """The parts of rows that a variable joins; none for anything else."""
        match self.made_by.get(whole):
            case graph.Call(graph.Op("concat"), (graph.Tuple(fields),), attrs):
                shapes = [known_shape(leaf_type(f)) for f in fields]
                if attrs.get("axis") in (1, -1) and all(s and len(s) == 2 for s in shapes):
                    return fields
            case _:
                pass
        return ()


def _products(
    b: graph.Binding,
    parts: tuple[graph.Expr, ...],
    weight: graph.Var,
    kind: type[graph.Var],
) -> Iterator[graph.Binding]:
    """The bindings of both products and of their sum."""
    shape, columns = known_shape(leaf_type(parts[0])), known_shape(weight.ty)
    rest = known_shape(leaf_type(parts[1]))
    assert shape is not None and columns is not None and rest is not None
    assert isinstance(shape[1], expr.IntImm) and isinstance(b.var.ty, types.TensorType)
    halves = tuple(types.TensorType((s[1], columns[1]), b.var.ty.dtype) for s in (shape, rest))
    split = kind(f"{weight.name}_parts", types.TupleType(halves))
    attrs = Attrs(indices_or_sections=(shape[1].value,), axis=0)
    yield graph.VarBinding(graph.Call(graph.Op("split"), (weight,), attrs), split)
    products: list[graph.Expr] = []
    product_attrs = b.value.attrs if isinstance(b.value, graph.Call) else Attrs()
    for i, (part, half) in enumerate(zip(parts, halves, strict=True)):
        rows = kind(f"{weight.name}_part", half)
        yield graph.VarBinding(graph.TupleGetItem(split, i), rows)
        product = kind(f"{b.var.name}_part", b.var.ty)
        call = graph.Call(graph.Op("matmul"), (part, rows), product_attrs, span=b.value.span)
        yield graph.VarBinding(call, product)
        products.append(product)
    total = graph.Call(graph.Op("add"), tuple(products), span=b.value.span)
    yield graph.VarBinding(total, b.var, span=b.span)
