"""Layouts of images and kernels: which dimension is which, by letters ("NCHW", "NCHW16c")."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops.define import attr, fail
from relaxlab.ops.shapes import impossible, require_equal, simplify

Array = np.ndarray[Any, Any]

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Layout:
    """An order of dimensions. A capital letter is a dimension, a number with a small letter a block
    of one: `NCHW16c` has the channels in rows of 16, the last dimension.

    Places and sizes of the dimensions are moved between this order and that of `letters`.
    """

    order: str
    letters: str

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Per axis its dimension's letter, and the size of its block or 0."""
        found = re.findall(r"([A-Z])|(\d+)([a-z])", self.order)
        return tuple((big or small.upper(), int(size or 0)) for big, size, small in found)

    @property
    def blocks(self) -> dict[str, int]:
        """The sizes of the blocks by letter."""
        return {letter: size for letter, size in self.axes if size}

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.axes)

    def take(self, places: Sequence[Item]) -> tuple[Item, ...]:
        """The place along each of `letters` of the element at these places."""
        at = {axis: p for axis, p in zip(self.axes, places, strict=True)}
        blocks = self.blocks
        return tuple(
            at[c, 0] * blocks[c] + at[c, blocks[c]] if c in blocks else at[c, 0]  # type: ignore
            for c in self.letters
        )

    def put(self, places: Sequence[Item]) -> tuple[Item, ...]:
        """The places along the axes of the element at these places along `letters`."""
        at, blocks = dict(zip(self.letters, places, strict=True)), self.blocks
        return tuple(
            at[c] % size if size else at[c] // blocks[c] if c in blocks else at[c]  # type: ignore
            for c, size in self.axes
        )

    def sizes(self, call: graph.Call, shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """The extents of `letters` of a tensor of this shape. Raises where a dimension of blocks
        does not have their size."""
        for (_, size), extent in zip(self.axes, shape, strict=True):
            if size:
                what = f"the extent of a dimension and the block of {self.order}"
                require_equal(call, extent, expr.const(size), what)
        of, blocks = dict(zip(self.axes, shape, strict=True)), self.blocks
        return tuple(
            simplify(of[c, 0] * blocks[c]) if c in blocks else of[c, 0] for c in self.letters
        )

    def shape(self, call: graph.Call, sizes: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """The shape of a tensor with these extents of `letters`. Raises where a block does not
        divide them."""
        of, blocks = dict(zip(self.letters, sizes, strict=True)), self.blocks
        for c, size in blocks.items():
            claim = f"{of[c]} does not divide into blocks of {size} ({self.order})"
            if impossible(call, expr.EQ(of[c] % size, expr.const(0)), claim):
                raise fail(call, claim)
        return tuple(
            expr.const(size) if size else simplify(of[c] // blocks[c]) if c in blocks else of[c]
            for c, size in self.axes
        )


def layout_attr(call: graph.Call, name: str, letters: str, like: Layout | None = None) -> Layout:
    """The layout in an attribute, or `like` where it is absent. Raises unless it has each of
    `letters` once, and one block of each at most."""
    order = attr(call, name)
    if order is None and like is not None:
        return like
    if isinstance(order, str) and re.fullmatch(r"([A-Z]|[1-9]\d*[a-z])*", order):
        layout = Layout(order, letters)
        whole = sorted(c for c, size in layout.axes if not size)
        single = len(layout.blocks) == layout.ndim - len(letters)
        if whole == sorted(letters) and single and set(layout.blocks) <= set(letters):
            return layout
    raise fail(
        call,
        f"{name} {order!r} must have each of the letters {letters!r} once, and may have a block "
        "of some, as in 'NCHW16c'",
    )


def per_dimension(call: graph.Call, name: str, count: int, least: int) -> tuple[int, ...]:
    """Return an integer attribute for each of `count` spatial dimensions; one number is used for
    all."""
    value = attr(call, name)
    items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    items = items * count if len(items) == 1 else items
    whole = all(isinstance(i, int) and i >= least for i in items)
    if len(items) != count or not whole:
        raise fail(call, f"{name} {value} must be 1 or {count} integers, each at least {least}")
    return items


def paddings(call: graph.Call, count: int) -> tuple[tuple[int, int], ...]:
    """(before, after) of each spatial dimension, from one number, one for each dimension, or all
    before and then all after."""
    value = attr(call, "padding")
    items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    if len(items) not in (1, count, 2 * count) or not all(
        isinstance(i, int) and i >= 0 for i in items
    ):
        raise fail(
            call,
            f"padding {value} must be 1, {count} or {2 * count} integers, each at least 0",
        )
    if len(items) < 2 * count:
        items = (items * count if len(items) == 1 else items) * 2
    return tuple(zip(items[:count], items[count:], strict=True))


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window along one dimension: output `o`, element `k` reads input
    o * stride + k * dilation - before."""

    size: PrimExpr
    stride: int
    dilation: int
    before: int
    after: int

    def reads(self, o: PrimExpr, k: PrimExpr) -> PrimExpr:
        """The place that is read; outside of the input where it is padded."""
        return o * self.stride + k * self.dilation - self.before

    @property
    def span(self) -> PrimExpr:
        """The extent from the first to the last element, both included."""
        return (self.size - 1) * self.dilation + 1

    @property
    def divisor(self) -> int:
        """The greatest common divisor of stride and dilation: only multiples of it, counted from
        where the padding begins, are in a window."""
        return math.gcd(self.stride, self.dilation)

    @property
    def phases(self) -> int:
        """The number of phases: elements of a window that are so many apart are whole strides
        apart, and only they meet in the same places."""
        return self.stride // self.divisor

    @property
    def step(self) -> int:
        """The outputs between two such elements."""
        return self.dilation // self.divisor

    @property
    def terms(self) -> PrimExpr:
        """The elements of one phase, at least one, the last of which may lie beyond the window."""
        terms = (self.size + (self.phases - 1)) // self.phases
        return simplify(expr.binary(expr.Max, terms, 1))

    def terms_of(self, phase: PrimExpr) -> PrimExpr:
        """The elements of one phase, none of a window without elements."""
        if simplify(self.size % self.phases) == expr.const(0):  # all phases have as many
            return simplify(self.size // self.phases)
        return simplify((self.size - phase + (self.phases - 1)) // self.phases)

    @property
    def phases_with_terms(self) -> int:
        """The number of phases that may have elements, at least one."""
        known = self.size.value if isinstance(self.size, expr.IntImm) else self.phases
        return max(1, min(known, self.phases))

    @property
    def has_all_phases(self) -> bool:
        """True if the window is known to have elements of each phase."""
        return isinstance(self.size, expr.IntImm) and self.size.value >= self.phases

    def meeting(self, place: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The phase that meets a place, counted from where the padding begins, and the output whose
        first element of that phase it is; element t of the phase is that of the output t * step
        before. The place is a multiple of `divisor`."""
        phase = place // self.divisor * pow(self.step, -1, self.phases) % self.phases
        return phase, simplify((place - phase * self.dilation) // self.stride)

    @property
    def padded(self) -> bool:
        """True if places outside of the input may be read."""
        return bool(self.before or self.after)


# --- The same for references --------------------------------------------------------------------


def tuple_of(value: Any, count: int) -> tuple[int, ...]:
    """A number for each of `count` dimensions."""
    items = value if isinstance(value, tuple) else (value,)
    return items * count if len(items) == 1 else items


def pads_of(value: Any, count: int) -> list[tuple[int, int]]:
    """(before, after) of each dimension; see `paddings`."""
    items = value if isinstance(value, tuple) else (value,)
    items = items if len(items) == 2 * count else tuple_of(items, count) * 2
    return list(zip(items[:count], items[count:], strict=True))


def spatial_rank(x: Array, layout: str | None) -> int:
    """Return the number of spatial dimensions of an array of images in this layout."""
    return (x.ndim if layout is None else sum(c.isupper() for c in layout)) - 2


def to_plain(x: Array, layout: str | None, letters: str) -> Array:
    """The array with the dimensions `letters`, its blocks merged; `layout` None: it has them."""
    if layout is None:
        return x
    axes = Layout(layout, letters).axes
    order = [axes.index(a) for c in letters for a in axes if a[0] == c and not a[1]]
    at: list[int] = []
    for c, one in zip(letters, order, strict=True):
        at += [one, *(k for k, (d, size) in enumerate(axes) if d == c and size)]
    shape = [x.shape[one] * Layout(layout, letters).blocks.get(c, 1)
             for c, one in zip(letters, order, strict=True)]  # fmt: skip
    return x.transpose(at).reshape(shape)


def from_plain(y: Array, layout: str | None, letters: str) -> Array:
    """The inverse of `to_plain`."""
    if layout is None:
        return y
    target = Layout(layout, letters)
    shape: list[int] = []
    kept: list[tuple[str, int]] = []
    for c, size in zip(letters, y.shape, strict=True):
        block = target.blocks.get(c, 0)
        shape += [size // block, block] if block else [size]
        kept += [(c, 0), (c, block)] if block else [(c, 0)]
    return y.reshape(shape).transpose([kept.index(a) for a in target.axes])
