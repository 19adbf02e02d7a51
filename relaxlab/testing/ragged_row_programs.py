"""Random programs on tensors with an element for each row of each sequence, whose rows differ in
length: words of sentences of documents. What they compute for each row is by NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from relaxlab.ir.module import Module
from relaxlab.testing.ragged_tensor_programs import (
    WEIGHT,
    Array,
    DrawnProgram,
    Extent,
    Step,
    operands_of,
    softmax,
)

EXTENTS = (
    Extent("t[i, j]", lambda i, b, t, u: t),
    Extent("u[i, j]", lambda i, b, t, u: u),
    Extent("(t[i, j] + 3) // 4", lambda i, b, t, u: (t + 3) // 4),
    Extent("t[i, j] % 3", lambda i, b, t, u: t % 3),
    Extent("t[i, j] * 2 + 1", lambda i, b, t, u: 2 * t + 1),
    Extent("t[i, j] + u[i, j]", lambda i, b, t, u: t + u),
    Extent("T.min(t[i, j], u[i, j])", lambda i, b, t, u: min(t, u)),
    Extent("T.max(t[i, j] - 2, 0)", lambda i, b, t, u: max(t - 2, 0)),
)
HEADS, FEATURES = 2, 4
KINDS = {
    "p": ("A", FEATURES),
    "q": ("B", FEATURES),
    "a": (HEADS, "A", "B"),
    "m": ("A",),
    "v": (FEATURES,),
}
"""The dimensions of the values of each kind, after those that count the sequences and the rows; of
kind d there is a vector for each sequence."""

STEPS = (
    Step("p", "R.add({p}, R.tanh({p}))", lambda x, y: x + np.tanh(y)),
    Step("q", "R.multiply({q}, R.sigmoid({q}))", lambda x, y: x / (1 + np.exp(-y))),
    Step("p", "R.nn.softmax({p}, axis=2)", lambda x: softmax(x, 0)),
    Step("q", "R.nn.softmax({q}, axis=3)", lambda x: softmax(x, 1)),
    Step("a", "R.nn.softmax({a}, axis=4)", lambda x: softmax(x, 2)),
    Step("p", "R.tanh(R.cumsum({p}, axis=2))", lambda x: np.tanh(x.cumsum(0))),
    Step("q", "R.flip({q}, axis=2)", lambda x: x[::-1]),
    Step("m", "R.sort({m}, axis=2)", np.sort),
    Step("m", "R.sum({p}, axis=3)", lambda x: x.sum(1)),
    Step("m", "R.tanh(R.sum({a}, axis=[2, 4]))", lambda x: np.tanh(x.sum((0, 2)))),
    Step("v", "R.tanh(R.sum({p}, axis=2))", lambda x: np.tanh(x.sum(0))),
    Step("v", "R.tanh(R.sum({q}, axis=2)) * {v}", lambda x, y: np.tanh(x.sum(0)) * y),
    Step("p", "R.subtract({p}, R.expand_dims({v}, axis=2))", lambda x, y: x - y),
    Step("p", "{p} * R.expand_dims({m}, axis=3)", lambda x, y: x * y[:, None]),
    Step("v", "R.tanh({v} @ w)", lambda x: np.tanh(x @ WEIGHT)),
    Step("q", "R.tanh(R.linear({q}, w))", lambda x: np.tanh(x @ WEIGHT.T)),
    Step("a", "R.tanh({a} + R.expand_dims(R.matmul({p}, R.permute_dims({q}, axes=[0, 1, 3, 2])), "
         "axis=2))", lambda x, y, z: np.tanh(x + y @ z.T)),
    Step("p", "R.tanh(R.sum(R.matmul({a}, R.expand_dims({q}, axis=2)), axis=2))",
         lambda x, y: np.tanh((x @ y).sum(0))),
    Step("q", "R.tanh(R.einsum(({a}, {p}), 'bshij,bsif->bsjf'))",
         lambda x, y: np.tanh(np.einsum("hij,if->jf", x, y))),
    Step("p", "R.strided_slice(R.concat(({p}, {q}), axis=2), axes=[2], begin=[0], end=[<A>])",
         lambda x, y: x),
    Step("q", "R.strided_slice(R.concat(({p}, {q}), axis=2), axes=[2], begin=[<A>], "
         "end=[<A> + <B>])", lambda x, y: y),
    Step("p", "R.reshape(R.tanh(R.reshape({p}, (0, 0, <A> * 4))), (0, 0, <A>, 4))", np.tanh),
    Step("q", "R.reshape(R.reshape({q}, (0, 0, <B>, 2, 2)), (0, 0, <B>, 4))", lambda x: x),
    Step("p", "R.where(R.greater({p}, R.const(0, 'float32')), {p}, R.zeros_like({p}))",
         lambda x, y, _: np.where(x > 0, y, 0)),
    Step("a", "R.tril({a}, 1)", lambda x: np.tril(x, 1)),
    Step("p", "R.tanh({p} + R.broadcast_to(R.sum({q}, axis=2, keepdims=True), (b, s[i], <A>, 4)))",
         lambda x, y: np.tanh(x + y.sum(0, keepdims=True))),
)  # fmt: skip
OF_SEQUENCES = (
    Step("d", "R.tanh(R.sum({v}, axis=1))", lambda x: np.tanh(x.sum(0))),
    Step("v", "R.tanh({v} + R.expand_dims({d}, axis=1))", lambda x, y: np.tanh(x + y)),
    Step("v", "R.nn.softmax({v}, axis=1)", lambda x: softmax(x, 0)),
    Step("v", "R.flip({v}, axis=1)", lambda x: x[::-1]),
)  # fmt: skip
"""Steps over the rows of a sequence, of which none has a length."""


@dataclass(frozen=True, slots=True)
class RowProgram(DrawnProgram):
    """A program on values with rows for each row of each sequence."""

    EXTENTS, STEPS, KINDS = EXTENTS, (*STEPS, *OF_SEQUENCES), KINDS

    @staticmethod
    def of(step: Step, a: Extent = EXTENTS[0], b: Extent = EXTENTS[1]) -> RowProgram:
        """A program of one step."""
        taken = tuple(f"{kind}0" for kind in operands_of(step))
        return RowProgram({"A": a, "B": b}, ((step, taken, f"{step.kind}1"),), (f"{step.kind}1",))

    def module(self) -> Module:
        """The program in the script language; it takes lengths of sequences and two of rows, a
        value of each kind, and a weight."""
        return self.with_parameters(
            '    s: R.Lengths("b", "n", at_most=32), t: R.Lengths("n", "m", at_most=64),',
            '    u: R.Lengths("n", "l", at_most=64), rows: R.Shape(["m", "l"]),',
            *(f"    {kind}0: {self._type(dims)}," for kind, dims in KINDS.items()),
            '    d0: R.Tensor(("b", 4), "float32"),',
            '    w: R.Tensor((4, 4), "float32"),',
        )

    def _type(self, dims: tuple[str | int, ...]) -> str:
        texts = [self.extents[d].text if isinstance(d, str) else d for d in dims]
        named = {"i": "b", "j": "s[i]", **dict(zip("klm", texts, strict=False))}
        return f'R.Ragged({named}, "float32")'

    def sizes(self, t: Array, u: Array) -> list[dict[str, int]]:
        """The extents of each row of all sequences."""
        both = zip(map(int, t), map(int, u), strict=True)
        return [{n: e.of_one(0, 0, *z) for n, e in self.extents.items()} for z in both]

    def arguments(self, s: Array, t: Array, u: Array, rng: np.random.Generator) -> tuple[Any, ...]:
        """Random arguments for sequences and rows of these lengths, int32."""
        values = self.random_values(self.sizes(t, u), rng)
        of_each = rng.uniform(-1, 1, (len(s), FEATURES)).astype("float32")
        return (s, t, u, (int(t.sum()), int(u.sum())), *values, of_each, WEIGHT)

    def expected(self, args: tuple[Any, ...]) -> list[Array]:
        """The results for these arguments by NumPy, one sequence after the other, flat."""
        s, t, u, _, *values, of_each, _ = args
        rows = self.values_of_each(values, self.sizes(t, u))
        results = [list[Array]() for _ in self.results]
        for i, count in enumerate(map(int, s)):
            of_sequence = list(islice(rows, count))
            found: dict[str, Any] = {f"{k}0": [row[f"{k}0"] for row in of_sequence] for k in KINDS}
            found["d0"] = of_each[i].astype("float64")
            for step, taken, made in self.lines:
                found[made] = _of_sequence(step, [found[name] for name in taken], count)
            for result, name in zip(results, self.results, strict=True):
                result += [np.ravel(part) for part in ([found[name]] if name[0] == "d"
                                                       else found[name])]  # fmt: skip
        return [np.concatenate(parts or [np.zeros(0)]) for parts in results]


def _of_sequence(step: Step, operands: list[Any], count: int) -> Any:
    """The rows of a sequence of `count`, or its vector, that a step makes."""
    if step not in OF_SEQUENCES:
        return [step.of_one(*(x[j] for x in operands)) for j in range(count)]
    rows = [np.array(x).reshape(-1, FEATURES) if isinstance(x, list) else x for x in operands]
    made = step.of_one(*rows)
    return made if step.kind == "d" else list(made)
