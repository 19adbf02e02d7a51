"""The NumPy references against PyTorch, on drawn calls of every operator that PyTorch has."""

from __future__ import annotations

import math
import pathlib
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.op_table import op_row
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.check.compare import Tolerance, difference
from relaxlab.runtime.check.inputs import copy_value, roundoff
from relaxlab.testing.draw_rules import RULES
from relaxlab.testing.table_programs import TableProgram
from relaxlab.testing.torch_functions import encoded, read, write

PYTHON = pathlib.Path(__file__).parents[2] / ".venv-reference/bin/python"
"""The environment with PyTorch, which `make reference-env` installs."""


@dataclass(frozen=True, slots=True)
class ConcreteCall:
    """A drawn call with arrays; `seed` draws it again."""

    op: str
    seed: int
    args: tuple[Any, ...]
    attrs: dict[str, Any]


def concrete_call(op: str, seed: int) -> ConcreteCall | None:
    """Draw a call of an operator over float32, float64 and integers; None where none fitted."""
    made = TableProgram(seed)
    made.draw.floats = ("float32", "float64")
    call = made.drawn_call(op)
    if call is None:
        return None
    rng = np.random.default_rng(seed)
    sizes = made.draw.sizes

    def value(e: Any) -> Any:
        match e:
            case graph.Var():
                shape = tuple(made.draw.size(d) for d in e.ty.shape)  # type: ignore
                return made.draw.inputs[e].array(shape, e.ty.dtype, sizes, rng)  # type: ignore
            case graph.Tuple(fields):
                return tuple(map(value, fields))
            case graph.ShapeExpr(values):
                return tuple(evaluate(v, sizes) for v in values)
            case graph.DataTypeImm(dtype):
                return dtype
            case graph.PrimValue(scalar):
                return evaluate(scalar, sizes)
            case expr.PrimExpr():
                return evaluate(e, sizes)
            case tuple():
                return tuple(map(value, e))
            case _:
                return e

    args = tuple(map(value, call.args))
    return ConcreteCall(op, seed, args, {k: value(v) for k, v in call.attrs.items()})


def compared(calls: list[ConcreteCall]) -> tuple[list[str], Counter[str | None]]:
    """Ask PyTorch for the results of calls. Return the differences in words, and per operator the
    number of calls that PyTorch took; None stands for those that it has no function for."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = (pathlib.Path(folder) / n for n in ("calls", "answers"))
        write([(c.op, c.args, c.attrs) for c in calls], source)
        program = pathlib.Path(__file__).with_name("torch_functions.py")
        subprocess.run([PYTHON, "-W", "ignore", program, source, target], check=True, timeout=600)
        theirs = read(target)
    problems: list[str] = []
    taken: Counter[str | None] = Counter()
    for call, answer in zip(calls, theirs, strict=True):
        if answer is None or isinstance(answer, str):
            taken[None] += 1
            continue
        taken[call.op] += 1
        found = _difference(call, answer)
        if found is not None:
            problems.append(f"{call.op} with seed {call.seed}, {call.attrs}: {found}")
    return problems, taken


def _difference(call: ConcreteCall, theirs: Any) -> str | None:
    reference = op_row(call.op).reference
    assert reference is not None
    try:
        ours = reference(*copy_value(call.args), **call.attrs)
    except (ValueError, IndexError, ExecutionError) as error:
        return f"the reference raises {type(error).__name__}: {error}"
    dtypes = {str(a.dtype) for a in _leaves(ours) + _leaves(call.args)}
    unit = max((roundoff(d) for d in dtypes if is_float(d)), default=0.0)
    length = max((a.size for a in _leaves(call.args)), default=1)  # summed in another order
    found = difference(ours, theirs, call.op, Tolerance(unit, length, _terms(call, unit)))
    return None if found is None else str(found)


def _terms(call: ConcreteCall, unit: float) -> tuple[float, ...]:
    """The rounding error of the terms that PyTorch subtracts in a norm: the data and their mean,
    divided by a deviation of at least the root of `epsilon`. Where the data are equal, as a single
    number is, the result is nothing else."""
    if "epsilon" not in call.attrs:
        return ()
    largest = float(np.abs(np.asarray(call.args[0], "float64")).max(initial=0.0))
    return (unit * largest / math.sqrt(call.attrs["epsilon"]),)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [a for v in value for a in _leaves(v)]
    return [value] if isinstance(value, np.ndarray | np.generic) else []


def compare_references(seed: int, rounds: int) -> tuple[list[str], Counter[str | None]]:
    """Compare so many drawn calls of each operator with PyTorch; see `compared`."""
    drawn = (concrete_call(op, seed + i) for i in range(rounds) for op in sorted(RULES))
    return compared([c for c in drawn if c is not None and _can_be_asked(c)])


def _can_be_asked(call: ConcreteCall) -> bool:
    """False for attributes that PyTorch has nothing like, such as index maps."""
    try:
        encoded(call.attrs, {})
    except TypeError:
        return False
    return True
