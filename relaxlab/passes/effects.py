"""Effects of calls on memory: which variables share it, and what is overwritten in place.

A *cell* is the memory of a value: that of a variable, or of a field of a tuple. The result of an
in-place call is a new cell although its address is the old one's: the old one is not read again
(`check_inplace_calls` makes sure). The result of a branch is a cell that may stand for one of
several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.op_table import find_op, has_trait
from relaxlab.passes.bindings import all_bindings, leaf_paths, leaf_type, tir_call, vars_in

Cell: TypeAlias = "graph.Expr | tuple[Cell, int]"
"""A variable (or a constant), or a field of a cell."""

Path: TypeAlias = "tuple[int, ...]"
"""The path to a field of a tuple, one index per level; () is the value itself."""

Place: TypeAlias = "tuple[int, Path]"
"""A parameter's number, and which field of a field of it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Per function, the places of its parameters that it overwrites, and those that its result (a
    field of it) may share memory with.

    `values` are the functions that the module uses as values, with the numbers of their parameters:
    the possible callees of a function value. The last parameters of one that `make_closure` binds
    are those that it captured.
    """

    overwriting: Mapping[str, Set[Place]]
    returning: Mapping[str, Mapping[Path, frozenset[Place]]]
    values: Mapping[str, int]


class Aliases:
    """The cells of a function's variables, as far as its bindings were noted."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.cells: dict[graph.Expr, Cell] = {}
        self.fields: dict[tuple[Cell, int], Cell] = {}
        self.choices: dict[Cell, tuple[Cell, ...]] = {}

    def cell(self, e: graph.Expr) -> Cell:
        """The memory of a leaf expression."""
        if isinstance(e, graph.TupleGetItem):
            return self.field(self.cell(e.tuple_value), e.index)
        if isinstance(e, graph.Tuple):
            self.note_fields(e, e)
        return self.cells.get(e, e)

    def field(self, cell: Cell, index: int) -> Cell:
        """The memory of a field of a tuple."""
        return self.fields.get((cell, index), (cell, index))

    def note(self, b: graph.Binding) -> None:
        """Note the memory that the variable of the binding `b` shares with others."""
        match b.value:
            case graph.Var() | graph.TupleGetItem() | graph.Constant():
                self.cells[b.var] = self.cell(b.value)
            case graph.Call(graph.Op(name), (source, *_)) if (
                has_trait(name, "view") or name == "builtin.stop_lift_params"
            ):
                self.cells[b.var] = self.cell(source)
            case graph.Tuple():
                self.note_fields(b.var, b.value)
            # It reads what it is given when it is called.
            case graph.Call(graph.Op("make_closure"), (source, given)):
                self.note_fields(b.var, given)
                new = len([*self.known_fields(b.var)])
                held = enumerate(self.known_fields(self.cell(source)), new)
                self.fields |= {(b.var, i): cell for i, cell in held}
            case graph.If(_, yes, no):
                for end in (yes.body, no.body):
                    self.note_fields(end, end)
                self.choose(b.var, (self.cell(yes.body), self.cell(no.body)), b.var.ty)
            case _:
                for callee, args in self.callees(b.value):
                    for path, places in self.summary.returning.get(callee, {}).items():
                        whole = self.at(b.var, path)
                        of = (self.at(args[number], at) for number, at in places)
                        self.choices[whole] = (*self.choices.get(whole, ()), *of)

    def callees(self, value: graph.Expr) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        """The functions of the module that evaluating `value` may call itself, with the cells of
        their arguments."""
        match value:
            case graph.Call(graph.GlobalVar(name), args):
                yield name, tuple(map(self.cell, args))
                return
            case graph.Call(graph.Var() as fn, args):
                given = tuple(map(self.cell, args))
            case graph.Call(
                graph.Op("invoke_closure" | "invoke_pure_closure"), (fn, graph.Tuple(fields))
            ):
                given = tuple(map(self.cell, fields))
            case _:
                return
        for name, count in self.summary.values.items():
            # Function values have no names: any function used as one with that many parameters may
            # be called.
            captured = count - len(given)
            if captured >= 0:
                held = (self.field(self.cell(fn), i) for i in range(captured))
                yield name, (*given, *held)

    def choose(self, cell: Cell, of: tuple[Cell, ...], ty: types.Type | None) -> None:
        """Learn that a cell is one of others, and its fields are theirs."""
        self.choices[cell] = of
        for i, field in enumerate(ty.fields if isinstance(ty, types.TupleType) else ()):
            self.choose((cell, i), tuple(self.field(c, i) for c in of), field)

    def note_fields(self, e: graph.Expr, value: graph.Expr) -> None:
        """Record the cells of the fields of `e`, which is `value`."""
        if isinstance(value, graph.Tuple):
            self.fields |= {(e, i): self.cell(f) for i, f in enumerate(value.fields)}

    def at(self, cell: Cell, path: Iterable[int]) -> Cell:
        """A field of a field of a cell."""
        for index in path:
            cell = self.field(cell, index)
        return cell

    def may_be(self, cell: Cell) -> set[Cell]:
        """Return the cell and those that it may stand for: results of branches and of functions."""
        found: set[Cell] = set()
        pending = [cell]
        while pending:
            here = pending.pop()
            if here in found:
                continue
            found.add(here)
            whole, path = here, tuple[int, ...]()
            while True:
                pending += [self.at(c, path) for c in self.choices.get(whole, ())]
                if not isinstance(whole, tuple):
                    break
                path = (whole[1], *path)
                whole = whole[0]
        return found

    def sharing(self, cell: Cell) -> set[Cell]:
        """Return all cells that may share memory with a cell."""
        mine = self.may_be(cell)
        return mine | {c for c in self.choices if any(overlaps(o, mine) for o in self.may_be(c))}

    def read(self, value: graph.Expr) -> Iterator[Cell]:
        """The cells that evaluating `value` reads; of a tuple, all its known fields."""
        if isinstance(value, graph.TupleGetItem):
            yield self.cell(value)
            return
        for v in dict.fromkeys(vars_in(value)):
            yield self.cell(v)
            yield from self.known_fields(v)

    def known_fields(self, cell: Cell) -> Iterator[Cell]:
        """The fields of a tuple, or the arguments that a function has, as far as they are known."""
        index = 0
        while (cell, index) in self.fields:
            yield self.fields[cell, index]
            index += 1

    def overwritten(self, value: graph.Expr) -> Iterator[Cell]:
        """The cells that evaluating `value` overwrites or may overwrite, in branches too."""
        for cell in self.targets(value):
            yield from self.sharing(cell) if self.choices else (cell,)

    def targets(self, value: graph.Expr) -> Iterator[Cell]:
        """The cells that evaluating `value` is meant to overwrite."""
        match value:
            case graph.If(_, yes, no):
                for branch in (yes, no):
                    for b in all_bindings(branch):  # those of inner branches are among them
                        self.note(b)
                        if not isinstance(b.value, graph.If):
                            yield from self.targets(b.value)
            case graph.Call(graph.GlobalVar() | graph.Var()):
                yield from self.written_arguments(value)
            case graph.Call(graph.Op("invoke_closure" | "invoke_pure_closure")):
                yield from self.written_arguments(value)
            case graph.Call(graph.Op("call_inplace_packed"), (_, *rest)):
                indices: tuple[int, ...] = value.attrs["inplace_indices"]
                args: tuple[graph.Expr, ...] = tuple(rest)
                yield from (self.cell(args[i]) for i in indices if i >= 0)
            case _:
                call = tir_call(value)
                if call is not None:
                    yield from (self.cell(call.args[i]) for i in call.inplace if i >= 0)

    def written_arguments(self, call: graph.Call) -> Iterator[Cell]:
        """The cells among a call's arguments that the function it calls may overwrite."""
        for callee, args in self.callees(call):
            for number, path in self.summary.overwriting.get(callee, ()):
                yield self.at(args[number], path)

    def passed_twice(self, value: graph.Expr) -> Iterator[Cell]:
        """The cells that a called function overwrites and may also reach as another argument, or
        as another field of the same one."""
        if not isinstance(value, graph.Call):
            return
        types_of = [leaf_type(a) for a in value.args]
        if isinstance(value.op, graph.Op):
            fields = value.args[1] if len(value.args) > 1 else None
            types_of = (
                [leaf_type(a) for a in fields.fields] if isinstance(fields, graph.Tuple) else []
            )
        for callee, args in self.callees(value):
            written = self.summary.overwriting.get(callee, frozenset())
            leaves = [(i, path) for i, ty in enumerate(types_of) for path in leaf_paths(ty)]
            for number, path in written:
                lost = self.at(args[number], path)
                shared = self.sharing(lost)
                for other, at in leaves:
                    same = other == number and at[: len(path)] == path
                    if not same and overlaps(self.at(args[other], at), shared):
                        yield lost


