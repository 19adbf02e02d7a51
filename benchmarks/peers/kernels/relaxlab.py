"""relaxlab: one compilation for all sizes of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import relaxlab
from benchmarks.kernels.cases import HEAD_DIM, HEADS, KINDS, Array, Case
from benchmarks.kernels.kind import EPS
from benchmarks.peers.kernels.base import Fetch, Kernels
from relaxlab.runtime.large_pages import in_large_pages

_HEAD = """
@I.ir_module
class Program:
    @R.function
    def main({params}):
{attrs}        with R.dataflow():
            y = {body}
            R.output(y)
        return y
"""

_PLANNED = """
@I.ir_module
class Program:
    @T.prim_func
    def last(whole: T.handle, element: T.handle):
{sizes}
        x = T.match_buffer(whole, ({dims},), "float32")
        y = T.match_buffer(element, (1,), "float32")
        for i in range(1):
            with T.block("last"):
                vi = T.axis.spatial(1, i)
                y[vi] = x[{index}]

    @R.function
    def whole({params}):
        with R.dataflow():
            y = {body}
            R.output(y)
        return y

    @R.function
    def main({params}):
        cls = Program
        with R.dataflow():
            y = {body}
            z = R.call_tir(cls.last, (y,), out_ty=R.Tensor((1,), "float32"))
            R.output(z)
        return z
"""
"""The result of `main` stays in the planned arena, of which a loop function reads one element;
`whole` returns it."""

ROWS = '("n", {d})'
FUNCTIONS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "gemm": ({"a": '("m", {k})', "b": "({k}, {n})"}, "R.matmul(a, b)"),
    "matmul+bias+gelu": (
        {"a": '("m", {k})', "bias": "({n},)", "b": "({k}, {n})"},
        "R.nn.gelu(R.add(R.matmul(a, b), bias))",
    ),
    "attention": (
        {
            "q": f'(1, "s", {HEADS}, {HEAD_DIM})',
            "k": f'(1, "s", {{kv}}, {HEAD_DIM})',
            "v": f'(1, "s", {{kv}}, {HEAD_DIM})',
        },
        'R.nn.attention(q, k, v, causal_mask="TopLeft")',
    ),
    "softmax": ({"x": '("n", "d")'}, "R.nn.softmax(x, axis=-1)"),
    "layer norm": (
        {"x": ROWS, "w": "({d},)", "b": "({d},)"},
        f"R.nn.layer_norm(x, w, b, axes=[-1], epsilon={EPS})",
    ),
    "rms norm": ({"x": ROWS, "w": "({d},)"}, f"R.nn.rms_norm(x, w, axes=[-1], epsilon={EPS})"),
    "rms norm(a@b + x)": (
        {"x": ROWS, "a": '("n", {r})', "b": "({r}, {d})", "w": "({d},)"},
        f"R.nn.rms_norm(R.add(R.matmul(a, b), x), w, axes=[-1], epsilon={EPS})",
    ),
    "gelu(x)*x + 1": (
        {"x": '("n", "d")'},
        'R.add(R.multiply(R.nn.gelu(x), x), R.const(1, "float32"))',
    ),
    "row sum": ({"x": '("n", "d")'}, "R.sum(x, axis=-1)"),
    "row max": ({"x": '("n", "d")'}, "R.max(x, axis=-1)"),
}
"""Parameters with their shapes, and the result. Names in quotes are symbols; what stands in braces
is a constant of the program: widths of layers."""


class RelaxlabKernels(Kernels):
    """Compiled with an empty cache. A constant argument is packed and bound once for all cases of a
    program: they differ in their inputs alone, as `inputs` draws equal weights for equal shapes."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads
        self._programs: dict[str, relaxlab.Executable] = {}
        self.about = {"version": relaxlab.__version__}

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        text = script(case)
        if text not in self._programs:
            mod = relaxlab.parse(text)
            self._programs[text] = relaxlab.compile(mod, threads=self._threads, use_cache=False)
        program = self._programs[text]
        held = in_large_pages(arrays)
        main = program["main"]
        if case.constant:
            *held, weight = held
            if not main.bound:
                program.load([weight])
                main.bind_packed(*in_large_pages(main.bound))
        if case.planned:
            return lambda: main(*held), lambda: program["whole"](*held)
        last: list[Array] = []

        def run() -> None:
            last[:] = [main(*held)]

        return run, lambda: last[0]

    def forget(self) -> dict[str, Any]:
        """The programs, too: their arenas are as large as the largest case."""
        self._programs.clear()
        return super().forget()


def script(case: Case) -> str:
    """The module that computes the case, at any values of its symbols."""
    params, body = FUNCTIONS[case.kind]
    sizes = {"kv": HEADS, **case.sizes}
    text = ", ".join(
        f'{name}: R.Tensor({shape.format(**sizes)}, "float32")' for name, shape in params.items()
    )
    if not case.planned:
        attrs = {"num_input": len(params) - 1}
        line = f"        R.func_attr({attrs})\n" if case.constant else ""
        return _HEAD.format(params=text, body=body, attrs=line)
    dims = ("n", "d")[: len(KINDS[case.kind].result(sizes))]
    return _PLANNED.format(
        params=text, body=body, dims=", ".join(dims),
        sizes="\n".join(f"        {d} = T.int64()" for d in dims),
        index=", ".join(f"{d} - 1" for d in dims),
    )  # fmt: skip
