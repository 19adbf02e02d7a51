"""Cut the functions of a batched program into blocks: what is computed together, as one node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.op_table import find_op, has_trait
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import (
    known_shape,
    leaf_paths,
    leaf_type,
    replace_body,
    vars_in,
)
from relaxlab.passes.host_values import HostValues, Kind, host_values, is_on_data, row_index
from relaxlab.passes.outline import outline_bindings
from relaxlab.passes.shared_values import SharedValues, shared_values
from relaxlab.passes.static_depth import DYNAMIC, StaticDepths, static_depths
from relaxlab.passes.to_non_dataflow import plain_variables
from relaxlab.tracing import may_apply, remark

RECORDED = "recorded"
"""The attribute of functions that are recorded: their operators stay operators."""
BLOCK = "block"
"""The attribute of functions that are recorded as one node."""


@dataclass(frozen=True, slots=True)
class MakeBlocks:
    """`coarse`: as much as possible becomes one block; without, each operator is one. `hoist`: what
    can be computed for all steps of a recursion at once is apart."""

    coarse: bool = True
    hoist: bool = True


@module_pass("make_blocks", MakeBlocks, needs=("normalize", "lambda_lifting"))
def make_blocks(mod: Module, options: MakeBlocks) -> Module:
    """Outline the operators on tensors of all functions that the entry reaches, as private
    functions with the attribute `block`.

    What stays in the functions, which get the attribute `recorded`, is decided and computed while
    an instance is recorded: integers from its inputs, conditionals on them, rows of its inputs,
    rows of weights that others than a block read, and calls. A block has all operators that no call
    and no conditional keeps apart: an operator moves in front of what it does not depend on. What
    depends on weights alone is computed in each block that reads it (`lift_transform_params` then
    moves it out of the batch).

    A block that reads inputs and weights alone, or results of such blocks, is *hoisted*: it runs
    before all recursion. Where the products among such operators could be a block, they are one,
    apart from what recursion carries along.

    Raises DiagnosticError (E0509) for what cannot be recorded: a function as a value, an effect, a
    tensor whose shape differs between instances.
    """
    entry = entry_of(mod)
    if RECORDED in mod[entry].attrs:  # type: ignore[union-attr]
        return mod
    kinds, shared = host_values(mod, entry), shared_values(mod, entry)
    depths = static_depths(mod, entry)
    state = _Cutter(mod, kinds, shared, depths, options)
    updates: dict[str, graph.Function] = {}
    for name in kinds.functions:
        fn = mod[name]
        assert isinstance(fn, graph.Function)
        cut = state.function(name, fn)
        updates[name] = replace(cut, attrs=cut.attrs.with_(**{RECORDED: True}))
    return mod.with_functions({**updates, **state.blocks})


def entry_of(mod: Module) -> str:
    """The function whose calls are batched: `main`, or the only one that is not private.

    Raises DiagnosticError where there are several.
    """
    functions = {n: f for n, f in mod.graph_functions().items() if not f.private}
    # Passes add public functions, which run batches and pack weights: none of them is recorded.
    public = [n for n, f in functions.items() if RECORDED in f.attrs] or [*functions]
    if "main" in public:
        return "main"
    if len(public) != 1:
        names = ", ".join(f"`{n}`" for n in public) or "none"
        refuse("a batched program has one function that is called from outside, `main` or the only "
               f"one that is not private; this one has {names}", None)  # fmt: skip
    return public[0]


def refuse(message: str, at: object) -> NoReturn:
    """Raise the diagnostic of what cannot be batched."""
    raise DiagnosticError([Diagnostic("E0509", message, getattr(at, "span", None))])


@dataclass(slots=True)
class _Region:
    """The bindings of one sequence and what they are: `works` become parts of blocks, `barriers`
    keep blocks apart, the others stay where they are. `static` works depend on weights alone,
    `hoisted` ones are a block apart, before the recursion. `leaving` is what others than operators
    read: results, arguments of calls, fields of values of data types. `level` numbers the block
    that a binding is part of, or before or behind which it stands."""

    bindings: list[graph.Binding]
    works: set[graph.Var] = field(default_factory=lambda: set[graph.Var]())
    barriers: set[graph.Var] = field(default_factory=lambda: set[graph.Var]())
    static: set[graph.Var] = field(default_factory=lambda: set[graph.Var]())
    hoisted: set[graph.Var] = field(default_factory=lambda: set[graph.Var]())
    leaving: set[graph.Var] = field(default_factory=lambda: set[graph.Var]())
    level: dict[graph.Var, int] = field(default_factory=lambda: dict[graph.Var, int]())


class _Cutter:
    def __init__(
        self,
        mod: Module,
        kinds: HostValues,
        shared: SharedValues,
        depths: StaticDepths,
        options: MakeBlocks,
    ) -> None:
        self.mod, self.kinds, self.shared, self.options = mod, kinds, shared, options
        self.depths = depths
        self.blocks: dict[str, graph.Function] = {}
        self.name = ""
        self.weights: set[graph.Var] = set()
        """The parameters of the function that are weights."""
        self.fixed: set[graph.Var] = set()
        """The variables of the function that are weights, or computed from weights alone."""

    def function(self, name: str, fn: graph.Function) -> graph.Function:
        self.name = name
        self.fixed = {p for p in fn.params if self.is_shared(p)}
        self.weights = {p for p in self.fixed if isinstance(p.ty, types.TensorType)}
        flows = plain_variables(fn)
        new = replace_body(fn, self.sequence(fn.body))
        # The bindings of a dataflow block are no longer in it.
        return replace_body(new, substitute(new.body, values=flows)) if flows else new

    def is_shared(self, p: graph.Var) -> bool:
        if isinstance(p.ty, types.TupleType):
            return all(
                self.shared.source(self.name, p, path) is not None for path in leaf_paths(p.ty)
            )
        return self.shared.source(self.name, p) is not None

    def sequence(self, seq: graph.SeqExpr) -> graph.SeqExpr:
        region = _Region([b for block in seq.blocks for b in block.bindings])
        self.require_outermost(seq, region)
        region.bindings = [self.branches(b) for b in region.bindings]
        self.find_leaving(region, seq.body)
        for b in region.bindings:
            self.classify(b, region)
        if self.options.coarse and self.options.hoist:
            self.hoist(region)
        self.set_levels(region)
        members = self.members(region, seq.body)
        new = self.emitted(region, members, set(vars_in(seq.body)))
        return replace(seq, blocks=(graph.BindingBlock(tuple(new)),) if new else ())

    def require_outermost(self, seq: graph.SeqExpr, region: _Region) -> None:
        """Raise the diagnostic of a phase that is not of the program as a whole."""
        entry = self.mod[entry_of(self.mod)]
        if isinstance(entry, graph.Function) and seq is entry.body:
            return
        for b in region.bindings:
            if ends_phase(b.value):
                refuse(f"in `{self.name}`: R.phase() is in a branch, or not in the function that "
                       "is called from outside; all instances go through the phases together, so "
                       "it is a statement of that function alone", b.value)  # fmt: skip

    def branches(self, b: graph.Binding) -> graph.Binding:
        if not isinstance(b.value, graph.If):
            return b
        e = b.value
        host = self.kinds.of(e.condition) is Kind.HOST
        decided = "is decided while recording" if host else "waits for its condition, a tensor"
        remark("make_blocks", f"{self.name}.{b.var.name}", decided)
        yes, no = (self.sequence(s) for s in (e.true_branch, e.false_branch))
        return replace(b, value=replace(e, true_branch=yes, false_branch=no))  # type: ignore

    # --- What a binding is ------------------------------------------------------------------------

    def classify(self, b: graph.Binding, region: _Region) -> None:
        value, var = b.value, b.var
        match value:
            case graph.If():
                region.barriers.add(var)
            case graph.Call(graph.GlobalVar(name)) if isinstance(
                self.mod.get(name), graph.Function
            ):
                region.barriers.add(var)
            case graph.Call(graph.Op("phase")):
                region.barriers.add(var)
            case graph.Call(graph.Op("adt.construct")):
                region.barriers.add(var)  # behind the blocks whose results it holds
            case graph.Call():
                if (
                    is_on_data(value)
                    or self.kinds.of(var) is Kind.HOST
                    or self.reads_row(value, var, region)
                ):
                    return
                if is_view(value) and self.is_row(value.args[0], region):
                    return
                self.require_batchable(value, var)
                region.works.add(var)
                if all(v in self.fixed for v in vars_in(value)):
                    self.fixed.add(var)
                    region.static.add(var)
            case graph.TupleGetItem(graph.Var() as whole) if whole in region.works:
                if self.options.coarse:
                    region.works.add(var)
                    if whole in region.static:
                        self.fixed.add(var)
                        region.static.add(var)
            case _:
                pass

    def find_leaving(self, region: _Region, body: graph.Expr) -> None:
        """Note what is read by others than operators, views and tuples of it passed through."""
        found = set(vars_in(body))
        for b in reversed(region.bindings):
            computed = isinstance(b.value, graph.Call) and isinstance(b.value.op, graph.Op)
            if not computed or is_on_data(b.value):  # type: ignore[arg-type]
                passed_on = isinstance(b.value, graph.Var | graph.Tuple | graph.TupleGetItem)
                if b.var in found or not passed_on:
                    found |= set(vars_in(b.value))
            elif is_view(b.value) and b.var in found:  # type: ignore[arg-type]
                found |= set(vars_in(b.value))
        region.leaving = found

    def reads_row(self, call: graph.Call, var: graph.Var, region: _Region) -> bool:
        """True if the value is a row of an instance's array, or of a weight, that is to be read
        where it lies: it needs no computing."""
        found = row_index(call, var, self.mod)
        if found is None:
            return False
        _, array, given = found
        if any(self.kinds.of(a) is not Kind.HOST for a in given.values() if a is not array):
            return False
        leaves = array in self.weights and var in region.leaving
        if leaves and constant_shape(leaf_type(array)):
            # An operand of this block alone is gathered by its kernels without a slot of its own.
            reason = "is a row of a weight, which is not copied"
            return may_apply("make_blocks", f"{self.name}.{var.name}", reason)
        return self.kinds.of(array) is Kind.INPUT

    def is_row(self, e: graph.Expr, region: _Region) -> bool:
        """True for a tensor that a recording identifies by its place, which its views share."""
        if not isinstance(e, graph.Var) or e in region.works or e in self.fixed:
            return False
        return self.kinds.of(e) in (Kind.TENSOR, Kind.INPUT) and constant_shape(e.ty)

    def require_batchable(self, call: graph.Call, var: graph.Var) -> None:
        where = f"in `{self.name}`: `{var.name}`"
        if not isinstance(call.op, graph.Op):
            refuse(f"{where} calls a function that is a value; batched programs call functions by "
                   "their names", call)  # fmt: skip
        row = find_op(call.op.name)
        if row is None or not row.pure or (row.lower is None and "view" not in row.traits
                                           and call.op.name != "call_tir"):  # fmt: skip
            refuse(f"{where} is made by `{call.op.name}`, which has an effect or no loops; a batch "
                   "computes pure operators and loop functions", call)  # fmt: skip
        for leaf in tensor_types(var.ty):
            if not constant_shape(leaf):
                refuse(
                    f"{where} has type {leaf}, whose shape may differ between instances; give "
                    "blocks tensors of constant shapes, such as rows of an input", call,
                )  # fmt: skip

    def hoist(self, region: _Region) -> None:
        """Note the static products of a region, with what static works they read and are read by.
        They are a block apart where others remain."""
        chosen_from = region.works - region.static
        works = {b.var: b for b in region.bindings if b.var in chosen_from}
        known = {v for v in works if self.depths.of(v) < DYNAMIC}
        if known == works.keys():
            return  # all of it is one block
        chosen = {v for v in known if is_product(works[v].value)}
        for var, b in works.items():  # in order: what reads the products
            reads = [v for v in vars_in(b.value) if v in works]
            if var in known and any(v in chosen for v in reads):
                chosen.add(var)
        for var in reversed(works):  # and, backwards, all that they read
            if var in chosen:
                chosen |= {v for v in vars_in(works[var].value) if v in works}
        if chosen:
            reason = f"{len(chosen)} bindings do not depend on the recursion"
            if may_apply("make_blocks", f"{self.name}.{next(iter(chosen)).name}", reason):
                region.hoisted |= chosen

    # --- Which block it is in ---------------------------------------------------------------------

    def set_levels(self, region: _Region) -> None:
        """A block comes behind the calls and branches that its members read, as early as it can in
        its phase."""
        level, begin = region.level, 0
        for b in region.bindings:
            least = begin
            if ends_phase(b.value):
                least = max(level.values(), default=0)
                begin = least + 1
            for v in vars_in(b.value):
                if v in level and v not in region.static:
                    behind = v in region.barriers and b.var not in region.barriers
                    least = max(least, level[v] + behind)
            level[b.var] = least

    def members(self, region: _Region, body: graph.Expr) -> dict[int, list[graph.VarBinding]]:
        """The bindings of each block, by its level or, for single operators, by a number."""
        read = {v for b in region.bindings if b.var not in region.works for v in vars_in(b.value)}
        read |= set(vars_in(body))
        # Values of weights alone get a block only where something outside of it reads them.
        alone = region.static - read
        found: dict[int, list[graph.VarBinding]] = {}
        for number, b in enumerate(region.bindings):
            if b.var in region.works and b.var not in alone:
                assert isinstance(b, graph.VarBinding)
                key = 2 * region.level[b.var] + (b.var not in region.hoisted)
                key = key if self.options.coarse else number
                found.setdefault(key, []).append(b)
        if self.options.coarse and found:
            return self.limited(region, found)
        return found

    def limited(
        self, region: _Region, found: dict[int, list[graph.VarBinding]]
    ) -> dict[int, list[graph.VarBinding]]:
        """The blocks, taken apart again where the rewrite is not allowed."""
        result: dict[int, list[graph.VarBinding]] = {}
        for level, members in found.items():
            reason = f"{len(members)} bindings that no call or branch keeps apart"
            subject = f"{self.name}.{members[0].var.name}"
            if len(members) < 2 or may_apply("make_blocks", subject, reason):
                result[level] = members
                continue
            for number, b in enumerate(members):
                result[(level + 1) * 10**6 + number] = [b]
        return result

    def emitted(
        self,
        region: _Region,
        members: dict[int, list[graph.VarBinding]],
        wanted: set[graph.Var],
    ) -> list[graph.Binding]:
        """The bindings of the sequence with calls of blocks in the place of their members."""
        of = {b.var: b for b in region.bindings}
        in_block = {b.var: key for key, bs in members.items() for b in bs}
        units: list[tuple[int, int, object]] = []
        after: set[graph.Var] = set()
        for b in region.bindings:
            level = region.level[b.var]
            if b.var in in_block:
                if members[in_block[b.var]][0] is b or not self.options.coarse:
                    units.append((level, 1, in_block[b.var]))
                continue
            if b.var in region.works:
                continue  # of weights alone: in the blocks that read it
            reads = set(vars_in(b.value))
            late = any(v in after or v in in_block for v in reads if region.level.get(v) == level)
            if late:
                after.add(b.var)
            units.append((level, 3 if b.var in region.barriers else 2 if late else 0, b))
        if self.options.coarse:
            units.sort(key=_place)
        result: list[graph.Binding] = []
        for *_, unit in units:
            if isinstance(unit, int):
                outside = self.read_outside(region, members[unit], wanted)
                result += self.block([*self.static_parts(region, of, members[unit])], outside)
            else:
                assert isinstance(unit, graph.Binding)
                result.append(unit)
        return result

    def static_parts(
        self, region: _Region, of: dict[graph.Var, graph.Binding], mine: list[graph.VarBinding]
    ) -> list[graph.VarBinding]:
        """The members of a block, with all values of weights alone that it reads or has in
        front."""
        needed: dict[graph.Var, None] = {}
        work = [v for b in mine for v in vars_in(b.value)]
        own = {b.var for b in mine}
        while work:
            v = work.pop()
            if v in region.static and v not in needed and v not in own:
                needed[v] = None
                work += vars_in(of[v].value)
        # In the order of the program: a result of the block may be read by a value that is none.
        front = needed.keys() | own & region.static
        first = [b for b in region.bindings if b.var in front]
        rest = [b for b in mine if b.var not in front]
        return [*(b for b in first if isinstance(b, graph.VarBinding)), *rest]

    def read_outside(
        self, region: _Region, mine: list[graph.VarBinding], wanted: set[graph.Var]
    ) -> list[graph.Var]:
        own = {b.var for b in mine}
        read = set(wanted)
        for b in region.bindings:
            if b.var not in own:
                read |= set(vars_in(b.value))
        return [b.var for b in mine if b.var in read]

    def block(
        self, members: Sequence[graph.VarBinding], results: list[graph.Var]
    ) -> list[graph.Binding]:
        """The call of a new block, and the reads of its fields."""
        if not results:  # nobody reads any of it
            return []
        attrs = Attrs(**{BLOCK: True})
        fn, args = outline_bindings(members, results, attrs)
        taken = self.mod.with_functions(self.blocks)
        name = taken.fresh_name(f"{self.name}_block")
        self.blocks[name] = fn
        span = members[0].span
        call = graph.Call(graph.GlobalVar(name), args, span=members[0].value.span)
        if len(results) == 1:
            return [graph.VarBinding(call, results[0], span=span)]
        ty = types.TupleType(tuple(r.ty or types.ObjectType() for r in results))
        whole = graph.Var(name, ty)
        fields = [
            graph.VarBinding(graph.TupleGetItem(whole, i), r, span=span)
            for i, r in enumerate(results)
        ]
        return [graph.VarBinding(call, whole, span=span), *fields]


def _place(unit: tuple[int, int, object]) -> tuple[int, int, int]:
    """The order of what a region is made of: levels; within one, hoisted blocks before others."""
    level, kind, what = unit
    return level, kind, what if isinstance(what, int) else 0


def ends_phase(e: graph.Expr) -> bool:
    """True for `R.phase()`."""
    return isinstance(e, graph.Call) and e.op == graph.Op("phase")


def is_product(e: graph.Expr) -> bool:
    """True for operators that sum products, and for loop functions, which may."""
    match e:
        case graph.Call(graph.Op(name)):
            return name == "call_tir" or has_trait(name, "product")
        case _:
            return False


def is_view(call: graph.Call) -> bool:
    """True for an operator whose result has the memory of its first argument."""
    return isinstance(call.op, graph.Op) and has_trait(call.op.name, "view")


def constant_shape(ty: types.Type | None) -> bool:
    """True for a tensor type whose dimensions are constants."""
    shape = known_shape(ty)
    return shape is not None and all(isinstance(d, expr.IntImm) for d in shape)


def tensor_types(ty: types.Type | None) -> Iterable[types.TensorType]:
    """The tensor types among the leaves of a type."""
    if isinstance(ty, types.TupleType):
        for f in ty.fields:
            yield from tensor_types(f)
    elif isinstance(ty, types.TensorType):
        yield ty