def base_of(cell: Cell) -> graph.Expr:
    """The variable (or constant) that a cell is part of."""
    while isinstance(cell, tuple):
        cell = cell[0]
    return cell


def overlaps(cell: Cell, others: Iterable[Cell]) -> bool:
    """True if a cell is, contains or is part of one of the others."""
    return any(_inside(cell, o) or _inside(o, cell) for o in others)


def _inside(part: Cell, whole: Cell) -> bool:
    while part is not whole and part != whole and isinstance(part, tuple):
        part = part[0]
    return part is whole or part == whole


def overwritten_vars(fn: graph.Function, mod: Module) -> set[graph.Var]:
    """The variables of `fn` whose memory is overwritten somewhere in it."""
    aliases = Aliases(summary_of(mod))
    cells: dict[graph.Expr, set[Cell]] = {}
    for b in all_bindings(fn):
        aliases.note(b)
        for cell in aliases.overwritten(b.value):
            cells.setdefault(base_of(cell), set()).add(cell)
    if not cells:
        return set()
    variables = (*fn.params, *(b.var for b in all_bindings(fn)))
    own = ((v, aliases.cell(v)) for v in variables)
    return {v for v, cell in own if overlaps(cell, cells.get(base_of(cell), ()))}


def overwritten_params(mod: Module) -> Mapping[str, frozenset[int]]:
    """Return, per graph function, the numbers of the parameters whose memory it or its callees
    overwrite, wholly or in part."""
    found = summary_of(mod).overwriting
    return {name: frozenset(number for number, _ in places) for name, places in found.items()}


