"""Local functions become functions of the module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import TypeVar

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, Node, map_children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import remark


@module_pass("lambda_lifting", needs=("normalize",))
def lambda_lifting(mod: Module, _: NoOptions) -> Module:
    """Make each local function a private function of the module. The variables and symbols that it
    captures become its last parameters, which its calls pass; `invoke_closure` becomes a plain
    call. Where it is used as a value (passed on, returned), `make_closure` binds them. Declared
    upper bounds of captured symbols hold in the new function, too."""
    lifter = _Lifter(mod)
    updates = {name: lifter.top(name, fn) for name, fn in mod.graph_functions().items()}
    changed = mod.with_functions({**updates, **lifter.lifted})
    return normalized(changed) if changed is not mod else mod


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A lifted local function: its global `name`, the values it `captured`, which calls pass last,
    and the `value` that replaces other uses of it."""

    name: str
    captured: tuple[graph.Expr, ...]
    value: graph.Expr

    def call(self, call: graph.Call, args: tuple[graph.Expr, ...]) -> graph.Call:
        return replace(
            call, op=graph.GlobalVar(self.name), args=(*args, *self.captured), ty_args=()
        )


@dataclass(slots=True)
class _Lifter:
    mod: Module
    lifted: dict[str, graph.Function] = field(default_factory=dict[str, graph.Function])
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    lengths: dict[expr.Var, graph.Var] = field(default_factory=dict[expr.Var, graph.Var])
    """The parameters with the lengths of sequences, by the extents of ragged tensors."""

    def top(self, name: str, fn: graph.Function) -> graph.Function:
        self.bounds = fn.attrs.get("tir_var_upper_bound", {})
        known = _defined_by(fn.params)
        self.lengths = {
            p.ty.each: p for p in fn.params
            if isinstance(p.ty, types.LengthsType) and p.ty.each is not None
        }  # fmt: skip
        body = self.sequence(name, fn.body, {}, known)
        return fn if body is fn.body else replace(fn, body=body)

    def sequence(
        self, path: str, seq: graph.SeqExpr, env: Mapping[graph.Var, _Lifted], known: set[expr.Var]
    ) -> graph.SeqExpr:
        """`seq` without local functions that can be lifted. `known`: the symbols in scope."""
        env, known = dict(env), set(known)
        blocks: list[graph.BindingBlock] = []
        for at, blk in enumerate(seq.blocks):
            new: list[graph.Binding] = []
            for i, b in enumerate(blk.bindings):
                if isinstance(b, graph.MatchCast):
                    known |= set(symbols_in(b.ty))
                if not isinstance(b.value, graph.Function):
                    new.append(_with_value(b, self.expression(path, b.value, env, known)))
                    continue
                rest = (blk.bindings[i + 1 :], *(x.bindings for x in seq.blocks[at + 1 :]))
                later = graph.SeqExpr(tuple(graph.BindingBlock(r) for r in rest), seq.body)
                env[b.var] = lifted = self.function(path, b, b.value, later, env, known)
                if lifted.value is b.var:
                    new.append(_with_value(b, _closure(lifted)))
            same = len(new) == len(blk.bindings) and all(
                x is y for x, y in zip(new, blk.bindings, strict=True)
            )
            if new:
                blocks.append(blk if same else replace(blk, bindings=tuple(new)))
        result = self.expression(path, seq.body, env, known)
        if result is seq.body and [*map(id, blocks)] == [*map(id, seq.blocks)]:
            return seq
        return replace(seq, blocks=tuple(blocks), body=result)

    def expression(
        self, path: str, e: graph.Expr, env: Mapping[graph.Var, _Lifted], known: set[expr.Var]
    ) -> graph.Expr:
        return _with_calls(e, env, lambda seq: self.sequence(path, seq, env, known))

    def function(
        self,
        path: str,
        b: graph.Binding,
        fn: graph.Function,
        later: graph.SeqExpr,
        env: Mapping[graph.Var, _Lifted],
        known: set[expr.Var],
    ) -> _Lifted:
        """Lift the local function `b.var`, and return how calls of it read now."""
        var, name = b.var, f"{path}_{b.var.name}"
        # Those lifted before have taken names, too.
        name = Module.of({**dict(self.mod.functions), **self.lifted}).fresh_name(name)
        inner = known | _defined_by(fn.params)
        body = self.sequence(name, fn.body, env, inner)
        new = fn if body is fn.body else replace(fn, body=body)
        # The extents of ragged tensors are no numbers: the lengths are captured instead.
        owners = [self.lengths[s] for s in symbols_in(new) if s in self.lengths]
        captured = tuple(dict.fromkeys(v for v in (*owners, *_free_vars(new)) if v is not var))
        mentioned = (s for s in symbols_in((new, *(v.ty for v in owners))) if s in known)
        symbols = tuple(s for s in mentioned if s not in self.lengths)
        shape = (graph.ShapeExpr(symbols),) if symbols else ()
        lifted = _Lifted(name, (*captured, *shape), graph.GlobalVar(name))
        if lifted.captured and _used_as_value(var, later):
            lifted = replace_fields(lifted, value=var)
        self.lifted[name] = self.outlined(new, lifted, var)
        text = ", ".join(f"`{v.name}`" for v in (*captured, *symbols))
        reason = f"is `{name}`{', which is given ' + text if text else ''}"
        remark("lambda_lifting", f"{path}.{var.name}", reason)
        return lifted

    def outlined(self, fn: graph.Function, place: _Lifted, var: graph.Var) -> graph.Function:
        """Return the function of the module: `fn` with parameters for the captured values."""
        values: dict[graph.Var, graph.Expr] = {}
        params: list[graph.Var] = []
        for e in place.captured:
            if isinstance(e, graph.ShapeExpr):
                params.append(graph.Var("symbols", types.ShapeType(e.values)))
            elif isinstance(e, graph.Var):
                params.append(graph.Var(e.name, e.ty))
                values[e] = params[-1]
        inside = place if not place.captured else replace_fields(place, value=_closure(place))
        body = substitute(_with_calls(fn.body, {var: inside}, None), values=values)
        new = replace(fn, params=(*fn.params, *params), body=body, private=True)
        bounds = self.bounds_of(new, place)
        if bounds:
            new = replace(new, attrs=new.attrs.with_(tir_var_upper_bound=Attrs(bounds)))
        # A symbol belongs to one function: the captured ones stay with the function around.
        return substitute(new, symbols={s: replace(s) for s in symbols_in(new)})


    def bounds_of(self, fn: graph.Function, place: _Lifted) -> dict[str, int]:
        """The bounds of the captured symbols. Bounds go by name: one that another symbol of the
        function has, too, gets none."""
        captured = {s for e in place.captured for s in symbols_in(e)}
        counts = Counter(s.name for s in symbols_in(fn))
        names = sorted(s.name for s in captured if counts[s.name] == 1)
        return {name: self.bounds[name] for name in names if name in self.bounds}


