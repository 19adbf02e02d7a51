"""Random programs that recurse over trees, for batches: what is shared, carried along, computed
from inputs, or decided by integers is drawn."""

from __future__ import annotations

import numpy as np

WIDTH = 4
"""Elements of every row."""
KINDS = 3
"""Kinds of nodes, by which programs decide."""

_TYPES = {
    "i": 'R.Tensor((), "int64")',
    **dict.fromkeys(("left", "right", "kind"), 'R.Tensor(("n",), "int64")'),
    "rows": f'R.Tensor(("m", {WIDTH}), "float32")',
    "h": f'R.Tensor((1, {WIDTH}), "float32")',
    "w": f'R.Tensor(({WIDTH}, {WIDTH}), "float32")',
    "b": f'R.Tensor(({WIDTH},), "float32")',
}
_GIVEN = ("i", "left", "right", "kind", "rows", "h", "w", "b")
_PAIR = f"R.Tuple({_TYPES['h']}, {_TYPES['h']})"


class _Writer:
    """Writes one program. A function returns two rows; `values` are the rows in scope."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.names = 0

    def draw(self, *choices: str) -> str:
        return str(self.rng.choice(choices))

    def bind(self, indent: str, value: str) -> str:
        self.names += 1
        name = f"v{self.names}"
        self.lines.append(f"{indent}{name} = {value}")
        return name

    def row(self, indent: str, values: list[str]) -> str:
        """A new row, computed from others."""
        x, y = self.draw(*values), self.draw(*values)
        value = self.draw(
            f"R.tanh({x} @ w + b)", f"R.add({x}, {y})", f"R.multiply({x}, R.sigmoid({y}))",
            f"R.tanh(R.split(R.concat(({x}, {y}), axis=1), 2, axis=1)[1])",
            f"R.nn.softmax({x}, axis=1)", f"R.subtract({x}, R.multiply({y}, b))",
            f"R.reshape(R.reshape({x}, (2, {WIDTH // 2})), (1, {WIDTH}))",
            f"R.tanh({x} @ R.permute_dims(w))",
        )  # fmt: skip
        return self.bind(indent, value)

    def call(self, indent: str, callee: str, child: str, values: list[str]) -> list[str]:
        args = f"{child}, left, right, kind, rows, {self.draw('h', *values)}, w, b"
        whole = self.bind(indent, f"cls.{callee}({args})")
        return [self.bind(indent, f"{whole}[{k}]") for k in (0, 1)]

    def rows(self, indent: str, values: list[str], least: int, most: int) -> list[str]:
        found = list(values)
        for _ in range(int(self.rng.integers(least, most))):
            found.append(self.row(indent, found))
        return found

    def function(self, name: str, names: list[str]) -> None:
        given = ", ".join(f"{p}: {_TYPES[p]}" for p in _GIVEN)
        self.lines += [
            "    @R.function(private=True)",
            f"    def {name}({given}) -> {_PAIR}:",
            f"        own = R.reshape(R.take(rows, i, axis=0), (1, {WIDTH}))",
            "        child = R.take(left, i, axis=0)",
            '        if R.less(child, R.const(0, "int64")):',
        ]
        inner = " " * 12
        leaf = self.rows(inner, ["own", "h"], 0, 4)
        self.lines += [f"{inner}out = ({leaf[-1]}, {self.draw(*leaf)})", "        else:"]
        before = self.rows(inner, ["own", "h"], 0, 3)
        a = self.call(inner, self.draw(*names), "child", before)
        other = self.bind(inner, "R.take(right, i, axis=0)")
        b = self.call(inner, self.draw(*names), other, before)
        known = [*before, *a, *b]
        number = int(self.rng.integers(KINDS))
        which = f'R.equal(R.take(kind, i, axis=0), R.const({number}, "int64"))'
        self.lines.append(f"{inner}if {which}:")
        for end in ([f"{inner}else:"], []):
            rows = self.rows(inner + "    ", known, 1, 4)
            self.lines += [f"{inner}    r = {rows[-1]}", *end]
        self.lines.append(f"{inner}out = ({self.row(inner, ['r', *known])}, r)")
        self.lines.append("        return out")

    def main(self, names: list[str]) -> None:
        given = ("i", "left", "right", "kind", "rows", "h", "w", "b", "w2", "b2")
        types = {**_TYPES, "w2": _TYPES["w"], "b2": _TYPES["b"]}
        params = ", ".join(f"{p}: {types[p]}" for p in given)
        self.lines += [
            "    @R.function",
            f"    def main({params}):",
            '        R.func_attr({"num_input": 5})',
        ]
        indent = " " * 8
        first = self.call(indent, self.draw(*names), "i", [])
        args = self.draw("h, w, b", "h, w2, b2", f"{first[0]}, w2, b2")
        again = self.bind(indent, f"cls.{self.draw(*names)}(i, left, right, kind, rows, {args})")
        last = self.rows(indent, [*first, self.bind(indent, f"{again}[0]")], 1, 4)
        self.lines += [f"{indent}result = ({last[-1]}, {last[0]})", f"{indent}return result"]


def random_dynamic_program(rng: np.random.Generator) -> str:
    """Return the script of a random program. Its `main` takes a tree (a root, left and right
    children, kinds, a row per node), then a first row and two pairs of weights."""
    writer = _Writer(rng)
    names = [f"f{k}" for k in range(int(rng.integers(1, 3)))]
    writer.lines += ["@I.ir_module", "class Program:"]
    for name in names:
        writer.function(name, names)
    writer.main(names)
    return "\n".join(writer.lines)
