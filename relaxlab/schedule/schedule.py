"""`Schedule`: TVM's scheduling primitives over an immutable loop function.

Each primitive is a pure function in its own file; a schedule keeps the current function, the
handles to its blocks and loops, and the trace of what was done. A refused primitive raises
`ScheduleError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.display import Displayed
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import BlockRealize, PrimFunc, Stmt
from relaxlab.schedule import annotate as _annotate
from relaxlab.schedule import block_axes as _axes
from relaxlab.schedule import blockize as _blockize
from relaxlab.schedule import compute_location as _location
from relaxlab.schedule import for_kind as _kind
from relaxlab.schedule import inline as _inline
from relaxlab.schedule import pad_einsum as _pad_einsum
from relaxlab.schedule import reduction as _reduction
from relaxlab.schedule import rfactor as _rfactor
from relaxlab.schedule import round_up_tail as _round_up
from relaxlab.schedule import scope, tree
from relaxlab.schedule import split_fuse_reorder as _loops
from relaxlab.schedule import tensorize as _tensorize
from relaxlab.schedule.apart import apart as _apart
from relaxlab.schedule.assume_finite import assume_finite as _assume_finite
from relaxlab.schedule.bounds import bound_storage as _bound_storage
from relaxlab.schedule.bounds import with_upper_bound
from relaxlab.schedule.canonical_reduction import canonicalize_reduction as _canonicalize_reduction
from relaxlab.schedule.compact import compact_buffers as _compact_buffers
from relaxlab.schedule.data_primitives import DataPrimitives
from relaxlab.schedule.decision_primitives import DecisionPrimitives
from relaxlab.schedule.decisions import JOINED, version_name
from relaxlab.schedule.decompose_padding import decompose_padding as _decompose_padding
from relaxlab.schedule.epilogue import fuse_reduction_epilogue as _fuse_reduction_epilogue
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.form_blocks import form_blocks as _form_blocks
from relaxlab.schedule.fuse_reductions import fuse_reductions as _fuse_reductions
from relaxlab.schedule.join_axes import join_axes as _join_axes
from relaxlab.schedule.layout import MapLike, as_index_map
from relaxlab.schedule.merge import merge as _merge
from relaxlab.schedule.nested import chosen_by_size, versions_for, with_size
from relaxlab.schedule.order import depends_on_order
from relaxlab.schedule.primitive import primitive, step
from relaxlab.schedule.ragged_primitives import RaggedPrimitives
from relaxlab.schedule.state import BlockRV, Fact, LoopRV
from relaxlab.schedule.trace import Steps, Value
from relaxlab.tracing.limit import Stopped

Factor = PrimExpr | int | None


@methods_name_arguments
class Schedule(DataPrimitives, DecisionPrimitives, RaggedPrimitives, Displayed):
    """A loop function being scheduled: `func` is what it is now, `original` what it was, `trace`
    the steps between, `refused` the step tried last if it was refused.

    `Schedule(mod, name)` schedules the function `name` of a module; the name may be left out where
    there is one loop function. `mod` is the module with the function as it is now: the compiler
    takes what was scheduled by hand as it is.

    >>> sch = Schedule(func)                                     # doctest: +SKIP
    >>> i, j, k = sch.get_loops(sch.get_block("C"))              # doctest: +SKIP
    >>> io, ii = sch.split(i, factors=[None, 16])                # doctest: +SKIP
    >>> sch.parallel(io); sch.show()                             # doctest: +SKIP
    """

    @step(looks=True)
    def get_block(self, name: str) -> BlockRV:
        """The block of that name."""
        return self._new_block(tree.find_block(self.func, name).block.name)

    @step(looks=True)
    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """The loops around the block, outermost first."""
        return [self._new_loop(s.loop_var) for s in self._place(block).loops]

    @step(looks=True)
    def get_child_blocks(self, block: BlockRV | LoopRV) -> list[BlockRV]:
        """The blocks directly inside the block or loop, in order."""
        if isinstance(block, LoopRV):
            around: Stmt = tree.find_loop(self.func, self._var(block)).loop
        else:
            around = self._place(block).block.body
        return self._new_blocks(tree.realizes_under(around))

    @step(looks=True)
    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks of the same scope that write what the block reads."""
        place = self._place(block)
        return self._new_blocks(scope.producers_of(place.block, place.scope))

    @step(looks=True)
    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks of the same scope that read what the block writes."""
        place = self._place(block)
        return self._new_blocks(scope.consumers_of(place.block, place.scope))

    @step(looks=True)
    def get_output_blocks(self, block: BlockRV) -> list[BlockRV]:
        """The blocks directly inside the block that write parameters of the function."""
        inside = tree.realizes_under(self._place(block).block.body)
        mine = set(self.func.buffers)
        return self._new_blocks(r for r in inside if mine & set(scope.written(r.block)))

    def _new_blocks(self, realizes: Iterable[BlockRealize]) -> list[BlockRV]:
        return [self._new_block(r.block.name) for r in realizes]

    @primitive()
    def split(
        self, loop: LoopRV, factors: Sequence[Factor] | None = None, *, factor: Factor = None,
        preserve_unit_iters: bool = False,
    ) -> list[LoopRV]:  # fmt: skip
        """Split a loop into a nest; one factor may be None. A predicate guards the remainder.

        With `preserve_unit_iters`, loops of one iteration stay in the bindings of blocks. A single
        `factor` is refused with a message: it does not say which loop it is for.
        """
        given = factor if factors is None else factors
        listed = tuple(given) if isinstance(given, Sequence) else given

        def run() -> list[LoopRV]:
            self.func, new = _loops.split(
                self.func, self._var(loop), given, preserve_unit_iters=preserve_unit_iters
            )
            return [self._new_loop(v) for v in new]

        options = {"preserve_unit_iters": True} if preserve_unit_iters else {}
        return self._step("split", {"loop": loop, "factors": listed, **options}, run)

    @step(unless_default=("preserve_unit_iters",))
    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = False) -> LoopRV:
        """Make one loop of perfectly nested ones.

        The extent of the second of two may depend on the first, where an index function has the
        prefix sums of the extents (`T.prefix_sums`): the loop is then over all rows, and so is an
        axis of the blocks. A block that asks for more than elements `starts[i] + j` needs the
        segment of each row (`T.segment_ids`). `preserve_unit_iters` is as for `split`.
        """
        variables = [self._var(v) for v in loops]
        self.func, new = _loops.fuse(self.func, variables, preserve_unit_iters=preserve_unit_iters)
        return self._new_loop(new)

    @step()
    def merge(self, *loops: LoopRV) -> LoopRV:
        """Make one loop of loops of one extent that follow each other, and of the perfect nests
        around them."""
        self.func, new = _merge(self.func, [self._var(v) for v in loops])
        return self._new_loop(new)

    @step()
    def reorder(self, *loops: LoopRV) -> None:
        """Permute the loops of a nest into the order given."""
        self.func = _loops.reorder(self.func, [self._var(v) for v in loops])

    @step()
    def add_unit_loop(self, target: BlockRV | LoopRV) -> LoopRV:
        """Put a loop of extent 1 around a block or loop."""
        self.func, new = _loops.add_unit_loop(self.func, self._target(target))
        return self._new_loop(new)

    @step()
    def reorder_block_iter_var(self, block: BlockRV, new_order: Sequence[int]) -> None:
        """Permute the axes of a block: axis number `new_order[i]` becomes number i."""
        self.func = _axes.reorder_block_iter_var(self.func, self._name(block), tuple(new_order))

    @primitive()
    def transform_block_layout(self, block: BlockRV, index_map: MapLike) -> None:
        """Give a block the axes that the index map makes of its own, and a loop over each of them.

        `index_map` is an IndexMap or a function of the old axes.
        """
        imap = as_index_map(index_map, len(self._place(block).block.iter_vars))

        def run() -> None:
            self.func = _axes.transform_block_layout(self.func, self._name(block), imap)

        self._step("transform_block_layout", {"block": block, "index_map": imap}, run)

    @step()
    def parallel(self, loop: LoopRV) -> None:
        """Run the loop's iterations on several threads.

        Where data says what a block writes, no proof can tell that iterations write elements of
        their own; the block's author may state it: `T.sblock_attr({"independent": True})`.
        `relaxlab.check` finds races when it runs the program.
        """
        self.func = _kind.parallel(self.func, self._var(loop))

    @step()
    def vectorize(self, loop: LoopRV) -> None:
        """Run the loop's iterations as vector lanes; the extent must be a constant."""
        self.func = _kind.vectorize(self.func, self._var(loop))

    @step()
    def unroll(self, loop: LoopRV) -> None:
        """Unroll the loop."""
        self.func = _kind.unroll(self.func, self._var(loop))

    @step()
    def unroll_and_jam(self, loop: LoopRV) -> None:
        """Unroll the loop inside of the loops in it; its iterations are independent."""
        self.func = _kind.unroll_and_jam(self.func, self._var(loop))

    @step()
    def bind(self, loop: LoopRV, thread: str) -> None:
        """Bind the loop to a GPU thread axis."""
        self.func = _kind.bind(self.func, self._var(loop), thread)

    @step()
    def compute_inline(self, block: BlockRV) -> None:
        """Compute the block's value at each place that reads it."""
        self.func = _inline.compute_inline(self.func, self._name(block))

    @step()
    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Apply the block where its producer computes each value."""
        self.func = _inline.reverse_compute_inline(self.func, self._name(block))

    @step(by_axes=True)
    def compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a producer under a consumer's loop, computing only what one iteration needs."""
        self.func = _location.compute_at(
            self.func, self._name(block), self._var(loop),
            preserve_unit_loops=preserve_unit_loops, index=index,
        )  # fmt: skip

    @step()
    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under a producer's loop, consuming what one iteration makes."""
        self.func = _location.reverse_compute_at(
            self.func, self._name(block), self._var(loop),
            preserve_unit_loops=preserve_unit_loops, index=index,
        )  # fmt: skip

    @step()
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Initialise before the loop; returns the initialising block, `block` is the update."""
        name = self._name(block)
        self.func, init, update = _reduction.decompose_reduction(self.func, name, self._var(loop))
        self._rename(name, update)
        return self._new_block(init)

    @step()
    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Fill what a block that pads writes before the loop, then write only the values inside.
        Returns the block that fills."""
        self.func, fill = _decompose_padding(self.func, self._name(block), self._var(loop))
        return self._new_block(fill)

    @step()
    def assume_finite(self, block: BlockRV) -> list[BlockRV]:
        """Sum masked products without asking the mask, and again with it where results are not
        finite. Returns the blocks that ask, initialise and accumulate."""
        self.func, *names = _assume_finite(self.func, self._name(block))
        return [self._new_block(n) for n in names]

    @primitive()
    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Reduce per iteration of a reduce loop, then reduce the results; returns the first."""

        def run() -> BlockRV:
            self.func, name = _rfactor.rfactor(self.func, self._var(loop), factor_axis)
            return self._new_block(name)

        partial = self._step("rfactor", {"loop": loop, "factor_axis": factor_axis}, run)
        if depends_on_order(self._place(partial).block):
            self.trace[-1] = replace(self.trace[-1], remark="accumulates in another order")
        return partial

    @step()
    def fuse_reduction_epilogue(self, reduction_block: BlockRV, epilogue_block: BlockRV) -> None:
        """Start a reduction at the value that the block behind it combines with each result by the
        same operation, as a bias that is added to sums, and drop that block."""
        self.func = _fuse_reduction_epilogue(
            self.func, self._name(reduction_block), self._name(epilogue_block)
        )

    @step()
    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> None:
        """Round the extents of the block's axes up to multiples of `padding`, one per axis."""
        self.func = _pad_einsum.pad_einsum(self.func, self._name(block), padding)

    @step()
    def canonicalize_reduction(self, block: BlockRV) -> None:
        """Write the body of a reduction as one store of `x op value`: what is added under a
        condition is the identity of `op` where it does not hold, `x + a - b` becomes `x + (a - b)`,
        `x - a` becomes `x + a * -1`, and `a if a > x else x` the maximum."""
        self.func = _canonicalize_reduction(self.func, self._name(block))

    @step()
    def form_blocks(self) -> None:
        """Make blocks of plain loops around stores: each store in loops of its own where that is
        allowed, else one block over the outer loops whose iterations are independent."""
        self.func = _form_blocks(self.func)

    @step()
    def fuse_reductions(
        self, block: BlockRV, axis: int, rows: int, chunk: int, multiple: int = 1, width: int = 1,
        parts: int = 1, workers: int = 1, *, whole: bool = False, cuts: str | None = None,
    ) -> BlockRV:  # fmt: skip
        """Compute reductions over one axis, whose terms depend on the results before them, in one
        pass over it with running results, such as a maximum and the sum of `exp(x - maximum)`.
        Returns the block of the tiles: of `rows` along the spatial axis `axis` of `block`, one of
        the reductions.

        A tile takes the reduced axis in chunks of `chunk`, the last of them rounded up to a
        multiple of `multiple`, which divides `chunk`; the last further axis of results is rounded
        up to a multiple of `width`. If `whole`, all reductions take all points of the last chunk.
        Results differ by rounding: sums have another order.

        Several `workers` each have a chunk of their own at a time, along one more axis of the
        blocks inside a tile, and combine their results behind the last one. Several `parts`, one
        more axis of the tiles, take turns along the reduced axis; blocks behind the tiles combine
        their results, which are in main memory (split-K of a softmax, Flash-Decoding, 2023).

        `cuts` names an index function that rises from 0 to the number of rows, as the starts of
        sequences do: tiles begin at its elements and end there, and have one more loop around them.
        """
        self.func, tile = _fuse_reductions(
            self.func, self._name(block), axis, rows, chunk, multiple, width, parts, workers,
            whole=whole, cuts=cuts,
        )  # fmt: skip
        return self._new_block(tile)

    @step()
    def compact_buffers(self) -> None:
        """Allocate private buffers (of any scope but `global`) inside the loops in each iteration
        of which they are filled and used, in the size that an iteration needs.

        This is one of the last steps: indices then mention loops outside of their blocks, which
        other primitives refuse.
        """
        self.func = _compact_buffers(self.func)

    @step()
    def round_up_tails(self) -> None:
        """Compute the last tile of rows whole, from copies of its last row, in blocks that write
        only `local` buffers: these lose their guards, and the rest is not stored."""
        self.func = _round_up.round_up_tails(self.func)

    @step()
    def round_up_vectors(self) -> None:
        """Compute the last vectors of an axis whole in blocks that write only `local` buffers: from
        zeros where the axis has ended, by masked loads; copies whose lanes gather read its last
        element again."""
        self.func = _round_up.round_up_vectors(self.func)

    @primitive()
    def join_axes(
        self, schedule: Callable[[Schedule], Schedule], units: bool = False
    ) -> None:
        """Make one axis of neighbouring axes of one kind that go through memory like one, so that
        vectors and tiles need not end where the inner one does, and give the parameters, whose
        shapes belong to the callers, their dimensions back. With `units` axes of one iteration are
        left out.

        `schedule` makes the steps in between: it is given a schedule of the function with joined
        axes, in which blocks and loops are to be found anew, and returns it or a copy of it.
        """
        self.require_one_version("join_axes")
        joined, restored = _join_axes(self.func, units)
        args = {"units": units}
        self._take_over("join_axes", args, self._apart(joined, JOINED), schedule, restored)

    @primitive()
    def schedule_apart(
        self, blocks: Sequence[BlockRV], schedule: Callable[[Schedule], Schedule]
    ) -> None:
        """Schedule the loop nests from the first to the last of the blocks as a function of their
        own, some of those that run one after the other in the root block, or in serial loops around
        all of it. What they share with other nests, and the variables of these loops, are its
        parameters.

        `schedule` makes the steps in between: it is given a schedule of that function, in which
        blocks and loops are to be found anew, and returns it or a copy of it. Layouts of what is
        shared must stay.
        """
        self.require_one_version("schedule_apart")
        names = [self._name(b) for b in blocks]
        nests, spliced = _apart(self.func, names)
        apart, args = self._apart(nests, names[0]), {"blocks": tuple(blocks)}
        self._take_over("schedule_apart", args, apart, schedule, spliced)

    def _take_over(
        self, primitive: str, args: Mapping[str, Value], sub: Schedule,
        schedule: Callable[[Schedule], Schedule], put_back: Callable[[PrimFunc], PrimFunc],
    ) -> None:  # fmt: skip
        """Make the steps of `schedule` on a form of this function, and put the result back."""
        made = _made(schedule, sub)
        if made is None:
            raise TypeError(f"{primitive} takes a function that returns a schedule")

        def run() -> None:
            self.func = put_back(made.func)
            self.decisions |= made.decisions

        self._step(primitive, {**args, "schedule": Steps(tuple(made.trace))}, run)

    @primitive()
    def guarded_versions(
        self,
        size: PrimExpr,
        bounds: Sequence[int],
        schedule: Callable[[Schedule, int | None], Schedule | None],
        exact: int = 1,
    ) -> None:
        """Make a version for sizes of at most each of the bounds, which ascend, and one for any
        size: `if size <= bound: ... else: ...`. All must change layouts of parameters alike.

        `schedule` makes one of them: it is given a schedule of the function as it is now, in which
        blocks and loops are to be found anew, and the bound, None for any size, and returns it or
        a copy of it; None where sizes up to a bound are better left to the next larger version.
        A version for a bound up to `exact` is for that size alone, which is in the place of the
        symbol `size` in that function. Of a constant size, or where declared bounds leave one
        version, it goes on with this schedule instead, whose trace has its steps.
        """
        self.require_one_version("guarded_versions")
        versions = versions_for(self.func, size, bounds, exact)
        if not versions.guarded:
            made = _made(lambda sch: schedule(sch, versions.general), self.copy())
            self._become(made or _any_size(schedule, self.copy()))
            return

        def version(bound: int) -> Schedule | None:
            func = with_size(self.func, size, bound) if bound <= exact else self.func
            apart = self._apart(func, version_name(size, bound), (size, bound))
            return _made(lambda sch: schedule(sch, bound), apart)

        largest = versions.general
        general = None if largest is None else version(largest)
        if general is None:
            largest = None
            general = _any_size(schedule, self._apart(self.func, version_name(size, None)))
        others = ((bound, version(bound)) for bound in versions.guarded)
        guarded = [(bound, sch) for bound, sch in others if sch is not None]

        def run() -> None:
            found = [(n, sch.func) for n, sch in guarded]
            self.func = chosen_by_size(size, general.func, found, exact)
            for sch in (general, *(sch for _, sch in guarded)):
                self.decisions |= sch.decisions

        # Without the bounds that have no version: the trace alone says which there are.
        kept = [bound for bound, _ in guarded] + ([] if largest is None else [largest])
        args = {
            "size": size, "bounds": tuple(kept),
            "schedule": tuple(
                Steps(tuple(sch.trace), bound) for bound, sch in [(largest, general), *guarded]
            ),
        } | ({"exact": exact} if exact > 1 else {})  # fmt: skip
        self._step("guarded_versions", args, run)

    def _apart(self, func: PrimFunc, name: str, *facts: Fact) -> Schedule:
        """A schedule of a form of this function, in which facts hold and the decisions made so
        far."""
        sub = Schedule(func, self.name, decider=self.decider)
        sub._module = self._module
        sub._facts = (*self._facts, *facts)
        sub.within, sub.decisions = (*self.within, name), dict(self.decisions)
        return sub

    @step()
    def declare_upper_bound(self, symbol: Var, most: int) -> None:
        """Let analyses know that a symbol is at most `most`, which must follow from the bounds
        declared for symbols or from the guard of the version that is being scheduled."""
        self._require_at_most("declare_upper_bound", symbol, most)
        self.func = with_upper_bound(self.func, symbol, most)

    @step()
    def bound_storage(self, size: PrimExpr, most: int) -> None:
        """Allocate `local` buffers with `most` instead of a symbol or dimension `size`, which must
        be at most that by declared bounds or by the guard of the version that is being scheduled.
        """
        self._require_at_most("bound_storage", size, most)
        self.func = _bound_storage(self.func, size, most)

    def _require_at_most(self, primitive: str, size: PrimExpr, most: int) -> None:
        if not self._is_at_most(size, most):
            raise ScheduleError(
                primitive, f"size {size}", f"it is known to be at most {most}",
                suggestion="make it a step of guarded_versions",
            )  # fmt: skip

    @step(unless_default=("every_axis", "preserve_unit_iters"))
    def blockize(
        self, loop: LoopRV, every_axis: bool = False, preserve_unit_iters: bool = False
    ) -> BlockRV:
        """Make a block of the loop and what is inside it; with `every_axis` it has an axis for each
        axis inside, of one value where that has no part outside. With `preserve_unit_iters`, axes
        of one value stay in indices."""
        self.func, name = _blockize.blockize(
            self.func, self._var(loop), every_axis=every_axis,
            preserve_unit_iters=preserve_unit_iters,
        )  # fmt: skip
        return self._new_block(name)

    @step()
    def tensorize(self, target: BlockRV | LoopRV, tensor_intrin: str) -> None:
        """Replace a block, or what is inside a loop, by a registered tensor intrinsic."""
        self.func = _tensorize.tensorize(self.func, self._target(target), tensor_intrin)

    @step()
    def annotate(self, target: BlockRV | LoopRV, key: str, value: Any) -> None:
        """Set an annotation of a block or loop."""
        self.func = _annotate.annotate(self.func, self._target(target), key, value)

    @step()
    def unannotate(self, target: BlockRV | LoopRV, key: str) -> None:
        """Remove an annotation of a block or loop."""
        self.func = _annotate.unannotate(self.func, self._target(target), key)


def _any_size(
    schedule: Callable[[Schedule, int | None], Schedule | None], sch: Schedule
) -> Schedule:
    """The version for any size."""
    made = _made(lambda sch: schedule(sch, None), sch)
    if made is None:
        raise TypeError("guarded_versions takes a function that returns a schedule for any size")
    return made


def _made(schedule: Callable[[Schedule], Schedule | None], sch: Schedule) -> Schedule | None:
    """The schedule that is made; where the number of steps is limited, as far as it came."""
    try:
        made = schedule(sch)
    except Stopped as stop:
        made = cast("Schedule", stop.state)
    if made is not None and made.original is not sch.original:
        raise ValueError("the schedule returned is of another function than the one given")
    return made
