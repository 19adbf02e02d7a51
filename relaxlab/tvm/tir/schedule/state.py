"""The state of a schedule of a module: a schedule of the core for each loop function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Any, Self, TypeAlias

from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.graph import GlobalVar
from relaxlab.ir.loops import IS_SCHEDULED, Block, Buffer, For, PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.node import replace
from relaxlab.schedule import schedule as core
from relaxlab.schedule import state
from relaxlab.schedule.decisions import Sampled
from relaxlab.schedule.layout import region_number
from relaxlab.tvm.tir.schedule.handles import BlockRV, Location, LoopRV
from relaxlab.tvm.tir.schedule.trace import Trace

BlockLike: TypeAlias = BlockRV | str
Handles: TypeAlias = Any
"""A handle, or a list or tuple of handles; whatever is no handle stands for itself."""


class ModuleSchedule:
    """The loop functions of a module being scheduled, without the primitives.

    `mod` is the module as it is now, `trace` the steps so far. `seed` decides what the sampling
    primitives draw.
    """

    def __init__(
        self,
        mod: Module | PrimFunc,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = Module.of({name_of(mod): mod})
        Module.require(mod)
        self._module = mod
        self._random = Random(seed)
        self._seed = self._random.getrandbits(31) if seed is None or seed < 0 else seed
        self._schedules = {
            name: core.Schedule(mod, name, decider=Sampled(self._seed))
            for name in mod.loop_functions()
        }
        names = [name for name in self._schedules if name == "main" or len(self._schedules) == 1]
        self.func_working_on = GlobalVar(names[0]) if names else None

    @classmethod
    def around(cls, sch: core.Schedule, name: str | None = None) -> Self:
        """The schedule of a module whose steps are made on `sch`, one of the core's; its function
        has another name there if one is given."""
        own = name or sch.name
        made = cls(Module.of({own: sch.func}))
        made._schedules[own] = sch
        return made

    @property
    def mod(self) -> Module:
        """The module with the functions as they are now."""
        return self._module.with_functions(
            {n: _unmarked(s.func, self._module[n]) for n, s in self._schedules.items() if s.trace}
        )

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return Trace({name: tuple(s.trace) for name, s in self._schedules.items()})

    @property
    def state(self) -> Self:
        """The schedule itself, which has a module `mod` and finds statements by `get_sref`."""
        return self

    @cached_property
    def id_(self) -> int:
        """A number for the steps' decisions."""
        return self._seed

    def work_on(self, func_name: str) -> None:
        """Look for blocks in this function from now on."""
        self.of(func_name)
        self.func_working_on = GlobalVar(func_name)

    def copy(self) -> Self:
        """A schedule in the same state, whose steps are its own; handles are valid in both."""
        new = object.__new__(type(self))
        new.__dict__ |= self.__dict__
        new._schedules = {name: s.copy() for name, s in self._schedules.items()}
        return new

    def seed(self, seed: int) -> None:
        """Draw by another seed from now on."""
        self._seed, self._random = seed, Random(seed)
        for sch in self._schedules.values():
            sch.decider = Sampled(seed)

    def fork_seed(self) -> int:
        """A seed for another schedule."""
        return self._random.getrandbits(31)

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the module as it is now, and the steps so far."""
        print(self.mod.script())
        self.trace.show()

    def get(self, rand_var_or_sref: Any) -> Any:
        """The block or loop that a handle stands for now; a number or a location that was drawn is
        itself."""
        match rand_var_or_sref:
            case LoopRV(_, Location() as location):
                return location
            case BlockRV(func, state.BlockRV() as handle) | LoopRV(func, state.LoopRV() as handle):
                return self.of(func).get(handle)
            case IntImm(value):
                return value
            case _:
                return rand_var_or_sref

    def get_sref(self, rand_var_or_stmt: Any) -> Any:
        """The statement that a handle stands for now."""
        return self.get(rand_var_or_stmt)

    def remove_rv(self, rand_var: BlockRV | LoopRV) -> None:
        """Do nothing: a handle that nobody uses costs nothing."""

    def of(self, func_name: str | None) -> core.Schedule:
        """The core's schedule of a function; None: that which is worked on, `main`, or the only
        one. Raises KeyError where there is none."""
        if func_name is None:
            if self.func_working_on is None:
                raise ValueError(
                    "the schedule has no function main and not just one: give the name of a "
                    f"function, or call work_on; there are: {', '.join(self._schedules) or 'none'}"
                )
            func_name = self.func_working_on.name
        if func_name not in self._schedules:
            known = ", ".join(self._schedules) or "none"
            raise KeyError(f"the schedule has no loop function {func_name!r}; it has: {known}")
        return self._schedules[func_name]

    def block(self, block: BlockLike) -> tuple[core.Schedule, state.BlockRV]:
        """The core's schedule and handle of a block, given by a handle or its name."""
        if isinstance(block, str):
            sch = self.of(None)
            return sch, sch.get_block(block)
        if not isinstance(block, BlockRV):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"expected a block of the schedule or its name, got {block!r}")
        return self.of(block.func), block.handle

    def handle(self, rv: BlockRV | LoopRV) -> tuple[core.Schedule, Any]:
        """The core's schedule and handle of a block or loop."""
        if not isinstance(rv, BlockRV | LoopRV):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"expected a block or a loop of the schedule, got {rv!r}")
        return self.of(rv.func), rv.handle

    def _name(self, sch: core.Schedule) -> str:
        """The name in the module of the function that one of the core's schedules is of."""
        return next(name for name, own in self._schedules.items() if own is sch)

    def given(self, sch: core.Schedule, value: Handles) -> Handles:
        """A result of the core with handles of this schedule."""
        match value:
            case state.BlockRV():
                return BlockRV(self._name(sch), value)
            case state.LoopRV():
                return LoopRV(self._name(sch), value)
            case list():
                return [self.given(sch, v) for v in value]
            case _:
                return value

    def region(
        self, sch: core.Schedule, block: state.BlockRV, kind: str, buffer: int | str | Buffer
    ) -> int:
        """The number of a region that the block reads or writes, given as a number or a buffer."""
        if isinstance(buffer, int):
            return buffer
        found: Block | For = sch.get(block)
        assert isinstance(found, Block)
        regions = found.reads if kind == "read" else found.writes
        for i, r in enumerate(regions):
            if r.buffer is buffer or r.buffer.name == buffer:
                return i
        return region_number(found, buffer)[1]


def numbers(values: Sequence[Any]) -> list[Any]:
    """Factors as the core takes them: numbers where they are constants."""
    return [v.value if isinstance(v, IntImm) else v for v in values]


def expression(value: Any) -> PrimExpr:
    """A number or an expression as an expression."""
    return IntImm(value) if isinstance(value, int) else value


def _unmarked(func: PrimFunc, before: Any) -> PrimFunc:
    """The function without the notes that the core keeps in its attributes."""
    notes = {name: before.attrs.get(name) for name in (IS_SCHEDULED, "layout_rewrites")}
    return replace(func, attrs=func.attrs.with_(**notes))
