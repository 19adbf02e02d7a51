"""Walking a jaxpr: its values, types and places, and each equation by its row."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from relaxlab.frontend.complex import PARTS, Complex, array_of_parts, unstacked
from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.jaxpr.complex import COMPLEX, called, is_complex
from relaxlab.frontend.jaxpr.rows import TABLE, folded, takes
from relaxlab.frontend.known import MOST_KNOWN, Known, tensor
from relaxlab.frontend.packages import package
from relaxlab.frontend.places import span_at
from relaxlab.frontend.symbols import Symbols, parsed
from relaxlab.frontend.table import Problem, Refused, Row
from relaxlab.ir import expr, graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import is_compiled
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.span import Span
from relaxlab.ir.types import TensorType

# --- Dimensions and types ---------------------------------------------------------------------


def is_symbolic(value: Any) -> bool:
    """True for a dimension of JAX that is no number."""
    return type(value).__name__ == "_DimExpr"


def dim_of(symbols: Symbols, dim: Any) -> PrimExpr:
    """A dimension of JAX as an expression; its text is one of the language of
    `jax.export.symbolic_shape`."""
    if not is_symbolic(dim):
        return expr.const(int(dim))
    return parsed(symbols, str(dim).replace("^", "**"))


def converted(symbols: Symbols, value: Any) -> Any:
    """Parameters of an equation with dimensions as expressions, and numbers as Python's."""
    if is_symbolic(value):
        return dim_of(symbols, value)
    if isinstance(value, np.integer):
        return int(value)
    if type(value) in (tuple, list):
        return tuple(converted(symbols, v) for v in value)
    return value


def type_of(symbols: Symbols, aval: Any) -> TensorType:
    """The type of an abstract value, of each part of complex numbers; a random key is the two
    numbers that it is made of."""
    shape = tuple(dim_of(symbols, d) for d in aval.shape)
    dtype = str(aval.dtype)
    if is_key(aval):
        return TensorType((*shape, expr.const(2)), "uint32")
    dtype = PARTS.get(dtype, dtype)
    if not is_compiled(dtype):
        raise Refused(f"values of type {dtype}")
    return TensorType(shape, dtype)


def jax_types(values: Sequence[Any]) -> list[Any]:
    """Types by which JAX traces a function of these tensors; their shapes have to be numbers."""
    jax = package("jax")
    found: list[Any] = []
    for v in values:
        dims = [d.value for d in shape_of(v) if isinstance(d, expr.IntImm)]
        if len(dims) != len(shape_of(v)):
            raise Refused(f"random keys of a symbolic number, {v.ty}")
        found.append(jax.ShapeDtypeStruct(tuple(dims), dtype_of(v)))
    return found


# --- Places -----------------------------------------------------------------------------------


def place_of(eqn: Any) -> Span | None:
    """The line of the user's program that an equation is from: the innermost one outside of JAX and
    of this package."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        file = frame.file_name
        if not file.startswith(_INSIDE) and not file.startswith("<"):
            return span_at(file, frame.line_num)
    return None


def _inside() -> tuple[str, ...]:
    from importlib.util import find_spec

    origins = [find_spec(name) for name in ("jax", "jaxlib", "relaxlab")]
    return tuple(os.path.dirname(s.origin) + os.sep for s in origins if s and s.origin)


_INSIDE = _inside()


# --- Equations --------------------------------------------------------------------------------


def inner_jaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation."""
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


ALWAYS_KNOWN = ("dim_as_value", "platform_index")
"""Primitives that are computed while a program is imported."""


def missing(jaxpr: Any, outer: Span | None = None) -> Iterator[Problem]:
    """Every equation, also of inner jaxprs, whose primitive has no row."""
    for eqn in jaxpr.eqns:
        place = place_of(eqn) or outer
        name = eqn.primitive.name
        if not (name in TABLE or name in COMPLEX or name in ALWAYS_KNOWN):
            reason = "it has no row in the table of JAX"
            yield Problem(name, reason, place)
        for inner in inner_jaxprs(eqn):
            yield from missing(inner, place)


