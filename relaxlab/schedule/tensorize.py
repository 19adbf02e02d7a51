"""tensorize: make a block the tensor intrinsic that computes the same.

Such a block has the intrinsic's name in its annotation `tensor_intrin`. Its last match buffers are
the intrinsic's parameters, in order, and its body is the description over them: that is what the
block means to all but code generation, which puts the implementation in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops, row_major
from relaxlab.ir.dtypes import is_int
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import field_names, replace, walk
from relaxlab.ir.provenance import relocate
from relaxlab.ir.span import Span
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.blockize import blockize
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ONE, ZERO, analyzer_at, binding_of, by_data
from relaxlab.schedule.tensor_intrin import TENSOR_INTRIN, TensorIntrin
from relaxlab.schedule.tree import (
    TRUE,
    describe_block,
    find_block,
    fresh_buffer_name,
    normalized,
    vars_in,
    with_fresh_binders,
)


def tensorize(func: PrimFunc, target: Var | str, intrin: str) -> PrimFunc:
    """Make a block (by name), or the nest under a loop, a registered tensor intrinsic.

    The block's body must be the intrinsic's description, up to the names of variables and with
    each buffer of the description at one fixed place of a buffer of the block.
    """
    found = _intrinsic(intrin)
    if isinstance(target, Var):
        func, target = blockize(func, target)
    place = find_block(func, target, "tensorize")
    block = place.block
    desc = _root_block(found.desc)
    for inner in walk(block):
        if isinstance(inner, Block):
            require_reassociable("tensorize", func, inner)
    an = analyzer_at(place)
    for iv in block.iter_vars:
        an.bind_range(iv.var, iv.dom)
    match = _Match(an)
    try:
        match.stmt(_flat(desc.body), _flat(block.body))
    except _Mismatch as e:
        raise ScheduleError(
            "tensorize", describe_block(block),
            f"the block computes what intrinsic {intrin!r} describes; {e}",
            about=(block.name,),
        ) from None  # fmt: skip
    matched = _views(func, found, match)
    new = replace(
        block, body=relocate(description(found, [m.buffer for m in matched]), _origin(block)),
        match_buffers=(*block.match_buffers, *matched),
        annotations=block.annotations.with_(**{TENSOR_INTRIN: intrin}),
    )  # fmt: skip
    return place.replaced(replace(place.realize, block=new))


def description(intrin: TensorIntrin, buffers: Sequence[Buffer]) -> Stmt:
    """The loops of an intrinsic's description over buffers in place of its parameters."""
    desc = intrin.desc
    body = with_fresh_binders(_flat(_root_block(desc).body))
    return substitute(body, buffers=dict(zip(desc.buffers, buffers, strict=True)))


