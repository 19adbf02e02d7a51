"""What calls do to memory: which variables share it, and what is overwritten in place.

A *cell* is the memory of a value: that of a variable, or of a field of a tuple. The result of an
in-place call is a new cell although it lies where the old one lay: the old one is not read again
(`check_inplace_calls` sees to that). The result of a branch is a cell that may be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import VIEWS, find_op
from relaxlab.passes.bindings import all_bindings, tir_call, vars_in

Cell: TypeAlias = "graph.Expr | tuple[Cell, int]"
"""A variable (or a constant), or a field of a cell."""

Field: TypeAlias = "int | None"
"""Which field of a result (None: the result itself)."""

Place: TypeAlias = "tuple[int, tuple[int, ...]]"
"""A parameter's number, and which field of a field of it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Per function: the parameters that it overwrites, and those that its result (a field of it)
    shares memory with."""

    overwriting: Mapping[str, frozenset[int]]
    returning: Mapping[str, Mapping[Field, frozenset[Place]]]


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
        return self.cells.get(e, e)

    def field(self, cell: Cell, index: int) -> Cell:
        """The memory of a field of a tuple."""
        return self.fields.get((cell, index), (cell, index))

    def note(self, b: graph.Binding) -> None:
        """Learn what `b`'s variable shares its memory with."""
        match b.value:
            case graph.Var() | graph.TupleGetItem() | graph.Constant():
                self.cells[b.var] = self.cell(b.value)
            case graph.Call(graph.Op(name), (source, *_)) if name in VIEWS:
                self.cells[b.var] = self.cell(source)
            case graph.Tuple():
                self.note_fields(b.var, b.value)
            case graph.Call(graph.Op("make_closure"), (_, given)):  # reads it when it is called
                self.note_fields(b.var, given)
            case graph.If(_, yes, no):
                for end in (yes.body, no.body):
                    self.note_fields(end, end)
                self.choose(b.var, (self.cell(yes.body), self.cell(no.body)), b.var.ty)
            case graph.Call(graph.GlobalVar(name), args):
                for field, places in self.summary.returning.get(name, {}).items():
                    whole: Cell = b.var if field is None else (b.var, field)
                    self.choices[whole] = tuple(
                        self.at(self.cell(args[number]), path) for number, path in places
                    )
            case _:
                pass

    def choose(self, cell: Cell, of: tuple[Cell, ...], ty: types.Type | None) -> None:
        """Learn that a cell is one of others, and its fields are theirs."""
        self.choices[cell] = of
        for i, field in enumerate(ty.fields if isinstance(ty, types.TupleType) else ()):
            self.choose((cell, i), tuple(self.field(c, i) for c in of), field)

    def note_fields(self, e: graph.Expr, value: graph.Expr) -> None:
        """Learn where the fields of `e` lie, which is `value`."""
        if isinstance(value, graph.Tuple):
            self.fields |= {(e, i): self.cell(f) for i, f in enumerate(value.fields)}

    def at(self, cell: Cell, path: Iterable[int]) -> Cell:
        """A field of a field of a cell."""
        for index in path:
            cell = self.field(cell, index)
        return cell

    def may_be(self, cell: Cell) -> set[Cell]:
        """A cell and those that it may be, by what branches and functions chose."""
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
        """All cells that may share memory with a cell."""
        mine = self.may_be(cell)
        return mine | {c for c in self.choices if any(overlaps(o, mine) for o in self.may_be(c))}

    def read(self, value: graph.Expr) -> Iterator[Cell]:
        """The cells that evaluating `value` reads; of a tuple, all its known fields."""
        if isinstance(value, graph.TupleGetItem):
            yield self.cell(value)
            return
        for v in dict.fromkeys(vars_in(value)):
            yield self.cell(v)
            yield from (cell for (of, _), cell in self.tuple_fields() if of is v)

    def tuple_fields(self) -> list[tuple[tuple[Cell, int], Cell]]:
        """The fields that are known: ((tuple, index), cell)."""
        return list(self.fields.items())

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
            case graph.Call(graph.GlobalVar(name), args):
                yield from (self.cell(args[i]) for i in self.summary.overwriting.get(name, ()))
            case graph.Call(graph.Op("call_inplace_packed"), (_, *rest)):
                indices: tuple[int, ...] = value.attrs["inplace_indices"]
                args: tuple[graph.Expr, ...] = tuple(rest)
                yield from (self.cell(args[i]) for i in indices if i >= 0)
            case _:
                call = tir_call(value)
                if call is not None:
                    yield from (self.cell(call.args[i]) for i in call.inplace if i >= 0)


