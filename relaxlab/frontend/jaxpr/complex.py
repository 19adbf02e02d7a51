"""Rows of equations with complex operands or results, which are `Complex` values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.frontend import complex as pairs
from relaxlab.frontend.complex import PARTS, Complex, as_complex
from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.jaxpr.rows import TABLE, results, shape_of_out
from relaxlab.frontend.known import Known, tensor
from relaxlab.frontend.table import Refused, Table
from relaxlab.ir import expr, graph
from relaxlab.ir.types import TensorType

COMPLEX = Table("JAX")
row = COMPLEX.row

LINEAR = frozenset(
    "reshape squeeze transpose broadcast_in_dim slice dynamic_slice dynamic_update_slice "
    "concatenate rev neg reduce_sum copy gather select_n cumsum add add_any sub expand_dims "
    "stop_gradient".split()
)
"""Primitives that do to both parts what they do to real numbers; JAX gives them no operands of
mixed kinds but conditions and places."""


def is_complex(aval: Any) -> bool:
    """True for an abstract value of complex numbers."""
    return str(aval.dtype) in PARTS


def called(
    b: Emitter, name: str, operands: Sequence[Any], params: dict[str, Any],
    out: Sequence[TensorType], whole: bool, place: Any,
) -> Any:  # fmt: skip
    """The result of an equation. `out` are the types of its results, or of their parts where they
    are complex, as `whole` says."""
    parts = [dtype_of(o.real) for o in operands if isinstance(o, Complex)]
    dtype = parts[0] if parts else out[0].dtype or ""
    operands = [
        as_complex(b, o, dtype) if isinstance(o, complex) else tensor(b, o) for o in operands
    ]
    row, real = COMPLEX.find(name), TABLE.find(name)
    with b.builder.at(place):
        if row is not None and not whole:
            return b.apply(name, row, operands, params, out=out, span=place)
        if row is not None:
            found = b.apply(name, lambda *a, **named: row(*a, **named).parts, operands, params,
                            out=[*out, *out], span=place)  # fmt: skip
            return Complex(*found)
        if name in LINEAR and real is not None and whole:
            each = (
                b.apply(name, real, [_part(o, k) for o in operands], params, out=out, span=place)
                for k in (0, 1)
            )
            return Complex(*each)
    found = b.refuse(name, Refused("complex numbers"), out, place)[0]
    return Complex(found, found) if whole else found


def _part(value: Any, k: int) -> Any:
    return value.parts[k] if isinstance(value, Complex) else value


def of_parts(b: Emitter, *operands: Any) -> list[Complex]:
    """Operands as complex numbers of the dtype of the first that is one."""
    known = next(x for x in operands if isinstance(x, Complex))
    return [as_complex(b, x, dtype_of(known.real)) for x in operands]


row("real", lambda b, x, **_: x.real)
row("imag", lambda b, x, **_: x.imag)
row("complex", lambda b, x, y: Complex(*(b.broadcast_to(t, shape_of_out(b)) for t in (x, y))))
row("abs", lambda b, x, **_: pairs.absolute(b, x))
row("exp", lambda b, x, **_: pairs.exponential(b, x))
row("mul", lambda b, x, y, **_: pairs.product(b, b.multiply, *of_parts(b, x, y)))
row("div", lambda b, x, y, **_: pairs.quotient(b, *of_parts(b, x, y)))
row("square", lambda b, x, **_: pairs.product(b, b.multiply, x, x))


@row("conj")
def conj(b: Emitter, x: Any, **_: Any) -> Complex:
    """The conjugate of complex numbers, or of real ones, which become complex."""
    return pairs.conjugate(b, as_complex(b, x, results(b)[0].dtype or ""))


@row("convert_element_type")
def convert(b: Emitter, x: Any, *, new_dtype: Any, **_: Any) -> Any:
    """A real dtype takes the real part."""
    dtype = str(new_dtype)
    if dtype in PARTS:
        return as_complex(b, x, PARTS[dtype])
    return b.cast(x.real, dtype)


@row("integer_pow")
def integer_pow(b: Emitter, x: Complex, *, y: int, **_: Any) -> Complex:
    if not 1 <= y <= 8:
        raise Refused(f"complex numbers to the power of {y}")
    result = x
    for _step in range(y - 1):
        result = pairs.product(b, b.multiply, result, x)
    return result


@row("pad")
def pad(b: Emitter, x: Complex, value: Any, **params: Any) -> Complex:
    real = TABLE.find("pad")
    assert real is not None
    given = value.parts if isinstance(value, Complex) else (value, b.const(0.0))
    fill = [v.data for v in given if isinstance(v, graph.Constant)]
    if len(fill) < 2:
        raise Refused("a margin of complex numbers that are data")
    each = (
        real(b, t, Known.of(f, dtype_of(t)), **params)
        for t, f in zip(x.parts, fill, strict=True)
    )
    return Complex(*each)


@row("dot_general")
def dot_general(b: Emitter, x: Any, y: Any, **params: Any) -> Complex:
    real = TABLE.find("dot_general")
    assert real is not None
    ty = results(b)[0]

    def product(x: graph.Expr, y: graph.Expr) -> Any:
        return b.apply("dot_general", real, (x, y), params, out=[ty])

    return pairs.product(b, product, *of_parts(b, x, y))


def comparison(name: str, join: Callable[[Emitter, Any, Any], Any]) -> None:
    compare = {"eq": "equal", "ne": "not_equal"}[name]

    def emit(b: Emitter, x: Any, y: Any, **_: Any) -> Any:
        first, second = of_parts(b, x, y)
        each = (getattr(b, compare)(*p) for p in zip(first.parts, second.parts, strict=True))
        return join(b, *each)

    row(name, emit)


comparison("eq", lambda b, x, y: b.logical_and(x, y))
comparison("ne", lambda b, x, y: b.logical_or(x, y))


@row("fft")
def fft(b: Emitter, x: Any, *, fft_type: Any, fft_lengths: Sequence[Any]) -> Any:
    """Along the last dimensions: of complex or real numbers, and back."""
    kind, count = int(fft_type), len(fft_lengths)
    axes, extents = list(range(-count, 0)), [expr.as_expr(d) for d in fft_lengths]
    if kind == 2:
        found = pairs.transformed(b, as_complex(b, x, dtype_of(x)), axes[-1:], False)
        return pairs.transformed(b, pairs.half_of(b, found, -1), axes[:-1], False)
    if kind == 3:
        x = pairs.transformed(b, x, axes[:-1], True)
        whole = pairs.whole_of(b, x, len(shape_of(x.real)) - 1, extents[-1])
        real = pairs.transformed(b, whole, axes[-1:], True).real
        return pairs.normalised(b, real, extents, -1.0)
    found = pairs.transformed(b, x, axes, kind == 1)
    return pairs.normalised(b, found, extents, -1.0 if kind == 1 else 0.0)
