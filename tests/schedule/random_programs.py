"""Random loop functions with dependences that a schedule must prove harmless before it moves a
block.

Blocks with predicates, stencils that are clamped or guarded at the edges, triangular loops and
reads, buffers that are only partly read, axes that do not start at 0, reductions, and buffers
with two writers, over symbolic and constant extents. Everything is of one dtype, and exact, so that
two functions either compute the same or do not: narrow integers wrap around when they are stored,
and floats are small whole numbers, as every load bounds them. Every element that is read was
written before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from relaxlab.ir.dtypes import is_float
from relaxlab.ir.loops import PrimFunc
from relaxlab.script import parse

DTYPES = ("int32", "int32", "int64", "int8", "int16", "uint8", "uint32",
          "float16", "bfloat16", "bool")  # fmt: skip
EXTENTS = ("n", "n", "m", "1", "4", "5", "7", "12")


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    shape: tuple[str, ...]


@dataclass(slots=True)
class _Writer:
    """The text of a function while it is made."""

    rng: random.Random
    dtype: str
    arrays: list[_Array] = field(default_factory=list[_Array])
    allocated: list[_Array] = field(default_factory=list[_Array])
    body: list[str] = field(default_factory=list[str])

    def source(self) -> _Array:
        """An array to read: mostly the last one."""
        return self.arrays[-1] if self.rng.random() < 0.7 else self.rng.choice(self.arrays)

    def new(self, shape: tuple[str, ...]) -> _Array:
        """An intermediate buffer, which later blocks may read."""
        out = _Array(f"B{len(self.allocated)}", shape)
        self.allocated.append(out)
        self.arrays.append(out)
        return out

    def load(self, array: _Array, index: str) -> str:
        """An element. Floats are whole numbers from -2 to 2: sums of their products over an axis of
        14, and an index of 182 with 4, are exact in bfloat16."""
        element = f"{array.name}[{index}]"
        if not is_float(self.dtype):
            return element
        least, most = self.constant(-2), self.constant(2)
        return f"T.max(T.min(T.floor({element}), {most}), {least})"

    def constant(self, value: int) -> str:
        """A number, of bools true unless it is 0."""
        if self.dtype == "bool":
            return f"T.bool({value != 0})"
        return f"T.{self.dtype}({value})" if is_float(self.dtype) else str(value)

    def plus(self, a: str, b: str) -> str:
        """The sum; of bools true where one is."""
        return f"(({a}) != ({b}))" if self.dtype == "bool" else f"{a} + {b}"

    def minus(self, a: str, b: str) -> str:
        """The difference; of bools true where one is."""
        return self.plus(a, b) if self.dtype == "bool" else f"{a} - {b}"

    def times(self, a: str, b: str) -> str:
        """The product of two factors; of bools true where both are."""
        return f"T.And({a}, {b})" if self.dtype == "bool" else f"{a} * {b}"

    def number(self, axis: str) -> str:
        """An axis as an operand. Sums of signed integers are of the wider dtype; with unsigned ones
        int64 has none."""
        if self.dtype == "bool":
            return f"{axis} % 2 == 0"
        signed = self.dtype.startswith("int")
        return axis if signed else f'T.Cast("{self.dtype}", {axis})'

    def matching(self, shape: tuple[str, ...]) -> list[str]:
        """Loads at the axes v0 and v1 from arrays that have an element for each point."""
        rows = [self.load(b, "v1") for b in self.arrays if b.shape == shape[1:]]
        return [self.load(b, "v0, v1") for b in self.arrays if b.shape == shape] + rows

    def block(
        self, out: _Array, value: str, extents: tuple[str, ...], *, where: str = "",
        kinds: str = "", init: str = "", triangular: bool = False, name: str = "",
    ) -> None:  # fmt: skip
        """Loops over `extents` around one block that stores `value` to `out`."""
        axes = [f"v{i}" for i in range(len(extents))]
        kinds = kinds or "S" * len(extents)
        order = list(range(len(extents)))
        if not triangular and self.rng.random() < 0.3:
            self.rng.shuffle(order)
        plain = not where and not triangular
        first = [self.rng.choice(["0", "0", "0", "2"]) if plain else "0" for _ in extents]
        at = 4
        for d in order:
            stop = f"i{d - 1} + 1" if triangular and d else _sum(extents[d], first[d])
            self.body.append(f"{' ' * at}for i{d} in range({first[d]}, {stop}):")
            at += 4
        self.body.append(f'{" " * at}with T.sblock("{name or out.name}"):')
        at += 4
        for d, (v, extent, kind) in enumerate(zip(axes, extents, kinds, strict=True)):
            word = "spatial" if kind == "S" else "reduce"
            binding = f"i{d}" if first[d] == "0" else f"i{d} - {first[d]}"
            self.body.append(f"{' ' * at}{v} = T.axis.{word}({extent}, {binding})")
        if where:
            self.body.append(f"{' ' * at}T.where({where})")
        index = ", ".join(v for v, k in zip(axes, kinds, strict=True) if k == "S")
        if init:
            self.body.append(f"{' ' * at}with T.init():")
            self.body.append(f"{' ' * at}    {out.name}[{index}] = {init}")
        self.body.append(f"{' ' * at}{out.name}[{index}] = {value}")

    def predicate(self, extents: tuple[str, ...]) -> str:
        """A condition on the loops that leaves some instances out.

        That a loop provably never reaches the end of an axis is no well-formed program.
        """
        conditions = ['T.Cast("int64", C[0]) < i0' if extents[0] not in "1n" else "i0 % 2 == 0"]
        if extents[0] == "n":
            conditions += ["i0 < 3", "i0 * 2 < n", "i0 >= 2"]
        if len(extents) > 1:
            conditions += ["i1 % 2 == i0 % 2"]
        if len(extents) > 1 and _triangular(extents):
            conditions += ["i1 <= i0", "i1 <= i0", "i0 + i1 < 6"]
        return self.rng.choice(conditions)


def _triangular(shape: tuple[str, ...]) -> bool:
    """True if the second axis may be cut at the first: not if it is provably longer."""
    return shape[0] == "n" or (shape[0] == shape[1] and shape[0] != "1")


def _sum(extent: str, first: str) -> str:
    return extent if first == "0" else f"{extent} + {first}"


def _pointwise(w: _Writer) -> None:
    """Element by element, or transposed, or backwards."""
    a = w.source()
    axes = [f"v{i}" for i in range(len(a.shape))]
    shape = a.shape
    index = list(axes)
    how = w.rng.choice(["same", "same", "transposed", "backwards"])
    if how == "transposed":
        shape, index = shape[::-1], index[::-1]
    elif how == "backwards":
        index[0] = f"{shape[0]} - 1 - v0"
    out = w.new(shape)
    twice = w.times(w.load(a, ", ".join(index)), w.constant(2))
    w.block(out, w.plus(twice, w.number("v0")), shape)


def _stencil(w: _Writer) -> None:
    """Neighbours along the first dimension, clamped or guarded at the edges."""
    a = w.source()
    rest = "".join(f", v{i}" for i in range(1, len(a.shape)))
    last, far = a.shape[0], w.rng.choice([1, 2, 3])
    other = w.rng.choice([
        w.load(a, f"T.min(v0 + {far}, {last} - 1){rest}"),
        w.load(a, f"T.max(v0 - {far}, 0){rest}"),
        f"T.if_then_else(v0 + {far} < {last}, {w.load(a, f'v0 + {far}{rest}')}, {w.constant(0)})",
        f"T.if_then_else(v0 >= {far}, {w.load(a, f'v0 - {far}{rest}')}, {w.constant(0)})",
    ])  # fmt: skip
    out = w.new(a.shape)
    w.block(out, w.plus(w.load(a, f"v0{rest}"), other), a.shape)


def _reduction(w: _Writer) -> None:
    """A sum or maximum over the last dimension: all of it, a triangle, or under a predicate."""
    a = w.source()
    if len(a.shape) != 2:
        _pointwise(w)
        return
    beside = w.matching(a.shape)
    out = w.new(a.shape[:1])
    index = "v0, v1"
    how = w.rng.choice(["all", "triangle", "where", "where"])
    if how == "triangle" and a.shape[0] != a.shape[1]:
        how = "where"
    if not _triangular(a.shape):
        how = "all"
    where = w.rng.choice(["i1 <= i0", "i1 * 2 < i0 + 1"]) if how == "where" else ""
    element, so_far, init = w.load(a, index), f"{out.name}[v0]", w.constant(0)
    other = w.rng.random() < 0.3
    if not other and w.rng.random() < 0.4:
        element = w.times(element, w.rng.choice(beside))
    if w.dtype == "bool":
        value = f"T.{'And' if other else 'Or'}({so_far}, {element})"
        init = w.constant(1 if other else 0)
    elif other:
        value, init = f"T.max({so_far}, {element})", f'T.min_value("{w.dtype}")'
    else:
        value = f"{so_far} + {element}"
    w.block(out, value, a.shape, where=where, kinds="SR", init=init, triangular=how == "triangle")


def _broadcast(w: _Writer) -> None:
    """A row's value with each element of the row."""
    a = w.source()
    wide = [b for b in w.arrays if len(b.shape) == 2 and b.shape[0] == a.shape[0]]
    if len(a.shape) != 1 or not wide:
        _pointwise(w)
        return
    other = w.rng.choice(wide)
    row = w.times(w.load(a, "v0"), w.constant(3))
    w.block(w.new(other.shape), w.plus(row, w.load(other, "v0, v1")), other.shape)


