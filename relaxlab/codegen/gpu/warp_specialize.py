"""Warp specialisation: copies by a warp of their own, products by warpgroups (Hopper).

A loop annotated with `warp_specialize` copies slices of matrices into shared memory and multiplies
them by `wgmma`. One more warpgroup joins the block, a thread of which asks for the copies, as boxes
that the tensor memory accelerator fills with zeros beyond the edges of their matrix; the others
compute. Slices have as many slots as the loop has stages, each with two barriers: `full` ends a
phase when all of its bytes are there, `empty` when no warpgroup reads them any more. The groups
share out the registers by what they need. Blocks stay and take tile after tile: the next tile's
copies are under way while the sums of one are stored.

The program is cut in two: the producer keeps the loops and conditions that lead to the copies, and
the copies, the consumers all the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import ThreadAxis
from relaxlab.codegen.gpu.software_pipeline import copies_of, in_slot
from relaxlab.codegen.gpu.thread_loops import SYNC, is_sync
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Call, IntImm, PrimExpr, Var, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import PIPELINE, WARP_SPECIALIZE
from relaxlab.schedule.tree import TRUE, conjuncts

WARPGROUP = 128
"""Threads along x: those of a warpgroup."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232
"""Registers of each thread, where two warpgroups compute: those of three warpgroups are 504."""
LINE, ALIGN = 128, 1024
"""Bytes of a row of a box, and what the address of a slice is a multiple of: 8 swizzled rows."""