def implementation(
    intrin: TensorIntrin, matched: Sequence[MatchBufferRegion], origin: Span | None
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The code of an intrinsic over views in place of its parameters, and the buffers that it
    allocates. Symbols that are strides of parameters stand for those of the buffers viewed. The
    code stands for what `origin` says."""
    buffers = [m.buffer for m in matched]
    root = _root_block(intrin.impl)
    # Several blocks of a function may be the same intrinsic.
    own = {b: replace(b) for b in root.alloc_buffers}
    views = {**dict(zip(intrin.impl.buffers, buffers, strict=True)), **own}
    body = relocate(with_fresh_binders(root.body), origin)
    strides: dict[Var, PrimExpr] = {}
    for param, m in zip(intrin.impl.buffers, matched, strict=True):
        source = m.source.buffer
        known = source.strides or row_major.strides(source.shape)
        pairs = zip(reversed(param.strides), reversed(known), strict=False)
        strides |= {s: value for s, value in pairs if isinstance(s, Var)}
    return substitute(substitute(body, buffers=views), strides), tuple(own.values())


def _origin(block: Block) -> Span | None:
    """The place in the program of the first store of a block."""
    return next((s.span for s in walk(block) if isinstance(s, BufferStore)), None)


def _intrinsic(name: str) -> TensorIntrin:
    try:
        return TensorIntrin.get(name)
    except KeyError as e:
        raise ScheduleError("tensorize", f"intrinsic {name!r}", str(e.args[0])) from None


def _root_block(func: PrimFunc) -> Block:
    body = normalized(func).body
    assert isinstance(body, BlockRealize)
    return body.block


def _views(func: PrimFunc, intrin: TensorIntrin, match: _Match) -> list[MatchBufferRegion]:
    """The intrinsic's parameters as views of the buffers that the block works on."""
    matched: list[MatchBufferRegion] = []
    for d in intrin.desc.buffers:
        actual, starts = match.buffers[d]
        extents = (*([ONE] * (len(starts) - d.ndim)), *d.shape)
        ranges = tuple(Range(s, e) for s, e in zip(starts, extents, strict=True))
        view = replace(
            d, name=fresh_buffer_name(func, f"{actual.name}_{d.name}"), scope=actual.scope
        )
        matched.append(MatchBufferRegion(view, BufferRegion(actual, ranges)))
    return matched


def _flat(s: Stmt) -> Stmt:
    """`s` without inner blocks and loops of one iteration; initialisations become conditionals."""
    match s:
        case BlockRealize():
            if s.predicate != TRUE:
                raise _Mismatch(f"block {s.block.name!r} has the predicate {s.predicate}")
            block = s.block
            body = block.body
            if block.init is not None:
                # The description of an intrinsic that begins with zero says so by a conditional,
                # and a block's initialisation means the same.
                first: list[PrimExpr] = [
                    expr.EQ(iv.var, iv.dom.min)
                    for iv in block.iter_vars
                    if iv.kind == "reduce" and iv.dom.extent != ONE
                ]
                body = loops.seq(IfThenElse(expr.all_of(first), block.init), body)
            return _flat(substitute(body, binding_of(s)))
        case For(var, lo, extent) if extent == ONE:
            return _flat(substitute(s.body, {var: lo}))
        case For() | LetStmt():
            return replace(s, body=_flat(s.body))
        case SeqStmt(stmts):
            return loops.seq(*(_flat(c) for c in stmts))
        case _:
            return s


class _Mismatch(Exception):
    """A difference between the block and the description; `matched` accesses corresponded
    before."""

    def __init__(self, text: str, matched: int = 0) -> None:
        super().__init__(text)
        self.matched = matched


class _Match:
    """The description's variables and buffers in terms of the block's.

    `buffers` gives for each buffer of the description the actual one and the indices of its first
    element there.
    """

    def __init__(self, an: Analyzer) -> None:
        self.an = an
        self.vars: dict[Var, PrimExpr] = {}
        self.inner: set[Var] = set()
        self.buffers: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}

    def stmt(self, d: Stmt, a: Stmt) -> None:
        """Match a statement of the description with one of the block. Raises _Mismatch."""
        if type(d) is not type(a):
            raise _Mismatch(f"there is {kind_of(a)} in place of {kind_of(d)}")
        match d, a:
            case For(), For():
                self.loop(d, a)
            case SeqStmt(ds), SeqStmt(as_):
                if len(ds) != len(as_):
                    raise _Mismatch(f"there are {len(as_)} statements in place of {len(ds)}")
                for x, y in zip(ds, as_, strict=True):
                    self.stmt(x, y)
            case BufferStore(), BufferStore():
                self.expr(d.value, a.value)
                self.access(d.buffer, d.indices, a.buffer, a.indices)
            case IfThenElse(), IfThenElse() if (d.else_case is None) == (a.else_case is None):
                self.expr(d.condition, a.condition)
                self.stmt(d.then_case, a.then_case)
                if d.else_case is not None and a.else_case is not None:
                    self.stmt(d.else_case, a.else_case)
            case LetStmt(), LetStmt():
                self.expr(d.value, a.value)
                self.bind(d.var, a.var)
                self.stmt(d.body, a.body)
            case _:
                raise _Mismatch(f"{kind_of(a)} cannot be matched")

    def loop(self, d: For, a: For) -> None:
        same = self.an.prove_equal(d.extent, a.extent) and self.an.prove_equal(d.min, a.min)
        if not same:
            raise _Mismatch(
                f"loop {a.loop_var.name} has extent {a.extent}, loop {d.loop_var.name} of the "
                f"description has {d.extent}"
            )
        self.bind(d.loop_var, a.loop_var)
        self.an.bind_range(a.loop_var, Range(a.min, a.extent))
        self.stmt(d.body, a.body)

    def bind(self, d: Var, a: Var) -> None:
        self.vars[d] = a
        self.inner.add(a)

    def expr(self, d: PrimExpr, a: PrimExpr) -> None:
        """Match an expression. Raises _Mismatch."""
        if isinstance(d, BufferLoad) and isinstance(a, BufferLoad):
            self.access(d.buffer, d.indices, a.buffer, a.indices)
            return
        # Indices are compared by value: schedules write `i*16 + j` in as many ways as there are
        # primitives. Values of data are compared by form, as a sum has one order.
        if is_int(d.dtype) and d.dtype == a.dtype and not by_data(d) and not by_data(a):
            if self.an.prove_equal(substitute(d, self.vars), a):
                return
            raise _Mismatch(f"{a} is not {d}")
        if type(d) is not type(a):
            names = f"{kind_of(a)} in place of {kind_of(d)}"
            raise _Mismatch(f"there is {names}: {a}")
        if isinstance(d, expr.Add | expr.Mul | expr.Min | expr.Max):
            assert isinstance(a, expr.BinaryOp)
            self.either_way(d, a)
            return
        for name in field_names(type(d)):
            self.field(getattr(d, name), getattr(a, name), d, a)

    def either_way(self, d: expr.BinaryOp, a: expr.BinaryOp) -> None:
        """The operands in order, or else exchanged."""
        before = dict(self.buffers)
        try:
            self.expr(d.a, a.a)
            self.expr(d.b, a.b)
        except _Mismatch as first:
            self.buffers = before
            try:
                self.expr(d.a, a.b)
                self.expr(d.b, a.a)
            except _Mismatch as second:
                # The attempt that got further is the one that the author meant.
                raise max(first, second, key=lambda e: e.matched) from None

    def field(self, d: Any, a: Any, whole_d: PrimExpr, whole_a: PrimExpr) -> None:
        if isinstance(d, PrimExpr) and isinstance(a, PrimExpr):
            self.expr(d, a)
        elif isinstance(d, tuple) and isinstance(a, tuple) and len(d) == len(a):  # type: ignore
            for x, y in zip(d, a, strict=True):  # type: ignore
                self.field(x, y, whole_d, whole_a)
        elif d != a:
            raise _Mismatch(f"{whole_a} is not {whole_d}")

    def access(
        self,
        d: Buffer, d_indices: tuple[PrimExpr, ...], a: Buffer, a_indices: tuple[PrimExpr, ...],
    ) -> None:  # fmt: skip
        """Require the same element of corresponding buffers. Raises _Mismatch."""
        if d.dtype != a.dtype or d.ndim > a.ndim:
            raise _Mismatch(
                f"{a.name} ({a.dtype}, {a.ndim} dimensions) is not {d.name} ({d.dtype}, {d.ndim})"
            )
        # Leading dimensions that the description lacks are fixed: a tile of a batch of matrices.
        offsets = (*([ZERO] * (a.ndim - d.ndim)), *d_indices)
        starts: list[PrimExpr] = []
        known = len(self.buffers) + 1
        for offset, index in zip(offsets, a_indices, strict=True):
            start = self.an.simplify(index - substitute(offset, self.vars))
            if vars_in(start) & self.inner:
                text = f"{a.name} at {index} does not move like {d.name} at {offset}"
                raise _Mismatch(text, known)
            starts.append(start)
        actual, at = self.buffers.setdefault(d, (a, tuple(starts)))
        pairs = zip(at, starts, strict=False)
        if actual is not a or not all(self.an.prove_equal(x, y) for x, y in pairs):
            raise _Mismatch(f"{d.name} is at two places of {actual.name} or {a.name}", known)


