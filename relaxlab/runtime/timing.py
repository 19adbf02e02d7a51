"""Timing of calls: one, or several of the same meaning beside each other.

A call is repeated until a sample is long enough for the clock; samples of several candidates take
turns, so that other work on the machine disturbs all of them alike.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np

from relaxlab.analysis.costs import function_cost
from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.ir import expr, graph
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import brief, kind_of
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.names import among
from relaxlab.ir.types import PrimType, ShapeType, TensorType, Type
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.build import compile
from relaxlab.runtime.check.compare import leaves
from relaxlab.runtime.check.inputs import copy_value
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.function import NativeFunction
from relaxlab.schedule.schedule import Schedule

SAMPLES = 15
"""Samples of a timing: enough for quartiles, few enough to wait for."""
SAMPLE_SECONDS = 2e-3
"""A sample of many short calls lasts as long: the clock and the loop around them cost 0.1 us."""
MOST_SECONDS = 3.0
"""After which no further sample of a candidate begins, but three are always taken."""
TOLERANCE = 1e-4
"""Results agree where they differ by at most this part of the largest element, as sums of float32
in another order do."""


@dataclass(frozen=True, slots=True)
class Timing(Displayed):
    """Seconds per call: `samples`, each the mean of `calls` calls.

    flops: additions, multiplications and functions of one call, read off the loops; None where the
    program is not relaxlab's or its cost is not known. bytes: of all arguments and results.
    """

    name: str
    samples: tuple[float, ...]
    calls: int
    flops: int | None = None
    bytes: int | None = None

    @property
    def seconds(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def best(self) -> float:
        """The fastest sample."""
        return min(self.samples)

    @property
    def spread(self) -> float:
        """The interquartile range of the samples, in seconds."""
        if len(self.samples) < 2:
            return 0.0
        first, _, third = quantiles(self.samples, n=4)
        return third - first

    @property
    def flop_rate(self) -> float | None:
        """Operations per second."""
        return None if self.flops is None else self.flops / self.seconds

    def __repr__(self) -> str:
        rate = self.flop_rate
        parts = [
            f"{self.name}: {seconds_text(self.seconds)} per call",
            f"middle half within {seconds_text(self.spread)}",
            f"{len(self.samples)} samples of {self.calls}",
            *([f"{rate / 1e9:.3g} GFLOP/s"] if rate else []),
            *([f"{self.bytes / self.seconds / 1e9:.3g} GB/s"] if self.bytes else []),
        ]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Comparison(Displayed):
    """Timings of programs of the same meaning; `differs` holds, by name, the difference of a result
    from that of the first (None: there were no results to compare)."""

    timings: tuple[Timing, ...]
    differs: Mapping[str, str] | None

    def __getitem__(self, name: str) -> Timing:
        for timing in self.timings:
            if timing.name == name:
                return timing
        raise KeyError(f"{name!r} was not timed; there are: {among(name, (t.name for t in self))}")

    def __iter__(self) -> Any:
        return iter(self.timings)

    def __repr__(self) -> str:
        width = max(len(t.name) for t in self.timings)
        fastest = min(t.seconds for t in self.timings)
        differs = self.differs or {}
        lines = [
            f"{t.name:{width}}  {seconds_text(t.seconds):>9}  {t.seconds / fastest:8.2f} x"
            + (f"  {t.flop_rate / 1e9:8.2f} GFLOP/s" if t.flop_rate else "")
            + (f"  DIFFERS: {differs[t.name]}" if t.name in differs else "")
            for t in self.timings
        ]
        return "\n".join(lines)


def seconds_text(seconds: float) -> str:
    """A duration with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


@dataclass(slots=True)
class Candidate:
    """A call that is measured: first `warm_up`, then as often as wanted `sample`. result: of the
    first call; calls: that make up a sample."""

    name: str
    call: Callable[[], Any]
    flops: int | None = None
    result: Any = None
    bytes: int = 0
    calls: int = 1

    def warm_up(self) -> None:
        """Call until the time of one is known, and choose how many make a sample."""
        # The first call may allocate or compile; it is not timed. Its result is copied, as later
        # calls may write into the same memory.
        self.result = copy_value(self.call())
        start, count = perf_counter(), 0
        # Some calls, as one of microseconds is not long enough for the clock.
        while count < 3 and perf_counter() - start < SAMPLE_SECONDS:
            self.call()
            count += 1
        each = (perf_counter() - start) / max(1, count)
        self.calls = max(1, ceil(SAMPLE_SECONDS / max(each, 1e-9)))

    def sample(self) -> float:
        """The seconds of a call, the mean of those of a sample."""
        call, count = self.call, self.calls
        start = perf_counter()
        for _ in range(count):
            call()
        return (perf_counter() - start) / count


@brief
def time(f: Any, *args: Any, samples: int = SAMPLES, **named: Any) -> Timing:
    """Measure a call.

    f: an executable, one of its functions, any Python callable, or a program (module, function,
    schedule), which is compiled first. args, named: what it is called with; arrays that it updates
    in place are not reset between calls. samples: how many to take, less where they take long.

    Raises what the compilation and the call raise.
    """
    return compare({_name_of(f): f}, *args, samples=samples, **named).timings[0]


