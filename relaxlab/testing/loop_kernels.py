"""Hand-written loop functions for random programs: every kind of access, any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, if_then_else
from relaxlab.ir.substitute import substitute
from relaxlab.ops import te

Shape = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The rank of the inputs, all of one shape; the shapes of the outputs; what else is passed.
    `make` gives the outputs from the inputs and the scalars; `grows`: how much larger values get.
    `moves`: it moves elements alone, of any dtype."""

    ndim: int
    outs: Callable[[Shape], tuple[Shape, ...]]
    make: Callable[..., tuple[te.Tensor, ...]]
    inputs: int = 1
    scalars: Callable[[Shape], Shape] | None = None
    exact: bool = True
    grows: float = 1.0
    moves: bool = False


def _same(shape: Shape) -> tuple[Shape, ...]:
    return (shape,)


def _reversed(a: te.Tensor) -> tuple[te.Tensor, ...]:
    n = a.shape[0]
    return (te.compute(a.shape, lambda i, j: a[n - 1 - i, j], "reversed"),)


def _rotated(a: te.Tensor, by: expr.Var) -> tuple[te.Tensor, ...]:
    n = a.shape[1]
    return (te.compute(a.shape, lambda i, j: a[i, (j + by) % n], "rotated"),)


def _stencil(a: te.Tensor) -> tuple[te.Tensor, ...]:
    n, zero = a.shape[0], expr.const(0, a.dtype)

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        left = if_then_else(expr.GE(i, expr.const(1)), a[i - 1, j], zero)
        right = if_then_else(expr.LT(i, n - 1), a[i + 1, j], zero)
        return left + a[i, j] + right

    return (te.compute(a.shape, element, "stencil"),)


def _turned(a: te.Tensor) -> tuple[te.Tensor, ...]:
    n, m = a.shape
    return (te.compute((m, n), lambda i, j: a[j, i] + a[j, i], "turned"),)


def _row_sums(a: te.Tensor) -> tuple[te.Tensor, ...]:
    r = te.reduce_axis(a.shape[1], "r")
    return (te.compute((a.shape[0],), lambda i: te.te_sum(a[i, r.var], r), "row_sums"),)


def _centred(a: te.Tensor) -> tuple[te.Tensor, ...]:
    r = te.reduce_axis(a.shape[1], "r")
    top = te.compute((a.shape[0],), lambda i: te.te_max(a[i, r.var], r), "top")
    return (te.compute(a.shape, lambda i, j: a[i, j] - top[i], "centred"),)


def _outer(a: te.Tensor, b: te.Tensor) -> tuple[te.Tensor, ...]:
    n = a.shape[0]
    return (te.compute((n, n), lambda i, j: a[i] * b[j], "outer"),)


def _pairs(a: te.Tensor) -> tuple[te.Tensor, ...]:
    """Two neighbours of a flat array become one, the last is alone where their number is odd."""
    n, zero = a.shape[0], expr.const(0, a.dtype)

    def element(i: PrimExpr) -> PrimExpr:
        second = if_then_else(expr.LT(i * 2 + 1, n), a[i * 2 + 1], zero)
        return a[i * 2] + second

    return (te.compute(((n + 1) // 2,), element, "pairs"),)


def _product(a: te.Tensor, b: te.Tensor) -> tuple[te.Tensor, ...]:
    n, m = a.shape
    r = te.reduce_axis(m, "r")
    body = lambda i, j: te.te_sum(a[i, r.var] * b[j, r.var], r)  # noqa: E731
    return (te.compute((n, n), body, "product"),)


def _sums_both_ways(a: te.Tensor) -> tuple[te.Tensor, ...]:
    n, m = a.shape
    c = te.reduce_axis(n, "c")
    columns = te.compute((m,), lambda j: te.te_sum(a[c.var, j], c), "column_sums")
    return *_row_sums(a), columns


def _with_sums(a: te.Tensor) -> tuple[te.Tensor, ...]:
    """The elements in reverse order, and the sums of rows of these."""
    (reverse,) = _reversed(a)
    return reverse, *_row_sums(reverse)


def _bump(a: te.Tensor) -> te.Tensor:
    return te.compute(a.shape, lambda i, j: a[i, j] + expr.const(1, a.dtype), "bump")


def _accumulated(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute(a.shape, lambda i, j: a[i, j] + b[i, j], "accumulated")


KERNELS: dict[str, Kernel] = {
    "reversed": Kernel(2, _same, _reversed, moves=True),
    "rotated": Kernel(2, _same, _rotated, scalars=lambda s: (s[0],), moves=True),
    "stencil": Kernel(2, _same, _stencil, exact=False, grows=3),
    "turned": Kernel(2, lambda s: ((s[1], s[0]),), _turned, exact=False, grows=2),
    "row_sums": Kernel(2, lambda s: ((s[0],),), _row_sums, exact=False, grows=40),
    "centred": Kernel(2, _same, _centred, exact=False, grows=2),
    "outer": Kernel(1, lambda s: ((s[0], s[0]),), _outer, 2, exact=False, grows=64),
    "pairs": Kernel(1, lambda s: (((s[0] + 1) // 2,),), _pairs, exact=False, grows=2),
    "product": Kernel(2, lambda s: ((s[0], s[0]),), _product, 2, exact=False, grows=64 * 40),
    "sums_both_ways": Kernel(
        2, lambda s: ((s[0],), (s[1],)), _sums_both_ways, exact=False, grows=64
    ),
    "with_sums": Kernel(2, lambda s: (s, (s[0],)), _with_sums, exact=False, grows=40),
}
"""Kernels by name; beside them are those that overwrite an argument."""


def kernel(name: str, dtype: str) -> loops.PrimFunc:
    """The loop function, for values of a dtype."""
    spec = KERNELS[name]
    shape = tuple(expr.Var(s) for s in ("p", "q")[: spec.ndim])
    inputs = [te.placeholder(shape, dtype, "AB"[i]) for i in range(spec.inputs)]
    scalars = tuple(expr.Var("by") for _ in (spec.scalars(shape) if spec.scalars else ()))
    return te.create_prim_func([*inputs, *spec.make(*inputs, *scalars)])


def overwriting(name: str, dtype: str) -> loops.PrimFunc:
    """A loop function that overwrites its first argument. `bump` adds 1 to it. `accumulated` adds
    its second argument, and has the sums of the new rows as another output."""
    shape = expr.Var("p"), expr.Var("q")
    a, b = (te.placeholder(shape, dtype, letter) for letter in "AB")
    if name == "bump":
        func = te.create_prim_func([a, _bump(a)])
    else:
        total = _accumulated(a, b)
        func = te.create_prim_func([a, total, b, *_row_sums(total)])
    old, new, *others = func.buffers
    return loops.PrimFunc((old, *others), substitute(func.body, buffers={new: old}))
