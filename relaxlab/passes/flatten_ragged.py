"""Sequences of different lengths as rows behind each other, and attention of such rows as attention
that sees a range of keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import known_shape, leaf_type, map_blocks, with_bindings
from relaxlab.passes.flatten_sequences import first_rows, flatten_sequences, reshaped
from relaxlab.tracing import may_apply

VAR_LEN, RAGGED = "nn.attention_var_len", "nn.ragged_attention"


@module_pass("flatten_ragged", needs=("normalize",))
def flatten_ragged(mod: Module, _: NoOptions) -> Module:
    """Replace ragged tensors by dense ones that have their elements (`flatten_sequences`), and
    attention of sequences of different lengths by `nn.attention_within` on the rows of all
    sequences and what computes the range of keys of each row.

    The ranges depend on the lengths alone: layers
    that compute the same share them (`eliminate_common_subexpr`). A call with operands of unknown
    shape stays as it is.
    """
    mod = flatten_sequences(mod)
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        updates[name] = map_blocks(fn, lambda b, n=name: _block(n, b))
    return mod.with_functions(updates)


def _block(name: str, block: graph.BindingBlock) -> graph.BindingBlock:
    var = graph.DataflowVar if isinstance(block, graph.DataflowBlock) else graph.Var
    new: list[graph.Binding] = []
    for b in block.bindings:
        match b:
            case graph.VarBinding(graph.Call(graph.Op(op)) as call) if op in (VAR_LEN, RAGGED):
                flat = _Flattener(var, b.var.name)
                value = flat.var_len(call) if op == VAR_LEN else flat.ragged(call)
                subject, reason = f"{name}.{b.var.name}: {op}", "rows of all sequences"
                if value is not None and may_apply("flatten_ragged", subject, reason):
                    new += [*flat.bindings, replace(b, value=value)]
                    continue
            case _:
                pass
        new.append(b)
    return with_bindings(block, new)


@dataclass(slots=True)
class _Flattener:
    """The bindings that take the place of one."""

    var: type[graph.Var]
    name: str
    bindings: list[graph.Binding] = field(default_factory=list[graph.Binding])

    def bind(self, value: graph.Expr, hint: str) -> graph.Var:
        """A new variable for a value."""
        made = self.var(f"{self.name}_{hint}", type_of(value))
        self.bindings.append(graph.VarBinding(value, made))
        return made

    def var_len(self, call: graph.Call) -> graph.Expr | None:
        """Attention of the sequences that two arrays of positions separate."""
        q, k, v, starts_q, _, *others = call.args
        return self.within(call, (q, k, v), (starts_q, *others[:1]), whole=False)

    def ragged(self, call: graph.Call) -> graph.Expr | None:
        """Attention of sequences whose lengths are given."""
        *rows, lengths = call.args
        shapes = [known_shape(leaf_type(x)) for x in rows]
        if None in shapes or known_shape(leaf_type(lengths)) is None:
            return None
        one = expr.const(1)
        batched = tuple(
            self.bind(reshaped(x, (one, *shape)), "rows")
            for x, shape in zip(rows, shapes, strict=True) if shape is not None
        )  # fmt: skip
        starts = first_rows(lengths, self.bind)
        value = self.within(call, batched, (starts,), whole=True)
        assert value is not None
        result = self.bind(value, "batched")
        shape = known_shape(result.ty)
        assert shape is not None
        return reshaped(result, shape[1:])

    def within(
        self, call: graph.Call, operands: tuple[graph.Expr, ...], starts: tuple[graph.Expr, ...],
        *, whole: bool,
    ) -> graph.Expr | None:  # fmt: skip
        """Attention of queries, keys and values within the ranges that `starts` give."""
        shapes = [known_shape(leaf_type(x)) for x in (*operands, *starts)]
        if None in shapes:
            return None
        queries, keys = (s for s in shapes[:2] if s is not None)
        counts = graph.ShapeExpr((queries[1], keys[1]))
        given = {k: call.attrs[k] for k in ("causal_mask", "window_size") if k in call.attrs}
        attrs = Attrs({**given, "whole": True} if whole else given)
        ranges = self.bind(graph.Call(graph.Op("nn.key_ranges"), (counts, *starts), attrs), "keys")
        before, last = (self.bind(graph.TupleGetItem(ranges, i), n)
                        for i, n in enumerate(("before", "last")))  # fmt: skip
        scale = Attrs({k: call.attrs[k] for k in ("scale",) if k in call.attrs})
        cuts = starts if whole else ()
        return graph.Call(graph.Op("nn.attention_within"), (*operands, before, last, *cuts), scale)
