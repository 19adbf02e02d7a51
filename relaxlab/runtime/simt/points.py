"""The threads that are at one statement, with the values that each of them sees.

A point is a thread, or one lane of a thread inside a vectorized loop. Values are NumPy scalars
where all points agree, else arrays with one entry per point. A condition or a loop makes new
points out of given ones; values from outside are copied when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Stmt
from relaxlab.runtime.arrays import Array


class Points:
    """Points in ascending order of their threads.

    `lanes` are the numbers of the threads among those that run together; `whole` says that they
    are all of them, once each. `pick` says which points of `parent` these are (None: the same),
    `cause` which condition or loop last kept only some.
    """

    __slots__ = ("bound", "cause", "lanes", "parent", "pick", "spread", "values", "whole")

    def __init__(
        self,
        lanes: Array,
        bound: dict[Var, Any],
        parent: Points | None = None,
        pick: Array | None = None,
        *,
        whole: bool = False,
        spread: bool = False,
    ) -> None:
        self.lanes = lanes
        self.bound = bound
        self.parent = parent
        self.pick = pick
        self.whole = whole
        self.spread = spread
        self.cause: Stmt | None = None if parent is None else parent.cause
        self.values: dict[Hashable, Any] = {**bound}

    def __len__(self) -> int:
        return len(self.lanes)

    def bind(self, bound: dict[Var, Any]) -> Points:
        """Return the same points with more variables."""
        return Points(self.lanes, bound, self, whole=self.whole, spread=self.spread)

    def narrow(self, pick: Array, cause: Stmt | None = None) -> Points:
        """Return the points at the ascending positions `pick`, which the statement `cause`
        keeps."""
        points = Points(self.lanes[pick], {}, self, pick, spread=self.spread)
        points.cause = cause or self.cause
        return points

    def fan_out(self, var: Var, values: Array) -> Points:
        """Every point once for each of the values of a vectorized loop's variable."""
        pick = np.repeat(np.arange(len(self)), len(values))
        bound = {var: np.tile(values, len(self))}
        return Points(self.lanes[pick], bound, self, pick, spread=True)

    def repeat(self, count: int) -> Points:
        """Every point so many times: once for each element that an instruction moves for it."""
        pick = np.repeat(np.arange(len(self)), count)
        return Points(self.lanes[pick], {}, self, pick, spread=True)

    def value(self, key: Hashable, needs: frozenset[Var], compute: Callable[[Points], Any]) -> Any:
        """Return a value that depends on the variables `needs` and on nothing else.

        It is computed by the outermost points at which all of these are bound, and cached there.
        """
        found = self.values.get(key)
        if found is not None:
            return found
        if self.parent is None or not needs.isdisjoint(self.bound):
            found = compute(self)
        else:
            found = self.parent.value(key, needs, compute)
            if self.pick is not None and isinstance(found, np.ndarray):
                found = found[self.pick]
        self.values[key] = found
        return found

    def spread_out(self, value: Any) -> Array:
        """A value as an array with one entry per point."""
        return value if isinstance(value, np.ndarray) else np.full(len(self), value)
