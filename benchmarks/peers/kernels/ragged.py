"""relaxlab on sequences and matrices of different lengths: one compilation for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import relaxlab
from benchmarks.kernels import matrices
from benchmarks.kernels.cases import Array, Case
from benchmarks.kernels.kind import EPS
from benchmarks.kernels.sequences import HEAD_DIM, HEADS, INNER, WIDTH, parsed
from benchmarks.peers.kernels.base import Fetch, Kernels
from relaxlab.runtime.large_pages import in_large_pages
from relaxlab.testing.ragged_programs import (
    MIX_OF,
    SCORES_OF,
    SOFTMAX_OF,
    TRIANGULAR_ADD,
    TRMM,
    VGEMM,
)  # fmt: skip


def _vector(name: str, size: int = WIDTH) -> str:
    return f'{name}: R.Tensor(({size},), "float32")'


def _matrix(name: str, outputs: int, inputs: int) -> str:
    return f'{name}: R.Tensor(({outputs}, {inputs}), "float32")'


X = f'x: R.Tensor(("n", {WIDTH}), "float32")'
HEADS_OF_ROWS = f'R.Tensor(("n", {HEADS}, {HEAD_DIM}), "float32")'
QKV = (_matrix("wi", 3 * WIDTH, WIDTH), _vector("bi", 3 * WIDTH))
INNER_LAYER = (
    _matrix("w1", INNER, WIDTH), _vector("b1", INNER), _matrix("w2", WIDTH, INNER), _vector("b2"),
)  # fmt: skip
WEIGHTS = (
    *QKV, _matrix("wo", WIDTH, WIDTH), _vector("bo"), _vector("g1"), _vector("c1"), *INNER_LAYER,
    _vector("g2"), _vector("c2"),
)  # fmt: skip
GRAPHS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "attention": (
        ", ".join(f"{name}: {HEADS_OF_ROWS}" for name in "qkv"), (),
        ("y = R.nn.ragged_attention(q, k, v, s)",),
    ),
    "encoder": (X, WEIGHTS, (
        f"p = R.reshape(R.linear(x, wi, bi), (n, {3 * HEADS}, {HEAD_DIM}))",
        "t = R.split(p, 3, axis=1)",
        f"a = R.reshape(R.nn.ragged_attention(t[0], t[1], t[2], s), (n, {WIDTH}))",
        f"h = R.nn.layer_norm(x + R.linear(a, wo, bo), g1, c1, axes=[-1], epsilon={EPS})",
        "f = R.nn.relu(R.linear(h, w1, b1))",
        f"y = R.nn.layer_norm(h + R.linear(f, w2, b2), g2, c2, axes=[-1], epsilon={EPS})",
    )),
    "projections": (X, QKV, ("y = R.linear(x, wi, bi)",)),
    "layer norm": (X, (_vector("g"), _vector("c")), (
        f"y = R.nn.layer_norm(x, g, c, axes=[-1], epsilon={EPS})",
    )),
    "feed forward": (X, INNER_LAYER, (
        "y = R.linear(R.nn.relu(R.linear(x, w1, b1)), w2, b2)",
    )),
    "key ranges": ('x: R.Tensor(("n",), "float32")', (), (
        'o = R.concat((R.const([0], "int64"), R.cumsum(s, axis=0, dtype="int64")), axis=0)',
        "y = R.nn.key_ranges(R.shape([n, n]), o, whole=True)",
    )),
}  # fmt: skip
"""Parameters after the lengths, those of them that are weights, and the steps to the result y."""
LOOPS = {
    name: template.substitute(heads=HEADS, features=HEAD_DIM)
    for name, template in (("scores", SCORES_OF), ("softmax", SOFTMAX_OF), ("mix", MIX_OF))
}
"""Loop functions on stored scores."""


def script(what: str) -> str:
    """The module that computes what a kind is called after."""
    rows, weights, steps = GRAPHS[what]
    lines = "\n".join(f"            {step}" for step in steps)
    return f"""
@I.ir_module
class Program:
    @R.function
    def main(s: R.Tensor(("b",), "int32"), {", ".join((rows, *weights))}):
        R.func_attr({{"num_input": {1 + rows.count(": ")}}})
        n = T.int64()
        with R.dataflow():
{lines}
            R.output(y)
        return y