def _defined_by(params: tuple[graph.Var, ...]) -> set[expr.Var]:
    """The symbols that parameters bring into scope: those of function types stay in there."""

    def outside(ty: types.Type | None) -> Iterator[types.Type]:
        if isinstance(ty, types.TupleType):
            for f in ty.fields:
                yield from outside(f)
        elif ty is not None and not isinstance(ty, types.FuncType):
            yield ty

    return {s for p in params for ty in outside(p.ty) for s in symbols_in(ty)}


def _closure(lifted: _Lifted) -> graph.Call:
    """Return the function as a value, with its captured values."""
    args = (graph.GlobalVar(lifted.name), graph.Tuple(lifted.captured))
    return graph.Call(graph.Op("make_closure"), args)


def _with_value(b: graph.Binding, value: graph.Expr) -> graph.Binding:
    return b if value is b.value else replace(b, value=value)  # type: ignore[call-arg]


E = TypeVar("E", bound=graph.Expr)


def _with_calls(
    e: E,
    env: Mapping[graph.Var, _Lifted],
    sequence: Callable[[graph.SeqExpr], graph.SeqExpr] | None,
) -> E:
    """An expression with the functions in `env` called by name; `sequence` is how the sequences in
    it are treated (None: like everything else)."""

    def visit(n: Node) -> Node:
        match n:
            case graph.SeqExpr() if sequence is not None:
                return sequence(n)
            case graph.Call(graph.Var() as callee, args) if callee in env:
                return env[callee].call(n, tuple(map(visit, args)))  # type: ignore[arg-type]
            case graph.Call(
                graph.Op("invoke_closure" | "invoke_pure_closure"),
                (graph.Var() as callee, graph.Tuple(args)),
            ) if callee in env:
                return env[callee].call(n, tuple(map(visit, args)))  # type: ignore[arg-type]
            case graph.Var() if n in env:
                return env[n].value
            case _:
                return map_children(n, visit)

    return visit(e)  # type: ignore[return-value]


def _free_vars(fn: graph.Function) -> list[graph.Var]:
    """The variables that a function reads but does not define, in order."""
    bound: set[graph.Var] = set()
    found: dict[graph.Var, None] = {}
    for n in walk(fn):
        if isinstance(n, graph.Function):
            bound |= set(n.params)
        elif isinstance(n, graph.Binding):
            bound.add(n.var)
        elif isinstance(n, graph.Var):
            found[n] = None
    return [v for v in found if v not in bound]


def _used_as_value(var: graph.Var, seq: graph.SeqExpr) -> bool:
    """True if a function is used other than by calling it."""
    uses = sum(n is var for n in walk(seq))
    calls = 0
    for n in walk(seq):
        match n:
            case graph.Call(callee) if callee is var:
                calls += 1
            case graph.Call(
                graph.Op("invoke_closure" | "invoke_pure_closure"), (callee, graph.Tuple())
            ) if callee is var:
                calls += 1
            case _:
                pass
    return uses > calls