def evaluate(
    b: Emitter, jaxpr: Any, operands: Sequence[Any], constants: Sequence[Any] | None = None
) -> list[Any]:
    """The results of a jaxpr, `Known` values or variables, from those of its operands. `constants`
    are the values of what it closes over, where the caller has made them already."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if constants is None:
        constants = [constant_of(b, c) for c in getattr(jaxpr, "consts", ())]
    values: dict[Any, Any] = dict(zip(inner.constvars, constants, strict=True))
    values.update(zip(inner.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        if not hasattr(atom, "val"):
            return values[atom]
        return literal(atom)

    for eqn in inner.eqns:
        results = _equation(b, eqn, [read(v) for v in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in inner.outvars]


def literal(atom: Any) -> Known | complex:
    """A number in a jaxpr."""
    if is_complex(atom.aval):
        return complex(atom.val)
    return Known.of(np.asarray(atom.val).item(), str(atom.aval.dtype))


def constant_of(b: Emitter, value: Any, name: str = "") -> Any:
    """An array that a function closes over: small integers are known, others are constants, or
    weights under a name."""
    if is_key(value):
        value = package("jax").random.key_data(value)
    array = np.asarray(value)
    if array.dtype.name in PARTS:
        parts = array_of_parts(array)
        return unstacked(b, b.weight(name, parts) if name else b.const(parts))
    if array.dtype.kind in "iub" and array.size <= MOST_KNOWN:
        return Known.of(array, array.dtype.name)
    return b.weight(name, array) if name else b.const(array)


def _equation(b: Emitter, eqn: Any, operands: list[Any]) -> Sequence[Any]:
    name, symbols = eqn.primitive.name, b.symbols
    place = place_of(eqn)
    row = TABLE.find(name)
    whole = any(is_complex(v.aval) for v in eqn.outvars)
    try:
        out = [type_of(symbols, v.aval) for v in eqn.outvars]
    except Refused as error:
        return b.refuse(name, error, (), place)
    params = {k: converted(symbols, v) for k, v in eqn.params.items()}
    if len(out) == 1:
        known = folded(name, operands, params, out[0].dtype or "")
        if known is not None:
            return [known]
    paired = whole or any(isinstance(o, Complex | complex) for o in operands)
    if row is None or (paired and not takes(row, "inlined")):
        return [called(b, name, operands, params, out, whole, place)]
    if not name.startswith("random_") and is_key(eqn.outvars[0].aval) and not takes(row, "inlined"):
        return [_of_keys(b, eqn, row, operands, params, out[0], place)]
    if takes(row, "jax"):
        params = dict(eqn.params)
    with b.builder.at(place):
        if takes(row, "inlined"):
            return _inlined(b, name, row, operands, params, out, place)
        if not takes(row, "known"):
            operands = [tensor(b, o) for o in operands]
        result = b.apply(name, row, operands, params, out=out, span=place)
    return result if isinstance(result, tuple) else (result,)


def is_key(aval: Any) -> bool:
    """True for random keys, which are two numbers each."""
    return str(aval.dtype) == "key<fry>"


def _of_keys(
    b: Emitter, eqn: Any, row: Row, operands: list[Any], params: dict[str, Any], out: TensorType,
    place: Span | None,
) -> graph.Expr:  # fmt: skip
    """A primitive that moves keys, such as a slice of several: it moves either of their numbers."""
    assert out.shape is not None
    halves: list[graph.Expr] = []
    stated = TensorType(out.shape[:-1], out.dtype)
    for half in (0, 1):
        parts = [
            b.take(o, b.const(half, "int64"), axis=-1) if is_key(v.aval) else o
            for o, v in zip(operands, eqn.invars, strict=True)
        ]
        name = eqn.primitive.name
        halves.append(b.apply(name, row, parts, params, out=[stated], span=place))
    return b.stack(halves, axis=len(out.shape) - 1)


def _inlined(
    b: Emitter, name: str, row: Row, operands: list[Any], params: dict[str, Any],
    out: list[TensorType], place: Span | None,
) -> Sequence[Any]:  # fmt: skip
    """The results of a primitive that contains others, whose results are of the stated types."""
    outer, b.out = b.out, tuple(out)
    try:
        result = row(b, *operands, **params)
        each = zip(result, out, strict=True)
        return [v if isinstance(v, Known | Complex) else b.fit(v, ty) for v, ty in each]
    except (Refused, DiagnosticError) as error:
        return b.refuse(name, error, out, place)
    finally:
        b.out = outer
