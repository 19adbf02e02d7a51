"""`x[...]` of a tensor that is being built: NumPy's basic indexing by constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.plain import plain


def indexing(
    shape: Sequence[expr.PrimExpr], key: Any
) -> Iterator[tuple[str, dict[str, tuple[Any, ...]]]]:
    """Yield the operators that index a tensor of a shape, with their attributes, one after the
    other: slices, integers, `...` and None, as in NumPy. Integers may be expressions of symbols.

    Raises IndexError for too many of them, TypeError for other keys. Bounds that do not fit a
    symbolic dimension are those of `R.strided_slice`.
    """
    keys = [_plain(k) for k in (key if isinstance(key, tuple) else (key,))]
    ndim = len(shape)
    used = sum(k is not None and k is not Ellipsis for k in keys)
    # By identity: `==` of a tensor builds one.
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if used > ndim or len(dots) > 1:
        raise IndexError(f"{used} indices for a tensor of {ndim} dimensions")
    at = dots[0] if dots else len(keys)
    keys[at : at + 1] = [slice(None)] * (ndim - used)
    axes, begins, ends, steps = list[int](), list[Any](), list[Any](), list[int]()
    gone, new = list[int](), list[int]()
    axis = 0
    for place, k in enumerate(keys):
        if k is None:
            new.append(place - len(gone))
            continue
        if not isinstance(k, int | expr.PrimExpr | slice) or isinstance(k, bool):
            raise TypeError(
                f"a tensor is indexed by integers, slices, ... and None, not {k!r}; rows by their "
                "numbers: x.take(numbers, axis=0), elements by a condition: condition.where(x, y)"
            )
        if not isinstance(k, slice):
            gone.append(axis)
        if k != slice(None):
            begin, end, step = _bounds(k, shape[axis])
            axes.append(axis)
            begins.append(begin)
            ends.append(end)
            steps.append(step)
        axis += 1
    if axes:
        bounds = {"begin": tuple(begins), "end": tuple(ends), "strides": tuple(steps)}
        yield "strided_slice", {"axes": tuple(axes), **bounds}
    if gone:
        yield "squeeze", {"axis": tuple(gone)}
    if new:
        yield "expand_dims", {"axis": tuple(new)}


def _plain(key: Any) -> Any:
    """A key with constant dimensions and NumPy's numbers as Python's integers."""
    match key:
        case slice():
            return slice(*map(_plain, (key.start, key.stop, key.step)))
        case expr.IntImm():
            return key.value
        case _:
            return plain(key)


def _bounds(key: int | expr.PrimExpr | slice, dim: expr.PrimExpr) -> tuple[Any, Any, int]:
    """Begin, end and step along a dimension; negative places count from its end."""
    if not isinstance(key, slice):
        size = dim.value if isinstance(dim, expr.IntImm) else None
        if isinstance(key, int) and size is not None and not -size <= key < size:
            raise IndexError(f"index {key} is out of range for a dimension of {size}")
        begin = _place(key, dim)
        return begin, begin + 1, 1
    step = 1 if key.step is None else key.step
    if not isinstance(step, int):
        raise TypeError(f"a step of {step}: it has to be a number")
    if step < 1:
        raise IndexError(f"a step of {step}: turn a tensor around with x.flip(axis=...)")
    begin = 0 if key.start is None else _place(key.start, dim)
    end = dim if key.stop is None else _place(key.stop, dim)
    if isinstance(dim, expr.IntImm) and not any(
        isinstance(k, expr.PrimExpr) for k in (key.start, key.stop)
    ):
        begin, end, _ = slice(key.start, key.stop, step).indices(dim.value)
    return begin, end, step


def _place(k: int | expr.PrimExpr, dim: expr.PrimExpr) -> Any:
    return k if isinstance(k, expr.PrimExpr) or k >= 0 else dim + k
