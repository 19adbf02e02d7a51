"""The state of a schedule: its function as it is now, handles to blocks and loops, the trace.

`Schedule` adds the primitives, each of which is a step on this state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, TypeVar, cast

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.errors import brief, counted, kind_of
from relaxlab.ir.expr import Max, PrimExpr, Var
from relaxlab.ir.loops import IS_SCHEDULED, Block, Buffer, For, IfThenElse, PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.schedule import tree
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.decisions import (
    Decider,
    Decision,
    DecisionError,
    enclosing,
    key_of,
    require_candidate,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.primitive import PRIMITIVES, leaves_unchanged
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.trace import (
    Instruction,
    Ref,
    Value,
    names_in,
    to_json,
    with_symbols,
)
from relaxlab.script.printer import print_module
from relaxlab.tracing.limit import after_step, before_step


@dataclass(frozen=True, slots=True)
class BlockRV:
    """A handle to a block of one schedule."""

    name: str


@dataclass(frozen=True, slots=True)
class LoopRV:
    """A handle to a loop of one schedule."""

    name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A step that was tried and refused."""

    step: Instruction
    error: ScheduleError


def marked_as_scheduled(func: PrimFunc) -> PrimFunc:
    """The function with the attribute `tir.is_scheduled`."""
    if func.attrs.get(IS_SCHEDULED):
        return func
    return replace(func, attrs=func.attrs.with_(**{IS_SCHEDULED: True}))


PROGRAM_NAMES = (
    "I", "Module", "R", "Schedule", "T", "bound", "expr", "max", "min", "partial", "sch",
    "schedule",
)  # fmt: skip
"""Names that the programs of `Schedule.as_python` use."""


Fact: TypeAlias = tuple[PrimExpr, int]
"""A size and a number that it is at most, in the version of a function that is being scheduled."""


Made = TypeVar("Made")


