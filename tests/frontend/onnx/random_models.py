"""Random models of ONNX, compiled and compared with ONNX's reference evaluator at two sizes.

Run by a Python that has onnx: `python -m tests.frontend.onnx.random_models SEED COUNT` prints a
JSON object of what differs, by seed. Functions that jump, such as Floor, are given what is exact:
numbers that only moved, and integers.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

warnings.simplefilter("ignore")

import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import relaxlab as rl  # noqa: E402

SIZES = (3, 1)
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the model, whose first dimension is the symbol n; `shape` are the others."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    exact: bool


@dataclass(slots=True)
class Draw:
    """A model while it is drawn."""

    rng: random.Random
    values: list[Value] = field(default_factory=list[Value])
    nodes: list[Any] = field(default_factory=list[Any])
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

    def pick(self, dtype: str = "float32", exact: bool = False, least: int = 0) -> Value | None:
        """A value with these properties, of a rank of `least` beside n at least."""
        fit = [v for v in self.values if v.dtype == dtype and (v.exact or not exact)
               and len(v.shape) >= least]  # fmt: skip
        return self.rng.choice(fit) if fit else None

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int) -> str:
        drawn = np.random.default_rng(self.rng.getrandbits(32)).standard_normal(shape)
        return self.constant((drawn / max(1, np.prod(shape[1:])) ** 0.5).astype("float32"))

    def add(
        self, op: str, inputs: list[str], dtype: str, shape: Any, exact: bool, **attrs: Any
    ) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.values.append(Value(name, dtype, tuple(shape), exact))


UNARY = "Neg Abs Relu Sigmoid Tanh Sin Cos Erf Softplus Softsign HardSwish LeakyRelu Elu".split()
EXACT = ("Neg", "Abs", "Relu")


def unary(d: Draw) -> None:
    x, op = d.pick(), d.rng.choice(UNARY)
    assert x is not None
    d.add(op, [x.name], x.dtype, x.shape, x.exact and op in EXACT)


def binary(d: Draw) -> None:
    """Arithmetic on a value and another one of its rank that broadcasts, or a constant."""
    x, op = d.pick(), d.rng.choice("Add Sub Mul Min Max".split())
    assert x is not None
    ranked = [v for v in d.values if v.dtype == x.dtype and len(v.shape) == len(x.shape)]
    y = d.rng.choice([v for v in ranked if _broadcast(v.shape, x.shape)])
    if d.rng.random() < 0.3:
        y = Value(d.weights(*x.shape), x.dtype, x.shape, False)
    exact = x.exact and y.exact and op in ("Min", "Max")
    d.add(op, [x.name, y.name], x.dtype, map(max, x.shape, y.shape), exact)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(1 in pair or pair[0] == pair[1] for pair in zip(a, b, strict=True))


JUMPS = "Floor Ceil Round Sign Int ArgMax Greater Where".split()


def jump(d: Draw) -> None:
    x, op = d.pick(exact=True), d.rng.choice(JUMPS)
    if x is None:
        return
    match op:
        case "Int":
            d.add("Cast", [x.name], "int64", x.shape, True, to=TensorProto.INT64)
        case "ArgMax" if x.shape:
            axis = d.rng.randrange(len(x.shape))
            shape = [*x.shape]
            shape[axis] = 1
            d.add("ArgMax", [x.name], "int64", shape, True, axis=axis + 1)
        case "Greater" | "ArgMax":
            d.add("Greater", [x.name, d.constant(np.float32(0.25))], "bool", x.shape, True)
        case "Where":
            d.add("Greater", [x.name, d.constant(np.float32(0.0))], "bool", x.shape, True)
            mask, y = d.values[-1], d.pick()
            assert y is not None
            if y.shape == x.shape:
                d.add("Where", [mask.name, x.name, y.name], "float32", x.shape, False)
        case _:
            d.add(op, [x.name], x.dtype, x.shape, True)


def integers(d: Draw) -> None:
    x, op = d.pick("int64"), d.rng.choice("Add Mul Sub Mod Div".split())
    if x is not None:
        other = d.constant(np.int64(d.rng.choice((1, 2, 3, 7))))
        d.add(op, [x.name, other], "int64", x.shape, True)


def masks(d: Draw) -> None:
    x, op = d.pick("bool"), d.rng.choice("Not And Or".split())
    if x is not None:
        d.add(op, [x.name] * (1 if op == "Not" else 2), "bool", x.shape, True)


def floats(d: Draw) -> None:
    """Integers or masks as numbers, so that other functions take them."""
    x = d.pick(d.rng.choice(("int64", "bool")))
    if x is not None:
        d.add("Cast", [x.name], "float32", x.shape, True, to=TensorProto.FLOAT)


def along(d: Draw) -> None:
    """Reductions and functions along a dimension."""
    x = d.pick(least=1)
    if x is None:
        return
    axis = d.rng.randrange(len(x.shape))
    op = d.rng.choice("ReduceSum ReduceMax ReduceMean Softmax LogSoftmax CumSum".split())
    if op.startswith("Reduce"):
        keep = d.rng.randrange(2)
        shape = [1 if i == axis else e for i, e in enumerate(x.shape) if keep or i != axis]
        axes = [axis + 1] if d.rng.random() < 0.5 else [axis - len(x.shape)]
        given = [d.constant(np.array(axes))] if op == "ReduceSum" else []
        named = {} if given else {"axes": axes}
        d.add(op, [x.name, *given], x.dtype, shape, x.exact and op == "ReduceMax",
              keepdims=keep, **named)  # fmt: skip
    elif op == "CumSum":
        at = d.constant(np.int64(axis + 1))
        d.add(op, [x.name, at], x.dtype, x.shape, False, reverse=d.rng.randrange(2))
    else:
        d.add(op, [x.name], x.dtype, x.shape, False, axis=axis + 1)


def moved(d: Draw) -> None:
    """The same elements in other places."""
    x = d.pick(d.rng.choice(("float32", "int64")), least=1)
    if x is None:
        return
    axis, rank = d.rng.randrange(len(x.shape)), len(x.shape)
    extent, shape = x.shape[axis], [*x.shape]
    match d.rng.choice("Transpose Reshape Slice Gather Pad Concat Unsqueeze Tile".split()):
        case "Transpose":
            order = d.rng.sample(range(rank), rank)
            perm = [0, *(i + 1 for i in order)]
            d.add("Transpose", [x.name], x.dtype, [shape[i] for i in order], x.exact, perm=perm)
        case "Reshape":
            last = int(np.prod(shape))
            wanted = d.rng.choice(([0, -1], [0, 1, last], [-1, last]))
            found = [last] if len(wanted) == 2 else [1, last]
            d.add("Reshape", [x.name, d.constant(np.array(wanted))], x.dtype, found, x.exact)
        case "Slice":
            step, back = d.rng.choice((1, 2)), d.rng.random() < 0.3
            bounds = (-1, -(2**62), -step) if back else (d.rng.randrange(extent), 2**62, step)
            shape[axis] = len(range(extent)[slice(*bounds)])
            ends = [d.constant(np.array([v])) for v in (*bounds[:2], axis + 1, bounds[2])]
            d.add("Slice", [x.name, *ends], x.dtype, shape, x.exact)
        case "Gather":
            places = [d.rng.randrange(-extent, extent) for _ in range(d.rng.randint(1, 4))]
            shape[axis] = len(places)
            at = d.constant(np.array(places))
            d.add("Gather", [x.name, at], x.dtype, shape, x.exact, axis=axis + 1)
        case "Pad" if x.dtype == "float32":
            widths = np.zeros((2, rank + 1), "int64")
            widths[:, axis + 1] = d.rng.randint(0, 2), d.rng.randint(0, 2)
            shape[axis] += int(widths.sum())
            widths = widths.reshape(-1)
            d.add("Pad", [x.name, d.constant(widths)], x.dtype, shape, x.exact)
        case "Unsqueeze" if rank < 4:
            shape.insert(axis, 1)
            d.add("Unsqueeze", [x.name, d.constant(np.array([axis + 1]))], x.dtype, shape, x.exact)
        case "Tile":
            counts = [1] * (rank + 1)
            counts[axis + 1] = 2
            shape[axis] *= 2
            d.add("Tile", [x.name, d.constant(np.array(counts))], x.dtype, shape, x.exact)
        case _:
            shape[axis] *= 2
            d.add("Concat", [x.name, x.name], x.dtype, shape, x.exact, axis=axis + 1)


def products(d: Draw) -> None:
    x = d.pick(least=1)
    if x is None:
        return
    if len(x.shape) == 3 and d.rng.random() < 0.7:
        channels, height, width = x.shape
        kernel = [min(3, height), min(3, width)]
        space = height - kernel[0] + 1, width - kernel[1] + 1
        if d.rng.random() < 0.5:
            w = d.weights(4, channels, *kernel)
            d.add("Conv", [x.name, w], x.dtype, (4, *space), False)
        else:
            op, shape = d.rng.choice(("MaxPool", "AveragePool")), (channels, *space)
            d.add(op, [x.name], x.dtype, shape, x.exact and op == "MaxPool", kernel_shape=kernel)
    else:
        columns = d.rng.randint(1, 9)
        w = d.weights(x.shape[-1], columns)
        d.add("MatMul", [x.name, w], x.dtype, (*x.shape[:-1], columns), False)


KINDS: tuple[Callable[[Draw], None], ...] = (
    unary, binary, jump, integers, masks, floats, along, moved, moved, products
)  # fmt: skip
MOST = 4096
"""The elements of the largest value, for n = 1."""


def drawn(seed: int) -> tuple[Any, list[Value]]:
    """A model, and its inputs."""
    d = Draw(random.Random(seed))
    for i in range(d.rng.randint(1, 3)):
        shape = tuple(d.rng.randint(1, 7) for _ in range(d.rng.randint(1, 3)))
        d.values.append(Value(f"x{i}", "float32", shape, True))
    inputs = list(d.values)
    while len(d.nodes) < 5 + seed % 8:
        d.rng.choice(KINDS)(d)
        if np.prod(d.values[-1].shape) > MOST or 0 in d.values[-1].shape:
            d.values.pop()
    read = {i for n in d.nodes for i in n.input}
    ends = [v for v in d.values if v.name not in read and v not in inputs] or d.values[-1:]
    infos = [[helper.make_tensor_value_info(v.name, TYPES[v.dtype], ["n", *v.shape]) for v in vs]
             for vs in (inputs, ends)]  # fmt: skip
    arrays = [numpy_helper.from_array(a, n) for n, a in d.constants.items()]
    graph = helper.make_graph(d.nodes, "g", *infos, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), inputs


def problem(seed: int) -> str | None:
    """The first difference between results of relaxlab and of the reference evaluator, if any."""
    model, inputs = drawn(seed)
    onnx.checker.check_model(model)
    exe = rl.from_onnx(model).compile(use_cache=False)
    for n in SIZES:
        rng = np.random.default_rng((seed, n))
        given = {v.name: rng.uniform(-3, 3, (n, *v.shape)).astype("float32") for v in inputs}
        wanted = ReferenceEvaluator(model).run(None, given)
        got = exe(**given)
        results = got if isinstance(got, tuple) else (got,)
        for info, ours, theirs in zip(model.graph.output, results, wanted, strict=True):
            if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
                return f"{info.name}: {ours.dtype}{ours.shape} for {theirs.dtype}{theirs.shape}"
            scale = 1e-4 * (1 + np.abs(theirs).max(initial=0)) if ours.dtype.kind == "f" else 0
            if not np.allclose(ours, theirs, rtol=0, atol=scale, equal_nan=True):
                return f"{info.name} differs for n = {n}"
    return None


def main(first: int, count: int) -> None:
    found: dict[int, str] = {}
    for seed in range(first, first + count):
        try:
            text = problem(seed)
        except Exception as error:  # noqa: BLE001  a failure of this model alone
            text = f"{type(error).__name__}: {error}"
        if text is not None:
            found[seed] = text
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
