"""Lower the recorded functions of a batched program to the recording program: integers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relaxlab.analysis.fit_operator_call import claimed_condition
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir import recording as rec
from relaxlab.ir.data import data_types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, rewrite
from relaxlab.passes.add_ghosts import add_ghosts
from relaxlab.passes.annotate_recording import GHOSTS, MEMOIZE, SIDE_BY_SIDE
from relaxlab.passes.batch_blocks import (
    BATCHED,
    Operand,
    arenas_of,
    block_function,
    flat_types,
    kind_at,
    nested,
    signature_of,
    type_at,
)
from relaxlab.passes.bindings import leaf_paths, leaf_type
from relaxlab.passes.fork_branches import fork_branches
from relaxlab.passes.host_values import (
    HostValues,
    Kind,
    Kinds,
    host_values,
    is_block,
    is_on_data,
    row_index,
    scalar_value,
)
from relaxlab.passes.limit_rows import MOST_ROWS
from relaxlab.passes.make_blocks import ends_phase, entry_of, is_view, refuse
from relaxlab.passes.memoize_blocks import memoize_blocks
from relaxlab.passes.order_steps import order_steps
from relaxlab.passes.shared_values import SharedValues, Source, shared_values
from relaxlab.passes.split_phases import PHASE
from relaxlab.passes.static_depth import DYNAMIC, StaticDepths, static_depths


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor, by its slot."""

    number: expr.PrimExpr


Leaf: TypeAlias = "expr.PrimExpr | rec.InputArray | Slot"
"""A host scalar or a value of a data type, an input array, or a tensor."""
ANY_ROWS = 1 << 40
"""More rows than a batch has."""
FIELD_KINDS = {Kind.HOST: "scalar", Kind.TENSOR: "slot", Kind.DATA: "data"}
"""The kind of a field in the recording program."""
Value: TypeAlias = "Leaf | tuple[Value, ...]"


def lower_recording(mod: Module) -> rec.RecordingProgram:
    """The recording program of a module that went through `batch_blocks`.

    Raises DiagnosticError (E0509) for values that have no form in it.
    """
    state = _Program(mod)
    lowered = {name: _Function(state, name).lower() for name in state.kinds.functions}
    functions = fork_branches(add_ghosts(lowered) if state.ghosts else lowered)
    waiting = rec.waiting_functions(functions)
    if state.memoize and state.entry not in waiting:
        # An instance that waits may fail when others have read what it noted.
        functions = memoize_blocks(functions, state.blocks.values())
    params, results, result = state.entry_signature()
    entry = state.function(state.entry)
    num_input = entry.attrs.get("num_input", len(entry.params))
    weights = tuple(p.name for p in entry.params[num_input:])
    return rec.RecordingProgram(
        state.entry, num_input, weights, functions, tuple(state.blocks.values()),
        tuple(state.shared), tuple(sorted(state.gathered)), params, results, result,
        state.first_depth, state.data(), waiting,
    )  # fmt: skip