@methods_name_arguments
class ScheduleState(Brief):
    """A loop function being scheduled, without the primitives: `func` is what it is now, `original`
    what it was, `trace` the steps between, `refused` the step tried last if it was refused.

    `decisions` are those made so far, by key, in nested schedules as well; `decider` says which
    (None: the defaults). A nested schedule has those of the schedules that it is nested in.
    `within`: the names of the forms of the function that it is nested in, outermost first.
    """

    def __repr__(self) -> str:
        steps = [step.name for step in self.trace if not leaves_unchanged(step.name)]
        listed = f": {cut(', '.join(steps), 200)}" if steps else ""
        return f"Schedule({counted(len(steps), 'step')}{listed})"

    def __init__(
        self, program: PrimFunc | Module, name: str | None = None, *, decider: Decider | None = None
    ) -> None:
        """Raises TypeError for what is neither, KeyError for a module without such a function."""
        module, name, func = _chosen(program, name)
        self._module, self.name = module, name
        self.original = func
        self.func: PrimFunc = tree.normalized(func)
        self.trace: list[Instruction] = []
        self.refused: Refused | None = None
        self._blocks: dict[str, str] = {}
        self._loops: dict[str, Var] = {}
        self._made_by: dict[Var | Buffer | str, int] = {}
        self._present = _cursor_targets(self.func)
        self._facts: tuple[Fact, ...] = ()
        self.decider = decider
        self.decisions: dict[str, Decision] = {}
        self.within: tuple[str, ...] = ()

    @property
    def mod(self) -> Module:
        """The module with the function as it is now, marked as scheduled. Its `local` and `shared`
        buffers have the size that an iteration needs: they lie on the stack of a thread, or in the
        little memory of a block of threads."""
        func = marked_as_scheduled(compact_buffers(self.func))
        return self._module.with_functions({self.name: func})

    def get(self, rv: BlockRV | LoopRV) -> Block | For:
        """The block or loop that a handle stands for now."""
        if isinstance(rv, BlockRV):
            return self._place(rv).block
        return tree.find_loop(self.func, self._var(rv)).loop

    def show(self) -> None:
        """Print the steps so far."""
        for i, step in enumerate(self.trace):
            print(f"{i:3}  " + str(step).replace("\n", "\n     "))

    def trace_json(self) -> str:
        """The trace as JSON text; see `apply_trace`."""
        return to_json(self.trace)

    def as_python(self) -> str:
        """A Python program that writes down the function as it was and makes the steps."""
        symbols = dict(_symbols(self.original))
        taken = {*PROGRAM_NAMES, *names_in(self.trace)}
        names: dict[Var, str] = {}
        for symbol in symbols:
            name = symbol.name
            while name in taken:
                name += "_"
            names[symbol] = name
            taken.add(name)
        renamed = {v: Var(name, v.dtype) for v, name in names.items() if name != v.name}
        steps = "\n".join(str(with_symbols(step, renamed)) for step in self.trace)
        lines = [print_module(Module.of({self.name: self.original}))]
        lines += ["from relaxlab.schedule import Schedule"]
        if re.search(r"\b(min|max)\(", steps):  # of symbols, in sizes and factors
            lines += [
                "from functools import partial",
                "from relaxlab.ir import expr",
                "min, max = partial(expr.binary, expr.Min), partial(expr.binary, expr.Max)",
            ]
        lines += ["", f"sch = Schedule(Module, {self.name!r})"]
        lines += [
            f"{name} = sch.func.{symbols[v]}"
            for v, name in names.items()
            if re.search(rf"\b{name}\b", steps)
        ]
        return "\n".join([*lines, steps, ""])

    def copy(self) -> Self:
        """A schedule in the same state, whose steps are its own; handles are valid in both."""
        new = object.__new__(type(self))
        new._become(self)
        return new

    __copy__ = copy

    def _become(self, other: ScheduleState) -> None:
        """Take over the state of a schedule that began as this one."""
        self.__dict__ |= other.__dict__
        self.trace = list(other.trace)
        self._blocks, self._loops = dict(other._blocks), dict(other._loops)
        self._made_by = dict(other._made_by)
        self.decisions = dict(other.decisions)

    @brief
    def _decided(
        self, step: str, args: dict[str, Any], candidates: tuple[Any, ...], decision: Any,
        loop_of: Callable[[Any], Var | None] = lambda _: None,
    ) -> Any:  # fmt: skip
        """The value of a decision: the one made already, `decision`, the decider's or the default;
        recorded as a step of that name, which returns a handle to the loop of the value. Raises
        DecisionError where it is no candidate."""
        default, name = args["default"], args["name"]
        for around in enclosing(self.within):
            known = self.decisions.get(key_of(around, name))
            if known is not None and (known.candidates, known.default) == (candidates, default):
                return known.value
            if known is not None:
                raise DecisionError(
                    f"the decision `{known.key}` was made among other candidates, or with another "
                    f"default: {known.default} of {', '.join(map(str, known.candidates))}"
                )
        key = key_of(self.within, name)
        require_candidate(key, default, candidates, "default")
        value = decision
        if value is None and self.decider is not None:
            value = self.decider(key, candidates)
        value = default if value is None else value
        require_candidate(key, value, candidates)

        def run() -> LoopRV | None:
            self.decisions[key] = Decision(key, candidates, default, value)
            loop = loop_of(value)
            return None if loop is None else self._new_loop(loop)

        self._step(step, {**args, "decision": value}, run)
        return value

    def _is_at_most(self, size: PrimExpr, most: int) -> bool:
        """True if a size is at most a number: by declared bounds, or in this version."""
        an = shape_analyzer(self.func)
        known = an.upper_bound(size)
        if known is not None and known <= most:
            return True
        facts = self._facts
        return any(n <= most and size in _parts_of_max(larger) for larger, n in facts)

    @brief
    def _step(self, name: str, args: dict[str, Any], run: Callable[[], Made]) -> Made:
        """Run a primitive, which returns handles or nothing, and record it."""
        before, row = self.func, PRIMITIVES[name]
        # Nested steps are counted one by one, as they are made before the one that holds them.
        changes = not row.looks and not row.nests
        if changes:
            before_step(self)
        values = tuple((k, _recorded(v)) for k, v in args.items())
        try:
            if not row.looks:
                self.require_one_version(name)
            if row.by_axes:
                self._require_own_axes(name, args["block"])
            result = run()
        except ScheduleError as error:
            explained = self._explained(error)
            self.refused = Refused(Instruction(name, values), explained)
            raise explained from None
        self.refused = None
        made: Any = result
        handles = cast("list[Any]", made if isinstance(made, list) else [made])
        names = tuple(h.name for h in handles if h is not None)
        if self.func is not before:
            self.func = marked_as_scheduled(self.func)
            self._credit(len(self.trace))
        self.trace.append(Instruction(name, values, names))
        if changes:
            after_step(str(self.trace[-1]))
        return result

    def require_one_version(self, primitive: str) -> None:
        """Raise ScheduleError if the function has versions, in each of which there is a block for
        any name."""
        if isinstance(self.func.body, IfThenElse):
            raise ScheduleError(
                primitive, f"function {self.name!r}", "the function has one version",
                suggestion="make it a step of the schedules that guarded_versions takes",
            )  # fmt: skip

    def _require_own_axes(self, primitive: str, block: BlockRV) -> None:
        """Raise ScheduleError if a block mentions loops around it, as after `compact_buffers`: the
        region that it touches is then not one of its axes; or if some blocks are in one that states
        no region, whose accesses others do not see."""
        place = self._place(block)
        _, *blocks = tree.all_blocks(self.func)
        silent = [b for b in blocks if not (b.iter_vars or b.reads or b.writes)]
        if silent:
            raise ScheduleError(
                primitive, tree.describe_block(place.block),
                f"every block states what it touches; block {silent[0].name!r} does not",
                suggestion=f"{primitive} before compact_buffers", about=(silent[0].name,),
            )  # fmt: skip
        around = {s.loop_var for s in place.path if isinstance(s, For)}
        inside = around & tree.vars_in(place.block)
        if inside:
            names = ", ".join(sorted(v.name for v in inside))
            raise ScheduleError(
                primitive, tree.describe_block(place.block),
                f"its axes alone say what the block touches; it mentions {names}",
                suggestion=f"{primitive} before compact_buffers", about=(*inside,),
            )  # fmt: skip

    def _new_block(self, name: str) -> BlockRV:
        """A handle to a block."""
        handle = BlockRV(f"b{len(self._blocks)}")
        self._blocks[handle.name] = name
        return handle

    def _new_loop(self, var: Var) -> LoopRV:
        """A handle to a loop."""
        handle = LoopRV(f"l{len(self._loops)}")
        self._loops[handle.name] = var
        return handle

    def _credit(self, step: int) -> None:
        """Remember which step made or removed each loop, block and buffer."""
        present = _cursor_targets(self.func)
        for thing in self._present ^ present:
            self._made_by[thing] = step
        self._present = present

    def _explained(self, error: ScheduleError) -> ScheduleError:
        for thing in error.refusal.about:
            step = self._made_by.get(thing)
            if step is not None:
                # A nested schedule is printed as its steps and, last, the call that takes them.
                return error.with_cause(f"step {step}: {str(self.trace[step]).splitlines()[-1]}")
        return error

    def _rename(self, old: str, new: str) -> None:
        for handle, name in self._blocks.items():
            if name == old:
                self._blocks[handle] = new

    def _name(self, rv: BlockRV) -> str:
        if not isinstance(rv, BlockRV) or rv.name not in self._blocks:  # pyright: ignore
            raise TypeError(f"{rv!r} is not a block of this schedule; use get_block(name)")
        return self._blocks[rv.name]

    def _var(self, rv: LoopRV) -> Var:
        if not isinstance(rv, LoopRV) or rv.name not in self._loops:  # pyright: ignore
            raise TypeError(f"{rv!r} is not a loop of this schedule; use get_loops(block)")
        return self._loops[rv.name]

    def _target(self, rv: BlockRV | LoopRV) -> Var | str:
        return self._name(rv) if isinstance(rv, BlockRV) else self._var(rv)

    def _place(self, rv: BlockRV) -> tree.BlockPlace:
        return tree.find_block(self.func, self._name(rv))


