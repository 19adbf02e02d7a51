"""Let a batch compute a block once for equal operands (memoisation of what reads weights alone)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.node import walk
from relaxlab.tracing import may_apply


def memoize_blocks(
    functions: Mapping[str, rec.RecordingFunction], blocks: Iterable[rec.BatchBlock]
) -> dict[str, rec.RecordingFunction]:
    """Mark the blocks whose operands are integers, weights, and results of blocks like it: a
    word's vector, and its product by a weight. Instances that ask for the same, such as trees with
    the same word, share one note.

    Blocks whose depth is counted are left out: one that is noted later could be read earlier. So
    is all that reads an instance's own tensors, of which no two are the same.
    """
    individual = _individual(functions)
    names = [b.name for b in blocks]
    allowed: dict[int, bool] = {}

    def step(of: rec.Step) -> rec.Step:
        match of:
            case rec.Record() if of.static_depth is not None and not _reads(of.inputs, individual):
                name = names[of.block]
                if of.block not in allowed:
                    why = "its operands are weights and integers: computed once for each of these"
                    allowed[of.block] = may_apply("memoize_blocks", name, why)
                return replace(of, memoized=allowed[of.block])
            case rec.Together(members):
                return replace(of, members=tuple(map(step, members)))
            case rec.Branch(then_steps=yes, else_steps=no):
                arms = {"then_steps": tuple(map(step, yes)), "else_steps": tuple(map(step, no))}
                return replace(of, **arms)
            case _:
                return of

    return {n: replace(f, steps=tuple(map(step, f.steps))) for n, f in functions.items()}


def _reads(values: Iterable[expr.PrimExpr], variables: set[expr.Var]) -> bool:
    return any(n in variables for e in values for n in walk(e))


def _individual(functions: Mapping[str, rec.RecordingFunction]) -> set[expr.Var]:
    """The variables whose slot differs from instance to instance: rows and arrays that instances
    give, words of their values, and what is computed from such or at a counted depth."""
    found: set[expr.Var] = set()

    def pass_on(values: Iterable[expr.PrimExpr], to: Iterable[expr.Var]) -> None:
        found.update(v for e, v in zip(values, to, strict=True) if _reads((e,), found))

    def step(of: rec.Step) -> None:
        match of:
            case rec.WholeInput(var) | rec.InputRow(var) | rec.SharedRow(var):
                found.add(var)
            case rec.Construct(var) | rec.ReadWord(var):
                found.add(var)
            case rec.Record() if of.static_depth is None or _reads(of.inputs, found):
                found.update(of.outputs)
            case rec.Call(name, args, results):
                pass_on(args, functions[name].params)
                pass_on(functions[name].results, results)
            case rec.Branch():
                pass_on(of.then_values, of.results)
                pass_on(of.else_values, of.results)
            case _:
                pass

    before = -1
    while before < len(found):
        before = len(found)
        for f in functions.values():
            for s in rec.walk_steps(f.steps):
                step(s)
    return found