class _Program:
    """All that the functions of a program have in common: the analyses, and the tables of blocks
    and of shared values, which grow while functions are lowered."""

    def __init__(self, mod: Module) -> None:
        self.mod, self.entry = mod, entry_of(mod)
        self.kinds: HostValues = host_values(mod, self.entry)
        self.uses: SharedValues = shared_values(mod, self.entry)
        self.blocks: dict[str, rec.BatchBlock] = {}
        self.shared: list[rec.SharedValue] = []
        self.gathered: set[int] = set()
        self.depths: StaticDepths = static_depths(mod, self.entry)
        self.first_depth = 0
        attrs = self.function(self.entry).attrs
        self.ghosts, self._side_by_side = GHOSTS in attrs, SIDE_BY_SIDE in attrs
        self.memoize = MEMOIZE in attrs
        self._sources: dict[Source, int] = {}
        self._runners = {
            f.attrs[BATCHED]: name for name, f in mod.graph_functions().items()
            if BATCHED in f.attrs
        }  # fmt: skip

    def function(self, name: str) -> graph.Function:
        return block_function(self.mod, name)

    def ordered(self, steps: Sequence[rec.Step]) -> tuple[rec.Step, ...]:
        """The steps of a straight-line region in the order in which they are recorded."""
        return order_steps(steps) if self._side_by_side else tuple(steps)

    def number(self, source: Source) -> int:
        """The number of a shared value, which is its slot."""
        if source not in self._sources:
            self._sources[source] = len(self.shared)
            if source.parameter >= 0:
                ty = type_at(self.function(self.entry).params[source.parameter].ty, source.path)
                assert ty is not None
                self.shared.append(rec.SharedValue(ty, source.parameter, source.path))
            else:
                constant = self.uses.constants[source.constant]
                ty = leaf_type(constant)
                assert isinstance(ty, types.TensorType)
                self.shared.append(rec.SharedValue(ty, constant=constant))
        return self._sources[source]

    def static_depth(self, var: graph.Var) -> int | None:
        """The depth of a block, by the variable of its call, if it is the same in all contexts of
        all instances: nothing that it reads depends on recursion. None for others."""
        depth = self.depths.of(var) - 1
        if depth >= DYNAMIC - 1:
            return None
        self.first_depth = max(self.first_depth, depth + 1)
        return depth

    def block(self, name: str, signature: Sequence[Operand]) -> int:
        """The number of a block."""
        if name not in self.blocks:
            of = {k: [o for o in signature if o.kind == k] for k in ("tensor", "scalar", "shared")}
            scalars = tuple(str(o.ty.dtype) for o in of["scalar"])
            if not of["tensor"] and not scalars:
                scalars = ("int64",)  # which counts the instances
            self.blocks[name] = rec.BatchBlock(
                name,
                self._runners[name],
                arenas_of(signature),
                tuple(o.ty for o in of["tensor"]),
                scalars,
                tuple(flat_types(self.function(name).ret_ty)),
                tuple(self.number(o.source) for o in of["shared"] if o.source is not None),
                self.function(self._runners[name]).attrs.get(MOST_ROWS, ANY_ROWS),
            )
        return list(self.blocks).index(name)

    def data(self) -> dict[str, tuple[rec.DataLayout, ...]]:
        """The layouts of the constructors of all data types."""
        fields = {key: FIELD_KINDS[kind] for key, kind in self.kinds.fields.items()}
        return {
            name: tuple(
                rec.DataLayout(c.name, tuple(
                    rec.Field(fields[c.name, i], ty) for i, ty in enumerate(c.fields)
                ))
                for c in data.constructors
            )
            for name, data in data_types(self.mod).items()
        }  # fmt: skip

    def entry_signature(
        self,
    ) -> tuple[tuple[rec.EntryParam, ...], tuple[rec.EntryResult, ...], object]:
        fn = self.function(self.entry)
        count = fn.attrs.get("num_input", len(fn.params))
        params: list[rec.EntryParam] = []
        for i, p in enumerate(fn.params[:count]):
            for path in leaf_paths(p.ty):
                ty = type_at(p.ty, path)
                if kind_at(self.kinds.kinds[p], path) is Kind.DATA:
                    params.append(rec.EntryParam(p.name, path, i, "data", data_at(p.ty, path)))
                    continue
                if ty is None or ty.shape is None or ty.dtype is None:
                    refuse(f"parameter `{p.name}` of `{self.entry}` has type {p.ty}; an instance "
                           "gives tensors of known rank and dtype", p)  # fmt: skip
                host = kind_at(self.kinds.kinds[p], path) is Kind.HOST
                params.append(rec.EntryParam(p.name, path, i, "scalar" if host else "array", ty))
        kinds = self.kinds.of(fn.body.body)
        results: list[rec.EntryResult] = []
        for path in leaf_paths(fn.ret_ty):
            ty, kind = type_at(fn.ret_ty, path), kind_at(kinds, path)
            if kind is Kind.DATA:
                results.append(rec.EntryResult("data", data_at(fn.ret_ty, path)))
                continue
            assert ty is not None
            results.append(rec.EntryResult("scalar" if kind is Kind.HOST else "slot", ty))
        numbers = iter(range(len(results)))
        return tuple(params), tuple(results), _numbered(fn.ret_ty, numbers)


def _numbered(ty: types.Type | None, numbers: Iterator[int]) -> object:
    if isinstance(ty, types.TupleType):
        return tuple(_numbered(f, numbers) for f in ty.fields)
    return next(numbers)


