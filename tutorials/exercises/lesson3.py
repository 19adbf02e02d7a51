"""Checks of lesson 3, symbolic shapes."""

from __future__ import annotations

import numpy as np

from relaxlab.ir.graph import Call, Op, SeqExpr, Var
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import TensorType
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.normalize import normalize

from .compare import floats, graph_computes, graph_function, loop_function, loops_compute
from relaxlab.lab.verdict import Hint, exercise


@exercise
def add_one(answer: Module) -> str:
    """B = A + 1 for every (n, m)."""
    func = loop_function(answer, "add_one")
    ranks = [len(b.shape) for b in func.buffers]
    if ranks != [2, 2]:
        raise Hint("`add_one` must take two matrices, A and B")
    numbers = [str(d) for d in func.buffers[0].shape if not symbols_in(d)]
    if numbers:
        raise Hint(
            f"A still has the fixed size {' and '.join(numbers)}; declare symbols with "
            "`n, m = T.int64(), T.int64()` and use them in the shapes and in the loops"
        )
    for shape in ((3, 5), (1, 7), (5, 3)):
        where = f" (for the shape {shape})"
        loops_compute(answer, "add_one", [floats(*shape)], lambda a: a + 1, after=where)
    return "it runs for (3, 5), (1, 7) and (5, 3), and for any other shape."


@exercise
def puzzle(program: Module, shapes: dict[str, object]) -> str:
    """The deduced shapes of the program's values, as texts in n, or as tuples of such texts."""
    fn = normalize(program)["main"]
    for binding in all_bindings(fn):  # type: ignore[arg-type]
        var = binding.var
        assert isinstance(var.ty, TensorType) and var.ty.shape is not None
        text = shapes.get(var.name, ...)
        if isinstance(text, tuple | list):
            text = "(" + "".join(f"{part}, " for part in text) + ")"  # type: ignore[reportUnknownVariableType]
        if text is ... or text is None:
            call = binding.value
            name = call.op.name if isinstance(call, Call) and isinstance(call.op, Op) else "..."
            raise Hint(f"the shape of `{var.name}`, the result of R.{name}, is missing")
        _same_shape(var.name, str(text), "(" + ", ".join(map(str, var.ty.shape)) + ",)")
    return "these are the shapes that the compiler deduces."


def _same_shape(name: str, text: str, deduced: str) -> None:
    """Two shapes are equal for some values of n. Raises Hint."""
    for n in (5, 7):
        want = eval(deduced, {"n": n})  # noqa: S307  a text of our own printer
        try:
            got = eval(text, {"n": n})  # noqa: S307  what the learner has typed in the cell above
        except Exception as error:
            raise Hint(f"the shape of `{name}`, {text!r}, is no expression: {error}") from None
        if isinstance(got, list):
            got = tuple(got)
        if not isinstance(got, tuple):
            raise Hint(f"the shape of `{name}` must be a tuple: {text!r} lacks a comma or brackets")
        if len(got) != len(want):  # type: ignore[reportUnknownArgumentType]
            raise Hint(f"`{name}` has {len(want)} dimensions, your shape {text} has {len(got)}")  # type: ignore
        if got != want:
            raise Hint(f"for n = {n}, `{name}` has the shape {want}; yours, {text}, gives {got}")


@exercise
def heads(answer: Module) -> str:
    """(n, 12) to (3, n, 4)."""
    for p in graph_function(answer, "heads").params:
        if isinstance(p.ty, TensorType) and p.ty.shape is not None and not symbols_in(p.ty.shape):
            raise Hint(
                f'{p.name} is {p.ty}, which takes one size only; write '
                '`R.Tensor(("n", 12), "float32")` and declare `n = T.int64()` in the body'
            )
    for n in (5, 1, 7):
        graph_computes(
            answer, "heads", [floats(n, 12)],
            lambda x: x.reshape(-1, 3, 4).transpose(1, 0, 2), after=f" (for n = {n})",
        )  # fmt: skip
    return "three heads in front, for any number of rows."


@exercise
def places(answer: Module) -> str:
    """The places of the numbers that are not zero, with a known shape."""
    for numbers in ([0, 3, 0, 0, -1], [1, 0, 2, 5]):
        x = np.array(numbers, "float32")
        graph_computes(answer, "places", [x], lambda x: np.flatnonzero(x), after=f" (for {x})")
    body = graph_function(normalize(answer), "places").body
    ty = body.body.ty if isinstance(body, SeqExpr) and isinstance(body.body, Var) else None
    if not isinstance(ty, TensorType) or ty.shape is None:
        raise Hint(
            f"the result is right, but of its type only this is known: {ty}. Put "
            '`R.match_cast(..., R.Tensor((1, m), "int64"))` around R.nonzero(x)'
        )
    return f"the result's type is {ty}, and it stays exact from here on."
