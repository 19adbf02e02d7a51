"""Compute the same of several values of a block as rows of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxlab.ir import graph
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.batch_blocks import is_unbatched_block
from relaxlab.passes.bindings import map_blocks, vars_in, with_bindings
from relaxlab.passes.make_blocks import BLOCK, entry_of, is_product, tensor_types
from relaxlab.passes.outline import outline_bindings
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.passes.shared_values import shared_values
from relaxlab.tracing import may_apply, remark


@module_pass("batch_twins", needs=("make_blocks",))
def batch_twins(mod: Module, _: NoOptions) -> Module:
    """Take *twins* out of blocks: products of several values by one weight, with what they read
    and what else is done to each alone.

    This is ACRoBat's horizontal batching within a block, for weights that the products have in
    common: `tanh(a @ w)` and `tanh(b @ w)` become two calls of one block, which are rows of one
    batch, of a single instance, too. The weight is read once for both. The rest of the block reads
    their results. Twins read what the block is given: one that reads another's result is at another
    depth. (`combine_gates` is for one value by several weights.)
    """
    shared = shared_values(mod, entry_of(mod))
    cuts: dict[str, _Cut] = {}
    for name, fn in mod.graph_functions().items():
        if is_unbatched_block(mod, name):
            weights = {p for p in fn.params if shared.source(name, p) is not None}
            cut = _Cutter(name, fn, weights).cut()
            if cut.twins:
                cuts[name] = cut
    return normalized(_replaced(mod, cuts)) if cuts else mod


@dataclass(slots=True)
class _Twin:
    """A product and what belongs to it: bindings in order, of which the last is the result; the
    function of them, and the arguments of its call."""

    members: list[graph.VarBinding]
    function: graph.Function
    args: tuple[graph.Expr, ...]

    @property
    def result(self) -> graph.Var:
        return self.members[-1].var


@dataclass(slots=True)
class _Cut:
    """A block without its twins: groups of those that are alike, what is left, and its results."""

    block: graph.Function
    twins: list[list[_Twin]] = field(default_factory=lambda: [])
    rest: list[graph.VarBinding] = field(default_factory=lambda: [])
    results: list[graph.Var] = field(default_factory=lambda: [])


class _Cutter:
    def __init__(self, name: str, fn: graph.Function, weights: set[graph.Var]) -> None:
        self.name, self.fn = name, fn
        bindings = [b for block in fn.body.blocks for b in block.bindings]
        self.bindings = [b for b in bindings if isinstance(b, graph.VarBinding)]
        self.of = {b.var: b for b in self.bindings}
        self.fixed = set(weights)
        """Weights, and what is computed from weights alone."""
        self.readers: dict[graph.Var, list[graph.Var]] = {}
        for b in self.bindings:
            reads = vars_in(b.value)
            if reads and all(v in self.fixed for v in reads):
                self.fixed.add(b.var)
            for v in dict.fromkeys(reads):
                self.readers.setdefault(v, []).append(b.var)
        body = fn.body.body
        self.results = [*body.fields] if isinstance(body, graph.Tuple) else [body]

    def cut(self) -> _Cut:
        cut, groups = _Cut(self.fn), list[list[_Twin]]()
        if not all(isinstance(r, graph.Var) for r in self.results):
            return cut
        for b in self.bindings:
            twin = self.twin(b.var) if is_product(b.value) and self.multiplies_weight(b) else None
            if twin is not None:
                alike = next((g for g in groups if self.alike(g[0], twin)), None)
                groups.append([twin]) if alike is None else alike.append(twin)
        for group in groups:
            if self.accepted(group):
                cut.twins.append(self.extended(group))
        made = {t.result for group in cut.twins for t in group}
        needed = {r for r in self.results if isinstance(r, graph.Var)}
        for b in reversed(self.bindings):
            if b.var in needed and b.var not in made:
                cut.rest.insert(0, b)
                needed |= set(vars_in(b.value))
        own = {b.var for b in cut.rest}
        cut.results = [r for r in dict.fromkeys(self.results) if r in own]  # type: ignore[misc]
        return cut

    def multiplies_weight(self, b: graph.VarBinding) -> bool:
        reads = vars_in(b.value)
        return any(v in self.fixed for v in reads) and not all(v in self.fixed for v in reads)

    def twin(self, result: graph.Var) -> _Twin | None:
        """The twin that ends with a result; None where it reads another product."""
        found: dict[graph.Var, graph.VarBinding] = {}
        products = 0
        work: list[tuple[graph.Var, bool]] = [(result, False)]
        while work:
            var, is_done = work.pop()
            if var not in self.of or var in found:
                continue
            if is_done:
                found[var] = self.of[var]
                products += is_product(self.of[var].value) and var not in self.fixed
                continue
            work.append((var, True))
            work += [(v, False) for v in reversed(vars_in(self.of[var].value))]
        if products != 1:
            where = f"{self.name}.{result.name}"
            remark("batch_twins", where, "reads another product", applied=False)
            return None
        members = [*found.values()]
        return _Twin(members, *outline_bindings(members, [result], Attrs(**{BLOCK: True})))

    def alike(self, a: _Twin, b: _Twin) -> bool:
        """True if two do the same, with the same weights."""
        if len(a.args) != len(b.args) or not structural_equal(a.function, b.function):
            return False
        return all(
            x is y or (x not in self.fixed and y not in self.fixed and _varies(x) and _varies(y))
            for x, y in zip(a.args, b.args, strict=True)
        )

    def accepted(self, group: Sequence[_Twin]) -> bool:
        if len(group) == 1:
            where = f"{self.name}.{group[0].result.name}"
            remark("batch_twins", where, "no other product is like it", applied=False)
            return False
        names = ", ".join(f"`{t.result.name}`" for t in group)
        reason = f"{names} do the same with the same weights: they are rows of one batch"
        return may_apply("batch_twins", f"{self.name}.{group[0].result.name}", reason)

    def extended(self, group: list[_Twin]) -> list[_Twin]:
        """The twins with what is done to each of them alone, as long as it is the same."""
        while True:
            readers = [self.readers.get(t.result, []) for t in group]
            if any(len(r) != 1 or t.result in self.results
                   for r, t in zip(readers, group, strict=True)):  # fmt: skip
                return group
            ends = [r for (r,) in readers]
            if len({*ends}) < len(ends) or any(is_product(self.of[e].value) for e in ends):
                return group
            longer = [self.twin(e) for e in ends]
            first = longer[0]
            if first is None or any(t is None or not self.alike(first, t) for t in longer[1:]):
                return group
            group = [t for t in longer if t is not None]


def _varies(e: graph.Expr) -> bool:
    """True for tensors; integers may be known while recording in one call and not in another."""
    leaves = [*tensor_types(e.ty)] if isinstance(e, graph.Var) else []
    return bool(leaves) and all(t.ndim != 0 for t in leaves)


def _replaced(mod: Module, cuts: dict[str, _Cut]) -> Module:
    """The module with calls of twins, and of what is left, in the place of the blocks."""
    functions: dict[str, graph.Function] = {}

    def named(hint: str, fn: graph.Function) -> graph.GlobalVar:
        name = mod.with_functions(functions).fresh_name(hint)
        functions[name] = fn
        return graph.GlobalVar(name)

    parts: dict[str, tuple[list[graph.GlobalVar], graph.GlobalVar | None, tuple[graph.Expr, ...]]]
    parts = {}
    for name, cut in cuts.items():
        twins = [named(f"{name}_twin", group[0].function) for group in cut.twins]
        rest, args = None, tuple[graph.Expr, ...]()
        if cut.results:
            attrs = cut.block.attrs
            made, args = outline_bindings(cut.rest, cut.results, attrs)
            rest = named(f"{name}_rest", made)
        parts[name] = twins, rest, args

    def rewritten(block: graph.BindingBlock) -> graph.BindingBlock:
        new: list[graph.Binding] = []
        for b in block.bindings:
            match b:
                case graph.VarBinding(value=graph.Call(graph.GlobalVar(name), given)) if (
                    name in cuts
                ):
                    new += _calls(b, given, cuts[name], *parts[name])
                case _:
                    new.append(b)
        return with_bindings(block, new)

    for name, fn in mod.graph_functions().items():
        if name not in cuts and (changed := map_blocks(fn, rewritten)) is not fn:
            functions[name] = changed
    return mod.with_functions(functions).without(*cuts)


def _calls(
    b: graph.VarBinding, given: Sequence[graph.Expr], cut: _Cut, twins: Sequence[graph.GlobalVar],
    rest: graph.GlobalVar | None, args: Sequence[graph.Expr],
) -> list[graph.Binding]:  # fmt: skip
    """The calls that take the place of the call of a block."""
    values: dict[graph.Expr, graph.Expr] = dict(zip(cut.block.params, given, strict=True))
    new: list[graph.Binding] = []

    def bind(value: graph.Expr, like: graph.Var) -> graph.Var:
        var = type(b.var)(like.name, like.ty)
        new.append(graph.VarBinding(value, var, span=b.span))
        return var

    def call(to: graph.GlobalVar, taken: Sequence[graph.Expr]) -> graph.Call:
        return graph.Call(to, tuple(values.get(a, a) for a in taken), span=b.value.span)

    for to, group in zip(twins, cut.twins, strict=True):
        for twin in group:
            values[twin.result] = bind(call(to, twin.args), twin.result)
    body = cut.block.body.body
    if rest is not None:
        value: graph.Expr = call(rest, args)
        if body in cut.results:  # it is all that the block computes
            return [*new, graph.VarBinding(value, b.var, span=b.span)]
        if len(cut.results) == 1:
            values[cut.results[0]] = bind(value, cut.results[0])
        else:
            whole = bind(value, b.var)
            for i, r in enumerate(cut.results):
                values[r] = bind(graph.TupleGetItem(whole, i), r)
    if isinstance(body, graph.Tuple):
        result: graph.Expr = graph.Tuple(tuple(values[r] for r in body.fields))
    else:
        result = values[body]
    return [*new, graph.VarBinding(result, b.var, span=b.span)]
