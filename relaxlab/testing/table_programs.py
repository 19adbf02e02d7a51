"""Random programs over the whole operator table: drawn calls of every operator with random
options, among the calls, branches, tuples and claims of `mixed_programs`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import relaxlab.testing.draw_rules_conv
import relaxlab.testing.draw_rules_factors
import relaxlab.testing.draw_rules_image
import relaxlab.testing.draw_rules_nn
import relaxlab.testing.draw_rules_shape  # noqa: F401  each adds its rules
from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float, is_uint
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ops.define import builder
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.check.inputs import random_value
from relaxlab.testing.draw import SYMBOL_SIZES, Draw, Range, Refused
from relaxlab.testing.draw_rules import RULES
from relaxlab.testing.mixed_operators import Made, Value
from relaxlab.testing.mixed_programs import MixedProgram

UNBOUNDED = 1e30
"""The magnitude of results that nothing is known of: they are returned, or squashed first."""
EXACT = frozenset(
    "abs negative maximum minimum max min nn.relu nn.relu6 clip where masked_fill sort topk take "
    "reshape flatten nn.batch_flatten expand_dims squeeze permute_dims broadcast_to flip tile "
    "repeat nn.pixel_shuffle meshgrid reverse_sequence layout_transform concat stack split "
    "strided_slice slice_scatter nn.pad gather_elements gather_nd index_tensor one_hot full "
    "full_like zeros ones zeros_like ones_like tril triu eye eye_like floor ceil trunc round sign "
    "astype wrap_param hint_on_device to_vdevice unique dynamic_strided_slice grad.no_grad "
    "grad.start_checkpoint grad.end_checkpoint builtin.stop_lift_params memory.view "
    "memory.ensure_zero_offset".split()
)
"""Operators whose floating-point results have no rounding where their operands have none."""
FLAT = EXACT - {"nn.pad", "sign", "memory.view"}
"""Operators whose results are not larger than their operands, or than 3."""
OFTEN = ("matmul", "linear", "einsum", "sum", "mean", "variance", "max", "nn.softmax",
         "nn.rms_norm", "nn.layer_norm", "nn.conv2d", "nn.attention", "cumsum")  # fmt: skip
"""Operators whose loops have the most schedules; they are drawn three times as often."""
COMPUTED = 0.15
"""The share of the parameters of a call that are computed, not given."""

Attributes = Counter[tuple[str, str, str]]
"""Counts of an operator, an attribute of it and a value of that in drawn programs."""


class TableProgram(MixedProgram):
    """A program with calls out of the table; its `arguments` are right for them. `drawn` counts
    the attributes, with "" for the call itself."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.draw = Draw(self.rng, (self.n, self.m, self.k), self._found)
        main = self.rng.choice(("float32",) * 6 + ("float64", "float16", "float16", "bfloat16"))
        self.floats = self.draw.floats = (main,)
        self.derived: dict[expr.Var, expr.PrimExpr] = {}
        self.shapes: dict[graph.Var, tuple[expr.Var, ...]] = {}
        self.drawn: Attributes = Counter()

    def random_module(self) -> Module:
        """A module with few calls, rarely with many, and the parameters that they read."""
        mod = self.module(self.rng.choice((1, 1, 1, 2, 2, 2, 3, 4, 8)))
        main = mod["main"]
        assert isinstance(main, graph.Function)
        read = {n for n in walk(main.body) if isinstance(n, graph.Var)}
        dims = {d for p in read if p in main.params for d in _dims(p)}
        named = {s for p in main.params if p not in read for s in self.shapes.get(p, ())}
        inputs = tuple(p.ty for p in main.params if p in read and p.ty is not None)
        needed = set(symbols_in((main.body, *inputs))) - dims - named
        params = tuple(p for p in main.params
                       if p in read or p in self.shapes or _determines(p, needed))  # fmt: skip
        return dead_code_elimination(mod.with_functions({"main": replace(main, params=params)}))

    def makers(self) -> list[Callable[[], Made | None]]:
        """Mostly uses out of the table."""
        others = super().makers()
        return [*others, *[self.use] * (3 * len(others)), *[self.recast] * 4, *[self.outlined] * 8]

    def parts(self, length: int) -> list[graph.BindingBlock]:
        """Branches and data-dependent shapes only in some."""
        if length > 4:
            return super().parts(length)
        blocks = [self.block(length)]
        if self.rng.random() < 0.2:
            blocks.append(self.branch())
        if self.rng.random() < 0.08:
            blocks.append(self.data_dependent())
        return blocks

    # --- Branches -----------------------------------------------------------------------------

    def branch(self) -> graph.BindingBlock:
        """An `If` whose arms make calls, at times one whose results have two shapes."""
        if self.rng.random() < 0.2:
            return super().branch()
        self.bindings = []
        self.conditional(depth=1)
        return graph.BindingBlock(tuple(self.bindings))

    def conditional(self, depth: int) -> None:
        """Bind an `If`, whose arms return what either makes; for what the other one makes, an arm
        returns some value of that type."""
        condition = self.condition()
        arms = [self.arm(depth) for _ in range(2)]
        wanted = [v for _, made in arms for v in made]
        if not wanted:
            return
        around, branches = self.bindings, list[graph.SeqExpr]()
        for bindings, made in arms:
            self.bindings = bindings
            results = tuple(v.var if v in made else self.other(v.ty) for v in wanted)
            body = results[0] if len(results) == 1 else graph.Tuple(results)
            blocks = (graph.BindingBlock(tuple(self.bindings)),) if self.bindings else ()
            branches.append(graph.SeqExpr(blocks, body))
        self.bindings = around
        chosen = self.bind(graph.If(condition, *branches))
        for i, v in enumerate(wanted):
            var = chosen if len(wanted) == 1 else self.bind(graph.TupleGetItem(chosen, i))
            self.values.append(Value(var, max(v.most, 3.0), v.exact))

    def condition(self) -> graph.Expr:
        """An argument, what is computed of it, or a comparison of sizes."""
        match self.rng.randrange(3):
            case 0:
                return self.flag
            case 1:
                return self.bind(builder("logical_not")(self.flag))
            case _:
                symbol = self.rng.choice((self.n, self.m, self.k))
                return self.bind(graph.PrimValue(expr.GT(symbol, expr.const(4))))

    def arm(self, depth: int) -> tuple[list[graph.Binding], list[Value]]:
        """The bindings of an arm, and values of it whose shapes are known outside."""
        values, around, known = self.values, self.bindings, set(self.draw.sizes)
        self.values, self.bindings = list(values), []
        for _ in range(self.rng.randrange(3)):
            self.step()
        if depth < 3 and self.rng.random() < 0.15:
            self.conditional(depth + 1)
        made = [v for v in self.values[len(values) :] if known.issuperset(symbols_in(v.ty))]
        bindings, self.values, self.bindings = self.bindings, values, around
        return bindings, made

    def other(self, ty: types.TensorType) -> graph.Var:
        """A value of some type from before the branch, or ones."""
        found = self.pick(lambda v: v.ty == ty and v.exact)
        if found is not None and found.most <= 3:
            return found.var
        assert ty.shape is not None
        return self.bind(builder("ones")(graph.ShapeExpr(ty.shape), dtype=ty.dtype))

    def attrs(self, inputs: int) -> Attrs:
        """No weights: what depends on them alone would be given to `main` already computed. Bounds
        admit the sizes for which calls were drawn."""
        given = super().attrs(inputs).with_(num_input=None)
        if "tir_var_upper_bound" not in given:
            return given
        drawn = {s.name: n for s, n in self.draw.sizes.items()}
        bounds = given["tir_var_upper_bound"].items()
        return given.with_(tir_var_upper_bound={k: max(n, drawn.get(k, 0)) for k, n in bounds})

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value whose magnitude is known."""
        return super().pick(lambda v: v.most < UNBOUNDED and fits(v))

    def _found(
        self, fits: Callable[[types.TensorType], bool], most: float, exact: bool
    ) -> graph.Var | None:
        value = self.pick(lambda v: v.most <= most and (v.exact or not exact)
                          and self._sized(v.ty) and fits(v.ty))  # fmt: skip
        return value.var if value is not None else None

    def _sized(self, ty: types.TensorType) -> bool:
        """True where no data decides an extent."""
        return all(s in self.draw.sizes for s in symbols_in(ty))

    # --- Drawn calls ------------------------------------------------------------------------

    def drawn_call(self, op: str | None = None) -> graph.Call | None:
        """A call of an operator, a random one if none is named; its new operands are parameters of
        `main`. None where no operands fitted."""
        op = op or self.rng.choice([*sorted(RULES), *OFTEN, *OFTEN])
        try:
            call = RULES[op](self.draw, op)
        except Refused:
            return None
        if self._elements(type_of(call)) > self.draw.most:
            return None
        self._declare(call)
        self.drawn[op, "", ""] += 1
        for name, value in call.attrs.items():
            self.drawn[op, name, attribute_kind(value)] += 1
        return call

    def _elements(self, ty: types.Type) -> int:
        """The number of elements of the largest tensor of a type, those apart whose shapes only
        data decide."""
        match ty:
            case types.TupleType(fields):
                return max(map(self._elements, fields), default=0)
            case types.TensorType(shape) if shape is not None and self._sized(ty):
                return self.draw.count(shape)
            case _:
                return 0

    def use(self) -> Made | None:
        """A drawn call; its result is returned, or read by others."""
        call = self.drawn_call()
        if call is None:
            return None
        call = self._with_computed(self._with_constants(call))
        return self._kept(self.bind(call), call)

    def _with_constants(self, call: graph.Call) -> graph.Call:
        """The call, at times with constants in place of parameters whose shapes are known."""
        given: dict[graph.Var, graph.Expr] = {}
        for v in dict.fromkeys(_variables(call)):
            if v in self.draw.inputs and not symbols_in(v.ty) and self.rng.random() < 0.1:
                shape = tuple(map(self.draw.size, _dims(v)))
                rng = np.random.default_rng(self.rng.getrandbits(32))
                dtype = v.ty.dtype  # type: ignore[union-attr]
                values = self.draw.inputs[v].array(shape, dtype, self.draw.sizes, rng)
                given[v] = graph.Constant(values)
        return substitute(call, values=given)

    def _with_computed(self, call: graph.Call) -> graph.Call:
        """The call, at times with values that are computed of its parameters in their place: those
        may be fused with it, and overwritten by it."""
        given: dict[graph.Var, graph.Expr] = {}
        for v in dict.fromkeys(_variables(call)):
            if v in self.draw.inputs and self.rng.random() < COMPUTED:
                ways = _rearrangements(v, self.draw.inputs[v])
                if ways:
                    given[v] = self.bind(self.rng.choice(ways))
        return substitute(call, values=given)

    def _kept(self, result: graph.Var, call: graph.Call) -> Made | None:
        assert isinstance(call.op, graph.Op)
        ty = type_of(result)
        while isinstance(ty, types.TupleType) and ty.fields:
            result = self.bind(graph.TupleGetItem(result, self.rng.randrange(len(ty.fields))))
            ty = type_of(result)
        if isinstance(ty, types.ShapeType) and ty.ndim > 0:
            return builder("shape_to_tensor")(result), UNBOUNDED, True
        if not isinstance(ty, types.TensorType) or ty.dtype is None or ty.ndim < 0:
            return None
        if ty.shape is None:  # data decide it
            symbols = tuple(expr.Var(f"u{self.count}_{i}") for i in range(ty.ndim))
            known = graph.Var(f"{result.name}_known", types.TensorType(symbols, ty.dtype))
            self.bindings.append(graph.MatchCast(result, type_of(known), known))
            result = known
        read = [v for v in self.values if v.var in set(_variables(call))]
        exact = not is_float(ty.dtype) or (call.op.name in EXACT and all(v.exact for v in read))
        most = max([3.0, *(v.most for v in read)]) if call.op.name in FLAT else UNBOUNDED
        if most == UNBOUNDED:
            self.values.append(Value(result, most, exact))
            if is_float(ty.dtype):
                if self.rng.random() < 0.5:
                    return builder("tanh")(result), 1.0, False
                return builder("clip")(result, min=-2.0, max=2.0), 2.0, False
            if ty.dtype == "bool":
                return graph.Call(graph.Op("logical_not"), (result,)), 1.0, True
            return builder("clip")(result, min=0, max=3), 3.0, True
        return result, most, exact

    def _declare(self, call: graph.Call) -> None:
        """Make parameters of the drawn operands, and of symbols that no parameter's dimension
        is."""
        self.extra += [v for v in dict.fromkeys(_variables(call))
                       if v in self.draw.inputs and v not in self.extra]  # fmt: skip
        known = [v.var for v in self.values]
        dims = [d for p in (*self.extra, *known) for d in _dims(p)]
        dims += [s for of in self.shapes.values() for s in of]
        free = tuple(s for s in symbols_in(call) if s in self.draw.sizes and s not in dims)
        if free:
            shape = graph.Var(f"s{len(self.shapes)}", types.ShapeType(free))
            self.extra.append(shape)
            self.shapes[shape] = free

    def outlined(self) -> Made | None:
        """A drawn call in a private function of its own, which is called; at times it takes its
        operands as one tuple, and returns one of them, too."""
        call = self.drawn_call()
        if call is None or self.rng.random() < 0.5:
            return None
        args = tuple(dict.fromkeys(_variables(call)))
        dims = [d for a in args for d in _dims(a)]
        used = [s for s in symbols_in((call, *args)) if s in self.draw.sizes]
        if not args or any(s not in dims for s in used):
            return None
        packed, returned = self.rng.random() < 0.3, self.rng.random() < 0.2
        name = f"outlined{len(self.functions)}"
        self.functions[name] = self._function_of(call, args, used, packed, returned)
        given = (graph.Tuple(args),) if packed else args
        types_of = (type_of(call), type_of(args[0]))
        ty = types.TupleType(types_of) if returned else types_of[0]
        self.count += 1
        var = graph.Var(f"v{self.count}", ty)
        self.bindings.append(graph.VarBinding(graph.Call(graph.GlobalVar(name), given), var))
        return self._kept(self.bind(graph.TupleGetItem(var, 0)) if returned else var, call)

    def _function_of(
        self, call: graph.Call, args: tuple[graph.Var, ...], used: list[expr.Var], packed: bool,
        returned: bool,
    ) -> graph.Function:  # fmt: skip
        """A private function that makes the call on its parameters, with symbols of its own."""
        symbols = {s: expr.Var(f"{s.name}_in") for s in used}
        params = {a: graph.Var(f"a{i}", substitute(type_of(a), symbols))
                  for i, a in enumerate(args)}  # fmt: skip
        inner = substitute(substitute(call, values=params), symbols)
        inputs, result = tuple(params.values()), graph.Var("r", type_of(inner))
        bindings = [graph.VarBinding(inner, result)]
        given: tuple[graph.Var, ...] = inputs
        if packed:
            one = graph.Var("packed", types.TupleType(tuple(type_of(v) for v in inputs)))
            parts = enumerate(inputs)
            bindings = [*(graph.VarBinding(graph.TupleGetItem(one, i), v) for i, v in parts),
                        *bindings]  # fmt: skip
            given = (one,)
        body: graph.Expr = graph.Tuple((result, inputs[0])) if returned else result
        block = graph.DataflowBlock(tuple(bindings))
        return graph.Function(given, graph.SeqExpr((block,), body), type_of(body), private=True)

    def recast(self) -> Made | None:
        """A value under a type with symbols of its own."""
        v = self.pick(lambda v: len(v.shape) > 0 and self._sized(v.ty))
        if v is None:
            return None
        symbols = tuple(expr.Var(f"d{len(self.derived) + i}") for i in range(len(v.shape)))
        for s, extent in zip(symbols, v.shape, strict=True):
            self.derived[s] = extent
            self.draw.sizes[s] = self.draw.size(extent)
        self.count += 1
        ty = types.TensorType(symbols, v.dtype)
        var = graph.Var(f"v{self.count}", ty)
        self.bindings.append(graph.MatchCast(v.var, ty, var))
        self.values.append(Value(var, v.most, v.exact))
        return builder("negative")(var) if v.dtype != "bool" else var, v.most, v.exact

    # --- Arguments --------------------------------------------------------------------------

    def arguments(self, mod: Module, rng: np.random.Generator, *, again: bool = False) -> Any:
        """Random arguments for `main`; `again` with other values of the symbols. Raises
        ExecutionError where an extent would be negative."""
        main = mod["main"]
        assert isinstance(main, graph.Function)
        sizes = {s: n for s, n in self.draw.sizes.items() if s not in self.derived}
        if again:
            sizes = {s: int(rng.choice(SYMBOL_SIZES)) for s in sizes}
        sizes = self._small_sizes(main, sizes)
        named = {p.name: values for p, values in self.draw.inputs.items()}
        found: list[Any] = []
        for p in main.params:
            if p.name in named and isinstance(p.ty, types.TensorType) and p.ty.shape is not None:
                shape = tuple(evaluate(d, sizes) for d in p.ty.shape)
                if any(extent < 0 for extent in shape):
                    raise ExecutionError(f"`{p.name}` would have the shape {shape}")
                assert p.ty.dtype is not None
                found.append(named[p.name].array(shape, p.ty.dtype, sizes, rng))
            else:
                found.append(random_value(p.ty, sizes, rng))
        return tuple(found)

    def _small_sizes(self, main: graph.Function, sizes: dict[expr.Var, int]) -> dict[expr.Var, int]:
        """The values of symbols within their declared bounds, the largest of them reduced until no
        tensor of `main` has much more than the most elements; and of those that are derived."""
        bounds = main.attrs.get("tir_var_upper_bound", {})
        types_of = {v.ty for v in walk(main) if isinstance(v, graph.Var)}
        shapes = {ty.shape for ty in types_of if isinstance(ty, types.TensorType) and ty.shape}
        while True:
            sizes = {s: min(n, bounds.get(s.name, n)) for s, n in sizes.items()}
            known = dict(sizes)
            for s, extent in self.derived.items():
                known[s] = evaluate(extent, known)
            counted = (s for s in shapes if known.keys() >= set(symbols_in(s)))
            counts = [math.prod(evaluate(d, known) for d in s) for s in counted]
            largest = max(sizes, key=sizes.__getitem__)
            if max(counts, default=0) <= 4 * self.draw.most or not sizes[largest]:
                return known
            sizes[largest] //= 2


def _rearrangements(param: graph.Var, values: Range) -> list[graph.Expr]:
    """Calls of exact operators on a parameter whose results are in its range, too."""
    assert isinstance(param.ty, types.TensorType) and param.ty.dtype is not None
    if values.given or values.rises:
        return []
    found: list[graph.Expr] = [builder("flip")(param, axis=0)] if _dims(param) else []
    symmetric = values.low == -values.high and not values.values and not values.extents
    if symmetric and param.ty.dtype != "bool" and not is_uint(param.ty.dtype):
        found.append(builder("negative")(param))
    return found


def _determines(param: graph.Var, symbols: set[expr.Var]) -> bool:
    """True if a dimension is one of the symbols, and no other leaves a symbol undetermined."""
    dims = _dims(param)
    return bool(symbols & set(dims)) and set(symbols_in(dims)) <= set(dims)


def _dims(param: graph.Var) -> tuple[expr.PrimExpr, ...]:
    return (param.ty.shape or ()) if isinstance(param.ty, types.TensorType) else ()


def _variables(call: graph.Call) -> list[graph.Var]:
    return [v for v in walk(call) if isinstance(v, graph.Var)]


def attribute_kind(value: Any) -> str:
    """An attribute's value as it is counted: large numbers and long tuples together."""
    match value:
        case bool() | str() | None:
            return repr(value)
        case int():
            return str(value) if -4 <= value <= 8 else "large"
        case float():
            return f"{value:g}"
        case tuple() if len(value) > 2:  # type: ignore[reportUnknownArgumentType]
            return f"{len(value)} items"  # type: ignore[reportUnknownArgumentType]
        case tuple():
            return f"({', '.join(map(attribute_kind, value))})"  # type: ignore[reportUnknown]
        case _:
            return str(value)
