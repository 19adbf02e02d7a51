"""Loop functions whose integers are all int32 in TVM, as bare numbers are there: indices are int64
here, and the reader converts between both where they meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from relaxlab.ir import expr, loops
from relaxlab.ir.node import Node, children, walk
from relaxlab.ir.substitute import symbols_in


def implied_casts(f: loops.PrimFunc) -> frozenset[int] | None:
    """The identities of the conversions that the reader makes, if the integers of a function are
    all int32 but for its loops, axes and constants, and symbols that its script declared so, else
    None."""
    if f.index_dtype == "int64":
        return None
    nodes = list(walk(f))
    own = {n.loop_var for n in nodes if isinstance(n, loops.For)}
    own |= {n.var for n in nodes if isinstance(n, loops.IterVar)}
    symbols = {*symbols_in(f.params)} if f.index_dtype == "int32" else set[expr.Var]()
    for n in nodes:
        match n:
            case loops.Buffer(dtype="int64"):
                return None
            case expr.Var() if n.dtype == "int64" and n not in own | symbols:
                return None
            case _:
                pass
    implied = Counter(id(c) for n in nodes for c in _implied(n))
    narrow = _narrow(nodes, symbols)
    casts = (n for n in nodes if isinstance(n, expr.Cast) and n.dtype == "int32")
    implied.update(id(n) for n in casts if n.value in narrow)
    every = Counter(id(n) for n in nodes if _widens(n))
    return frozenset(implied) if every <= implied else None


def _narrow(nodes: Iterable[Node], symbols: set[expr.Var]) -> set[expr.Var]:
    """The variables whose names are values of int32: symbols, and what is as long as these say."""
    narrow = {*symbols}
    for n in nodes:
        match n:
            case loops.For(var, low, extent):
                ends = (low, extent)
            case loops.IterVar(var, loops.Range(low, extent)):
                ends = (low, extent)
            case _:
                continue
        if any(v in narrow for e in ends for v in walk(e) if isinstance(v, expr.Var)):
            narrow.add(var)
    return narrow


def _widens(n: Node) -> bool:
    """True for a conversion of an int32 that is no constant to int64."""
    match n:
        case expr.Cast("int64", value):
            return value.dtype == "int32" and not isinstance(value, expr.IntImm)
        case _:
            return False


def _narrows(n: Node, var: expr.Var) -> bool:
    return isinstance(n, expr.Cast) and n.dtype == "int32" and n.value is var


def _is_index(n: Node, var: expr.Var, inside: bool) -> bool:
    """True if all uses of a loop's variable are in the indices of buffers, or are converted."""
    match n:
        case expr.Var():
            return inside or n is not var
        case expr.Cast() if _narrows(n, var):
            return True
        case loops.BufferLoad(_, indices):
            return all(_is_index(i, var, True) for i in indices)
        case loops.BufferStore(_, value, indices):
            return _is_index(value, var, inside) and all(_is_index(i, var, True) for i in indices)
        case _:
            return all(_is_index(c, var, inside) for c in children(n))


def _implied(n: Node) -> Iterator[Node]:
    """The operands of a node that the reader converts."""
    match n:
        case expr.BinaryOp(a, b):
            for one, other in ((a, b), (b, a)):
                beside = isinstance(other, expr.IntImm) or _widens(other)
                if _widens(one) and other.dtype == "int64" and not beside:
                    yield one
        case loops.For(var, low, extent, thread=None) if _is_index(n.body, var, False):
            yield from (e for e in (low, extent) if _widens(e))
            if _widens(extent):  # whose variable is an int32 where it is no index
                yield from (c for c in walk(n.body) if _narrows(c, var))
        case loops.BufferStore(buffer, expr.Cast("int32", e) as value):
            if buffer.dtype == "int32" and e.dtype == "int64" and not isinstance(e, expr.IntImm):
                yield value
        case _:
            pass