def _partial(w: _Writer) -> None:
    """Zeros, then an update of some elements by a second block."""
    a = w.source()
    out = w.new(a.shape)
    axes = ", ".join(f"v{i}" for i in range(len(a.shape)))
    w.block(out, w.number("v0"), a.shape, name=f"{out.name}_fill")
    value = w.plus(w.load(a, axes), w.rng.choice([w.constant(1), w.load(out, axes)]))
    w.block(out, value, a.shape, where=w.predicate(a.shape))


def _update(w: _Writer) -> None:
    """An array that was read before changes in place, and is read again."""
    a = w.rng.choice(w.allocated or [w.source()])
    if a not in w.allocated:
        _pointwise(w)
        return
    axes = ", ".join(f"v{i}" for i in range(len(a.shape)))
    early = w.new(a.shape)
    now, before = w.load(a, axes), w.load(early, axes)
    w.block(early, w.times(now, w.constant(2)), a.shape)
    value = w.rng.choice([w.plus(now, w.constant(1)), w.minus(before, now), w.constant(3)])
    w.block(a, value, a.shape, name=f"{a.name}_update")
    late = w.new(a.shape)
    w.block(late, w.plus(before, now), a.shape)


def _guarded(w: _Writer) -> None:
    """A block that leaves elements out, and a reader that knows which."""
    a = w.source()
    hole = w.new(a.shape)
    axes = ", ".join(f"v{i}" for i in range(len(a.shape)))
    where = w.predicate(a.shape)
    w.block(hole, w.minus(w.load(a, axes), w.constant(1)), a.shape, where=where)
    out = w.new(a.shape)
    w.arrays.remove(hole)
    known = where.replace("i0", "v0").replace("i1", "v1")
    value = f"T.if_then_else({known}, {w.load(hole, axes)}, {w.constant(5)})"
    if w.rng.random() < 0.5:
        w.block(out, value, a.shape)
    else:
        w.block(out, w.constant(7), a.shape, name=f"{out.name}_fill")
        w.block(out, w.plus(w.load(hole, axes), w.constant(3)), a.shape, where=where)


