"""`Schedule`: TVM's scheduling primitives over an immutable loop function.

Each primitive is a pure function in its own file; a schedule keeps the current function, the
handles to its blocks and loops, and the trace of what was done. A refused primitive raises
`ScheduleError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import brief, counted, kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.graph import GlobalVar
from relaxlab.ir.loops import IS_SCHEDULED, Block, Buffer, For, PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule import annotate as _annotate
from relaxlab.schedule import blockize as _blockize
from relaxlab.schedule import cache as _cache
from relaxlab.schedule import compute_location as _location
from relaxlab.schedule import for_kind as _kind
from relaxlab.schedule import inline as _inline
from relaxlab.schedule import layout as _layout
from relaxlab.schedule import pad_einsum as _pad_einsum
from relaxlab.schedule import reduction as _reduction
from relaxlab.schedule import rfactor as _rfactor
from relaxlab.schedule import scope, tree
from relaxlab.schedule import split_fuse_reorder as _loops
from relaxlab.schedule import tensorize as _tensorize
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import depends_on_order
from relaxlab.schedule.trace import Instruction, Ref, Value, from_json, to_json
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


Factor = PrimExpr | int | None


def marked_as_scheduled(func: PrimFunc) -> PrimFunc:
    """The function with the attribute `tir.is_scheduled`."""
    if func.attrs.get(IS_SCHEDULED):
        return func
    return replace(func, attrs=func.attrs.with_(**{IS_SCHEDULED: True}))


class Schedule(Displayed, Brief):
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

    def __repr__(self) -> str:
        steps = [step.name for step in self.trace if not step.name.startswith("get_")]
        listed = f": {cut(', '.join(steps), 200)}" if steps else ""
        return f"Schedule({counted(len(steps), 'step')}{listed})"

    def __init__(self, program: PrimFunc | Module, name: str | None = None) -> None:
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

    def get_block(self, name: str) -> BlockRV:
        """The block of that name."""
        return self._step(
            "get_block", {"name": name}, lambda: tree.find_block(self.func, name).block
        )

    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """The loops around the block, outermost first."""
        return self._step(
            "get_loops", {"block": block}, lambda: [s.loop_var for s in self._place(block).loops]
        )

    def get_child_blocks(self, block: BlockRV) -> list[BlockRV]:
        """The blocks directly inside the block, in order."""
        return self._step(
            "get_child_blocks",
            {"block": block},
            lambda: [r.block for r in tree.realizes_under(self._place(block).block.body)],
        )

    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks of the same scope that write what the block reads."""

        def run() -> list[Block]:
            place = self._place(block)
            return [r.block for r in scope.producers_of(place.block, place.scope)]

        return self._step("get_producers", {"block": block}, run)

    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks of the same scope that read what the block writes."""

        def run() -> list[Block]:
            place = self._place(block)
            return [r.block for r in scope.consumers_of(place.block, place.scope)]

        return self._step("get_consumers", {"block": block}, run)

    def split(
        self, loop: LoopRV, factors: Sequence[Factor] | None = None, *, factor: Factor = None
    ) -> list[LoopRV]:
        """Split a loop into a nest; one factor may be None. A predicate guards the remainder.

        A single `factor` is refused with a message: it does not say which loop it is for.
        """
        given = factor if factors is None else factors
        listed = tuple(given) if isinstance(given, Sequence) else given

        def run() -> list[Var]:
            self.func, new = _loops.split(self.func, self._var(loop), given)
            return list(new)

        return self._step("split", {"loop": loop, "factors": listed}, run)

    def fuse(self, *loops: LoopRV) -> LoopRV:
        """Make one loop of perfectly nested ones."""

        def run() -> Var:
            self.func, new = _loops.fuse(self.func, [self._var(v) for v in loops])
            return new

        return self._step("fuse", {"loops": loops}, run)

    def reorder(self, *loops: LoopRV) -> None:
        """Permute the loops of a nest into the order given."""
        self._edit("reorder", {"loops": loops}, _loops.reorder, [self._var(v) for v in loops])

    def add_unit_loop(self, target: BlockRV | LoopRV) -> LoopRV:
        """Put a loop of extent 1 around a block or loop."""

        def run() -> Var:
            self.func, new = _loops.add_unit_loop(self.func, self._target(target))
            return new

        return self._step("add_unit_loop", {"target": target}, run)

    def parallel(self, loop: LoopRV) -> None:
        """Run the loop's iterations on several threads.

        Where data says what a block writes, no proof can tell that iterations write elements of
        their own; the block's author may state it: `T.sblock_attr({"independent": True})`.
        `relaxlab.check` finds races when it runs the program.
        """
        self._edit("parallel", {"loop": loop}, _kind.parallel, self._var(loop))

    def vectorize(self, loop: LoopRV) -> None:
        """Run the loop's iterations as vector lanes; the extent must be a constant."""
        self._edit("vectorize", {"loop": loop}, _kind.vectorize, self._var(loop))

    def unroll(self, loop: LoopRV) -> None:
        """Unroll the loop."""
        self._edit("unroll", {"loop": loop}, _kind.unroll, self._var(loop))

    def bind(self, loop: LoopRV, thread: str) -> None:
        """Bind the loop to a GPU thread axis."""
        self._edit("bind", {"loop": loop, "thread": thread}, _kind.bind, self._var(loop), thread)

    def compute_inline(self, block: BlockRV) -> None:
        """Compute the block's value at each place that reads it."""
        self._edit("compute_inline", {"block": block}, _inline.compute_inline, self._name(block))

    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Apply the block where its producer computes each value."""
        self._edit(
            "reverse_compute_inline", {"block": block}, _inline.reverse_compute_inline,
            self._name(block),
        )  # fmt: skip

    def compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a producer under a consumer's loop, computing only what one iteration needs."""
        self._move("compute_at", _location.compute_at, block, loop, preserve_unit_loops, index)

    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under a producer's loop, consuming what one iteration makes."""
        fn = _location.reverse_compute_at
        self._move("reverse_compute_at", fn, block, loop, preserve_unit_loops, index)

    def _move(
        self, name: str, fn: Callable[..., PrimFunc], block: BlockRV, loop: LoopRV,
        preserve_unit_loops: bool, index: int,
    ) -> None:  # fmt: skip
        options = {"preserve_unit_loops": preserve_unit_loops, "index": index}
        args = {"block": block, "loop": loop, **options}

        def run() -> None:
            self.func = fn(self.func, self._name(block), self._var(loop), **options)

        self._step(name, args, run)

    def cache_read(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str,
        consumer_blocks: Sequence[BlockRV] = (),
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block reads; returns the copying block."""
        args = {
            "block": block, "read_buffer_index": read_buffer_index,
            "storage_scope": storage_scope, "consumer_blocks": tuple(consumer_blocks),
        }  # fmt: skip
        return self._cached("cache_read", args, _cache.cache_read)

    def cache_write(
        self, block: BlockRV, write_buffer_index: int, storage_scope: str,
        consumer_blocks: Sequence[BlockRV] = (),
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block writes; returns the copying block."""
        args = {
            "block": block, "write_buffer_index": write_buffer_index,
            "storage_scope": storage_scope, "consumer_blocks": tuple(consumer_blocks),
        }  # fmt: skip
        return self._cached("cache_write", args, _cache.cache_write)

    def _cached(self, name: str, args: dict[str, Any], fn: Callable[..., Any]) -> BlockRV:
        block, index, scope, consumers = args.values()

        def run() -> Block:
            names = [self._name(c) for c in consumers]
            self.func, copy = fn(self.func, self._name(block), index, scope, names)
            return tree.find_block(self.func, copy).block

        return self._step(name, args, run)

    def set_scope(self, block: BlockRV, buffer_index: int, storage_scope: str) -> None:
        """Change the scope of an intermediate buffer that the block writes."""
        args = {"block": block, "buffer_index": buffer_index, "storage_scope": storage_scope}
        self._edit(
            "set_scope", args, _cache.set_scope, self._name(block), buffer_index, storage_scope
        )

    def storage_align(
        self, block: BlockRV, buffer_index: int, axis: int, factor: int, offset: int
    ) -> None:
        """Ask for an aligned stride of a buffer that the block writes."""
        args = {
            "block": block, "buffer_index": buffer_index, "axis": axis, "factor": factor,
            "offset": offset,
        }  # fmt: skip
        self._edit(
            "storage_align", args, _annotate.storage_align, self._name(block), buffer_index, axis,
            factor, offset,
        )  # fmt: skip

    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Initialise before the loop; returns the initialising block, `block` is the update."""

        def run() -> Block:
            name = self._name(block)
            self.func, init, update = _reduction.decompose_reduction(
                self.func, name, self._var(loop)
            )
            self._rename(name, update)
            return tree.find_block(self.func, init).block

        return self._step("decompose_reduction", {"block": block, "loop": loop}, run)

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Reduce per iteration of a reduce loop, then reduce the results; returns the first."""

        def run() -> Block:
            self.func, name = _rfactor.rfactor(self.func, self._var(loop), factor_axis)
            return tree.find_block(self.func, name).block

        partial = self._step("rfactor", {"loop": loop, "factor_axis": factor_axis}, run)
        if depends_on_order(self._place(partial).block):
            self.trace[-1] = replace(self.trace[-1], remark="accumulates in another order")
        return partial

    def transform_layout(
        self,
        block: BlockRV,
        buffer: tuple[str, int] | str | Buffer,
        index_map: _layout.MapLike,
        pad_value: float | PrimExpr | None = None,
    ) -> None:
        """Store a buffer in another order; `buffer` is ("read" | "write", index), or a buffer of
        the block or its name. `index_map` is an IndexMap or a function of the old indices;
        `pad_value` has the buffer's dtype, or is a number that it can hold.

        A parameter of a function that is compiled by itself is then passed in the new layout.
        """
        found = self._place(block).block
        kind, index = _layout.region_number(found, buffer)
        target = _cache.buffer_of(found, kind, index, "transform_layout")
        imap = _layout.as_index_map(index_map, target.ndim)
        pad = None if pad_value is None else _layout.padding_of(pad_value, target, found)
        args = {"block": block, "buffer": (kind, index), "index_map": imap, "pad_value": pad}

        def run() -> None:
            self._require_no_callers(target)
            self.func = _layout.transform_layout(self.func, found.name, kind, index, imap, pad)

        self._step("transform_layout", args, run)

    def _require_no_callers(self, buffer: Buffer) -> None:
        """Raise ScheduleError if the buffer is a parameter that the module's functions pass."""
        if not scope.is_output(buffer, self.func):
            return
        me = GlobalVar(self.name)
        for caller, func in self._module.graph_functions().items():
            if any(node == me for node in walk(func)):
                raise ScheduleError(
                    "transform_layout", f"parameter {buffer.name}",
                    f"no function of the module passes {buffer.name} in the layout it has now; "
                    f"`{caller}` calls `{self.name}`",
                    suggestion="cache_read or cache_write it first, and transform the copy",
                    about=(buffer,),
                )  # fmt: skip

    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> None:
        """Round the extents of the block's axes up to multiples of `padding`, one per axis."""
        args = {"block": block, "padding": tuple(padding)}
        self._edit("pad_einsum", args, _pad_einsum.pad_einsum, self._name(block), padding)

    def blockize(self, loop: LoopRV) -> BlockRV:
        """Make a block of the loop and what is inside it."""

        def run() -> Block:
            self.func, name = _blockize.blockize(self.func, self._var(loop))
            return tree.find_block(self.func, name).block

        return self._step("blockize", {"loop": loop}, run)

    def tensorize(self, target: BlockRV | LoopRV, tensor_intrin: str) -> None:
        """Replace a block, or what is inside a loop, by a registered tensor intrinsic."""
        args = {"target": target, "tensor_intrin": tensor_intrin}
        fn = _tensorize.tensorize
        self._edit("tensorize", args, fn, self._target(target), tensor_intrin)

    def annotate(self, target: BlockRV | LoopRV, key: str, value: Any) -> None:
        """Set an annotation of a block or loop."""
        args = {"target": target, "key": key, "value": value}
        self._edit("annotate", args, _annotate.annotate, self._target(target), key, value)

    def unannotate(self, target: BlockRV | LoopRV, key: str) -> None:
        """Remove an annotation of a block or loop."""
        args = {"target": target, "key": key}
        self._edit("unannotate", args, _annotate.annotate, self._target(target), key, None)

    def show(self) -> None:
        """Print the steps so far."""
        print("\n".join(f"{i:3}  {step}" for i, step in enumerate(self.trace)))

    def trace_json(self) -> str:
        """The trace as JSON text; see `apply_trace`."""
        return to_json(self.trace)

    @brief
    def _step(self, name: str, args: dict[str, Any], run: Callable[[], Any]) -> Any:
        """Run one primitive, record it and give handles to what it returned."""
        before = self.func
        changes = not name.startswith("get_")
        if changes:
            before_step(before)
        values = tuple((k, _recorded(v)) for k, v in args.items())
        try:
            result = run()
        except ScheduleError as error:
            explained = self._explained(error)
            self.refused = Refused(Instruction(name, values), explained)
            raise explained from None
        self.refused = None
        handles = self._handles(result)
        names = tuple(h.name for h in handles)
        if self.func is not before:
            self.func = marked_as_scheduled(self.func)
            self._credit(len(self.trace))
        self.trace.append(Instruction(name, values, names))
        if changes:
            after_step(str(self.trace[-1]))
        if isinstance(result, list):
            return handles
        return handles[0] if handles else None

    def _edit(self, name: str, args: dict[str, Any], fn: Callable[..., PrimFunc], *given: Any):
        def run() -> None:
            self.func = fn(self.func, *given)

        self._step(name, args, run)

    def _handles(self, result: Any) -> list[Any]:
        items = cast("list[Any]", result if isinstance(result, list) else [result])
        handles: list[BlockRV | LoopRV] = []
        for item in items:
            if isinstance(item, Block):
                handle = BlockRV(f"b{len(self._blocks)}")
                self._blocks[handle.name] = item.name
                handles.append(handle)
            elif isinstance(item, Var):
                loop = LoopRV(f"l{len(self._loops)}")
                self._loops[loop.name] = item
                handles.append(loop)
        return handles

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
                return error.with_cause(f"step {step}: {self.trace[step]}")
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
        asked = "name one" if name is None else f"the module has no loop function {name!r}"
        raise KeyError(f"{asked}; its loop functions are: {', '.join(funcs) or 'none'}")
    return program, name, funcs[name]


PRIMITIVES = frozenset(
    name for name, fn in vars(Schedule).items()
    if callable(fn) and not name.startswith("_") and name not in ("get", "show", "trace_json")
)  # fmt: skip


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
        case tuple() | list():
            return tuple(_recorded(v) for v in value)  # type: ignore[reportUnknownVariableType]
        case _:
            return value


def apply_trace(func: PrimFunc, trace: Sequence[Instruction] | str) -> Schedule:
    """Replay a trace (or its JSON text) on a function.

    Raises ScheduleError where a step is refused, ValueError where the trace is malformed.
    """
    if isinstance(trace, str):
        symbols = {v.name: v for v in symbols_in(tuple(b.shape for b in func.buffers))}
        symbols |= {p.name: p for p in func.params if isinstance(p, Var)}
        trace = from_json(trace, symbols)
    *_, sch = replay(func, trace)
    return sch


def replay(func: PrimFunc, trace: Sequence[Instruction]) -> Iterator[Schedule]:
    """The schedule before the first step and after each of the trace, always the same object.

    Raises what `apply_trace` raises.
    """
    sch = Schedule(func)
    known: dict[str, BlockRV | LoopRV] = {}

    def value(v: Value) -> Any:
        if isinstance(v, Ref):
            if v.name not in known:
                raise ValueError(f"no earlier step of the trace returned {v.name!r}")
            return known[v.name]
        return [value(x) for x in v] if isinstance(v, tuple) else v  # type: ignore

    yield sch
    for number, step in enumerate(trace):
        if step.name not in PRIMITIVES:
            raise ValueError(f"step {number}: {step.name!r} is not a scheduling primitive")
        args = {k: value(v) for k, v in step.args}
        positional = args.pop("loops", ())
        try:
            result = getattr(sch, step.name)(*positional, **args)
        except (TypeError, AttributeError) as e:
            raise ValueError(f"step {number}: {step}: wrong arguments: {e}") from e
        results = cast("list[Any]", result if isinstance(result, list) else [result])
        known |= dict(zip(step.outputs, results, strict=False))
        yield sch