def _parts_of_max(e: PrimExpr) -> tuple[PrimExpr, ...]:
    """The expression, and those that it is the largest of."""
    return (e, *_parts_of_max(e.a), *_parts_of_max(e.b)) if isinstance(e, Max) else (e,)


NO_LOOP_FUNCTIONS = (
    "the module has no loop functions yet: its operators become loop functions in the pipeline; "
    "look at relaxlab.trace(mod).result"
)


def _chosen(program: PrimFunc | Module, name: str | None) -> tuple[Module, str, PrimFunc]:
    """The loop function to schedule, its name, and the module it is in."""
    if isinstance(program, PrimFunc):
        name = name or name_of(program)
        return Module.of({name: program}), name, program
    if not isinstance(program, Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected a loop function or a module, got {kind_of(program)}")
    funcs = program.loop_functions()
    if name is None and len(funcs) == 1:
        name = next(iter(funcs))
    if name is None or name not in funcs:
        if not funcs:
            raise KeyError(NO_LOOP_FUNCTIONS)
        asked = "name one" if name is None else f"the module has no loop function {name!r}"
        raise KeyError(f"{asked}; its loop functions are: {', '.join(funcs)}")
    return program, name, funcs[name]


def _symbols(func: PrimFunc) -> Iterator[tuple[Var, str]]:
    """Yield each symbol and its place in the function, as Python writes it."""
    seen: set[Var] = set()
    places = [
        (f"buffers[{i}].shape[{k}]", dim)
        for i, buffer in enumerate(func.buffers)
        for k, dim in enumerate(buffer.shape)
    ]
    places += [(f"params[{i}]", p) for i, p in enumerate(func.params) if isinstance(p, Var)]
    for place, symbol in places:
        if isinstance(symbol, Var) and symbol not in seen:
            seen.add(symbol)
            yield symbol, place


def _cursor_targets(func: PrimFunc) -> set[Var | Buffer | str]:
    """Return the loop variables, block names and intermediate buffers of a function, which cursors
    refer to."""
    found: set[Var | Buffer | str] = set()
    for s in tree.walk_stmts(func.body):
        if isinstance(s, For):
            found.add(s.loop_var)
        elif isinstance(s, Block):
            found |= {s.name, *s.alloc_buffers}
    return found


def _recorded(value: Any) -> Value:
    match value:
        case BlockRV(name) | LoopRV(name):
            return Ref(name)
        case tuple() | list() | range():
            return tuple(_recorded(v) for v in value)  # type: ignore[reportUnknownVariableType]
        case _:
            return value
