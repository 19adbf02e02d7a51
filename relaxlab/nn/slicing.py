"""`x[...]` of a tensor that is being built: NumPy's basic indexing by constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from relaxlab.ir import expr


def indexing(
    shape: Sequence[expr.PrimExpr], key: Any
) -> Iterator[tuple[str, dict[str, tuple[Any, ...]]]]:
    """Yield the operators that index a tensor of a shape, with their attributes, one after the
    other: slices, integers, `...` and None, as in NumPy.

    Raises IndexError for too many of them, TypeError for other keys. Bounds that do not fit a
    symbolic dimension are those of `R.strided_slice`.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    ndim = len(shape)
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > ndim or keys.count(Ellipsis) > 1:
        raise IndexError(f"{used} indices for a tensor of {ndim} dimensions")
    at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    keys[at : at + 1] = [slice(None)] * (ndim - used)
    axes, begins, ends, steps = list[int](), list[Any](), list[Any](), list[int]()
    gone, new = list[int](), list[int]()
    axis = 0
    for place, k in enumerate(keys):
        if k is None:
            new.append(place - len(gone))
            continue
        if not isinstance(k, int | slice) or isinstance(k, bool):
            raise TypeError(f"a tensor is indexed by integers, slices, ... and None, not {k!r}")
        if isinstance(k, int):
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


def _bounds(key: int | slice, dim: expr.PrimExpr) -> tuple[Any, Any, int]:
    """Begin, end and step along a dimension; negative places count from its end."""
    if isinstance(key, int):
        if isinstance(dim, expr.IntImm) and not -dim.value <= key < dim.value:
            raise IndexError(f"index {key} is out of range for a dimension of {dim.value}")
        begin = _place(key, dim)
        return begin, begin + 1, 1
    step = 1 if key.step is None else key.step
    if step < 1:
        raise IndexError(f"a step of {step}: turn a tensor around with x.flip(axis=...)")
    begin = 0 if key.start is None else _place(key.start, dim)
    end = dim if key.stop is None else _place(key.stop, dim)
    if isinstance(dim, expr.IntImm):
        begin, end, _ = slice(key.start, key.stop, step).indices(dim.value)
    return begin, end, step


def _place(k: int, dim: expr.PrimExpr) -> Any:
    return k if k >= 0 else dim + k
