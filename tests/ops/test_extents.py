"""Every lowered operator with other extents than it expects, none and one among them: it asks for
what it needs, or its loops stay within their buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, loops, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import TypeDeductionError, infer_with_conditions
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, Env, OpCase, T, random_arguments

CASES = [case for family in FAMILIES.values() for case in family()]
INDEXING = (
    "take index_tensor gather_nd gather_elements nn.nll_loss grad.nll_loss_backward index_put "
    "grad.take_backward multinomial_from_uniform scatter_elements scatter_nd"
).split()
Place = tuple[tuple[int, ...], int]


def tensors(args: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], T]]:
    """The tensor arguments with their places among the arguments."""
    for i, a in enumerate(args):
        if isinstance(a, T):
            yield (*path, i), a
        elif isinstance(a, tuple):
            yield from tensors(a, (*path, i))


def with_symbol(args: Any, places: list[Place], path: tuple[int, ...] = ()) -> Any:
    """The arguments with the symbol z for the extents at `places`."""
    changed: list[Any] = []
    for i, a in enumerate(args):
        here = (*path, i)
        if isinstance(a, T):
            dims = ("z" if (here, d) in places else n for d, n in enumerate(a.shape))
            a = T(*dims, dtype=a.dtype, low=a.low, high=a.high, values=a.values)
        elif isinstance(a, tuple):
            a = with_symbol(a, places, here)
        changed.append(a)
    return tuple(changed)


def variants(case: OpCase, extents: tuple[int, ...]) -> Iterator[tuple[OpCase, Env]]:
    """The case with its symbols, each constant extent, and all equal ones, set to `extents`."""
    sizes = dict(case.sizes[0])
    for name in sizes:
        yield from ((case, {**sizes, name: n}) for n in extents)
    places = [
        ((path, d), n)
        for path, t in tensors(case.args)
        for d, n in enumerate(t.shape)
        if isinstance(n, int)
    ]
    groups = [([place], n) for place, n in places]
    groups += [([p for p, m in places if m == n], n) for n in {n for _, n in places}]
    for group, n in groups:
        if len(group) == 1 or group not in [[p] for p, _ in places]:
            changed = replace(case, args=with_symbol(case.args, group))
            yield from ((changed, {**sizes, "z": z}) for z in extents if z != n)


def accepted(program: CaseProgram) -> tuple[types.Type, loops.PrimFunc] | None:
    """The deduced type and the loops; None where the call is refused or not lowered to loops."""
    row = program.row
    if row.lower is None:
        return None
    try:
        out, conditions = infer_with_conditions(row, program.call, program.types, None)
        func = row.lower(program.call, program.types, out)
    except TypeDeductionError:
        return None
    values = {v: program.env[name] for name, v in program.symbols.items()}
    return (out, func) if all(evaluate(c, values) for c, _ in conditions) else None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_accepted_files_stay_within_their_buffers(case: OpCase) -> None:
    for changed, env in variants(case, (0, 1)):
        try:
            program = CaseProgram(changed, env, symbolic=True)
        except TypeDeductionError:
            continue
        found = accepted(program)
        if found is None:
            continue
        out, func = found
        fields = out.fields if isinstance(out, types.TupleType) else (out,)
        results: list[Any] = []
        for ty in fields:
            assert isinstance(ty, types.TensorType) and ty.shape is not None
            shape = tuple(map(program.number, ty.shape))
            results.append(np.zeros(shape, numpy_dtype(ty.dtype or "")))
        scalars = [program.number(p) for p in func.params if isinstance(p, expr.Var)]
        args = [*random_arguments(changed, env, 0), *results, *scalars]
        try:
            interpret_prim_func(func, args)
        except ExecutionError as error:
            # Offsets and lengths may not fit the other extent: loops that check values refuse them.
            if "assertion failed" not in str(error):
                raise


def outcome(run: Any) -> Any:
    """A result, or that the call was refused."""
    try:
        return run()
    except (CheckFailed, ExecutionError):
        return "refused"


@pytest.mark.parametrize("op", INDEXING)
def test_native_code_and_the_interpreter_agree_on_empty_dimensions(op: str) -> None:
    case = next(c for c in CASES if c.op == op)
    seen: set[str] = set()
    for changed, env in variants(case, (0,)):
        try:
            program = CaseProgram(changed, env, symbolic=True)
        except TypeDeductionError:
            continue
        mod, wrong = annotate(Module((("main", program.function()),)))
        if wrong:
            continue
        args = [*random_arguments(changed, env, 0), tuple(env[n] for n in program.symbols)]
        want = outcome(lambda m=mod, a=args: rl.interpret(m, "main", *a))
        got = outcome(lambda m=mod, a=args: rl.compile(m, threads=1)["main"](*a))
        seen.add("refused" if isinstance(want, str) else "computed")
        np.testing.assert_array_equal(got, want, err_msg=f"{changed} with {dict(env)}")
    assert "computed" in seen


@pytest.mark.parametrize("op", ["concat", "stack"])
def test_hundreds_of_parts(op: str) -> None:
    """Parts of two symbolic extents in turns: choosing among them and adding their extents make
    shallow expressions."""
    parts = ["x", "y" if op == "concat" else "x"] * 75
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("m", 2), "float32")):
    z = R.{op}(({", ".join(parts)}), axis=0)
    return z
""")
    args = np.arange(6, dtype="float32").reshape(3, 2), np.ones((1, 2), "float32")
    want = getattr(np, "concatenate" if op == "concat" else op)([args[p == "y"] for p in parts])
    np.testing.assert_array_equal(rl.compile(mod, use_cache=False)["main"](*args), want)
