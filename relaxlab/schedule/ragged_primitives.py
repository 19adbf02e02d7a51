"""The primitives of `Schedule` for loops that are not equally long."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.schedule import ragged_loops as _ragged
from relaxlab.schedule.for_kind import balance as _balance
from relaxlab.schedule.loop_partition import loop_partition as _loop_partition
from relaxlab.schedule.pack import pack as _pack
from relaxlab.schedule.primitive import step
from relaxlab.schedule.privatize import privatize as _privatize
from relaxlab.schedule.state import BlockRV, LoopRV, ScheduleState


@methods_name_arguments
class RaggedPrimitives(ScheduleState):
    """Tiles, padding, partition and order of loops whose extents depend on other loops, and their
    shares of threads."""

    @step()
    def pad_loop(self, loop: LoopRV, multiple: int) -> None:
        """Round the loop's number of iterations up to a multiple. The added iterations compute
        nothing: blocks get a predicate."""
        self.func = _ragged.pad_loop(self.func, self._var(loop), multiple)

    @step()
    def rectangularize(self, loop: LoopRV, over: LoopRV) -> None:
        """Give the loop in all iterations of `over`, a loop around it, the largest extent that it
        has in any, so that `reorder` may put it outside. What is added computes nothing."""
        self.func = _ragged.rectangularize(self.func, self._var(loop), self._var(over))

    @step()
    def pad_dim(self, block: BlockRV, write_buffer_index: int, dim: int, multiple: int) -> None:
        """Round a dimension of an intermediate buffer that the block writes up to a multiple.
        Nothing sees the padding, so `round_up_vectors` and wide copies may fill it."""
        self.func = _ragged.pad_dim(
            self.func, self._name(block), write_buffer_index, dim, multiple
        )

    @step()
    def partition(self, loop: LoopRV, multiple: int) -> list[LoopRV]:
        """Split a loop into one over the largest multiple of `multiple` iterations, which can be
        tiled without guards, and one over the rest. Returns both; blocks of the second have names
        that end with `_rest`."""
        self.func, loops = _ragged.partition(self.func, self._var(loop), multiple)
        return [self._new_loop(v) for v in loops]

    @step()
    def loop_partition(
        self, loop: LoopRV, factors: Sequence[PrimExpr | int | None]
    ) -> list[LoopRV]:
        """Split a loop into loops of these numbers of iterations after each other, of which one may
        be None, and one more over the rest. Returns them. Each is in a block of its own; blocks
        inside have names that end with those of the loops."""
        self.func, loops = _loop_partition(self.func, self._var(loop), tuple(factors))
        return [self._new_loop(v) for v in loops]

    @step()
    def remap(self, loop: LoopRV, order: str) -> None:
        """Let iteration v of the loop do the work of iteration `order[v]`. `order` names an index
        function with the fact `T.permutation`: longest sequences first, or a policy of your own."""
        self.func = _ragged.remap(self.func, self._var(loop), order)

    @step()
    def horizontal_fuse(self, first: LoopRV, second: LoopRV) -> LoopRV:
        """Make one loop of two independent ones that follow each other, so that the threads share
        their iterations out together."""
        self.func, loop = _ragged.horizontal_fuse(self.func, self._var(first), self._var(second))
        return self._new_loop(loop)

    @step()
    def balance(self, loop: LoopRV, inner: LoopRV | None = None) -> None:
        """Run the loop's iterations on several threads, each of which gets consecutive ones with an
        equal part of the work, as far as the extents of the loops inside tell. With `inner`, the
        next loop inside, a share may begin and end between two iterations of that one."""
        of_inner = None if inner is None else self._var(inner)
        self.func = _balance(self.func, self._var(loop), of_inner)

    @step()
    def privatize(
        self, block: BlockRV, loop: LoopRV, lane: LoopRV | None = None
    ) -> list[BlockRV]:
        """Accumulate what the block makes in one iteration of a loop in a private buffer. With
        `lane`, a loop over terms, there is a partial result for each of its iterations. Returns
        the blocks that initialise and store; `block` is the one that accumulates. Where loops over
        terms are around `loop`, each iteration goes on from the results of earlier ones: a block
        between those loops and `loop` loads them."""
        name, of_lane = self._name(block), None if lane is None else self._var(lane)
        self.func, update, others = _privatize(self.func, name, self._var(loop), of_lane)
        self._rename(name, update)
        return [self._new_block(n) for n in others]

    @step(by_axes=True)
    def pack(
        self, block: BlockRV, read_buffer_index: int, loop: LoopRV, number: int | None = None
    ) -> BlockRV:
        """Copy what the block reads of a buffer in one iteration of a loop to a private one, a
        panel, in the order of the loops inside that choose an element. Their extents are constant.
        Of several places of the buffer that the block reads, `number` is the one, in the order of
        its body. Returns the block that copies."""
        name, at = self._name(block), self._var(loop)
        self.func, copy = _pack(self.func, name, read_buffer_index, at, number)
        return self._new_block(copy)