def warp_specialize(
    body: Stmt,
    allocated: Sequence[Buffer],
    axes: Sequence[ThreadAxis],
    sizes: Sequence[Var],
    name: str,
    facts: Facts,
) -> tuple[tuple[ThreadAxis, ...], Stmt, tuple[Buffer, ...]]:
    """Return the axes, the program of a thread and the allocations of a launch with its annotated
    loop cut in two.

    Raises CodegenError for a loop whose copies are no boxes of matrices or whose operands are no
    rows of boxes, for more than one such loop, for other values that go through shared memory, and
    for tensor instructions of warpgroups that no loop waits for.
    """
    loops = [n for n in walk(body) if isinstance(n, For) and WARP_SPECIALIZE in n.annotations]
    if not loops:
        called = {n.op for n in walk(body) if isinstance(n, Call)}
        if "wgmma" in called and "wgmma_wait" not in called:
            raise CodegenError(
                f"{name!r} multiplies by wgmma and waits nowhere: annotate the loop over slices "
                f"with {WARP_SPECIALIZE!r}"
            )
        return tuple(axes), body, tuple(allocated)
    found = {a.name: a for a in axes}
    x, block = found.get("threadIdx.x"), found.get("blockIdx.x")
    if len(loops) > 1 or x is None or x.extent != const(WARPGROUP) or block is None:
        raise CodegenError(
            f"{name!r} has {len(loops)} loops annotated {WARP_SPECIALIZE!r}; one is computed by "
            f"warpgroups of {WARPGROUP} threads along x, in a grid along x"
        )
    an = Analyzer()
    for symbol in sizes:
        an.bind_shape(symbol)
    for axis in axes:
        an.bind_range(axis.var, Range(const(0), axis.extent))
        _assume_positive(an, axis.extent)  # else no thread is there
    y = found.get("threadIdx.y", ThreadAxis("threadIdx.y", Var("ty"), const(1)))
    most = int(loops[0].annotations[WARP_SPECIALIZE])
    blocks = an.simplify(expr.Min(block.extent, const(most)))
    tile = Var("tile")
    cut = _Cut.of(loops[0], tile, x.var, y, an, name)
    _require_apart(body, cut, name)
    turns = an.simplify((block.extent - block.var + blocks - 1) // blocks)
    turn = {block.var: block.var + tile * blocks}

    def of_tiles(s: Stmt | None) -> Stmt:
        assert s is not None
        return For(tile, const(0), turns, "serial", substitute(s, turn))

    made = cut.joined(of_tiles(cut.producer(body)), of_tiles(cut.consumer(body)))
    found[block.name] = ThreadAxis(block.name, block.var, blocks)
    found[y.name] = ThreadAxis(y.name, y.var, an.simplify(y.extent + 1))
    kept = [cut.staged.get(b, b) for b in allocated]
    return tuple(found[a] for a in sorted(found)), made, (*kept, cut.full, cut.empty)


def _assume_positive(an: Analyzer, extent: PrimExpr) -> None:
    """Assume that an extent is not 0, nor any of its factors, which are not negative."""
    an.assume(expr.GT(extent, const(0)))
    if isinstance(extent, expr.Mul):
        _assume_positive(an, extent.a)
        _assume_positive(an, extent.b)


@dataclass(frozen=True, slots=True)
class _Cut:
    """`number` counts the slices that the loop copies, over all tiles; `boxes` are its copies,
    which bring `size` bytes together; `compute` is the rest of it. `warpgroups` compute, numbered
    by `y`."""

    loop: For
    number: PrimExpr
    x: Var
    y: Var
    warpgroups: int
    stages: int
    boxes: Stmt
    size: int
    compute: Stmt
    staged: Mapping[Buffer, Buffer]
    full: Buffer
    empty: Buffer

    @staticmethod
    def of(loop: For, tile: Var, x: Var, y: ThreadAxis, an: Analyzer, name: str) -> _Cut:
        """The cut of a loop; `tile` counts a block's tiles."""
        stages = int(loop.annotations[PIPELINE])
        copies, compute = copies_of(loop, name)
        if loop.min != const(0) or stages < 2:
            raise CodegenError(
                f"the loop {loop.loop_var.name} of {name!r}, annotated {WARP_SPECIALIZE!r}, begins "
                "at 0, and has two stages or more"
            )
        assert isinstance(y.extent, IntImm)
        with an.scope():
            an.bind_range(loop.loop_var, Range(loop.min, loop.extent))
            found = [_boxes(c, {x: const(0), y.var: const(0)}, an, name) for c in copies]
        stored = {n.buffer for c in copies for n in walk(c) if isinstance(n, BufferStore)}
        staged = {
            b: replace(b, shape=(const(stages), *b.shape), strides=(), align=ALIGN) for b in stored
        }
        full, empty = (
            Buffer(word, (const(stages),), "uint64", scope="shared") for word in ("full", "empty")
        )
        number = tile * loop.extent + loop.loop_var
        boxes, size = seq(*(box for box, _ in found)), sum(n for _, n in found)
        return _Cut(
            loop, number, x, y.var, y.extent.value, stages, boxes, size, compute, staged, full,
            empty,
        )  # fmt: skip

    def producer(self, s: Stmt) -> Stmt | None:
        """The part of a statement that copies."""
        match s:
            case For() if s is self.loop:
                return replace(s, body=self.copies(), annotations=s.annotations.with_(
                    **{PIPELINE: None, WARP_SPECIALIZE: None}
                ))  # fmt: skip
            case SeqStmt(stmts):
                parts = [p for p in map(self.producer, stmts) if p is not None]
                return seq(*parts) if parts else None
            case IfThenElse(_, then, None):
                inner = self.producer(then)
                return None if inner is None else replace(s, then_case=inner)
            case For() | LetStmt():
                inner = self.producer(s.body)
                return None if inner is None else replace(s, body=inner)
            case _:
                return None

    def copies(self) -> Stmt:
        """Wait until a slot is empty, and ask for its slices."""
        slot, turn = self.number % self.stages, self.number // self.stages
        boxes = in_slot(self.boxes, slot, self.staged)
        boxes = substitute(boxes, {_BARRIER: _at(self.full, slot)})
        return seq(
            # A new barrier is as if the phase before its first one had ended.
            _call("mbarrier_wait", _at(self.empty, slot), (turn + 1) % 2),
            _call("mbarrier_expect", _at(self.full, slot), const(self.size)),
            boxes,
        )

    def consumer(self, s: Stmt) -> Stmt:
        """The statement without the copies."""
        match s:
            case For() if s is self.loop:
                return self.products()
            case SeqStmt(stmts):
                return seq(*(self.consumer(p) for p in stmts if not is_sync(p)))
            case IfThenElse(_, then, None):
                return replace(s, then_case=self.consumer(then))
            case For() | LetStmt():
                return replace(s, body=self.consumer(s.body))
            case _:
                return s

    def products(self) -> Stmt:
        """Multiply each slice once it is there; it is given back when the next one is under way."""
        s, slot, turn = self.loop, self.number % self.stages, self.number // self.stages
        before = (self.number - 1) % self.stages
        body = seq(
            _call("mbarrier_wait", _at(self.full, slot), turn % 2),
            _call("wgmma_fence"),
            in_slot(self.compute, slot, self.staged),
            _call("wgmma_commit"),
            _call("wgmma_wait", const(1)),
            IfThenElse(
                expr.And(expr.EQ(self.x, const(0)), expr.GT(s.loop_var, const(0))),
                _call("mbarrier_arrive", _at(self.empty, before)),
            ),
        )
        kept = s.annotations.with_(**{PIPELINE: None, WARP_SPECIALIZE: None})
        last = substitute(slot, {s.loop_var: s.extent - 1})
        one = expr.EQ(self.x, const(0))
        if not isinstance(s.extent, IntImm):  # perhaps there is no slice
            one = expr.And(one, expr.GT(s.extent, const(0)))
        return seq(
            replace(s, body=body, annotations=kept),
            _call("wgmma_wait", const(0)),
            IfThenElse(one, _call("mbarrier_arrive", _at(self.empty, last))),
        )

    def joined(self, producer: Stmt, consumer: Stmt) -> Stmt:
        """The program of a thread: barriers first, then what its warpgroup does."""
        first = expr.And(expr.EQ(self.x, const(0)), expr.EQ(self.y, const(0)))
        at = Var("slot")
        barriers = seq(
            _call("mbarrier_init", _at(self.full, at), const(1)),
            _call("mbarrier_init", _at(self.empty, at), const(self.warpgroups)),
        )
        init = seq(For(at, const(0), const(self.stages), "serial", barriers),
                   _call("mbarrier_fence"))  # fmt: skip
        producer = IfThenElse(expr.EQ(self.x, const(0)), producer)
        if self.warpgroups == 2:
            producer = seq(_call("setmaxnreg_dec", const(PRODUCER_REGISTERS)), producer)
            consumer = seq(_call("setmaxnreg_inc", const(CONSUMER_REGISTERS)), consumer)
        is_producer = expr.EQ(self.y, const(self.warpgroups))
        return seq(IfThenElse(first, init), SYNC, IfThenElse(is_producer, producer, consumer))


def _require_apart(body: Stmt, cut: _Cut, name: str) -> None:
    """Raise CodegenError for shared memory beside the slices: the parts of the program meet at no
    barrier. Raise it for operands of wgmma, too, that do not lie as its descriptors say."""
    for n in walk(body):
        if isinstance(n, Call) and n.op == "wgmma":
            _require_lines(n, name)
        if not isinstance(n, BufferLoad | BufferStore) or n.buffer in cut.staged:
            continue
        if n.buffer.scope == "shared":
            raise CodegenError(
                f"{name!r} keeps {n.buffer.name!r} in shared memory, which the loop annotated "
                f"{WARP_SPECIALIZE!r} does not copy, and its warpgroups meet at no barrier; keep "
                "it in registers"
            )


def _require_lines(call: Call, name: str) -> None:
    """Raise CodegenError for an operand of wgmma whose rows are not of 128 bytes, or whose blocks
    of columns are not as far apart as the call says."""
    _, *places, _, by_rows, distance = call.args
    for place in places:
        assert isinstance(place, Call) and isinstance(place.args[0], BufferLoad)
        buffer = place.args[0].buffer
        sizes = [d.value for d in buffer.shape if isinstance(d, IntImm)]
        line = LINE // bytes_of(buffer.dtype)
        good = sizes[-1] == line
        if place is places[-1] and isinstance(by_rows, IntImm) and by_rows.value:
            good = good and distance == const(sizes[-2] * LINE, distance.dtype)
        if not good:
            raise CodegenError(
                f"{name!r} multiplies parts of {buffer.name!r} of shape {tuple(sizes)} by wgmma, "
                f"which takes rows of {LINE} bytes, and columns in blocks of {line} x {line}; copy "
                f"slices of {line} terms"
            )


_BARRIER = Var("barrier", "handle")
"""The place of the barrier in calls that ask for boxes."""


def _boxes(s: Stmt, first: Mapping[Var, PrimExpr], an: Analyzer, name: str) -> tuple[Stmt, int]:
    """A copy as calls that ask for boxes, and their bytes. `first`: the thread that makes it."""
    match s:
        case IfThenElse(condition, then, None) if set(symbols_in(condition)) <= set(first):
            return _boxes(then, first, an, name)
        case SeqStmt(stmts):
            parts = [_boxes(part, first, an, name) for part in stmts]
            return seq(*(p for p, _ in parts)), sum(n for _, n in parts)
        case Evaluate():
            return s, 0
        case For(row, IntImm(0), IntImm(rows), _, For(column, IntImm(0), IntImm(columns), _, body)):
            with an.scope():
                an.bind_range(row, Range(const(0), const(rows)))
                an.bind_range(column, Range(const(0), const(columns)))
                ends = _ends(body, row, column, an)
            if ends is not None and columns * bytes_of(ends[0].dtype) == LINE:
                handles = tuple(Call("handle", "address_of", (end,)) for end in ends)
                box = (*handles, const(rows), const(columns), _BARRIER)
                return Evaluate(Call("void", "tma_load", box), span=s.span), rows * LINE
        case _:
            pass
    if isinstance(s, For) and isinstance(s.extent, IntImm):
        with an.scope():
            an.bind_range(s.loop_var, Range(s.min, s.extent))
            inner, size = _boxes(s.body, first, an, name)
        return replace(s, body=inner, kind="serial"), size * s.extent.value
    stored = next(n.buffer.name for n in walk(s) if isinstance(n, BufferStore))
    raise CodegenError(
        f"the copy to {stored!r} of {name!r} is no box of rows of {LINE} bytes of a matrix, with "
        "zeros beyond its edges"
    )


def _ends(body: Stmt, row: Var, column: Var, an: Analyzer) -> tuple[BufferLoad, BufferLoad] | None:
    """The first elements that a copy of a box writes and reads; None where it is none."""
    if isinstance(body, SeqStmt):
        body = seq(*(p for p in body.stmts if not isinstance(p, Evaluate)))
    if not isinstance(body, BufferStore):
        return None
    store, load, inside = BufferLoad(body.buffer, body.indices), body.value, TRUE
    match load:
        case Call(_, "if_then_else", (condition, value, zero)) if _is_zero(zero):
            load, inside = value, condition
        case _:
            pass
    if not isinstance(load, BufferLoad) or load.buffer.ndim != 2:
        return None
    limits = [i - d for i, d in zip(load.indices, load.buffer.shape, strict=True)]
    for part in conjuncts(inside):
        if not isinstance(part, expr.LT) or not any(
            an.prove_equal(part.a - part.b, limit) for limit in limits
        ):
            return None
    line = LINE // bytes_of(load.dtype)
    moves = [(_flat(store), line, 1), (load.indices[0], 1, 0), (load.indices[1], 0, 1)]
    for at, down, along in moves:
        for var, step in ((row, down), (column, along)):
            if not an.prove_equal(substitute(at, {var: var + 1}), at + step):
                return None
    corner = {row: const(0), column: const(0)}
    return substitute(store, corner), substitute(load, corner)


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm | expr.FloatImm) and e.value == 0


def _flat(access: BufferLoad) -> PrimExpr:
    offset: PrimExpr = const(0)
    for index, size in zip(access.indices, access.buffer.shape, strict=True):
        offset = offset * size + index
    return offset


def _at(buffer: Buffer, place: PrimExpr) -> PrimExpr:
    return Call("handle", "address_of", (BufferLoad(buffer, (place,)),))


def _call(op: str, *args: PrimExpr) -> Stmt:
    return Evaluate(Call("void", op, args))