def base_of(cell: Cell) -> graph.Expr:
    """The variable (or constant) that a cell is part of."""
    while isinstance(cell, tuple):
        cell = cell[0]
    return cell


def overlaps(cell: Cell, others: Iterable[Cell]) -> bool:
    """Whether a cell is, contains or is part of one of the others."""
    return any(_inside(cell, o) or _inside(o, cell) for o in others)


def _inside(part: Cell, whole: Cell) -> bool:
    while part is not whole and part != whole and isinstance(part, tuple):
        part = part[0]
    return part is whole or part == whole


def overwritten_vars(fn: graph.Function, mod: Module) -> set[graph.Var]:
    """The variables of `fn` whose memory is overwritten somewhere in it."""
    aliases = Aliases(summary_of(mod))
    cells: set[Cell] = set()
    for b in all_bindings(fn):
        aliases.note(b)
        cells.update(aliases.overwritten(b.value))
    if not cells:
        return set()
    variables = (*fn.params, *(b.var for b in all_bindings(fn)))
    return {v for v in variables if overlaps(aliases.cell(v), cells)}


def overwritten_params(mod: Module) -> Mapping[str, frozenset[int]]:
    """Per graph function, the numbers of the parameters whose memory it, or what it calls,
    overwrites."""
    return summary_of(mod).overwriting


@lru_cache(maxsize=16)
def summary_of(mod: Module) -> Summary:
    """What callers must know of each function of the module."""
    known = Summary({name: frozenset() for name in mod.graph_functions()}, {})
    while True:
        overwriting: dict[str, frozenset[int]] = {}
        returning: dict[str, dict[Field, frozenset[Place]]] = {}
        for name, fn in mod.graph_functions().items():
            aliases = Aliases(known)
            cells: set[Cell] = set()
            for b in all_bindings(fn):
                aliases.note(b)
                cells.update(aliases.overwritten(b.value))
            bases = {base_of(c) for c in cells}
            overwriting[name] = frozenset(i for i, p in enumerate(fn.params) if p in bases)
            returning[name] = _returned(fn, aliases)
        new = Summary(overwriting, returning)
        if new == known:
            return known
        known = new


def _returned(fn: graph.Function, aliases: Aliases) -> dict[Field, frozenset[Place]]:
    """The parameters (or fields of them) that the result, or a field of it, may be."""
    body = fn.body.body
    cells: dict[Field, Cell] = {None: aliases.cell(body)}
    if isinstance(body, graph.Tuple):
        cells = {i: aliases.cell(f) for i, f in enumerate(body.fields)}
    cells |= {i: cell for (of, i), cell in aliases.tuple_fields() if of is body}
    found: dict[Field, frozenset[Place]] = {}
    for field, cell in cells.items():
        places = frozenset(p for c in aliases.may_be(cell) for p in _places(fn, c))
        if places:
            found[field] = places
    return found


def _places(fn: graph.Function, cell: Cell) -> Iterator[Place]:
    path: list[int] = []
    while isinstance(cell, tuple):
        cell, index = cell
        path.insert(0, index)
    yield from ((number, tuple(path)) for number, p in enumerate(fn.params) if cell is p)


def is_pure(value: graph.Expr, mod: Module) -> bool:
    """Whether evaluating `value` has no effect, so that it may be dropped. (A function that
    overwrites its arguments has one, though it may be declared pure.)"""
    match value:
        case graph.Call(graph.Op("call_tir_inplace" | "call_inplace_packed")):
            return False
        case graph.Call(graph.Op(name)):
            row = find_op(name)
            return row is not None and row.pure
        case graph.Call(graph.GlobalVar(name)):
            fn = mod.get(name)
            pure = isinstance(fn, graph.Function) and fn.is_pure
            return pure and not overwritten_params(mod).get(name)
        case graph.Call(graph.Var(_, types.FuncType() as ty)):
            return ty.is_pure
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
