"""The `repr` of every value that a user gets hold of: one line, or a screenful at most."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.op_table import op_names, op_row
from relaxlab.models.generate import TextGenerator
from relaxlab.ops.define import builder

SCREEN = (2000, 40)  # characters and lines

PROGRAM = """
@I.ir_module
class Scaled:
    @T.prim_func
    def scale(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 4), "float32"))
            z = R.nn.softmax(R.matmul(y, w))
            u = R.reshape(z, (n * 4,))
            R.output(u)
        return u
"""


def values() -> list[Any]:
    """Values of every kind that the public functions return, and what programs are made of."""
    mod = rl.parse(PROGRAM)
    trace = rl.trace(mod)
    exe, gpu = rl.compile(mod), rl.compile(mod, "cuda:sm_80")
    sch = rl.Schedule(mod["scale"])
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    with pytest.raises(rl.DiagnosticError) as wrong:
        rl.parse("@R.function\ndef f(x: R.Tensor((4,))):\n    return y\n")
    layer = nn.Linear(4, 8)
    return [
        mod, trace, exe, gpu, sch, wrong.value, layer, rl.lower_shapes(trace.result),
        rl.cpu_pipeline(), rl.cuda_pipeline(), rl.Target.host(), rl.Target.cuda("sm_90"),
        exe["main"], gpu["main"], rl.explore, builder("add"), rl.check(mod, runs=1),
        rl.is_op("add")(rl.wildcard(), rl.is_const()), TextGenerator.load("tiny"),
        rl.Attrs(a=1), rl.explore(mod), *map(op_row, op_names()),
    ]  # fmt: skip


def reached(roots: list[Any]) -> Iterator[Any]:
    """The values of relaxlab's types that public attributes lead to."""
    seen: dict[int, Any] = {}
    waiting = deque(roots)
    while waiting:
        value = waiting.popleft()
        if id(value) in seen or isinstance(value, str | int | float | bytes | np.ndarray | type):
            continue
        seen[id(value)] = value
        if isinstance(value, tuple | list | set | frozenset):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif type(value).__module__.startswith("relaxlab"):
            yield value
            slots = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
            names = [n for n in (*slots, *getattr(value, "__dict__", ())) if n[0] != "_"]
            waiting.extend(getattr(value, n) for n in names if hasattr(value, n))


def test_every_value_has_a_short_repr() -> None:
    kinds: set[type] = set()
    wrong: dict[type, str] = {}
    for value in reached(values()):
        kinds.add(type(value))
        text = repr(value)
        if len(text) > SCREEN[0] or text.count("\n") >= SCREEN[1] or " at 0x" in text:
            wrong[type(value)] = f"{len(text):,} characters: {text[:200]}"
    assert not wrong
    assert len(kinds) > 100


@pytest.mark.parametrize("name", sorted(rl.__all__))
def test_reprs_of_public_classes(name: str) -> None:
    found = getattr(rl, name)
    if inspect.isclass(found) and not issubclass(found, BaseException):
        assert found.__repr__ is not object.__repr__


def test_texts() -> None:
    mod = rl.parse(PROGRAM)
    assert repr(mod) == "Scaled(scale: loop function, main: graph function)"
    assert repr(rl.Target.cuda("sm_90")).startswith("Target(cuda, sm_90")
    assert repr(op_row("nn.softmax")) == "OpRow(nn.softmax(data, axis=-1))"
    assert repr(rl.cpu_pipeline()).startswith("Pipeline(") and "normal" in repr(rl.cpu_pipeline())
    assert str(mod) == mod.script()
    assert str(mod["scale"]) == mod["scale"].script()
    n = rl.expr.Var("n")
    assert repr(n * 4) == "Mul(n * 4: int64)"
    assert repr(rl.types.TensorType((n,), "float32")) == "R.Tensor((n,), 'float32')"
