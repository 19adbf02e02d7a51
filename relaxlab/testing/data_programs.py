"""Random programs over data types, for batches: recursive functions that take values apart and make
new ones, decide by integers and by tensors, and call each other side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.ir.data import DataValue, data_types
from relaxlab.ir.module import Module
from relaxlab.ir.types import DataType, TensorType

Array = np.ndarray[Any, Any]

WIDTH = 4
"""Elements of every row."""
MOST_NODES = 12
"""Nodes of the largest value that an instance gives."""
ROW = f'R.Tensor((1, {WIDTH}), "float32")'
COUNT = 'R.Tensor((), "int64")'
SQUARE = f'R.Tensor(({WIDTH}, {WIDTH}), "float32")'
VECTOR = f'R.Tensor(({WIDTH},), "float32")'
KERNEL = f"""    @T.prim_func(private=True)
    def blend(
        x: T.Buffer((1, {WIDTH}), "float32"),
        v: T.Buffer(({WIDTH},), "float32"),
        y: T.Buffer((1, {WIDTH}), "float32"),
    ):
        total = T.sblock_alloc_buffer((1,), "float32")
        for i, k in T.grid(1, {WIDTH}):
            with T.sblock("total"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + x[vi, vk] * v[vk]
        for i, j in T.grid(1, {WIDTH}):
            with T.sblock("blend"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, {WIDTH - 1} - vj] + T.float32(0.1) * total[vi]
"""


@dataclass(slots=True)
class _Scope:
    """The names of values that can be read at a place: rows, integers, and values of `Tree`."""

    rows: list[str]
    counts: list[str] = field(default_factory=lambda: [])
    trees: list[str] = field(default_factory=lambda: [])

    def inner(self) -> _Scope:
        """The same for what a branch adds."""
        return _Scope([*self.rows], [*self.counts], [*self.trees])


class _Writer:
    """Writes one program. `cases` are the constructors of `Tree` with the types of their fields;
    the first has no children. A *walk* goes through a tree and returns a row, a *map* returns a
    tree, a *grow* makes one by decisions of its own, a *fold* goes through the list of what a
    walk visits."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.lines, self.names = rng, list[str](), 0
        kinds = [["row"], ["row", "tree", "tree"], ["count", "tree"], ["row", "count", "tree"]]
        extra = [
            kinds[i] for i in sorted(rng.permutation(len(kinds) - 1)[: rng.integers(1, 4)] + 1)
        ]
        first = kinds[0] if rng.random() < 0.7 else ["count", "row"]
        self.cases = {f"C{k}": fields for k, fields in enumerate([first, *extra])}
        self.walks = [f"walk{k}" for k in range(int(rng.integers(1, 3)))]
        self.others = [n for n in ("map", "grow", "fold") if rng.random() < 0.5]

    # --- Expressions ------------------------------------------------------------------------------

    def draw(self, *choices: str) -> str:
        return str(self.rng.choice(choices))

    def bind(self, indent: str, value: str) -> str:
        self.names += 1
        self.lines.append(f"{indent}v{self.names} = {value}")
        return f"v{self.names}"

    def number(self) -> str:
        return f"{self.rng.uniform(-1, 1):.4f}"

    def row(self, indent: str, s: _Scope) -> None:
        """A new row, computed from others."""
        x, y = self.draw(*s.rows), self.draw(*s.rows)
        value = self.draw(
            f"R.tanh({x} @ w + b)", f"R.add({x}, {y})", f"R.multiply({x}, R.sigmoid({y}))",
            f"R.tanh(R.split(R.concat(({x}, {y}), axis=1), 2, axis=1)[1])",
            f"R.nn.softmax({x}, axis=1)", f"R.subtract({x}, R.multiply({y}, b))",
            f"R.tanh(R.concat(({x}, {y}), axis=1) @ R.concat((w, w), axis=0))",
            f"R.multiply(R.mean({x}, axis=1, keepdims=True), {y})",
            f"R.tanh({x} @ R.permute_dims(w))", f"R.call_tir(cls.blend, ({x}, b), {ROW})",
        )  # fmt: skip
        s.rows.append(self.bind(indent, value))

    def count(self, indent: str, s: _Scope) -> None:
        """A new integer."""
        x, y = self.draw(*s.counts), self.draw(*s.counts)
        value = self.draw(
            f'R.add({x}, R.const(1, "int64"))', f"R.subtract({x}, {y})", f"R.maximum({x}, {y})",
            f'R.floor_mod({x}, R.const(3, "int64"))', f'R.multiply({x}, R.const(2, "int64"))',
        )  # fmt: skip
        s.counts.append(self.bind(indent, value))

    def condition(self, indent: str, s: _Scope, of_tensors: float) -> str:
        """A condition on integers, or at times on a row."""
        if self.rng.random() < of_tensors:
            total = self.bind(indent, f"R.sum({self.draw(*s.rows)})")
            return f"R.less({total}, R.const({self.number()}))"
        rest = f'R.floor_mod({self.draw(*s.counts)}, R.const({self.rng.integers(2, 4)}, "int64"))'
        return f'R.equal({self.bind(indent, rest)}, R.const(0, "int64"))'

    def work(self, indent: str, s: _Scope, least: int, most: int) -> None:
        """Some rows and integers."""
        for _ in range(int(self.rng.integers(least, most + 1))):
            self.row(indent, s)
        if self.rng.random() < 0.4:
            self.count(indent, s)

    def branch(self, indent: str, s: _Scope, children: list[str]) -> None:
        """An `If` that chooses a row; there may be calls in its arms."""
        condition = self.condition(indent, s, 0.3)
        self.names += 1
        name = f"v{self.names}"
        self.lines.append(f"{indent}if {condition}:")
        for end in ([f"{indent}else:"], []):
            inner = s.inner()
            calls = [c for c in children if self.rng.random() < 0.4]
            self.calls(indent + "    ", inner, calls)
            self.work(indent + "    ", inner, 0, 3)
            self.lines += [f"{indent}    {name} = R.tanh({inner.rows[-1]})", *end]
        s.rows.append(name)

    def calls(self, indent: str, s: _Scope, children: list[str]) -> None:
        """Calls of walks, which do not read each other's results, or do."""
        given = s.inner()
        for child in children:
            known = given if self.rng.random() < 0.7 else s
            row, count = self.draw(*known.rows), self.draw(*known.counts)
            callee = self.draw(*self.walks)
            s.rows.append(self.bind(indent, f"cls.{callee}({child}, {row}, {count}, w, b)"))

    # --- Functions --------------------------------------------------------------------------------

    def head(self, name: str, first: str, result: str) -> None:
        self.lines += [
            "    @R.function(private=True)",
            f"    def {name}({first}, h: {ROW}, n: {COUNT}, w: {SQUARE}, b: {VECTOR}) -> {result}:",
        ]

    def case(self, name: str) -> tuple[_Scope, list[str]]:
        """The line of a case, and what it binds."""
        s = _Scope(["h"], ["n"])
        bound: list[str] = []
        for kind in self.cases[name]:
            self.names += 1
            bound.append(f"v{self.names}")
            {"row": s.rows, "count": s.counts, "tree": s.trees}[kind].append(bound[-1])
        self.lines.append(f"            case cls.{name}({', '.join(bound)}):")
        return s, bound

    def walk(self, name: str) -> None:
        self.head(name, "t: Tree", ROW)
        self.lines.append("        match t:")
        for case in self.cases:
            s, _ = self.case(case)
            indent = " " * 16
            self.work(indent, s, 0, 2)
            inside = self.rng.random() < 0.3
            if not inside:
                self.calls(indent, s, s.trees)
            if inside or self.rng.random() < 0.4:
                self.branch(indent, s, s.trees if inside else [])
            self.work(indent, s, 0, 2)
            self.lines.append(f"{indent}out = R.tanh({s.rows[-1]})")
        self.lines.append("        return out")

    def map(self) -> None:
        """A function that makes a tree of the same form."""
        self.head("map", "t: Tree", "Tree")
        self.lines.append("        match t:")
        for case, kinds in self.cases.items():
            s, bound = self.case(case)
            indent = " " * 16
            self.work(indent, s, 1, 2)
            count, row = self.draw(*s.counts), s.rows[-1]
            new = {
                t: self.bind(indent, f"cls.map({t}, {self.draw('h', row)}, {count}, w, b)")
                for t in s.trees
            }
            made = {"row": row, "count": count}
            fields = [new.get(v, made.get(k, v)) for v, k in zip(bound, kinds, strict=True)]
            self.lines.append(f"{indent}out = cls.{case}({', '.join(fields)})")
        self.lines.append("        return out")

    def grow(self) -> None:
        """A function that makes a tree as its rows decide."""
        self.head("grow", f"depth: {COUNT}", "Tree")
        row = "R.tanh(h @ w + b)"
        self.lines += [
            f"        new = {row}",
            '        if R.less(depth, R.const(3, "int64")):',
            f"            if R.less(R.sum(new), R.const({self.number()})):",
            '                deeper = R.add(depth, R.const(1, "int64"))',
        ]
        case = self.draw(*list(self.cases)[1:])
        fields: list[str] = []
        for k, kind in enumerate(self.cases[case]):
            given = self.draw("R.sin(new)", "R.cos(new)", "R.multiply(new, h)")
            child = f"cls.grow(deeper, {given}, n, w, b)"
            value = {"row": "new", "count": "deeper", "tree": child}[kind]
            self.lines.append(f"                f{k} = {value}")
            fields.append(f"f{k}")
        leaf = ", ".join({"row": "new", "count": "depth"}[k] for k in self.cases["C0"])
        self.lines += [
            f"                out = cls.{case}({', '.join(fields)})",
            "            else:",
            f"                out = cls.C0({leaf})",
            "        else:",
            f"            out = cls.C0({leaf})",
            "        return out",
        ]

    def fold(self) -> None:
        """A list of the rows that lead through a tree, and a function that goes through it."""
        self.head("collect", "t: Tree, rest: List", "List")
        self.lines.append("        match t:")
        for case in self.cases:
            s, _ = self.case(case)
            indent = " " * 16
            self.work(indent, s, 1, 2)
            made = self.bind(indent, f"cls.Cons({s.rows[-1]}, rest)")
            for t in s.trees:
                made = self.bind(indent, f"cls.collect({t}, {made}, {s.rows[-1]}, n, w, b)")
            self.lines.append(f"{indent}out = {made}")
        self.lines.append("        return out")
        self.head("fold", "l: List", ROW)
        self.lines += [
            "        match l:",
            "            case cls.Nil():",
            "                out = h",
            "            case cls.Cons(x, more):",
        ]
        s, indent = _Scope(["h", "x"], ["n"]), " " * 16
        self.work(indent, s, 1, 3)
        if self.rng.random() < 0.3:
            self.branch(indent, s, [])
        self.lines += [
            f"{indent}out = cls.fold(more, R.tanh({s.rows[-1]}), n, w, b)",
            "        return out",
        ]

    def main(self) -> None:
        self.lines += [
            "    @R.function",
            f"    def main(t: Tree, h: {ROW}, n: {COUNT}, w: {SQUARE}, b: {VECTOR}, "
            f"w2: {SQUARE}, b2: {VECTOR}):",
            '        R.func_attr({"num_input": 3})',
        ]
        indent, s, results = " " * 8, _Scope(["h"], ["n"], ["t"]), list[str]()
        for name in self.others:
            weights = self.draw("w, b", "w2, b2")
            if name == "fold":
                nil = self.bind(indent, "cls.Nil()")
                made = self.bind(indent, f"cls.collect(t, {nil}, h, n, {weights})")
                s.rows.append(self.bind(indent, f"cls.fold({made}, h, n, {weights})"))
                continue
            first = "t" if name == "map" else 'R.const(0, "int64")'
            made = self.bind(indent, f"cls.{name}({first}, h, n, {weights})")
            s.trees.append(made)
            results.append(made)
        for tree in s.trees:
            weights = self.draw("w, b", "w2, b2")
            given = f"{tree}, {self.draw(*s.rows)}, n, {weights}"
            s.rows.append(self.bind(indent, f"cls.{self.draw(*self.walks)}({given})"))
        if self.rng.random() < 0.3:
            self.lines.append(f"{indent}R.phase()")
        if self.rng.random() < 0.3:
            self.branch(indent, s, [])
        self.work(indent, s, 0, 3)
        if self.rng.random() < 0.5:
            results.append(self.bind(indent, 'R.add(n, R.const(1, "int64"))'))
        results += [s.rows[-1], self.draw(*s.rows[1:])]
        self.lines += [f"{indent}result = ({', '.join(results)})", f"{indent}return result"]


def random_data_program(rng: np.random.Generator) -> str:
    """Return the script of a random program. Its `main` takes a value of `Tree`, a row and an
    integer, then two pairs of weights."""
    writer = _Writer(rng)
    types = {"row": ROW, "count": COUNT, "tree": '"Tree"'}
    writer.lines += ["@I.ir_module", "class Program:", "    @R.data", "    class Tree:"]
    for name, kinds in writer.cases.items():
        writer.lines.append(f"        {name}: ({', '.join(types[k] for k in kinds)},)")
    if "fold" in writer.others:
        cons = f'        Cons: ({ROW}, "List")'
        writer.lines += ["    @R.data", "    class List:", "        Nil: ()", cons]
    writer.lines.append(KERNEL)
    for name in writer.walks:
        writer.walk(name)
    for name in writer.others:
        getattr(writer, name)()
    writer.main()
    return "\n".join(writer.lines)


def random_instance(mod: Module, rng: np.random.Generator) -> tuple[DataValue, Array, np.int64]:
    """Return what one instance gives to `main` of such a program."""
    cases = data_types(mod)["Tree"].constructors

    def row() -> Array:
        return rng.standard_normal((1, WIDTH)).astype(np.float32)

    def value(size: int) -> DataValue:
        case = cases[int(rng.integers(1, len(cases)))] if size > 1 else cases[0]
        children = max(1, sum(isinstance(f, DataType) for f in case.fields))
        given: list[Any] = []
        for f in case.fields:
            if isinstance(f, DataType):
                given.append(value((size - 1) // children))
            else:
                assert isinstance(f, TensorType)
                given.append(row() if f.ndim else np.int64(rng.integers(0, 6)))
        return case(*given)

    return value(int(rng.integers(1, MOST_NODES + 1))), row(), np.int64(rng.integers(0, 5))