@dataclass(slots=True)
class _Function:
    program: _Program
    name: str
    env: dict[graph.Var, Value] = field(default_factory=lambda: {})
    steps: list[rec.Step] = field(default_factory=lambda: [])
    arrays: list[rec.InputArray] = field(default_factory=lambda: [])
    in_phase: bool = False

    def lower(self) -> rec.RecordingFunction:
        fn = self.program.function(self.name)
        params: list[expr.Var] = []
        for p in fn.params:
            self.env[p] = self.parameter(p, params)
        self.sequence(fn.body)
        kinds = self.program.kinds.of(fn.body.body)
        results = self.as_kinds(self.value(fn.body.body), kinds)
        return rec.RecordingFunction(
            self.name,
            tuple(params),
            tuple(self.arrays),
            self.program.ordered(self.steps),
            tuple(results),
        )

    def parameter(self, p: graph.Var, params: list[expr.Var]) -> Value:
        def leaf(path: tuple[int, ...]) -> Leaf:
            kind, ty = kind_at(self.program.kinds.kinds[p], path), type_at(p.ty, path)
            if kind is Kind.DATA:
                params.append(expr.Var(p.name))
                return params[-1]
            assert ty is not None
            if kind is Kind.INPUT:
                params.append(expr.Var(p.name))
                self.arrays.append(self.array(p.name, params[-1], ty))
                return self.arrays[-1]
            if kind is Kind.HOST:
                params.append(expr.Var(p.name, str(ty.dtype)))
                return params[-1]
            source = self.program.uses.source(self.name, p, path)
            if source is not None:
                return Slot(expr.const(self.program.number(source)))
            params.append(expr.Var(p.name))
            return Slot(params[-1])

        return nested(p.ty, leaf)

    def array(self, name: str, record: expr.Var, ty: types.TensorType) -> rec.InputArray:
        if ty.shape is None or ty.dtype is None:
            refuse(f"in `{self.name}`: `{name}` has type {ty}; an array of an instance has a known "
                   "rank and dtype", None)  # fmt: skip
        return rec.InputArray(record, loops.Buffer(name, ty.shape, ty.dtype))

    # --- Values -----------------------------------------------------------------------------------

    def value(self, e: graph.Expr) -> Value:
        match e:
            case graph.Var():
                return self.env[e]
            case graph.Tuple(fields):
                return tuple(self.value(f) for f in fields)
            case graph.TupleGetItem(whole, index):
                found = self.value(whole)
                assert isinstance(found, tuple)
                return found[index]
            case graph.PrimValue(value):
                return value
            case graph.Constant(data) if self.program.kinds.of(e) is Kind.HOST:
                return expr.const(data.item(), str(data.dtype))
            case graph.Constant(data):
                return Slot(expr.const(self.program.number(Source(constant=id(data)))))
            case _:
                refuse(f"in `{self.name}`: a {type(e).__name__} cannot be recorded", e)

    def as_kinds(self, value: Value, kinds: Kinds) -> Iterator[expr.PrimExpr]:
        """The integers of a value where its leaves are wanted as these kinds."""
        if isinstance(value, tuple):
            for i, v in enumerate(value):
                yield from self.as_kinds(v, kinds[i] if isinstance(kinds, tuple) else kinds)
        elif kinds is Kind.TENSOR:
            yield self.slot(value)
        elif isinstance(value, rec.InputArray):
            yield value.record
        elif isinstance(value, Slot):
            refuse(f"in `{self.name}`: a tensor stands where an integer is wanted", None)
        else:
            yield value

    def slot(self, value: Leaf) -> expr.PrimExpr:
        match value:
            case Slot(number):
                if isinstance(number, expr.IntImm):
                    self.program.gathered.add(number.value)
                return number
            case rec.InputArray():
                var = expr.Var(value.buffer.name)
                self.steps.append(rec.WholeInput(var, value))
                return var
            case _:
                refuse(
                    f"in `{self.name}`: an integer of an instance stands where another path has a "
                    "tensor", None,
                )  # fmt: skip

    def new(self, name: str, ty: types.Type | None, kinds: Kinds, made: list[expr.Var]) -> Value:
        """New variables for a result; `made` collects them."""

        def leaf(path: tuple[int, ...]) -> Leaf:
            kind, of = kind_at(kinds, path), type_at(ty, path)
            if kind is Kind.INPUT:
                refuse(f"in `{self.name}`: `{name}` is one of several arrays of the instance; pass "
                       "the place in one array instead", None)  # fmt: skip
            if kind is Kind.HOST and of is not None:
                made.append(expr.Var(name, str(of.dtype)))
                return made[-1]
            if kind is Kind.DATA:
                made.append(expr.Var(name))
                return made[-1]
            made.append(expr.Var(name))
            return Slot(made[-1])

        return nested(ty, leaf)

    # --- Bindings ---------------------------------------------------------------------------------

    def sequence(self, seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                found = self.binding(b)
                if found is not None:
                    self.env[b.var] = found

    def binding(self, b: graph.Binding) -> Value | None:
        if isinstance(b, graph.MatchCast):
            return self.claim(b)
        match b.value:
            case graph.If():
                return self.branch(b.value, b.var)
            case graph.Call(graph.GlobalVar(name), args) if isinstance(
                self.program.mod.get(name), graph.Function
            ):
                called = self.block if is_block(self.program.mod[name]) else self.call
                return called(name, args, b.var)
            case graph.Call():
                return self.operator(b.value, b.var)
            case _:
                return self.value(b.value)

    def claim(self, b: graph.MatchCast) -> Value | None:
        condition = claimed_condition(b.value, b.ty)
        if condition is not None:
            text = f"`{b.var.name}` in `{self.name}` needs {condition}"
            self.steps.append(rec.Require(condition, text))
            return None
        if isinstance(b.value, graph.ShapeExpr):
            refuse(f"in `{self.name}`: `{b.var.name}` matches a shape, which cannot be recorded", b)
        return self.value(b.value)

    def branch(self, e: graph.If, var: graph.Var) -> Value:
        condition = self.condition(e.condition)
        kinds = self.program.kinds.kinds[var]
        arms = [self.arm(s, kinds) for s in (e.true_branch, e.false_branch)]
        results: list[expr.Var] = []
        value = self.new(var.name, var.ty, kinds, results)
        (yes, yes_values), (no, no_values) = arms
        self.steps.append(rec.Branch(condition, yes, yes_values, no, no_values, tuple(results)))
        return value

    def condition(self, e: graph.Expr) -> expr.PrimExpr:
        """A condition as an integer; the instance waits for one that blocks compute."""
        value = self.value(e)
        if not isinstance(value, Slot):
            (condition,) = self.as_kinds(value, Kind.HOST)
            return condition
        made = expr.Var(getattr(e, "name", "condition"), "bool")
        self.steps.append(rec.ReadTensor(made, value.number))
        return made

    def arm(
        self, seq: graph.SeqExpr, kinds: Kinds
    ) -> tuple[tuple[rec.Step, ...], tuple[expr.PrimExpr, ...]]:
        outer, self.steps = self.steps, []
        self.sequence(seq)
        values = tuple(self.as_kinds(self.value(seq.body), kinds))
        steps, self.steps = self.program.ordered(self.steps), outer
        return steps, values

    def call(self, name: str, args: tuple[graph.Expr, ...], var: graph.Var) -> Value:
        given: list[expr.PrimExpr] = []
        callee = self.program.function(name)
        for p, a in zip(callee.params, args, strict=True):
            value, kinds = self.value(a), self.program.kinds.kinds[p]
            for path in leaf_paths(p.ty):
                if self.program.uses.source(name, p, path) is None:
                    given += self.as_kinds(_at(value, path), kind_at(kinds, path))
        results: list[expr.Var] = []
        value = self.new(var.name, var.ty, self.program.kinds.kinds[var], results)
        self.steps.append(rec.Call(name, tuple(given), tuple(results)))
        return value

    def block(self, name: str, args: tuple[graph.Expr, ...], var: graph.Var) -> Value:
        program = self.program
        signature = signature_of(program.mod, name, args, program.kinds, program.uses)
        number = program.block(name, signature)
        given = dict(zip(program.function(name).params, args, strict=True))
        leaves = [(o.kind, _at(self.value(given[o.param]), o.path)) for o in signature]
        inputs = [x for k, v in leaves if k == "tensor" for x in self.as_kinds(v, Kind.TENSOR)]
        scalars = [x for k, v in leaves if k == "scalar" for x in self.as_kinds(v, Kind.HOST)]
        if not inputs and not scalars:
            scalars = [expr.const(0)]
        if PHASE in program.function(name).attrs and not self.in_phase:
            self.in_phase = True
            self.steps.append(rec.Phase())
        outputs: list[expr.Var] = []
        value = self.new(var.name, var.ty, Kind.TENSOR, outputs)
        static = None if self.in_phase else program.static_depth(var)
        self.steps.append(rec.Record(number, tuple(inputs), tuple(scalars), tuple(outputs), static))
        return value

    def operator(self, call: graph.Call, var: graph.Var) -> Value:
        mod = self.program.mod
        if is_on_data(call):
            return self.on_data(call, var)
        if ends_phase(call):
            self.steps.append(rec.Phase())
            return ()
        if self.program.kinds.of(var) is Kind.HOST:
            found = scalar_value(call, var, mod)
            assert found is not None and isinstance(var.ty, types.TensorType)
            made = expr.Var(var.name, str(var.ty.dtype))
            self.steps.append(rec.Compute(made, self.scalar(*found)))
            return made
        if is_view(call):
            source = self.value(call.args[0])
            assert not isinstance(source, tuple)
            return Slot(self.slot(source))
        row = row_index(call, var, mod)
        if row is None:
            refuse(f"in `{self.name}`: `{var.name}` is not part of a block", call)
        index, source, given = row
        array, slot = self.value(source), expr.Var(var.name)
        place = self.scalar(index, given)
        if isinstance(array, rec.InputArray):
            self.steps.append(rec.InputRow(slot, array, place))
        else:
            assert isinstance(array, Slot)
            shared = self.slot(array)
            assert isinstance(shared, expr.IntImm)
            self.steps.append(rec.SharedRow(slot, shared.value, place))
        return Slot(slot)

    def on_data(self, call: graph.Call, var: graph.Var) -> Value:
        """A new value of a data type, or a word of one."""
        fields, made = self.program.kinds.fields, expr.Var(var.name)
        if call.op == graph.Op("adt.construct"):
            name = call.attrs["constructor"]
            words = [
                w for i, a in enumerate(call.args)
                for w in self.as_kinds(self.value(a), fields[name, i])
            ]  # fmt: skip
            self.steps.append(rec.Construct(made, call.attrs["tag"], tuple(words)))
            return made
        (value,) = self.as_kinds(self.value(call.args[0]), Kind.DATA)
        if call.op == graph.Op("adt.tag"):
            self.steps.append(rec.ReadWord(made, value, rec.VALUE_TAG))
            return made
        index: int = call.attrs["index"]
        kind = fields[call.attrs["constructor"], index]
        if kind is Kind.HOST:
            assert isinstance(var.ty, types.TensorType)
            made = expr.Var(var.name, str(var.ty.dtype))
        self.steps.append(rec.ReadWord(made, value, rec.VALUE_FIELDS + index))
        return Slot(made) if kind is Kind.TENSOR else made

    def scalar(self, value: expr.PrimExpr, given: dict[loops.Buffer, graph.Expr]) -> expr.PrimExpr:
        """An expression over elements of a loop function's buffers, over those of the arguments."""
        symbols: dict[Node, Node] = {}
        for buffer, e in given.items():
            ty = leaf_type(e)
            if isinstance(ty, types.TensorType) and ty.shape is not None:
                symbols |= {d: s for d, s in zip(buffer.shape, ty.shape, strict=True)
                            if isinstance(d, expr.Var)}  # fmt: skip

        def visit(n: Node) -> Node | None:
            if isinstance(n, expr.Var):
                return symbols.get(n)
            if not isinstance(n, loops.BufferLoad):
                return None
            found = self.value(given[n.buffer])
            if isinstance(found, rec.InputArray):
                at = tuple(rewrite(i, visit) for i in n.indices)
                return loops.BufferLoad(found.buffer, at)
            assert isinstance(found, expr.PrimExpr)
            return found

        return rewrite(value, visit)


def data_at(ty: types.Type | None, path: tuple[int, ...]) -> types.DataType:
    """The data type at a place in a type."""
    for index in path:
        assert isinstance(ty, types.TupleType)
        ty = ty.fields[index]
    assert isinstance(ty, types.DataType)
    return ty


def _at(value: Value, path: tuple[int, ...]) -> Value:
    for index in path:
        assert isinstance(value, tuple)
        value = value[index]
    return value