# Modules are values, and several questions about one follow each other.
@lru_cache(maxsize=16)
def summary_of(mod: Module) -> Summary:
    """Return the effects of each function of the module on its arguments: the least fixed point
    over calls."""
    values = {name: len(fn.params) for name, fn in used_as_values(mod).items()}
    # From nothing upwards: sets only grow and are finite, so recursive functions end, too.
    known = Summary({name: frozenset() for name in mod.graph_functions()}, {}, values)
    while True:
        overwriting: dict[str, Set[Place]] = {}
        returning: dict[str, dict[Path, frozenset[Place]]] = {}
        for name, fn in mod.graph_functions().items():
            aliases = Aliases(known)
            cells: set[Cell] = set()
            for b in all_bindings(fn):
                aliases.note(b)
                cells.update(aliases.overwritten(b.value))
            given_up: set[Place] = {(number, ()) for number in donated_params(fn)}
            overwriting[name] = given_up.union(p for c in cells for p in _places(fn, c))
            returning[name] = _returned(fn, aliases)
        new = Summary(overwriting, returning, values)
        if new == known:
            return known
        known = new


def used_as_values(mod: Module) -> dict[str, graph.Function]:
    """The functions that are passed on, returned or captured, not only called by name."""
    functions = mod.graph_functions()
    found: dict[str, graph.Function] = {}
    for fn in functions.values():
        called: set[int] = set()
        mentioned: list[graph.GlobalVar] = []
        for n in walk(fn):
            if isinstance(n, graph.Call):
                called.add(id(n.op))
            elif isinstance(n, graph.GlobalVar) and n.name in functions:
                mentioned.append(n)
        found |= {n.name: functions[n.name] for n in mentioned if id(n) not in called}
    return found


def donated_params(fn: graph.Function) -> frozenset[int]:
    """Return the numbers of the parameters whose memory callers give up, by the attribute
    `donated`: the function may overwrite it (JAX's `donate_argnames`)."""
    names: tuple[str, ...] = fn.attrs.get("donated", ())
    tensors = ((i, p) for i, p in enumerate(fn.params) if isinstance(p.ty, types.TensorType))
    return frozenset(i for i, p in tensors if p.name in names)


def _returned(fn: graph.Function, aliases: Aliases) -> dict[Path, frozenset[Place]]:
    """Return the parameters (or fields of them) that the result, or a field of it, may be."""
    body = fn.body.body
    found: dict[Path, frozenset[Place]] = {}
    for path in leaf_paths(fn.ret_ty or leaf_type(body)):
        cell = aliases.at(aliases.cell(body), path)
        places = frozenset(p for c in aliases.may_be(cell) for p in _places(fn, c))
        if places:
            found[path] = places
    return found


def _places(fn: graph.Function, cell: Cell) -> Iterator[Place]:
    """The place of a cell that is part of a parameter. Its path is no longer than the parameter's
    type is deep, so that recursive functions have finitely many places."""
    path: list[int] = []
    while isinstance(cell, tuple):
        cell, index = cell
        path.insert(0, index)
    for number, p in enumerate(fn.params):
        if cell is p:
            yield number, tuple(path[: _depth(p.ty, path)])


def _depth(ty: types.Type | None, path: list[int]) -> int:
    for depth, index in enumerate(path):
        if not isinstance(ty, types.TupleType):
            return depth
        ty = ty.fields[index]
    return len(path)


def _values_overwrite(mod: Module) -> bool:
    """True if a call of a function value may overwrite its arguments."""
    summary = summary_of(mod)
    return any(summary.overwriting[name] for name in summary.values)


def is_pure(value: graph.Expr, mod: Module) -> bool:
    """True if evaluating `value` has no effect, so that it may be dropped. (A function that
    overwrites its arguments has one, though it may be declared pure.)"""
    match value:
        case graph.Call(graph.Op("call_tir_inplace" | "call_inplace_packed")):
            return False
        case graph.Call(graph.Op(name)):
            row = find_op(name)
            calls = name in ("invoke_closure", "invoke_pure_closure")
            return row is not None and row.pure and not (calls and _values_overwrite(mod))
        case graph.Call(graph.GlobalVar(name)):
            fn = mod.get(name)
            pure = isinstance(fn, graph.Function) and fn.is_pure
            return pure and not overwritten_params(mod).get(name)
        case graph.Call(graph.Var(_, types.FuncType() as ty)):
            return ty.is_pure and not _values_overwrite(mod)
        case graph.Call(graph.Op("invoke_closure" | "invoke_pure_closure")) if _values_overwrite(
            mod
        ):
            return False
        case graph.Call():
            return False
        case graph.If(_, yes, no):
            return all(
                isinstance(b, graph.VarBinding) and is_pure(b.value, mod)
                for branch in (yes, no)
                for b in all_bindings(branch)
            )
        case _:
            return True