@brief
def compare(
    candidates: Mapping[str, Any], *args: Any, samples: int = SAMPLES, **named: Any
) -> Comparison:
    """Measure the same call of several programs, in turns, and compare their results.

    candidates: by name, what `time` takes. Each gets copies of the arguments. What a candidate
    returns must agree with the first one's result: shapes, integers and bools exactly, floats
    within `TOLERANCE` of the largest element; the comparison says where they do not.

    Raises ValueError without candidates or samples, TypeError for what is no dictionary by name,
    and what `time` raises.
    """
    by_name = isinstance(candidates, Mapping) and all(isinstance(n, str) for n in candidates)
    if not by_name:
        raise TypeError("what to compare is given as a dictionary of names and programs")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if not candidates:
        raise ValueError("there is nothing to compare: give a dictionary of names and programs")
    entered = [_enter(name, f, args, named) for name, f in candidates.items()]
    for one in entered:
        one.warm_up()
        one.bytes = sum(a.nbytes for _, a in leaves((tuple(args), one.result), ""))
    taken = _measure(entered, samples)
    differs: dict[str, str] = {}
    for one in entered[1:]:
        problem = _disagreement(one.result, entered[0].result)
        if problem is not None:
            differs[one.name] = problem
    timings = tuple(
        Timing(c.name, tuple(t), c.calls, c.flops, c.bytes)
        for c, t in zip(entered, taken, strict=True)
    )
    return Comparison(timings, differs)


def _measure(entered: Sequence[Candidate], samples: int) -> list[list[float]]:
    taken: list[list[float]] = [[] for _ in entered]
    was_enabled = gc.isenabled()
    # A collection takes longer than most samples.
    gc.disable()
    try:
        for _ in range(samples):
            for one, times in zip(entered, taken, strict=True):
                # `times` are seconds per call, of which each sample has several.
                if len(times) < 3 or sum(times) * one.calls < MOST_SECONDS:
                    times.append(one.sample())
    finally:
        if was_enabled:
            gc.enable()
    return taken


def _enter(name: str, f: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Candidate:
    if isinstance(f, Module | PrimFunc | graph.Function | Schedule):
        f = compile(f)
    given = tuple(copy_value(a) for a in args)
    if isinstance(f, Executable):
        f = f.chosen()
    if not callable(f):
        raise TypeError(
            f"{name!r} is {kind_of(f)}, which cannot be called: give a function, an "
            "executable, or a program to compile"
        )
    # Sizes are read off the arguments in the order of the parameters.
    flops = _flops(f, given) if isinstance(f, NativeFunction) and not named else None
    return Candidate(name, lambda: f(*given, **named), flops)


def _name_of(f: Any) -> str:
    if isinstance(f, NativeFunction):
        return f.info.name
    if isinstance(f, Schedule):
        f = f.func
    if isinstance(f, PrimFunc | graph.Function):
        return name_of(f)
    return getattr(f, "__name__", type(f).__name__.lower())


def _flops(f: NativeFunction, args: tuple[Any, ...]) -> int | None:
    """Return the floating-point operations of a call, if the program determines them."""
    if f.compiled_from is None:
        return None
    source = normalize(f.compiled_from)
    func = source[f.info.name]
    cost = function_cost(source, func) if isinstance(func, graph.Function) else None
    if cost is None or not isinstance(func, graph.Function):
        return None
    values: dict[expr.Var, int] = {}
    for param, arg in zip(func.params, args, strict=False):
        _bind_sizes(param.ty, arg, values)
    try:
        return int(evaluate(cost.flops, values))
    except CannotEvaluate:
        return None


def _bind_sizes(ty: Type | None, arg: Any, values: dict[expr.Var, int]) -> None:
    """The values of the symbols that stand alone in a parameter's type."""
    dims: Sequence[Any] = ()
    match ty:
        case TensorType(shape=tuple(shape)):
            dims = list(zip(shape, np.shape(arg), strict=False))
        case ShapeType(values=tuple(shape)):
            dims = list(zip(shape, arg, strict=False))
        case PrimType(value=expr.Var() as var):
            dims = [(var, arg)]
        case _:
            pass
    for dim, size in dims:
        if isinstance(dim, expr.Var):
            values.setdefault(dim, int(size))


def _disagreement(got: Any, expected: Any) -> str | None:
    mine, theirs = list(leaves(got, "the result")), list(leaves(expected, "the result"))
    if len(mine) != len(theirs):
        return f"the result has {len(mine)} parts, expected {len(theirs)}"
    for (place, a), (_, b) in zip(mine, theirs, strict=True):
        if a.shape != b.shape:
            return f"{place} has the shape {a.shape}, expected {b.shape}"
        # float8 and bfloat16 are of other kinds than NumPy's floats.
        floats = a.dtype.kind not in "iub" and b.size > 0
        allowed = TOLERANCE * max(1.0, float(np.nanmax(np.abs(b)))) if floats else 0.0
        if not np.allclose(a, b, rtol=0, atol=allowed, equal_nan=True):
            worst = float(np.nanmax(np.abs(a.astype("float64") - b.astype("float64"))))
            return f"{place} is off by up to {worst:.3g}"
    return None
