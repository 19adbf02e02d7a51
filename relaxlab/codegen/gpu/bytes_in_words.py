"""Bytes of several lanes in one word: bitwise operations on four bytes at a time.

`(x[i] >> 4) & 15` of four neighbouring bytes is one shift and one AND of a word of 32 bits, where
byte by byte it takes three instructions for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import BufferLoad, For
from relaxlab.ir.node import children, walk
from relaxlab.ir.substitute import symbols_in

LANES = 4
"""Bytes of a word."""
EVERY = 0x01010101
"""One in each byte of a word."""
BITWISE = (expr.BitAnd, expr.BitOr, expr.BitXor)


@dataclass(frozen=True, slots=True)
class Bytes:
    """A byte of each lane, `value`, as one word for four lanes: `word` is a uint32 computed from
    the words of loads, which `loads` has a variable for each of."""

    value: PrimExpr
    word: PrimExpr
    loads: tuple[tuple[Var, BufferLoad], ...]


def bytes_in_words(
    value: PrimExpr, loads: Sequence[BufferLoad], loop: For, an: Analyzer
) -> tuple[Bytes, ...]:
    """The largest parts of a lane's value that words give for four lanes at a time. `loads` are of
    neighbours; plain loads are no such part of their own."""
    if not _fills_words(loop):
        return ()
    inner = {n.var for n in walk(value) if isinstance(n, expr.Let)}
    reader = _Reader(tuple(loads), frozenset({loop.loop_var, *inner}), an)
    return tuple(dict.fromkeys(_parts(value, reader)))


def whole_in_words(
    value: PrimExpr, loads: Sequence[BufferLoad], loop: For, an: Analyzer
) -> Bytes | None:
    """All of a lane's value, if it is a byte that words give for four lanes at a time."""
    parts = bytes_in_words(value, loads, loop, an)
    if parts and parts[0].value == value:
        return parts[0]
    if not isinstance(value, BufferLoad) or value not in loads:
        return None
    if bytes_of(value.dtype) == 1 and _fills_words(loop):
        word = Var("word", "uint32")
        return Bytes(value, word, ((word, value),))
    return None


def _fills_words(loop: For) -> bool:
    """True if lanes come in fours."""
    return isinstance(loop.extent, IntImm) and loop.extent.value % LANES == 0


def _parts(value: PrimExpr, reader: _Reader) -> Iterator[Bytes]:
    if isinstance(value, BITWISE) and value.dtype == "uint8":
        reader.found = {}
        word = reader.word(value)
        if word is not None and reader.found:
            yield Bytes(value, word, tuple(reader.found.items()))
            return
    for part in children(value):
        if isinstance(part, PrimExpr):
            yield from _parts(part, reader)


@dataclass(slots=True)
class _Reader:
    """Reads bytes as words. `loads` are of neighbours, `varying` are variables that differ between
    lanes or have no value ahead of them, `found` has the words of loads that were read."""

    loads: tuple[BufferLoad, ...]
    varying: frozenset[Var]
    an: Analyzer
    found: dict[Var, BufferLoad] = field(default_factory=dict[Var, BufferLoad])

    def word(self, e: PrimExpr, mask: int = 255) -> PrimExpr | None:
        """Four lanes' bytes `e`, of which the bits of `mask` count; None if no word gives them."""
        match e:
            case BufferLoad() if e in self.loads and e.dtype in ("uint8", "int8"):
                return self.load(e)
            case expr.Cast("uint8" | "int8", of) | expr.Call(
                "uint8" | "int8", "reinterpret", (of,)
            ) if of.dtype in ("uint8", "int8"):  # fmt: skip
                return self.word(of, mask)
            case _ if self.same(e) and e.dtype == "uint8":
                return _everywhere(e)
            case expr.BitAnd(a, IntImm(bits)) if e.dtype == "uint8":
                left = self.word(a, mask & bits)
                return None if left is None else expr.BitAnd(left, _everywhere(e.b))
            case expr.BitAnd(a, b) | expr.BitOr(a, b) | expr.BitXor(a, b) if e.dtype == "uint8":
                left, right = self.word(a, mask), self.word(b, mask)
                return None if left is None or right is None else type(e)(left, right)
            case expr.ShiftRight(a, amount) | expr.ShiftLeft(a, amount) if e.dtype == "uint8":
                return self.shifted(type(e), a, amount, mask)
            case _:
                return None

    def load(self, e: BufferLoad) -> Var:
        """The word of a load."""
        for var, load in self.found.items():
            if load == e:
                return var
        var = Var("word", "uint32")
        self.found[var] = e
        return var

    def same(self, e: PrimExpr) -> bool:
        """True if all lanes have the value `e`, which can be computed ahead of them."""
        return not self.varying & set(symbols_in(e)) and not any(
            isinstance(n, BufferLoad) for n in walk(e)
        )

    def shifted(
        self, kind: type[expr.BinaryOp], a: PrimExpr, amount: PrimExpr, mask: int
    ) -> PrimExpr | None:
        """A word shifted by the same for all lanes, without the bits of neighbouring bytes."""
        least, most = self.an.bounds_of(amount)
        if not self.same(amount) or least is None or most is None or least < 0 or most > 7:
            return None
        of = self.word(a)
        if of is None:
            return None
        by = amount if isinstance(amount, IntImm) else expr.Cast("uint32", amount)
        by = const(by.value, "uint32") if isinstance(by, IntImm) else by
        moved = kind(of, by)
        right = kind is expr.ShiftRight
        # Bits that come from a neighbour, whatever the amount: the mask may leave none of them.
        foreign = 255 & ~(255 >> most) if right else 255 & ~(255 << most)
        if not foreign & mask:
            return moved
        left = const(255, "uint32")
        own = kind(left, by) if right else expr.BitAnd(kind(left, by), left)
        return expr.BitAnd(moved, own * const(EVERY, "uint32"))


def _everywhere(e: PrimExpr) -> PrimExpr:
    """A byte in all four bytes of a word."""
    if isinstance(e, IntImm):
        return const(e.value * EVERY, "uint32")
    return expr.Cast("uint32", e) * const(EVERY, "uint32")