def _reshaped(w: _Writer) -> None:
    """Rows in a line, or every other element."""
    a = w.source()
    if len(a.shape) == 2:
        n, m = a.shape
        out = w.new((f"{n} * {m}",))
        w.block(out, w.plus(w.load(a, f"v0 // {m}, v0 % {m}"), w.constant(1)), out.shape)
    else:
        half = f"({a.shape[0]} + 1) // 2"
        out = w.new((half,))
        w.block(out, w.plus(w.load(a, "v0 * 2"), w.constant(1)), out.shape)


KINDS = (
    *(_pointwise, _pointwise, _stencil, _stencil, _reduction, _reduction, _broadcast),
    *(_partial, _guarded, _update, _reshaped),
)


def random_program(rng: random.Random) -> PrimFunc:
    """A function of two arrays, `A` (2 dimensions) and `C` (1), whose last parameter is written."""
    n, m = rng.choice(EXTENTS), rng.choice(EXTENTS)
    if rng.random() < 0.3:
        m = n
    w = _Writer(rng, rng.choice(DTYPES), [_Array("A", (n, m)), _Array("C", (n,))])
    for _ in range(rng.randint(1, 4)):
        rng.choice(KINDS)(w)
    last = w.arrays[-1]
    axes = ", ".join(f"v{i}" for i in range(len(last.shape)))
    where = w.predicate(last.shape) if rng.random() < 0.3 else ""
    out = _Array("O", last.shape)
    w.block(out, w.plus(w.load(last, axes), w.constant(1)), last.shape, where=where)
    params = [("a", w.arrays[0]), ("c", w.arrays[1]), ("o", out)]
    symbols = [s for s in ("n", "m") if s in {n, m}]
    lines = ["@T.prim_func", f"def f({', '.join(f'{p}: T.handle' for p, _ in params)}):"]
    lines += [f"    {s} = T.int64()" for s in symbols]
    lines += [
        f'    {a.name} = T.match_buffer({p}, ({", ".join(a.shape)},), "{w.dtype}")'
        for p, a in params
    ]
    lines += [
        f'    {a.name} = T.alloc_buffer(({", ".join(a.shape)},), "{w.dtype}")' for a in w.allocated
    ]
    ((_, func),) = parse("\n".join([*lines, *w.body])).functions
    return func
