"""Warp specialisation: copies by a warp of their own, products by warpgroups (Hopper).

A loop annotated with `warp_specialize` copies slices of matrices into shared memory and multiplies
them by `wgmma`. One more warpgroup joins the block, a thread of which asks for the copies, as boxes
that the tensor memory accelerator fills with zeros beyond the edges of their matrix; the others
compute. Slices have as many slots as the loop has stages, each with two barriers: `full` ends a
phase when all of its bytes are there, `empty` when no warpgroup reads them any more. The groups
share out the registers by what they need. Blocks stay and take tile after tile, the next one's
copies under way while the sums of one are stored, or, where the annotation is 0, each has one tile.

Slices that different statements of an iteration multiply have barriers of their own. Where the loop
only adds to sums, one iteration's products are under way during the next; where it reads them, as
attention does, those of the last slices (`overlap_products.py`).

The program is cut in two: the producer keeps the loops and conditions that lead to the copies, and
the copies, the consumers all the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import ThreadAxis
from relaxlab.codegen.gpu.overlap_products import beside
from relaxlab.codegen.gpu.software_pipeline import copies_of, in_slot
from relaxlab.codegen.gpu.thread_loops import SYNC, is_sync
from relaxlab.ir import expr, row_major
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
from relaxlab.ir.node import Attrs, replace, rewrite, walk
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
    team, block = _Team.of(axes), next((a for a in axes if a.name == "blockIdx.x"), None)
    if len(loops) > 1 or team is None or block is None:
        raise CodegenError(
            f"{name!r} has {len(loops)} loops annotated {WARP_SPECIALIZE!r}; one is computed by "
            f"warpgroups of {WARPGROUP} threads, neighbours along the first axes, in a grid along x"
        )
    an = Analyzer()
    for symbol in sizes:
        an.bind_shape(symbol)
    for axis in axes:
        an.bind_range(axis.var, Range(const(0), axis.extent))
        _assume_positive(an, axis.extent)  # else no thread is there
    loop, before = _without_loads(loops[0], name)
    body = _replaced(body, loops[0], seq(*before, loop))
    most = int(loop.annotations[WARP_SPECIALIZE])
    tile: PrimExpr = Var("tile") if most else const(0)
    cut = _Cut.of(loop, tile, block.var, team, an, name)
    _require_apart(body, cut, name)
    parts = cut.producer(body), cut.consumer(body)
    found = {a.name: a for a in (*axes, team.with_producers())}
    if isinstance(tile, Var):
        blocks = an.simplify(expr.Min(block.extent, const(most)))
        turns = an.simplify((block.extent - block.var + blocks - 1) // blocks)
        turn = {block.var: block.var + tile * blocks}
        parts = tuple(For(tile, const(0), turns, "serial", substitute(s, turn)) for s in parts if s)
        found[block.name] = ThreadAxis(block.name, block.var, blocks)
    producer, consumer = parts
    assert producer is not None
    kept = [cut.staged.get(b, b) for b in allocated]
    made = cut.joined(producer, consumer)
    return tuple(found[a] for a in sorted(found)), made, (*kept, cut.full, cut.empty)


def _assume_positive(an: Analyzer, extent: PrimExpr) -> None:
    """Assume that an extent is not 0, nor any of its factors, which are not negative."""
    an.assume(expr.GT(extent, const(0)))
    if isinstance(extent, expr.Mul):
        _assume_positive(an, extent.a)
        _assume_positive(an, extent.b)


@dataclass(frozen=True, slots=True)
class _Team:
    """The threads of a block: `inner` are the axes that share a warpgroup with others along the
    last axis, `outer`, of which `each` are of one warpgroup."""

    inner: tuple[ThreadAxis, ...]
    outer: ThreadAxis
    each: int

    @staticmethod
    def of(axes: Sequence[ThreadAxis]) -> _Team | None:
        """The threads of a launch; None if they are no whole warpgroups."""
        threads = sorted((a for a in axes if a.name.startswith("threadIdx")), key=lambda a: a.name)
        sizes = [a.extent.value for a in threads if isinstance(a.extent, IntImm)]
        if len(sizes) != len(threads) or prod(sizes) % WARPGROUP:
            return None
        if sizes == [WARPGROUP]:
            threads.append(ThreadAxis("threadIdx.y", Var("ty"), const(1)))
        *inner, outer = threads
        shared = prod(sizes[: len(inner)])
        return None if WARPGROUP % shared else _Team(tuple(inner), outer, WARPGROUP // shared)

    @property
    def warpgroups(self) -> int:
        """The warpgroups that compute."""
        assert isinstance(self.outer.extent, IntImm)
        return self.outer.extent.value // self.each

    def with_producers(self) -> ThreadAxis:
        """The last axis with one more warpgroup."""
        size = (self.warpgroups + 1) * self.each
        return ThreadAxis(self.outer.name, self.outer.var, const(size))

    def is_first(self, place: PrimExpr) -> PrimExpr:
        """True for the first of the threads at a place along the last axis."""
        return expr.all_of([*(expr.EQ(a.var, const(0)) for a in self.inner), place])

    @property
    def leads(self) -> PrimExpr:
        """True for the first thread of each warpgroup."""
        at = self.outer.var
        return self.is_first(expr.EQ(at % self.each, const(0)) if self.each > 1 else TRUE)

    @property
    def first(self) -> dict[Var, PrimExpr]:
        """The first thread of the block."""
        return {a.var: const(0) for a in (*self.inner, self.outer)}


@dataclass(frozen=True, slots=True)
class _Slices:
    """Copies that the same statements of an iteration multiply, those from number `start` to before
    `stop`: `boxes`, of `size` bytes together, into `buffers`."""

    buffers: frozenset[Buffer]
    boxes: Stmt
    size: int
    start: int
    stop: int


def _without_loads(loop: For, name: str) -> tuple[For, list[Stmt]]:
    """The loop without the statements that load the same into registers in all iterations, and
    these."""
    _, compute = copies_of(loop, name)
    stmts = compute.stmts if isinstance(compute, SeqStmt) else (compute,)
    writers = Counter(
        b for s in stmts for b in {n.buffer for n in walk(s) if isinstance(n, BufferStore)}
    )

    def is_same(s: Stmt) -> bool:
        written = {n.buffer for n in walk(s) if isinstance(n, BufferStore)}
        read = {n.buffer for n in walk(s) if isinstance(n, BufferLoad)}
        return (
            bool(written and read)
            and loop.loop_var not in symbols_in(s)
            and all(b.scope == "local" and writers[b] == 1 for b in written)
            and all(b.scope == "global" for b in read)
        )

    same = [s for s in stmts if is_same(s)]
    assert isinstance(loop.body, SeqStmt)
    return replace(loop, body=seq(*(s for s in loop.body.stmts if s not in same))), same


def _replaced(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """The statement with `new` in place of `old`."""
    return rewrite(s, lambda n: new if n is old else None)


@dataclass(frozen=True, slots=True)
class _Cut:
    """`number` counts the iterations, over all tiles; `slices` are what they copy, in the order of
    use, `stmts` the rest of an iteration. `is_late`: the sums are not read in the loop, so that the
    products of an iteration may be under way in the next one."""

    loop: For
    number: PrimExpr
    team: _Team
    stages: int
    slices: tuple[_Slices, ...]
    stmts: tuple[Stmt, ...]
    is_late: bool
    staged: Mapping[Buffer, Buffer]
    full: Buffer
    empty: Buffer

    @staticmethod
    def of(loop: For, tile: PrimExpr, block: Var, team: _Team, an: Analyzer, name: str) -> _Cut:
        """The cut of a loop; `tile` counts a block's tiles, `block` is its number."""
        stages = int(loop.annotations[PIPELINE])
        copies, compute = copies_of(loop, name)
        stmts = compute.stmts if isinstance(compute, SeqStmt) else (compute,)
        if loop.min != const(0) or stages < 2:
            raise CodegenError(
                f"the loop {loop.loop_var.name} of {name!r}, annotated {WARP_SPECIALIZE!r}, starts "
                "at 0 and has two stages or more"
            )
        if isinstance(tile, Var) and block in symbols_in(loop.extent):
            raise CodegenError(
                f"the loop {loop.loop_var.name} of {name!r}, annotated {WARP_SPECIALIZE!r}, has as "
                "many iterations in all tiles, or each block has one tile: annotate it with 0"
            )
        with an.scope():
            an.bind_range(loop.loop_var, Range(loop.min, loop.extent))
            slices = _slices(copies, stmts, team, an, name)
        stored = {b for part in slices for b in part.buffers}
        staged = {
            b: replace(b, shape=(const(stages), *b.shape), strides=(), align=ALIGN) for b in stored
        }
        full, empty = (
            Buffer(word, (const(len(slices) * stages),), "uint64", scope="shared")
            for word in ("full", "empty")
        )
        number = tile * loop.extent + loop.loop_var if isinstance(tile, Var) else loop.loop_var
        late = len(slices) == 1 and slices[0].stop - slices[0].start == len(stmts)
        return _Cut(loop, number, team, stages, slices, stmts, late, staged, full, empty)

    def slot(self, number: PrimExpr, part: int) -> tuple[PrimExpr, PrimExpr]:
        """The slot of slices in an iteration, and the number of its barriers."""
        slot = number % self.stages
        return slot, slot + part * self.stages if part else slot

    def producer(self, s: Stmt) -> Stmt | None:
        """The part of a statement that copies."""
        match s:
            case For() if s is self.loop:
                return replace(s, body=self.copies(), annotations=self.annotations)
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

    @property
    def annotations(self) -> Attrs:
        """Those of the loop that later passes read."""
        return self.loop.annotations.with_(**{PIPELINE: None, WARP_SPECIALIZE: None})

    def copies(self) -> Stmt:
        """Wait until a slot is empty, and issue the copies of its slices."""
        asked: list[Stmt] = []
        for part, slices in enumerate(self.slices):
            slot, at = self.slot(self.number, part)
            boxes = in_slot(slices.boxes, slot, self.staged)
            asked += [
                # A new barrier is as if the phase before its first one had ended.
                _call("mbarrier_wait", _at(self.empty, at), (self.number // self.stages + 1) % 2),
                _call("mbarrier_expect", _at(self.full, at), const(slices.size)),
                substitute(boxes, {_BARRIER: _at(self.full, at)}),
            ]
        return seq(*asked)

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
        """Multiply slices once they are there; they are given back when their products are made."""
        s = self.loop
        if self.is_late:
            return self.late_products()
        if len(self.slices) == 2:
            first, last = self.slices
            parts = beside(
                self.stmts[: first.stop], self.stmts[first.stop : last.start],
                self.stmts[last.start : last.stop], self.stmts[last.stop :],
            )  # fmt: skip
            if parts is not None:
                return self.overlapped(self.stmts[: first.start], *parts)
        body, done = list[Stmt](), 0
        for part, slices in enumerate(self.slices):
            body += [*self.stmts[done : slices.start], *self.multiplied(part, s.loop_var),
                     _call("wgmma_wait", const(0)), self.given_back(part, s.loop_var)]  # fmt: skip
            done = slices.stop
        return replace(s, body=seq(*body, *self.stmts[done:]), annotations=self.annotations)

    def late_products(self) -> Stmt:
        """Products that nothing in the loop reads: those of a slice are under way during the next
        iteration."""
        s, last = self.loop, self.loop.extent - 1
        body = seq(
            *self.multiplied(0, s.loop_var),
            _call("wgmma_wait", const(1)),
            IfThenElse(expr.GT(s.loop_var, const(0)), self.given_back(0, s.loop_var - 1)),
        )
        return seq(
            replace(s, body=body, annotations=self.annotations),
            _call("wgmma_wait", const(0)),
            self.where_any(self.given_back(0, last)),
        )

    def overlapped(self, before: Sequence[Stmt], free: list[Stmt], bound: list[Stmt]) -> Stmt:
        """Two products, the second of which is under way during the first part of the next
        iteration: its first product and `free`. `bound` has to wait for it."""
        s, wait = self.loop, _call("wgmma_wait", const(0))
        following, last = s.loop_var + 1, s.extent - 1

        def of(stmts: Sequence[Stmt], at: PrimExpr) -> Stmt:
            return substitute(seq(*stmts), {s.loop_var: at})

        begin = seq(
            of(before, const(0)), *self.multiplied(0, const(0)), wait,
            self.given_back(0, const(0)), of([*free, *bound], const(0)),
        )  # fmt: skip
        body = seq(
            of(before, following), *self.multiplied(0, following),
            *self.multiplied(1, s.loop_var),
            _call("wgmma_wait", const(1)), self.given_back(0, following), of(free, following),
            wait, self.given_back(1, s.loop_var), of(bound, following),
        )  # fmt: skip
        end = seq(*self.multiplied(1, last), wait, self.given_back(1, last))
        middle = replace(s, extent=last, body=body, annotations=self.annotations)
        return self.where_any(seq(begin, middle, end))

    def where_any(self, s: Stmt) -> Stmt:
        """The statement where the loop has iterations."""
        extent = self.loop.extent
        return s if isinstance(extent, IntImm) else IfThenElse(expr.GT(extent, const(0)), s)

    def multiplied(self, part: int, at: PrimExpr) -> list[Stmt]:
        """Issue the products of slices in iteration `at`, once the slices are there."""
        slices, v = self.slices[part], self.loop.loop_var
        slot, barrier = self.slot(self.number, part)
        stmts = self.stmts[slices.start : slices.stop]
        made = [
            _call("mbarrier_wait", _at(self.full, barrier), self.number // self.stages % 2),
            _call("wgmma_fence"),
            in_slot(seq(*stmts), slot, self.staged),
            _call("wgmma_commit"),
        ]
        return [substitute(m, {v: at}) for m in made]

    def given_back(self, part: int, at: PrimExpr) -> Stmt:
        """One thread of each warpgroup signals that the products of iteration `at` are complete."""
        barrier = substitute(self.slot(self.number, part)[1], {self.loop.loop_var: at})
        return IfThenElse(self.team.leads, _call("mbarrier_arrive", _at(self.empty, barrier)))

    def joined(self, producer: Stmt, consumer: Stmt) -> Stmt:
        """The program of a thread: barriers first, then what its warpgroup does."""
        team, at = self.team, Var("slot")
        barriers = seq(
            _call("mbarrier_init", _at(self.full, at), const(1)),
            _call("mbarrier_init", _at(self.empty, at), const(team.warpgroups)),
        )
        count = const(self.stages * len(self.slices))
        init = seq(For(at, const(0), count, "serial", barriers), _call("mbarrier_fence"))
        threads = team.outer.var
        copier = team.is_first(expr.EQ(threads, team.outer.extent) if team.each > 1 else TRUE)
        producer = IfThenElse(copier, producer)
        if team.warpgroups == 2:
            producer = seq(_call("setmaxnreg_dec", const(PRODUCER_REGISTERS)), producer)
            consumer = seq(_call("setmaxnreg_inc", const(CONSUMER_REGISTERS)), consumer)
        computes = expr.LT(threads, team.outer.extent)
        first = team.is_first(expr.EQ(threads, const(0)))
        return seq(IfThenElse(first, init), SYNC, IfThenElse(computes, consumer, producer))


def _slices(
    copies: Sequence[Stmt], stmts: Sequence[Stmt], team: _Team, an: Analyzer, name: str
) -> tuple[_Slices, ...]:
    """The copies of an iteration, together where the same of its statements use them."""
    found: list[_Slices] = []
    for copy in copies:
        boxes, size = _boxes(copy, team.first, an, name)
        stored = frozenset(n.buffer for n in walk(copy) if isinstance(n, BufferStore))
        users = [
            n for n, s in enumerate(stmts)
            if any(isinstance(x, BufferLoad) and x.buffer in stored for x in walk(s))
        ]  # fmt: skip
        part = _Slices(stored, boxes, size, min(users), max(users) + 1)
        for other in [f for f in found if f.start < part.stop and part.start < f.stop]:
            found.remove(other)
            part = _Slices(
                other.buffers | part.buffers, seq(other.boxes, part.boxes), other.size + part.size,
                min(other.start, part.start), max(other.stop, part.stop),
            )  # fmt: skip
        found.append(part)
    return tuple(sorted(found, key=lambda f: f.start))


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
    _, *places, _, by_rows, distance, _ = call.args
    for place in places:
        assert isinstance(place, Call) and isinstance(place.args[0], BufferLoad)
        buffer = place.args[0].buffer
        if buffer.scope == "local":
            continue
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
"""The position of the barrier among the arguments of calls that copy boxes."""


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
                handles = tuple(Call("handle", "address_of", (end,)) for end in ends[:2])
                extents = [const(1)] * ends[1].buffer.ndim
                extents[ends[2]], extents[-1] = const(rows), const(columns)
                box = (*handles, *extents, _BARRIER)
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


def _ends(
    body: Stmt, row: Var, column: Var, an: Analyzer
) -> tuple[BufferLoad, BufferLoad, int] | None:
    """The first elements that a copy of a box writes and reads, and the dimension along which its
    rows follow each other; None where it is none."""
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
    if not isinstance(load, BufferLoad) or load.buffer.ndim < 2:
        return None
    rows = [n for n, i in enumerate(load.indices[:-1]) if row in symbols_in(i)]
    if len(rows) != 1:
        return None
    limits = [i - d for i, d in zip(load.indices, load.buffer.shape, strict=True)]
    for part in conjuncts(inside):
        if not isinstance(part, expr.LT) or not any(
            an.prove_equal(part.a - part.b, limit) for limit in limits
        ):
            return None
    line = LINE // bytes_of(load.dtype)
    moves = [(row_major.place(store.indices, store.buffer.shape), line, 1)]
    moves += [(at, int(n == rows[0]), 0) for n, at in enumerate(load.indices[:-1])]
    moves.append((load.indices[-1], 0, 1))
    for at, down, along in moves:
        for var, step in ((row, down), (column, along)):
            if not an.prove_equal(substitute(at, {var: var + 1}), at + step):
                return None
    corner = {row: const(0), column: const(0)}
    return substitute(store, corner), substitute(load, corner), rows[0]


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm | expr.FloatImm) and e.value == 0


def _at(buffer: Buffer, place: PrimExpr) -> PrimExpr:
    return Call("handle", "address_of", (BufferLoad(buffer, (place,)),))


def _call(op: str, *args: PrimExpr) -> Stmt:
    return Evaluate(Call("void", op, args))
