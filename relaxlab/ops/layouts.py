"""Layouts of images and kernels: which dimension is which, by letters ("NCHW", "HWIO")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from relaxlab.ir import graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops.define import attr, fail

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Layout:
    """An order of letters. Values per dimension are moved between it and `letters`."""

    order: str
    letters: str

    def take(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Values in this order, in the order of `letters`."""
        return tuple(items[self.order.index(c)] for c in self.letters)

    def put(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Values in the order of `letters`, in this order."""
        return tuple(items[self.letters.index(c)] for c in self.order)


def layout_attr(call: graph.Call, name: str, letters: str, like: Layout | None = None) -> Layout:
    """The layout in an attribute, or `like` where it is absent. Raises unless it has each of
    `letters` once."""
    order = attr(call, name)
    if order is None and like is not None:
        return like
    if not isinstance(order, str) or sorted(order) != sorted(letters):
        raise fail(call, f"{name} {order!r} must have each of the letters {letters!r} once")
    return Layout(order, letters)


def per_dimension(call: graph.Call, name: str, count: int, least: int) -> tuple[int, ...]:
    """An integer attribute for each of `count` spatial dimensions; one number stands for all."""
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
        """From the first to the last element, inclusive."""
        return (self.size - 1) * self.dilation + 1

    @property
    def padded(self) -> bool:
        """Whether places outside of the input may be read."""
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


def transposition(layout: str | None, letters: str) -> list[int]:
    """The axes of `layout` (`letters` itself when None) in the order of `letters`."""
    return [(layout or letters).index(c) for c in letters]
