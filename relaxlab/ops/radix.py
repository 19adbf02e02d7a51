"""Orders of rows by the digits of their elements: radix sort, and selection by rank.

Elements become unsigned integers of the same order, whose bytes are the digits. How often each
digit occurs says where the elements with it belong (Knuth, *The Art of Computer Programming*,
volume 3, section 5.2.5) and, from the highest digit on, which of them have a given rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of, is_float, is_uint
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import scalar, te

Rows = tuple[expr.Var, ...]
Buffers = dict[te.Tensor, loops.Buffer]
_Test = Callable[[PrimExpr, PrimExpr], PrimExpr]
DIGIT = 256
"""Values of a digit, a byte."""
SHORT = 32
"""Longest rows, for each digit of an element, of which each element is compared with all others."""
LANES, STEP = 16, 64
"""Counters side by side, a vector of int32 of AVX-512, and elements that a selection compares in a
step."""
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}
"""Bits of infinity, as integers: those of NaN, without the sign, are larger."""


@dataclass(frozen=True, slots=True)
class Row:
    """The elements of one row of a buffer, by their place along `axis`."""

    buffer: loops.Buffer
    row: Rows
    axis: int

    def at(self, place: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*self.row[: self.axis], place, *self.row[self.axis :])

    def __getitem__(self, place: PrimExpr) -> PrimExpr:
        return loops.BufferLoad(self.buffer, self.at(place))

    def set(self, place: PrimExpr, value: PrimExpr) -> loops.Stmt:
        return loops.BufferStore(self.buffer, value, self.at(place))


def each(count: PrimExpr, fn: Callable[[PrimExpr], loops.Stmt]) -> list[loops.Stmt]:
    """A loop over `fn(p)` for each p below `count`, unless that is known to be none."""
    var = expr.Var("p")
    return [] if count == te.ZERO else [loops.For(var, te.ZERO, count, "serial", fn(var))]


def key_dtype(dtype: str) -> str:
    """The dtype of the keys of elements."""
    return f"uint{bits_of(dtype)}"


def digits_of(dtype: str) -> int:
    """The number of digits of a key."""
    return bits_of(dtype) // 8


def key_of(value: PrimExpr, descending: bool = False) -> PrimExpr:
    """An unsigned integer that orders elements as they are sorted: NaN last, zeros of both signs
    equal; in reverse where `descending`."""
    dtype, kind, bits = value.dtype, key_dtype(value.dtype), bits_of(value.dtype)
    sign, every = expr.const(1 << (bits - 1), kind), expr.const((1 << bits) - 1, kind)
    if dtype == "bool" or is_uint(dtype):
        key = scalar.cast(value, kind)
    elif not is_float(dtype):
        key = expr.BitXor(expr.Call(kind, "reinterpret", (value,)), sign)
    else:
        # Positive numbers are ordered as their bits are, negative ones the other way.
        raw = expr.Call(kind, "reinterpret", (value,))
        magnitude = expr.BitAnd(raw, expr.const((1 << (bits - 1)) - 1, kind))
        negative = expr.NE(raw, magnitude)
        key = expr.Select(negative, expr.BitXor(raw, every), expr.BitOr(raw, sign))
        key = expr.Select(expr.EQ(magnitude, expr.const(0, kind)), sign, key)
        key = expr.Select(expr.GT(magnitude, expr.const(INFINITY[dtype], kind)), every, key)
    return expr.BitXor(key, every) if descending else key


def digit_of(key: PrimExpr, number: int) -> PrimExpr:
    """A digit of a key as an int64, the lowest being number 0."""
    if number:
        key = expr.ShiftRight(key, expr.const(8 * number, key.dtype))
    if 8 * (number + 1) < bits_of(key.dtype):
        key = expr.BitAnd(key, expr.const(DIGIT - 1, key.dtype))
    return scalar.cast(key, "int64")


def sort_rows(x: te.Tensor, axis: int, descending: bool, as_places: bool) -> te.Tensor:
    """The elements of each row along `axis` in stable order, or their places, int64; `axis` is the
    last of the result. From the lowest digit to the highest, elements are moved to where those with
    that digit begin: O(n) for each. Orders are moved together with the keys. Elements of short rows
    are compared with all others."""
    extent, digits = x.shape[axis], digits_of(x.dtype)
    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    name, dtype = ("T_argsort", "int64") if as_places else ("T_sort", x.dtype)
    size = extent.value if isinstance(extent, expr.IntImm) else None
    most = longest_compared(x.dtype)
    is_long, is_short = size is None or size > most, size is None or size <= most
    outputs: list[tuple[str, tuple[PrimExpr, ...], str]] = [(name, (*rows, extent), dtype)]
    if is_short:
        outputs += rank_outputs(rows, most if size is None else size, x.dtype)
    if is_long:
        outputs.append(("T_starts", (*rows, expr.const(digits * (DIGIT + 1))), "int64"))
    if is_long and digits > 1:  # what is sorted goes to and fro, an even number of times
        outputs.append(("T_moved", (*rows, extent), dtype))
        kinds = [key_dtype(x.dtype)] * (2 if as_places else 0)
        outputs += [(f"T_keys_{n}", (*rows, extent), kind) for n, kind in enumerate(kinds)]

    def body(row: Rows, buffers: Buffers) -> loops.Stmt:
        by_name = {t.name: buffers[t] for t in made}
        sort = _Sort(Row(buffers[x], row, axis), extent, by_name, row, descending, as_places)
        if not is_short:
            return sort.by_digits()
        keys, ranks = sort.made("T_keys"), sort.made("T_ranks")
        compared = sort_by_ranks(sort.given, sort.kept, keys, ranks, extent, descending, as_places)
        if not is_long:
            return compared
        return loops.IfThenElse(expr.LE(extent, expr.const(most)), compared, sort.by_digits())

    made = te.compute_rows(rows, outputs, [x], body, name)
    return made[0]


def longest_compared(dtype: str) -> int:
    """The elements of the longest row whose elements are compared with all others."""
    return SHORT * digits_of(dtype)


def rank_outputs(
    rows: Sequence[PrimExpr], size: int, dtype: str
) -> list[tuple[str, tuple[PrimExpr, ...], str]]:
    """The buffers that `sort_by_ranks` takes for rows of `size` elements at most."""
    room = expr.const(-(-size // LANES) * LANES)
    return [
        ("T_keys", (*rows, room), key_dtype(dtype)),
        ("T_ranks", (*rows, expr.const(LANES)), "int32"),
    ]


def sort_by_ranks(
    given: Row, kept: Row, keys: Row, ranks: Row, extent: PrimExpr, descending: bool,
    as_places: bool,
) -> loops.Stmt:  # fmt: skip
    """Put the elements of a row, or their places, in stable order. For a vector of them at a time,
    those that precede each are counted: O(n^2) comparisons without a branch."""

    def key(part: PrimExpr, lane: PrimExpr) -> loops.Stmt:
        # Stored as whole vectors: a load of one would wait for stores of its parts.
        p, none = part * LANES + lane, expr.const(0, keys.buffer.dtype)
        value = key_of(given[p], descending)
        return keys.set(p, expr.if_then_else(expr.LT(p, extent), value, none))

    def ranked(part: PrimExpr) -> loops.Stmt:
        begin = part * LANES
        behind = begin + LANES

        def counted(count: PrimExpr, test: _Test) -> list[loops.Stmt]:
            def one(p: PrimExpr, lane: PrimExpr) -> loops.Stmt:
                found = scalar.cast(test(p, lane), "int32")
                return ranks.set(lane, ranks[lane] + found)

            return each(count, lambda p: _vector(lambda lane: one(p, lane)))

        def put(lane: PrimExpr) -> loops.Stmt:
            value = begin + lane if as_places else given[begin + lane]
            return kept.set(scalar.cast(ranks[lane], "int64"), value)

        def precedes(op: type[expr.BinaryOp], first: PrimExpr) -> _Test:
            return lambda p, lane: op(keys[first + p], keys[begin + lane])

        def here_precedes(p: PrimExpr, lane: PrimExpr) -> PrimExpr:
            earlier = expr.LT(scalar.cast(p, "int32"), scalar.cast(lane, "int32"))
            equal = expr.And(earlier, precedes(expr.LE, begin)(p, lane))
            return expr.Or(precedes(expr.LT, begin)(p, lane), equal)

        here = expr.Min(extent - begin, expr.const(LANES))
        return loops.seq(
            _vector(lambda lane: ranks.set(lane, expr.const(0, "int32"))),
            *counted(begin, precedes(expr.LE, te.ZERO)),
            *counted(here, here_precedes),
            *counted(expr.Max(extent - behind, te.ZERO), precedes(expr.LT, behind)),
            *each(here, put),
        )

    vectors = (extent + (LANES - 1)) // LANES
    return loops.seq(_vectors(vectors, key), *each(vectors, ranked))


@dataclass(frozen=True, slots=True)
class _Sort:
    """The sort of one row. `buffers`: the outputs of `sort_rows`, by name."""

    given: Row
    extent: PrimExpr
    buffers: Mapping[str, loops.Buffer]
    row: Rows
    descending: bool
    as_places: bool

    @property
    def digits(self) -> int:
        return digits_of(self.given.buffer.dtype)

    @property
    def kept(self) -> Row:
        return self.made("T_argsort" if self.as_places else "T_sort")

    def made(self, name: str) -> Row:
        return Row(self.buffers[name], self.row, len(self.row))

    def key(self, value: PrimExpr) -> PrimExpr:
        return key_of(value, self.descending)

    def by_digits(self) -> loops.Stmt:
        """Count all digits in one pass, then move elements by one after the other."""
        starts, firsts = self.made("T_starts"), [n * (DIGIT + 1) for n in range(self.digits)]

        def counted(p: PrimExpr) -> loops.Stmt:
            key = expr.Var("key", key_dtype(self.given.buffer.dtype))
            places = (digit_of(key, n) + (first + 1) for n, first in enumerate(firsts))
            counts = (starts.set(at, starts[at] + 1) for at in places)
            return loops.LetStmt(key, self.key(self.given[p]), loops.seq(*counts))

        def added(v: PrimExpr) -> loops.Stmt:
            places = (v + first for first in firsts)
            return loops.seq(*(starts.set(at + 1, starts[at + 1] + starts[at]) for at in places))

        return loops.seq(
            *each(expr.const(self.digits * (DIGIT + 1)), lambda v: starts.set(v, te.ZERO)),
            *each(self.extent, counted),
            *each(expr.const(DIGIT - 1), added),
            *(s for n in range(self.digits) for s in each(self.extent, self.moved(n))),
        )

    def moved(self, n: int) -> Callable[[PrimExpr], loops.Stmt]:
        """The step of pass `n`: an element goes to where those with its digit begin."""
        starts = self.made("T_starts")
        source, target = self.given, self.kept
        if self.digits > 1:
            source, target = _sides(self.given, self.kept, self.made("T_moved"), n)
        has_keys, last = self.as_places and n > 0, n == self.digits - 1

        def one(p: PrimExpr) -> loops.Stmt:
            value, start = expr.Var("value"), expr.Var("start")
            key = self.made(f"T_keys_{(n + 1) % 2}")[p] if has_keys else self.key(source[p])
            named, at = expr.Var("key", key.dtype), value + n * (DIGIT + 1)
            puts = [target.set(start, p if self.as_places and n == 0 else source[p])]
            if self.as_places and not last:
                puts.append(self.made(f"T_keys_{n % 2}").set(start, named))
            puts.append(starts.set(at, start + 1))
            move = loops.LetStmt(start, starts[at], loops.seq(*puts))
            move = loops.LetStmt(value, digit_of(named, n), move)
            return loops.LetStmt(named, key, move)

        return one


def _sides(given: Row, kept: Row, other: Row, n: int) -> tuple[Row, Row]:
    """The rows that pass `n` reads and writes; the last one writes to `kept`."""
    if n % 2 == 0:
        return (given if n == 0 else kept), other
    return other, kept


def place_of_rank(
    x: te.Tensor, axis: int, rank: Callable[[PrimExpr], PrimExpr]
) -> te.Tensor:
    """The place, int64, of one element of each row along `axis` in stable order: that at
    `rank(nans)`, where `nans` is positive if there is a NaN in the row, else 0.

    In long rows its key is found bit by bit, from the highest on: a bit is set if no more than
    `rank` keys are less than with it. Each takes a pass over the row, in vectors: 32 passes over
    1024 float32 took a fifth of the time of counting the values of four digits.
    """
    extent, kind, most = x.shape[axis], key_dtype(x.dtype), longest_compared(x.dtype)
    rows, name = (*x.shape[:axis], *x.shape[axis + 1 :]), "T_place_of_rank"
    size = extent.value if isinstance(extent, expr.IntImm) else None
    is_long, is_short = size is None or size > most, size is None or size <= most
    outputs: list[tuple[str, tuple[PrimExpr, ...], str]] = [(name, rows, "int64")]
    if is_short:
        outputs.append(("T_order", (*rows, expr.const(size or most)), "int64"))
        outputs += rank_outputs(rows, size or most, x.dtype)
    if is_long:
        lanes = expr.const(LANES)
        outputs += [
            ("T_bits", (*rows, _steps(extent) * STEP), kind), ("T_lanes", (*rows, lanes), "int32"),
            ("T_places", (*rows, lanes), "int64"), ("T_count", rows, "int64"),
            ("T_rank", rows, "int64"), ("T_key", rows, kind),
        ]  # fmt: skip

    def body(row: Rows, buffers: Buffers) -> loops.Stmt:
        given, place = Row(buffers[x], row, axis), _Cell(buffers[made[0]], row)
        scratch = {t.name: Row(buffers[t], row, len(row)) for t in made}

        def compared() -> loops.Stmt:
            order, keys, ranks = (scratch[name] for name in ("T_order", "T_keys", "T_ranks"))
            sort = sort_by_ranks(given, order, keys, ranks, extent, False, as_places=True)
            nans: PrimExpr = te.ZERO
            if is_float(x.dtype):
                nans = scalar.cast(scalar.isnan(given[order[extent - 1]]), "int64")
            return loops.seq(sort, place.set(order[rank(nans)]))

        def selected() -> loops.Stmt:
            keys, lanes, places = (scratch[name] for name in ("T_bits", "T_lanes", "T_places"))
            cells = (_Cell(scratch[n].buffer, row) for n in ("T_count", "T_rank", "T_key"))
            return _Selection(given, keys, lanes, places, place, *cells).of(extent, rank)

        if size is not None:
            return compared() if is_short else selected()
        return loops.IfThenElse(expr.LE(extent, expr.const(most)), compared(), selected())

    made = te.compute_rows(rows, outputs, [x], body, name)
    return made[0]


@dataclass(frozen=True, slots=True)
class _Cell:
    """A variable of one row."""

    buffer: loops.Buffer
    row: Rows

    @property
    def value(self) -> PrimExpr:
        return loops.BufferLoad(self.buffer, self.row)

    def set(self, value: PrimExpr) -> loops.Stmt:
        return loops.BufferStore(self.buffer, value, self.row)


@dataclass(frozen=True, slots=True)
class _Selection:
    """The selection from one row. `keys` go on behind the row to a whole step, larger than others
    or equal; `lanes`, `places`: counts and places per lane; the cells are the result, a count, the
    rank that is wanted, and the key as far as it is known."""

    given: Row
    keys: Row
    lanes: Row
    places: Row
    place: _Cell
    count: _Cell
    wanted: _Cell
    found: _Cell

    @property
    def kind(self) -> str:
        return self.keys.buffer.dtype

    def of(self, extent: PrimExpr, rank: Callable[[PrimExpr], PrimExpr]) -> loops.Stmt:
        """Find the place of `rank(nans)` in a row of `extent` elements."""
        steps, bits, wanted, place = _steps(extent), bits_of(self.kind), self.wanted, self.place
        every = expr.const((1 << bits) - 1, self.kind)

        def key(p: PrimExpr) -> loops.Stmt:
            return self.keys.set(p, key_of(self.given[p]))

        nans, counting = te.ZERO, list[loops.Stmt]()
        if is_float(self.given.buffer.dtype):
            nans = self.count.value - (steps * STEP - extent)
            counting.append(self.counted(steps, lambda key: expr.EQ(key, every)))
        equal = scalar.cast(expr.EQ(self.keys[place.value], self.found.value), "int64")
        next_one = loops.seq(place.set(place.value + 1), wanted.set(wanted.value - equal))
        return loops.seq(
            _vectors(extent // LANES, lambda part, lane: key(part * LANES + lane)),
            *each(extent % LANES, lambda p: key(extent // LANES * LANES + p)),
            *each(steps * STEP - extent, lambda p: self.keys.set(extent + p, every)),
            *counting,
            wanted.set(rank(nans)),
            self.found.set(expr.const(0, self.kind)),
            *each(expr.const(bits), lambda number: self.narrowed(steps, number)),
            # The rank among the elements with this key, whose places are in order.
            self.counted(steps, lambda key: expr.LT(key, self.found.value)),
            wanted.set(wanted.value - self.count.value),
            self.first(steps),
            loops.While(expr.LT(te.ZERO, wanted.value), next_one),
        )

    def counted(self, steps: PrimExpr, test: Callable[[PrimExpr], PrimExpr]) -> loops.Stmt:
        """Count the keys of which a test is true."""
        lanes = self.lanes

        def step(part: PrimExpr, lane: PrimExpr) -> loops.Stmt:
            hits = [scalar.cast(test(self.keys[p]), "int32") for p in _places(part, lane)]
            return lanes.set(lane, lanes[lane] + _pairwise(expr.Add, hits))

        total = _pairwise(expr.Add, [lanes[expr.const(n)] for n in range(LANES)])
        start = _vector(lambda lane: lanes.set(lane, expr.const(0, "int32")))
        return loops.seq(start, _vectors(steps, step), self.count.set(scalar.cast(total, "int64")))

    def narrowed(self, steps: PrimExpr, number: PrimExpr) -> loops.Stmt:
        """Decide on a bit of the key, the highest being number 0."""
        candidate = expr.Var("candidate", self.kind)
        shift = scalar.cast(expr.const(bits_of(self.kind) - 1) - number, self.kind)
        bit = expr.ShiftLeft(expr.const(1, self.kind), shift)
        fits = expr.LE(self.count.value, self.wanted.value)
        decided = loops.seq(
            self.counted(steps, lambda key: expr.LT(key, candidate)),
            self.found.set(expr.Select(fits, candidate, self.found.value)),
        )
        return loops.LetStmt(candidate, expr.BitOr(self.found.value, bit), decided)

    def first(self, steps: PrimExpr) -> loops.Stmt:
        """Take the first place of the key."""
        places, none = self.places, expr.highest("int64")

        def step(part: PrimExpr, lane: PrimExpr) -> loops.Stmt:
            seen = (
                expr.Select(expr.EQ(self.keys[p], self.found.value), p, none)
                for p in _places(part, lane)
            )
            return places.set(lane, _pairwise(expr.Min, [places[lane], *seen]))

        begin = _pairwise(expr.Min, [places[expr.const(n)] for n in range(LANES)])
        start = _vector(lambda lane: places.set(lane, none))
        return loops.seq(start, _vectors(steps, step), self.place.set(begin))


def _steps(extent: PrimExpr) -> PrimExpr:
    """The steps that a row takes."""
    return (extent + (STEP - 1)) // STEP


def _places(part: PrimExpr, lane: PrimExpr) -> list[PrimExpr]:
    """The places that a lane goes to in a step."""
    return [part * STEP + (n * LANES + lane) for n in range(STEP // LANES)]


def _vector(fn: Callable[[PrimExpr], loops.Stmt]) -> loops.Stmt:
    """`fn(lane)` for each lane, as a vector."""
    lane = expr.Var("lane")
    return loops.For(lane, te.ZERO, expr.const(LANES), "vectorized", fn(lane))


def _vectors(count: PrimExpr, fn: Callable[[PrimExpr, PrimExpr], loops.Stmt]) -> loops.Stmt:
    """`fn(part, lane)` for each part below `count` and each lane."""
    part = expr.Var("part")
    inside = _vector(lambda lane: fn(part, lane))
    return loops.For(part, te.ZERO, count, "serial", inside)


def _pairwise(op: type[expr.BinaryOp], terms: Sequence[PrimExpr]) -> PrimExpr:
    """Neighbours combined, then these, and so on: few wait for each other."""
    while len(terms) > 1:
        pairs = [op(a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + list(terms[len(pairs) * 2 :])
    return terms[0]
