"""Lower `match` to conditionals on the number of the constructor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relaxlab.ir import graph, types
from relaxlab.ir.data import data_types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import replace_body, vars_in

BOOL, INT = types.TensorType((), "bool"), types.TensorType((), "int64")


@module_pass("lower_match", needs=("normalize",))
def lower_match(mod: Module, _: NoOptions) -> Module:
    """Turn each match into conditionals: its value's tag, the number of the constructor, is
    compared with those of the cases, the last of which needs no comparison. A case reads the fields
    that it uses.
    """
    functions = mod.graph_functions()
    return mod.with_functions({n: _Lowering(mod).function(f) for n, f in functions.items()})


class _Lowering:
    def __init__(self, mod: Module) -> None:
        self.data = data_types(mod)

    def function(self, fn: graph.Function) -> graph.Function:
        return replace_body(fn, self.sequence(fn.body))

    def sequence(self, seq: graph.SeqExpr) -> graph.SeqExpr:
        blocks = tuple(self.block(b) for b in seq.blocks)
        same = all(a is b for a, b in zip(blocks, seq.blocks, strict=True))
        return seq if same else replace(seq, blocks=blocks)

    def block(self, block: graph.BindingBlock) -> graph.BindingBlock:
        new = [made for b in block.bindings for made in self.binding(b)]
        same = len(new) == len(block.bindings)
        if same and all(a is b for a, b in zip(new, block.bindings, strict=True)):
            return block
        return replace(block, bindings=tuple(new))

    def binding(self, b: graph.Binding) -> list[graph.Binding]:
        match b.value:
            case graph.Match() as e:
                return self.choice(e, list(e.cases), b)
            case graph.If(_, yes, no):
                return [_with_value(b, b.value, true_branch=self.sequence(yes),
                                    false_branch=self.sequence(no))]  # fmt: skip
            case graph.Function(body=body):
                return [_with_value(b, b.value, body=self.sequence(body))]
            case _:
                return [b]

    def choice(
        self, e: graph.Match, cases: list[graph.Case], b: graph.Binding
    ) -> list[graph.Binding]:
        """The bindings that give `b.var` its value, by the constructor of `e.value`."""
        tag = graph.Var("tag", INT, span=e.span)
        read = graph.Call(graph.Op("adt.tag"), (e.value,), span=e.span)
        made: list[graph.Binding] = [graph.VarBinding(read, tag)] if len(cases) > 1 else []
        return made + self.among(e, cases, tag, b.var, lambda value: replace(b, value=value))

    def among(
        self,
        e: graph.Match,
        cases: list[graph.Case],
        tag: graph.Var,
        var: graph.Var,
        bind: Callable[[graph.Expr], graph.Binding],
    ) -> list[graph.Binding]:
        case, *others = cases
        body = self.case(e, case)
        if not others:
            inner = [b for block in body.blocks for b in block.bindings]
            return [*inner, bind(body.body)]
        is_it = graph.Var("is_" + case.constructor.lower(), BOOL, span=e.span)
        number = graph.Constant(np.asarray(self.tag(e, case), np.int64))
        test = graph.VarBinding(graph.Call(graph.Op("equal"), (tag, number), span=e.span), is_it)
        result = graph.Var(var.name, var.ty, span=var.span)
        rest = self.among(e, others, tag, result, lambda value: graph.VarBinding(value, result))
        other = graph.SeqExpr((graph.BindingBlock(tuple(rest)),), result)
        return [test, bind(graph.If(is_it, body, other, span=e.span))]

    def tag(self, e: graph.Match, case: graph.Case) -> int:
        ty = e.value.ty if isinstance(e.value, graph.Var) else None
        assert isinstance(ty, types.DataType)
        of = self.data[ty.name].constructor(case.constructor)
        assert of is not None
        return of.tag

    def case(self, e: graph.Match, case: graph.Case) -> graph.SeqExpr:
        """The body of a case, behind reads of the fields that it uses."""
        body = self.sequence(case.body)
        used = set(vars_in(body))
        reads: list[graph.Binding] = []
        for i, field in enumerate(case.fields):
            if field in used:
                attrs = Attrs(constructor=case.constructor, index=i)
                call = graph.Call(graph.Op("adt.field"), (e.value,), attrs, span=e.span)
                reads.append(graph.VarBinding(call, field))
        if not reads:
            return body
        return replace(body, blocks=(graph.BindingBlock(tuple(reads)), *body.blocks))


def _with_value(b: graph.Binding, value: graph.Expr, **changes: graph.Expr) -> graph.Binding:
    """`b` with parts of its value changed; itself where they are the same."""
    if all(getattr(value, name) is part for name, part in changes.items()):
        return b
    return replace(b, value=replace(value, **changes))
