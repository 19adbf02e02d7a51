"""A step that overlaps the iterations of a loop: while one computes, the next ones copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ONE, ZERO, shape_analyzer
from relaxlab.schedule.regions import opaque_buffers, refreshed, rewrite_accesses
from relaxlab.schedule.tree import TRUE, describe_loop, with_fresh_binders

STAGE = "software_pipeline_stage"
"""The annotation of a loop with the stage of each of its statements: how many iterations later than
the first stage it works on the same one."""
ORDER = "software_pipeline_order"
"""The annotation with the place of each statement among those that run in one iteration."""
ASYNC = "software_pipeline_async_stages"
"""The annotation with the stages that need not wait for their memory, which they do here."""


def loops_pipelined(func: PrimFunc) -> PrimFunc:
    """The function in which loops annotated with stages run these for different iterations beside
    each other, before and after which the first and the last ones are. Buffers that the loops
    allocate and several stages access are there once for each iteration that is under way.

    Raises ValueError where the stages do not fit the statements, or would change what these read.
    """
    an = shape_analyzer(func)

    def visit(n: Node) -> Node | None:
        return _Pipeline(n, an).made() if isinstance(n, For) and STAGE in n.annotations else None

    return rewrite(func, visit)


@dataclass(frozen=True)
class _Part:
    """A statement of the loop, with its stage, its place, and the buffers that it accesses."""

    body: Stmt
    stage: int
    order: int
    written: set[Buffer]
    accessed: set[Buffer]


class _Pipeline:
    """A loop with the statements of its iterations."""

    def __init__(self, loop: For, an: Analyzer) -> None:
        self.loop, self.an = loop, an
        allocated, body = _opened(loop)
        parts = body.stmts if isinstance(body, SeqStmt) else (body,)
        if len(parts) < len(loop.annotations[STAGE]):  # an inner loop is several statements now
            allocated, parts = _spread(allocated, parts)
        stages, order = _numbers(loop, STAGE, len(parts)), _numbers(loop, ORDER, len(parts))
        self.parts = list(map(_part, parts, stages, order))
        self.last = max(stages)
        self._check(set(allocated))
        self.slots = {b: self._versions(b) for b in allocated}

    def _versions(self, buffer: Buffer) -> Buffer:
        """The buffer with one place for each iteration that is under way between the stages that
        access it."""
        stages = [p.stage for p in self.parts if buffer in p.accessed]
        count = max(stages, default=0) - min(stages, default=0) + 1
        if count == 1:
            return buffer
        if buffer.strides:
            raise ValueError(
                f"{self.name}: buffer {buffer.name!r}, which has strides, is there once"
            )
        return replace(buffer, shape=(expr.const(count), *buffer.shape))

    @property
    def name(self) -> str:
        return describe_loop(self.loop)

    def _check(self, allocated: set[Buffer]) -> None:
        """Raise ValueError for statements that would no longer run in the order that they need."""
        for i, a in enumerate(self.parts):
            for b in self.parts[i + 1 :]:
                for buffer in (a.written & b.accessed) | (a.accessed & b.written):
                    together = a.stage == b.stage and a.order < b.order
                    later = buffer in allocated and a.stage < b.stage
                    if not together and not later:
                        raise ValueError(
                            f"{self.name}: statements of the stages {a.stage} and {b.stage} access "
                            f"{buffer.name!r}, and would do it in another order; put them in one "
                            "stage, or allocate it in the loop"
                        )

    def made(self) -> Stmt:
        loop, an, last = self.loop, self.an, expr.const(self.last)
        is_long = an.prove(loop.extent >= last) is True
        whole = loop.extent if is_long else expr.binary(expr.Max, loop.extent, last)
        before = [self._round(expr.const(r), r, is_long) for r in range(self.last)]
        var = Var(loop.loop_var.name)
        notes = loop.annotations.with_(**dict.fromkeys((STAGE, ORDER, ASYNC)))
        with an.scope():
            rounds = an.simplify(whole - last)
            an.bind_range(var, Range(ZERO, rounds))
            inside = seq(*self._round(var + last, self.last, True))
        middle = replace(
            loop, loop_var=var, min=ZERO, extent=rounds, body=inside, annotations=notes
        )
        after = [self._round(whole + r, -r - 1, is_long) for r in range(self.last)]
        body = seq(*(s for part in before for s in part), middle, *(s for p in after for s in p))
        buffers = tuple(self.slots.values())
        block = refreshed(Block("", (), (), (), body, alloc_buffers=buffers))
        return BlockRealize((), TRUE, block, span=loop.span) if buffers else body

    def _round(self, at: PrimExpr, number: int, is_sure: bool) -> list[Stmt]:
        """The statements that run together when the first stage works on iteration `at`: round
        `number`, of which only the stages up to it have begun, or, if it is negative, of which
        those from -number on are not done. Unless it is sure, iterations past the end are left
        out."""
        made: list[Stmt] = []
        for part in sorted(self.parts, key=lambda p: p.order):
            if not (part.stage <= number or (number < 0 and part.stage >= -number)):
                continue
            iteration = self.an.simplify(at - part.stage)
            s = self._instance(part.body, iteration)
            made.append(s if is_sure else IfThenElse(iteration < self.loop.extent, s))
        return made

    def _instance(self, body: Stmt, iteration: PrimExpr) -> Stmt:
        """A statement for an iteration, counted from 0."""
        for old, new in self.slots.items():
            if old is not new:
                slot = self.an.simplify(iteration % new.shape[0])
                body = _in_slot(body, old, new, slot)
        value = self.an.simplify(iteration + self.loop.min)
        return with_fresh_binders(substitute(body, {self.loop.loop_var: value}))


def _in_slot(body: Stmt, old: Buffer, new: Buffer, slot: PrimExpr) -> Stmt:
    return rewrite_accesses(
        body, old, new, lambda at: (slot, *at), lambda ranges: (Range(slot, ONE), *ranges)
    )


def _opened(loop: For) -> tuple[Sequence[Buffer], Stmt]:
    """The buffers that a loop allocates, and its body without the block that does it."""
    body = loop.body
    if not isinstance(body, BlockRealize):
        return (), body
    block = body.block
    if block.iter_vars or block.init or block.match_buffers or body.predicate != TRUE:
        raise ValueError(
            f"{describe_loop(loop)}: block {block.name!r} in a pipeline has axes, a view, an "
            "initialisation or a condition: take these away first, by LowerInitBlock, "
            "ConvertBlocksToOpaque and LowerMatchBuffer"
        )
    return block.alloc_buffers, block.body


def _spread(
    allocated: Sequence[Buffer], parts: Sequence[Stmt]
) -> tuple[Sequence[Buffer], tuple[Stmt, ...]]:
    """The buffers and statements of a loop, and those of the blocks that inner loops became."""
    found = [*allocated]
    stmts: list[Stmt] = []
    for part in parts:
        block = part.block if isinstance(part, BlockRealize) and part.predicate == TRUE else None
        if block is not None and not block.name and not (block.iter_vars or block.match_buffers):
            found += block.alloc_buffers
            part = block.body
        stmts += part.stmts if isinstance(part, SeqStmt) else (part,)
    return found, tuple(stmts)


def _numbers(loop: For, key: str, count: int) -> tuple[int, ...]:
    given: Any = loop.annotations.get(key)
    listed: list[Any] = list(given) if isinstance(given, tuple) else []  # type: ignore[arg-type]
    numbers = tuple(int(n) for n in listed)
    valid = len(numbers) == count and min(numbers, default=-1) >= 0
    if not valid or (key == ORDER and len(set(numbers)) != count) or loop.kind != "serial":
        raise ValueError(
            f"{describe_loop(loop)}: {key!r} is {given!r}, and not one number for each of the "
            f"{count} statements of a serial loop"
        )
    return numbers


def _part(body: Stmt, stage: int, order: int) -> _Part:
    opaque = opaque_buffers(body)
    nodes = list(walk(body))
    written = {n.buffer for n in nodes if isinstance(n, BufferStore)} | opaque
    read = {n.buffer for n in nodes if isinstance(n, BufferLoad)}
    return _Part(body, stage, order, written, written | read)
