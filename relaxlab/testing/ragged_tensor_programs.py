"""Random programs on ragged tensors, and what they compute for each sequence by NumPy.

Extents follow from the lengths of sequences and from the index of each: triangles, bands and
computed lengths. A program has two of them, A and B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from relaxlab.ir.module import Module
from relaxlab.script.parser import parse

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """An extent as it is written, with {i} for the index, and its value for sequence i of b, which
    has s and t rows."""

    text: str
    of_one: Callable[[int, int, int, int], int]


EXTENTS = (
    Extent("s[i]", lambda i, b, s, t: s),
    Extent("t[i]", lambda i, b, s, t: t),
    Extent("(s[i] + 3) // 4", lambda i, b, s, t: (s + 3) // 4),
    Extent("s[i] // 2", lambda i, b, s, t: s // 2),
    Extent("s[i] % 3", lambda i, b, s, t: s % 3),
    Extent("s[i] * 2 + 1", lambda i, b, s, t: 2 * s + 1),
    Extent("s[i] + t[i]", lambda i, b, s, t: s + t),
    Extent("T.min(s[i], t[i])", lambda i, b, s, t: min(s, t)),
    Extent("T.max(s[i] - 2, 0)", lambda i, b, s, t: max(s - 2, 0)),
    Extent("{i} + 1", lambda i, b, s, t: i + 1),
    Extent("b - {i}", lambda i, b, s, t: b - i),
    Extent("{i}", lambda i, b, s, t: i),
    Extent("T.max(b - {i} - 2, 0)", lambda i, b, s, t: max(b - i - 2, 0)),
    Extent("{i} // 2 + 1", lambda i, b, s, t: i // 2 + 1),
    Extent("T.min({i} + 2, b) - T.max({i} - 2, 0)",
           lambda i, b, s, t: min(i + 2, b) - max(i - 2, 0)),
    Extent("T.min({i} + 1, 3)", lambda i, b, s, t: min(i + 1, 3)),
    Extent("s[i] + {i}", lambda i, b, s, t: s + i),
    Extent("T.min(s[i], {i} + 1)", lambda i, b, s, t: min(s, i + 1)),
)  # fmt: skip
"""Computed lengths, triangles and bands."""

HEADS, FEATURES = 2, 4
KINDS = {
    "p": ("A", FEATURES),
    "q": ("B", FEATURES),
    "a": (HEADS, "A", "B"),
    "c": (HEADS, "B", "A"),
    "m": ("A",),
    "v": (FEATURES,),
}
"""The dimensions of the values of each kind, after the one that counts the sequences."""


def softmax(x: Array, axis: int) -> Array:
    """The softmax along an axis, also one without elements."""
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def _layer_norm(x: Array) -> Array:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


@dataclass(frozen=True, slots=True)
class Step:
    """A value by others: its kind, its text, in which {p} is some value of kind p, and its element
    by those of these."""

    kind: str
    text: str
    of_one: Callable[..., Array]


STEPS = (
    Step("p", "R.add({p}, R.tanh({p}))", lambda x, y: x + np.tanh(y)),
    Step("q", "R.multiply({q}, R.sigmoid({q}))", lambda x, y: x / (1 + np.exp(-y))),
    Step("p", "R.nn.softmax({p}, axis=1)", lambda x: softmax(x, 0)),
    Step("q", "R.nn.softmax({q}, axis=2)", lambda x: softmax(x, 1)),
    Step("a", "R.nn.softmax({a}, axis=3)", lambda x: softmax(x, 2)),
    Step("c", "R.nn.softmax({c}, axis=2)", lambda x: softmax(x, 1)),
    Step("p", "R.tanh(R.cumsum({p}, axis=1))", lambda x: np.tanh(x.cumsum(0))),
    Step("a", "R.tanh(R.cumsum({a}, axis=2))", lambda x: np.tanh(x.cumsum(1))),
    Step("p", "R.flip({p}, axis=1)", lambda x: x[::-1]),
    Step("c", "R.flip({c}, axis=3)", lambda x: x[:, :, ::-1]),
    Step("q", "R.sort({q}, axis=1)", lambda x: np.sort(x, 0)),
    Step("m", "R.sort({m}, axis=1)", np.sort),
    Step("m", "R.tanh({m} * {m})", lambda x, y: np.tanh(x * y)),
    Step("m", "R.sum({p}, axis=2)", lambda x: x.sum(1)),
    Step("m", "R.tanh(R.sum({a}, axis=[1, 3]))", lambda x: np.tanh(x.sum((0, 2)))),
    Step("v", "R.tanh(R.sum({p}, axis=1))", lambda x: np.tanh(x.sum(0))),
    Step("v", "R.tanh(R.sum({q}, axis=1)) * {v}", lambda x, y: np.tanh(x.sum(0)) * y),
    Step("p", "R.subtract({p}, R.expand_dims({v}, axis=1))", lambda x, y: x - y),
    Step("q", "{q} + R.expand_dims({v}, axis=1)", lambda x, y: x + y),
    Step("p", "{p} * R.expand_dims({m}, axis=2)", lambda x, y: x * y[:, None]),
    Step("v", "R.tanh(R.squeeze(R.matmul(R.expand_dims({m}, axis=1), {p}), axis=[1]))",
         lambda x, y: np.tanh(x @ y)),
    Step("a", "R.permute_dims({c}, axes=[0, 1, 3, 2])", lambda x: x.transpose(0, 2, 1)),
    Step("c", "R.permute_dims({a}, axes=[0, 1, 3, 2])", lambda x: x.transpose(0, 2, 1)),
    Step("a", "R.tanh({a} + R.expand_dims(R.matmul({p}, R.permute_dims({q}, axes=[0, 2, 1])), "
         "axis=1))", lambda x, y, z: np.tanh(x + y @ z.T)),
    Step("p", "R.tanh(R.sum(R.matmul({a}, R.expand_dims({q}, axis=1)), axis=1))",
         lambda x, y: np.tanh((x @ y).sum(0))),
    Step("q", "R.tanh(R.sum(R.matmul({c}, R.expand_dims({p}, axis=1)), axis=1))",
         lambda x, y: np.tanh((x @ y).sum(0))),
    Step("q", "R.tanh(R.einsum(({a}, {p}), 'bhij,bif->bjf'))",
         lambda x, y: np.tanh(np.einsum("hij,if->jf", x, y))),
    Step("c", "R.tanh(R.einsum(({q}, {a}, {m}), 'bjf,bhij,bi->bhji'))",
         lambda x, y, z: np.tanh(np.einsum("jf,hij,i->hji", x, y, z))),
    Step("p", "R.concat((R.split({p}, 2, axis=2)[1], R.split({p}, 2, axis=2)[0]), axis=2)",
         lambda x, y: np.concatenate([x[:, 2:], y[:, :2]], 1)),
    Step("p", "R.strided_slice(R.concat(({p}, {q}), axis=1), axes=[1], begin=[0], end=[<A>])",
         lambda x, y: x),
    Step("q", "R.strided_slice(R.concat(({p}, {q}), axis=1), axes=[1], begin=[<A>], "
         "end=[<A> + <B>])", lambda x, y: y),
    Step("p", "R.strided_slice(R.repeat({p}, 2, axis=1), axes=[1], begin=[0], end=[<A> * 2], "
         "strides=[2])", lambda x: x),
    Step("q", "R.strided_slice(R.nn.pad({q}, [0, 0, 1, 2, 0, 0]), axes=[1], begin=[2], "
         "end=[<B> + 2])", lambda x: np.concatenate([x[1:], 0 * x[:1]])),
    Step("p", "R.reshape(R.reshape({p}, (0, <A> * 4)), (0, <A>, 4))", lambda x: x),
    Step("q", "R.reshape(R.reshape({q}, (0, <B>, 2, 2)), (0, <B>, 4))", lambda x: x),
    Step("p", "R.tanh(R.linear({p}, w))", lambda x: np.tanh(x @ WEIGHT.T)),
    Step("q", "R.nn.layer_norm({q}, R.sum(R.zeros_like(w), axis=0) + R.const(1, 'float32'), "
         "R.sum(R.zeros_like(w), axis=0), axes=[-1])", _layer_norm),
    Step("p", "R.where(R.greater({p}, R.const(0, 'float32')), {p}, R.zeros_like({p}))",
         lambda x, y, _: np.where(x > 0, y, 0)),
    Step("a", "R.tril({a}, 1)", lambda x: np.tril(x, 1)),
    Step("p", "R.tanh({p} + R.broadcast_to(R.sum({q}, axis=1, keepdims=True), (b, <A>, 4)))",
         lambda x, y: np.tanh(x + y.sum(0, keepdims=True))),
    Step("p", "R.sin({p} + R.expand_dims(R.astype(R.arange(0, <A>), 'float32'), axis=1))",
         lambda x: np.sin(x + np.arange(len(x))[:, None])),
    Step("m", "R.tanh({m} * R.cumsum(R.full((<A>,), R.const(0.5, 'float32')), axis=0))",
         lambda x: np.tanh(x * np.full(len(x), 0.5).cumsum())),
    Step("a", "R.where(R.less_equal(R.arange(0, <B>), R.expand_dims(R.arange(0, <A>), axis=1)), "
         "{a}, R.const(0, 'float32'))", np.tril),
    Step("q", "R.tanh(R.matmul(R.tril(R.ones((<B>, <B>), 'float32')), {q}))",
         lambda x: np.tanh(x.cumsum(0))),
    Step("q", "{q} + R.take(w, R.floor_mod(R.arange(1, <B> + 1), R.const(4, 'int64')), axis=0)",
         lambda x: x + WEIGHT[np.arange(1, len(x) + 1) % 4]),
    Step("c", "{c} * R.nn.softmax(R.astype(R.eye(<B>, <A>), 'float32'), axis=0)",
         lambda x: x * softmax(np.eye(*x.shape[1:]), 0)),
    Step("p", "R.flip({p} - R.split(R.zeros((<A>, 8), 'float32'), 2, axis=1)[1], axis=1)",
         lambda x: x[::-1]),
)  # fmt: skip
WEIGHT = np.random.default_rng(0).standard_normal((FEATURES, FEATURES)).astype("float32")


@dataclass(frozen=True, slots=True)
class DrawnProgram:
    """A program of some steps on two extents A and B. Each line has a step, the values that it
    takes and the one that it makes; `results` are the values that are returned."""

    EXTENTS: ClassVar[tuple[Extent, ...]]
    STEPS: ClassVar[tuple[Step, ...]]
    KINDS: ClassVar[Mapping[str, tuple[str | int, ...]]]

    extents: Mapping[str, Extent]
    lines: tuple[tuple[Step, tuple[str, ...], str], ...]
    results: tuple[str, ...]

    @classmethod
    def drawn(cls, rng: np.random.Generator, steps: int) -> Self:
        """A program of so many random steps."""
        extents = {name: cls.EXTENTS[rng.integers(len(cls.EXTENTS))] for name in "AB"}
        made = {step.kind: [f"{step.kind}0"] for step in cls.STEPS}
        lines = list[tuple[Step, tuple[str, ...], str]]()
        for k in range(1, steps + 1):
            step = cls.STEPS[rng.integers(len(cls.STEPS))]
            taken = tuple(str(rng.choice(made[kind][-3:])) for kind in operands_of(step))
            lines.append((step, taken, f"{step.kind}{k}"))
            made[step.kind].append(f"{step.kind}{k}")
        results = tuple(names[-1] for names in made.values() if len(names) > 1)
        return cls(extents, tuple(lines), results)

    def with_parameters(self, *lines: str) -> Module:
        """The program in the script language, with parameters that these lines declare."""
        body = (f"        {made} = {self._text(step, taken)}" for step, taken, made in self.lines)
        results = ", ".join(self.results)
        return parse("\n".join((
            "@R.function", "def main(", *lines, "):",
            "    b = T.int64()", "    with R.dataflow():", *body,
            f"        R.output({results})", f"    return ({results},)",
        )))  # fmt: skip

    def _text(self, step: Step, taken: tuple[str, ...]) -> str:
        text = step.text
        for name, extent in self.extents.items():
            text = text.replace(f"<{name}>", f"({extent.text.format(i='R.outer_index(b)')})")
        for kind, name in zip(operands_of(step), taken, strict=True):
            text = text.replace("{" + kind + "}", name, 1)
        return text

    def random_values(self, sizes: list[dict[str, int]], rng: np.random.Generator) -> list[Array]:
        """A random value of each kind, behind each other for each of the sizes."""
        rows: list[Array] = []
        for dims in self.KINDS.values():
            shapes = [[z[d] if isinstance(d, str) else d for d in dims] for z in sizes]
            parts = [rng.uniform(-1, 1, shape).astype("float32").reshape(-1) for shape in shapes]
            # Rows, or where a regular dimension is before a ragged one, single elements.
            row = (FEATURES,) if dims[-1] == FEATURES else ()
            rows.append(np.concatenate(parts or [np.zeros(0, "float32")]).reshape(-1, *row))
        return rows

    def values_of_each(
        self, values: Sequence[Array], sizes: list[dict[str, int]]
    ) -> Iterator[dict[str, Any]]:
        """The part of each value that belongs to each of the sizes, by name, as float64."""
        flat, begins = [v.reshape(-1) for v in values], [0] * len(values)
        for size in sizes:
            found = dict[str, Any]()
            for k, (kind, dims) in enumerate(self.KINDS.items()):
                shape = [size[d] if isinstance(d, str) else d for d in dims]
                end = begins[k] + int(np.prod(shape))
                found[f"{kind}0"] = flat[k][begins[k] : end].reshape(shape).astype("float64")
                begins[k] = end
            yield found


@dataclass(frozen=True, slots=True)
class RaggedProgram(DrawnProgram):
    """A program on values with rows for each sequence."""

    EXTENTS, STEPS, KINDS = EXTENTS, STEPS, KINDS

    def module(self) -> Module:
        """The program in the script language; it takes lengths, a value of each kind, and a
        weight."""
        return self.with_parameters(
            '    s: R.Lengths("b", "n", at_most=128), t: R.Lengths("b", "m", at_most=128),',
            '    rows: R.Shape(["n", "m"]),',
            *(f"    {kind}0: {self._type(dims)}," for kind, dims in KINDS.items()),
            '    w: R.Tensor((4, 4), "float32"),',
        )

    def _type(self, dims: tuple[str | int, ...]) -> str:
        texts = [self.extents[d].text.format(i="i") if isinstance(d, str) else d for d in dims]
        if not any(isinstance(d, str) for d in dims):
            return f'R.Tensor(("b", {", ".join(map(str, dims))}), "float32")'
        named = {"i": "b", **dict(zip("jkl", texts, strict=False))}
        return f'R.Ragged({named}, "float32")'

    def sizes(self, s: Array, t: Array) -> list[dict[str, int]]:
        """The extents of each sequence."""
        return [
            {n: e.of_one(i, len(s), int(s[i]), int(t[i])) for n, e in self.extents.items()}
            for i in range(len(s))
        ]

    def arguments(self, s: Array, t: Array, rng: np.random.Generator) -> tuple[Any, ...]:
        """Random arguments for sequences of these lengths, int32."""
        values = self.random_values(self.sizes(s, t), rng)
        return (s, t, (int(s.sum()), int(t.sum())), *values, WEIGHT)

    def expected(self, args: tuple[Any, ...]) -> list[Array]:
        """The results for these arguments by NumPy, one sequence after the other, flat."""
        s, t, _, *values, _ = args
        results = [list[Array]() for _ in self.results]
        for found in self.values_of_each(values, self.sizes(s, t)):
            for step, taken, made in self.lines:
                found[made] = step.of_one(*(found[name] for name in taken))
            for result, name in zip(results, self.results, strict=True):
                result.append(found[name].reshape(-1))
        return [np.concatenate(parts or [np.zeros(0)]) for parts in results]


def operands_of(step: Step) -> list[str]:
    """The kinds of the values that a step takes, in the order of its text."""
    parts = step.text.split("{")[1:]
    return [part[0] for part in parts]


def drawn_lengths(rng: np.random.Generator) -> Array:
    """Lengths of sequences: none, zeros, ones, all equal, one huge, or unsorted ones."""
    n = int(rng.integers(1, 7))
    huge = rng.integers(0, 4, n)
    huge[rng.integers(n)] = rng.integers(60, 90)
    equal, mixed = np.full(n, rng.integers(2, 18)), rng.integers(0, 20, n)
    choices = (np.zeros(n), np.ones(n), equal, huge, mixed, mixed, np.zeros(0))
    return choices[rng.integers(len(choices))].astype("int32")
