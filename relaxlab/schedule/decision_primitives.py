"""The primitives of `Schedule` that leave a choice open: a decider makes it, else their default."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import IntImm, Var
from relaxlab.schedule import compute_location as _location
from relaxlab.schedule import scope, tree
from relaxlab.schedule.decisions import (
    Chosen,
    DecisionError,
    partitioned_tiles,
    perfect_tiles,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.primitive import primitive
from relaxlab.schedule.state import BlockRV, LoopRV, ScheduleState


@methods_name_arguments
class DecisionPrimitives(ScheduleState):
    """A loop function being scheduled, with the primitives that decide on something."""

    @primitive(looks=True)
    def sample_categorical(
        self, name: str, candidates: Sequence[Chosen], default: Chosen,
        decision: Chosen | None = None,
    ) -> Chosen:  # fmt: skip
        """Decide on one of the candidates: numbers, True and False, or strings. Returns it.

        The schedule's decider makes the choice, unless there is a `decision`, as in a program that
        was printed from a trace; without a decider it is the default. A decision of that name that
        was made before, or for another version of the function, stays as it is.
        """
        given = {"name": name, "candidates": tuple(candidates), "default": default}
        return self._decided("sample_categorical", given, tuple(candidates), decision)

    @primitive(looks=True)
    def sample_perfect_tile(
        self, name: str, loop: LoopRV, n: int, max_innermost_factor: int, default: Sequence[int],
        decision: Sequence[int] | None = None,
    ) -> list[int]:  # fmt: skip
        """Decide on `n` factors whose product is the loop's extent, a constant, the last of them at
        most `max_innermost_factor`. Returns them: the factors of `split`.

        See `sample_categorical` for who decides.
        """
        extent = self._extent("sample_perfect_tile", loop)
        given = {
            "name": name, "loop": loop, "n": n, "max_innermost_factor": max_innermost_factor,
            "default": tuple(default),
        }  # fmt: skip
        tiles = perfect_tiles(extent, n, max_innermost_factor)
        value = None if decision is None else tuple(decision)
        return list(self._decided("sample_perfect_tile", given, tiles, value))

    @primitive(looks=True)
    def sample_partitioned_tile(
        self, name: str, loop: LoopRV, n: int, partition_pos: int, innerpart_factor: int,
        default: Sequence[int], decision: Sequence[int] | None = None,
    ) -> list[int]:  # fmt: skip
        """Decide on `n` factors whose product is the loop's extent, a constant, those from number
        `partition_pos` on a multiple of `innerpart_factor` together. Returns them: the factors of
        `split`, the inner part of which has the size of a hardware instruction, or some of them.

        See `sample_categorical` for who decides.
        """
        if not 0 <= partition_pos <= n or innerpart_factor < 1:
            raise ScheduleError(
                "sample_partitioned_tile", f"decision `{name}`",
                f"partition_pos is from 0 to {n}, and innerpart_factor is positive; they are "
                f"{partition_pos} and {innerpart_factor}",
            )  # fmt: skip
        extent = self._extent("sample_partitioned_tile", loop)
        given = {
            "name": name, "loop": loop, "n": n, "partition_pos": partition_pos,
            "innerpart_factor": innerpart_factor, "default": tuple(default),
        }  # fmt: skip
        tiles = partitioned_tiles(extent, n, partition_pos, innerpart_factor)
        value = None if decision is None else tuple(decision)
        return list(self._decided("sample_partitioned_tile", given, tiles, value))

    def _extent(self, primitive: str, loop: LoopRV) -> int:
        """The extent of a loop whose factors are decided on. Raises ScheduleError if it is none
        that is known."""
        found = tree.find_loop(self.func, self._var(loop)).loop
        if not isinstance(found.extent, IntImm):
            raise ScheduleError(
                primitive, f"loop {found.loop_var}", "its extent is a constant",
                suggestion="sample_categorical one factor and split by it with None",
                about=(found.loop_var,),
            )  # fmt: skip
        return found.extent.value

    @primitive(looks=True)
    def sample_compute_location(
        self, name: str, block: BlockRV, default: int = 0, decision: int | None = None
    ) -> LoopRV | None:
        """Decide under how many loops of its first consumer a block is computed: 0, or as many as
        `compute_at` allows. Returns the innermost of these loops, to be given to `compute_at`; None
        for 0.

        See `sample_categorical` for who decides.
        """
        consumers = scope.consumers_of(self._place(block).block, self._place(block).scope)
        around: list[Var] = []
        if consumers:
            place = tree.find_block(self.func, consumers[0].block.name)
            around = [s.loop_var for s in place.loops]
        allowed = [depth for depth, v in enumerate(around, 1) if self._may_move(block, v)]
        given = {"name": name, "block": block, "default": default}
        step = "sample_compute_location"

        def loop_of(depth: int) -> Var | None:
            return around[depth - 1] if depth else None

        self._decided(step, given, (0, *allowed), decision, loop_of)
        made = [s.outputs for s in self.trace if s.name == step and dict(s.args)["name"] == name]
        if not made:
            raise DecisionError(f"the decision `{name}` is about a loop outside of this version")
        return LoopRV(made[-1][0]) if made[-1] else None

    def _may_move(self, block: BlockRV, loop: Var) -> bool:
        try:
            _location.compute_at(self.func, self._name(block), loop)
        except ScheduleError:
            return False
        return True
