"""Checking an operator's row: its types and its loops against its NumPy reference.

An `OpCase` writes shapes with symbols (`T("n", 4)`); it is checked for several values of them,
once with the symbols in the program and once with the values in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.op_table import infer_type, op_row
from relaxlab.ops.define import builder

Array: TypeAlias = np.ndarray[Any, Any]
Dim: TypeAlias = "int | str"
Env: TypeAlias = Mapping[str, int]
Run: TypeAlias = Callable[[loops.PrimFunc, list[Any]], None]

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-10}


@dataclass(frozen=True, slots=True)
class T:
    """A tensor argument: random in [low, high], or the given `values`."""

    shape: tuple[Dim, ...]
    dtype: str
    low: float
    high: float
    values: Any = None

    def __init__(
        self,
        *shape: Dim,
        dtype: str = "float32",
        low: float = -2,
        high: float = 2,
        values: Any = None,
    ) -> None:
        for name, item in zip(self.__slots__, (shape, dtype, low, high, values), strict=True):
            object.__setattr__(self, name, item)


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape argument."""

    dims: tuple[Dim, ...]

    def __init__(self, *dims: Dim) -> None:
        object.__setattr__(self, "dims", dims)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument: a symbol by its name, or a number."""

    value: str | float


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol inside an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class OpCase:
    """One use of an operator, checked for every environment in `sizes`."""

    op: str
    args: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sizes: Sequence[Env] = ({"n": 3}, {"n": 1}, {"n": 0}, {"n": 7})

    def __str__(self) -> str:
        parts = [_text(a) for a in self.args] + [f"{k}={_text(v)}" for k, v in self.attrs.items()]
        return f"{self.op}({', '.join(parts)})"


def _text(a: Any) -> str:
    match a:
        case T():
            return f"{a.dtype}{list(a.shape)}".replace("'", "")
        case Shape(dims):
            return f"shape{list(dims)}".replace("'", "")
        case Scalar(value) | Symbol(value):
            return str(value)
        case tuple() | list():
            return f"({', '.join(map(_text, a))})"  # type: ignore[reportUnknownVariableType]
        case _:
            return str(a)


class CaseProgram:
    """The call of a case with its symbols, or with the numbers of `env` in their place."""

    def __init__(self, case: OpCase, env: Env, symbolic: bool) -> None:
        self.env, self.symbolic = env, symbolic
        self.symbols = {name: expr.Var(name) for name in env}
        values = [self.value(a) for a in case.args]
        attrs = {k: self.attr(v) for k, v in case.attrs.items()}
        self.row = op_row(case.op)
        self.call = builder(case.op)(*values, **attrs)
        self.types = tuple(type_of(a) for a in self.call.args)
        self.out = infer_type(self.row, self.call, self.types, None)

    def dim(self, d: Dim) -> expr.PrimExpr:
        if isinstance(d, int):
            return expr.const(d)
        return self.symbols[d] if self.symbolic else expr.const(self.env[d])

    def value(self, a: Any) -> Any:
        match a:
            case T():
                shape = tuple(map(self.dim, a.shape))
                return graph.Var("x", types.TensorType(shape, a.dtype))
            case Shape(dims):
                return graph.ShapeExpr(tuple(map(self.dim, dims)))
            case Scalar(value):
                named = isinstance(value, str)
                return graph.PrimValue(self.dim(value) if named else expr.const(value))
            case tuple():
                return graph.Tuple(tuple(self.value(x) for x in a))  # type: ignore
            case _:
                raise TypeError(f"not an argument: {a!r}")

    def attr(self, a: Any) -> Any:
        if isinstance(a, Symbol):
            return self.dim(a.name)
        if isinstance(a, tuple):
            return tuple(self.attr(x) for x in a)  # type: ignore
        return a

    def number(self, e: expr.PrimExpr) -> int:
        return evaluate(e, {v: self.env[n] for n, v in self.symbols.items()})

    def function(self) -> graph.Function:
        """A graph function of the tensors and a shape with all symbols that returns the call."""
        params = list(dict.fromkeys(v for a in self.call.args for v in _variables(a)))
        params.append(graph.Var("symbols", types.ShapeType(tuple(self.symbols.values()))))
        y = graph.Var("y", self.out)
        body = graph.SeqExpr((graph.BindingBlock((graph.VarBinding(self.call, y),)),), y)
        return graph.Function(tuple(params), body, self.out)


def _variables(e: graph.Expr) -> list[graph.Var]:
    if isinstance(e, graph.Tuple):
        return [v for f in e.fields for v in _variables(f)]
    return [e] if isinstance(e, graph.Var) else []


def check_op(case: OpCase, env: Env, *, symbolic: bool, run: Run, seed: int = 0) -> None:
    """Compare the deduced type and the loops of a case with its reference; AssertionError on the
    first difference, naming the case, the sizes and the seed. `run` executes a loop function."""
    where = f"{case} with {dict(env)}, symbolic={symbolic}, seed={seed}"
    program = CaseProgram(case, env, symbolic)
    arrays, expected = concrete_call(case, env, seed)
    fields = program.out.fields if isinstance(program.out, types.TupleType) else (program.out,)
    assert len(fields) == len(expected), where
    for ty, array in zip(fields, expected, strict=True):
        _compare_type(program, ty, array, where)
    if program.row.lower is None:
        return
    func = program.row.lower(program.call, program.types, program.out)
    results = [_garbage(a) for a in expected]
    scalars = [program.number(p) for p in func.params if isinstance(p, expr.Var)]
    run(func, [*arrays, *results, *scalars])
    for got, want in zip(results, expected, strict=True):
        compare(got, want, where)


def concrete_call(case: OpCase, env: Env, seed: int) -> tuple[list[Array], list[Array]]:
    """The tensor arguments (tuples flattened) and the reference's results."""
    arrays = random_call(case, env, seed)
    attrs = {k: _concrete_attr(v, env) for k, v in case.attrs.items()}
    reference = op_row(case.op).reference
    assert reference is not None, f"{case.op} has no reference"
    return _flat_arrays(arrays), _outputs(reference(*arrays, **attrs))


