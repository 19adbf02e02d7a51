"""The calls that may write their result over an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import find_op, has_trait
from relaxlab.passes.bindings import all_bindings, tir_call
from relaxlab.passes.effects import Aliases, Cell, base_of, donated_params, overlaps, summary_of

Places = Callable[[graph.Expr], Sequence[int]]
"""The numbers of the arguments that a call could write its result over."""


def inplace_updates(fn: graph.Function, mod: Module) -> set[graph.Var]:
    """Return the variables of the function whose values may overwrite the first argument of the
    operator that makes them (see `OpRow.update`)."""
    return set(overwritable(fn, mod, lambda value: (0,) if _may_update(value) else ()))


def overwritable(fn: graph.Function, mod: Module, places: Places) -> dict[graph.Var, int]:
    """Return the variables of the function whose values may overwrite an argument of the call that
    makes them, with its number, the first of those in `places` that is the function's own memory,
    made by a call or donated by the caller, and that nothing reads afterwards. What a packed
    function was given is left alone: its result may be the argument itself, or hold on to it.

    TVM's pass DataflowUseInplaceCalls asks the same within dataflow blocks.
    """
    bindings = list(all_bindings(fn))
    if not any(places(b.value) for b in bindings):
        return {}
    aliases = Aliases(summary_of(mod))
    for b in bindings:
        aliases.note(b)
    # By variables: those of each later binding once more for each update took 16 s for 4000.
    reads: dict[graph.Expr, list[tuple[int, Cell]]] = {}
    for number, cells in enumerate(_reads(fn.body, aliases)):
        for c in cells:
            reads.setdefault(base_of(c), []).append((number, c))
    kept: dict[graph.Expr, list[Cell]] = {}
    for b in bindings:
        for c in aliases.read(b.value) if _may_keep(b.value) else ():
            kept.setdefault(base_of(c), []).append(c)
    own: set[graph.Expr] = {fn.params[i] for i in donated_params(fn)}
    found: dict[graph.Var, int] = {}
    for number, b in enumerate(bindings):
        if _makes_memory(b.value, aliases, own):
            own.add(b.var)
        for at in places(b.value):
            args = arguments_of(b.value)
            lost = aliases.cell(args[at])
            # A value that may be one of several is not known to be the function's own.
            if lost not in own or aliases.sharing(lost) != {lost}:
                continue
            base = base_of(lost)
            others = [c for i, a in enumerate(args) if i != at for c in aliases.read(a)]
            later = (c for n, c in reversed(reads.get(base, [])) if n > number)
            if not any(overlaps(c, (lost,)) for c in (*others, *later, *kept.get(base, ()))):
                found[b.var] = at
                break
    return found


def arguments_of(value: graph.Expr) -> Sequence[graph.Expr]:
    """The arguments of the call of an operator, or of a loop function."""
    call = tir_call(value)
    if call is not None:
        return call.args
    assert isinstance(value, graph.Call)
    return value.args


def _may_update(value: graph.Expr) -> bool:
    """True if a call's operator can write over its first argument."""
    if not isinstance(value, graph.Call) or not isinstance(value.op, graph.Op):
        return False
    row = find_op(value.op.name)
    return row is not None and row.update is not None


def _may_keep(value: graph.Expr) -> bool:
    """True for a call of a packed function that returns values of its own choice."""
    match value:
        case graph.Call(graph.ExternFunc()):
            return True
        case graph.Call(graph.Op(name)):
            return has_trait(name, "calls_packed") and not has_trait(name, "fills_outputs")
        case _:
            return False


def _makes_memory(value: graph.Expr, aliases: Aliases, own: set[graph.Expr]) -> bool:
    """True if a call makes a tensor in memory of its own, or in memory that the function owns."""
    call = tir_call(value)
    if call is not None:
        overwritten = [call.args[i] for i in call.inplace if i >= 0]
        return len(call.outs) == 1 and all(aliases.cell(a) in own for a in overwritten)
    match value:
        case graph.Call(graph.Op(name)):
            row = find_op(name)
            return row is not None and row.lower is not None and not has_trait(name, "view")
        case _:
            return False


def _reads(seq: graph.SeqExpr, aliases: Aliases) -> list[Sequence[Cell]]:
    """Return the cells that each binding reads, in the order of `all_bindings`, and after these
    what the result reads. What a branch returns counts as read by its `If`."""
    found: list[Sequence[Cell]] = []
    for block in seq.blocks:
        for b in block.bindings:
            if isinstance(b.value, graph.If):
                *yes, yes_result = _reads(b.value.true_branch, aliases)
                *no, no_result = _reads(b.value.false_branch, aliases)
                own = tuple(aliases.read(b.value.condition))
                found += [*yes, *no, (*own, *yes_result, *no_result)]
            else:
                found.append(tuple(aliases.read(b.value)))
    found.append(tuple(aliases.read(seq.body)))
    return found