"""


class RelaxlabRagged(Kernels):
    """Compiled with an empty cache; weights are packed and bound once."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads
        self._programs: dict[str, relaxlab.Executable] = {}
        self.about = {"version": relaxlab.__version__}

    def _program(self, what: str, text: str) -> relaxlab.Executable:
        if what not in self._programs:
            made = relaxlab.compile(
                relaxlab.parse(text), threads=self._threads, use_cache=False
            )
            self._programs[what] = made
        return self._programs[what]

    def prepare(self, case: Mapping[str, Any], file: str | None = None) -> dict[str, Any]:
        """With the bytes of temporaries that the program holds after its first run."""
        found = super().prepare(case, file)
        what, _ = parsed(case["kind"])
        return found | {"arena_bytes": self._programs[what].arena_bytes()}

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        what, lengths = parsed(case.kind)
        if what in LOOPS:
            return self._loops(what, case, lengths.astype("int64"), arrays)
        rows, weights, _ = GRAPHS[what]
        program = self._program(what, script(what))
        main, count = program["main"], rows.count(": ")
        if weights and not main.bound:
            program.load(list(arrays[count:]))
            main.bind_packed(*in_large_pages(main.bound))
        held = in_large_pages(arrays[:count])
        last: list[Any] = []

        def run() -> None:
            last[:] = [main(lengths, *held)]

        return run, lambda: np.stack(last[0]) if isinstance(last[0], tuple) else last[0]

    def _loops(
        self, what: str, case: Case, lengths: Array, arrays: Sequence[Array]
    ) -> tuple[Callable[[], Any], Fetch]:
        """Results go to memory that exists. The offsets are the caller's, as between the layers of
        a model."""
        program = self._program(what, LOOPS[what])
        n, scores = case.sizes["n"], HEADS * case.sizes["u"]
        shape = (n, HEADS, HEAD_DIM) if what == "mix" else (scores,)
        (*held, out) = in_large_pages([*arrays, np.empty(shape, "float32")])
        offsets = [lengths, matrices.starts(lengths), matrices.starts(lengths, lengths)]
        scalars = [n] if what == "softmax" else []
        return lambda: program[what](*offsets, *held, out, *scalars), lambda: out


RAGGED = {"vgemm": VGEMM, "trmm": TRMM, "triangular_add": TRIANGULAR_ADD}
"""Loop functions of matrices of different sizes, and of triangular ones."""


def _of_two(body: str, second: str) -> str:
    """A graph function of two matrices."""
    return f"""
@R.function
def main(a: R.Tensor(("m", "k"), "float32"), b: R.Tensor(("k", "{second}"), "float32")):
    with R.dataflow():
        y = {body}
        R.output(y)
    return y
"""


PRODUCT, SUM = _of_two("R.matmul(a, b)", "n"), _of_two("R.add(a, b)", "k").replace('"m"', '"k"')
DENSE = {"vgemm": PRODUCT, "trmm": PRODUCT, "triangular_add": SUM}
"""The programs on one dense matrix, by kind."""


class RelaxlabMatrices(Kernels):
    """Products of matrices of different sizes, and triangular ones; with `dense` by one `R.matmul`
    for each, and by `R.add`, on arrays that have zeros above the diagonal."""

    def __init__(self, threads: int, *, dense: bool = False) -> None:
        super().__init__()
        self._threads, self._dense = threads, dense
        self.about = {"version": relaxlab.__version__}

    def _program(self, name: str) -> Any:
        mod = relaxlab.parse((DENSE if self._dense else RAGGED)[name])
        made = relaxlab.compile(mod, threads=self._threads, use_cache=False)
        return made["main" if self._dense else name]

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        if case.kind.startswith("products"):
            return self._products(matrices.sizes_of(int(case.kind.rpartition(" ")[2])), arrays)
        product = case.kind == "triangular product"
        run = self._program("trmm" if product else "triangular_add")
        a, b = (x if product and at else np.tril(x) for at, x in enumerate(arrays))
        held = in_large_pages([a, b, np.zeros_like(a)])
        if self._dense:
            return _kept(lambda: run(*held[:2]))
        return lambda: run(*held), lambda: held[2]

    def _products(self, sizes: Array, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        m, n, k = sizes
        offsets = [matrices.starts(*pair) for pair in ((m, k), (k, n), (m, n))]
        a, b, c = in_large_pages([*arrays, np.empty(int(offsets[2][-1]), "float32")])
        run = self._program("vgemm")
        if not self._dense:
            return lambda: run(m, n, k, *offsets, a, b, c), lambda: c
        pairs = list(zip(matrices.split(a, m, k), matrices.split(b, k, n), strict=True))
        parts, fetch = _kept(lambda: [run(x, y) for x, y in pairs])
        return parts, lambda: np.concatenate([np.ravel(x) for x in fetch()])


def _kept(run: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The function, keeping its last result, and that result."""
    last: list[Any] = []

    def keep() -> None:
        last[:] = [run()]

    return keep, lambda: last[0]