def random_call(case: OpCase, env: Env, seed: int) -> list[Any]:
    """The arguments of a case as its reference takes them: arrays, numbers, tuples of these."""
    return _concrete(case.args, env, np.random.default_rng(seed))


def random_arguments(case: OpCase, env: Env, seed: int) -> list[Array]:
    """The tensor arguments of a case, tuples flattened."""
    return _flat_arrays(random_call(case, env, seed))


def compare(got: Array, want: Array, where: str) -> None:
    """Equal integers; floats within the tolerance of their dtype, NaN equal to NaN."""
    if not is_float(want.dtype.name):
        np.testing.assert_array_equal(got, want, err_msg=where)
        return
    tolerance = TOLERANCE[want.dtype.name]
    wide = np.float64
    np.testing.assert_allclose(
        got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=where
    )


def _compare_type(program: CaseProgram, ty: types.Type, array: Array, where: str) -> None:
    assert isinstance(ty, types.TensorType), where
    assert ty.dtype == array.dtype.name, f"{where}: {ty} against {array.dtype}"
    assert ty.ndim in (-1, array.ndim), f"{where}: {ty} against shape {array.shape}"
    if ty.shape is not None:
        dims = tuple(program.number(d) for d in ty.shape)
        assert dims == array.shape, f"{where}: {ty} = {dims} against {array.shape}"


def _outputs(result: Any) -> list[Array]:
    return [np.asarray(r) for r in result] if isinstance(result, tuple) else [np.asarray(result)]  # type: ignore


def _garbage(like: Array) -> Array:
    """An output that shows what was not written."""
    return np.full(like.shape, 77, like.dtype)


def _concrete(args: tuple[Any, ...], env: Env, rng: np.random.Generator) -> list[Any]:
    return [_concrete_arg(a, env, rng) for a in args]


def _concrete_arg(a: Any, env: Env, rng: np.random.Generator) -> Any:
    match a:
        case T():
            return _random(a, tuple(_number(d, env) for d in a.shape), rng)
        case Shape(dims):
            return tuple(_number(d, env) for d in dims)
        case Scalar(value):
            return env[value] if isinstance(value, str) else value
        case _:
            return tuple(_concrete(a, env, rng))


def _number(d: Dim, env: Env) -> int:
    return env[d] if isinstance(d, str) else d


def _concrete_attr(a: Any, env: Env) -> Any:
    if isinstance(a, Symbol):
        return env[a.name]
    return tuple(_concrete_attr(x, env) for x in a) if isinstance(a, tuple) else a  # type: ignore


def _random(a: T, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    dtype = numpy_dtype(a.dtype)
    if a.values is not None:
        return np.resize(np.array(a.values, dtype), shape)
    if a.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if is_float(a.dtype):
        return rng.uniform(a.low, a.high, shape).astype(dtype)
    return rng.integers(int(a.low), int(a.high) + 1, shape).astype(dtype)


def _flat_arrays(arrays: list[Any]) -> list[Array]:
    flat: list[Array] = []
    for a in arrays:
        if isinstance(a, np.ndarray):
            flat.append(a)
        elif isinstance(a, tuple):
            flat += [x for x in a if isinstance(x, np.ndarray)]  # type: ignore
    return flat
