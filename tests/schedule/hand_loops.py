"""Random loop functions as people write them: variables, conditions and loops in loops.

All values are small whole numbers, so that sums are exact in any order, and what is computed equals
what the interpreter finds, bit for bit.
"""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

HEAD = """
@T.prim_func
def main(x_: T.handle, w_: T.handle, k_: T.handle, o_: T.handle, p_: T.handle, c_: T.handle):
    n, m = T.int64(), T.int64()
    X = T.match_buffer(x_, (n, m + 1), "{dtype}")
    W = T.match_buffer(w_, (m + 1,), "{dtype}")
    K = T.match_buffer(k_, (n,), "int32")
    O = T.match_buffer(o_, (n, m + 1), "{dtype}")
    P = T.match_buffer(p_, (n, m + 1, 3), "{dtype}")
    C = T.match_buffer(c_, (n,), "int32")
    s = T.alloc_buffer((1,), "{dtype}")
    t = T.alloc_buffer((1,), "{dtype}")
    v = T.alloc_buffer((3,), "{dtype}")
"""
DTYPES = ("float32", "float32", "float64", "int32")
LIMIT = 50
"""The largest absolute value of a variable: sums of 100 of them, times four, are exact."""


def random_hand_loops(seed: int) -> str:
    """Return the text of a function of six arrays, `main`, for any sizes n and m."""
    return _Writer(Random(seed)).program()


def arrays_for(seed: int, text: str, n: int, m: int) -> list[Array]:
    """Return arguments for the function of a text."""
    rng = np.random.default_rng((seed, n, m))
    dtype = text.split('(n, m + 1), "', 1)[1].split('"', 1)[0]
    shapes = ((n, m + 1), (m + 1,), (n, m + 1), (n, m + 1, 3))
    x, w, o, p = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    counts = rng.integers(0, m + 2, n).astype("int32")
    return [x, w, counts, o, p, rng.integers(-3, 4, n).astype("int32")]


class _Writer:
    """Writes one function."""

    def __init__(self, rng: Random) -> None:
        self._rng, self._lines = rng, list[str]()
        self._dtype = rng.choice(DTYPES)
        self._loops = list[str]()

    def program(self) -> str:
        for _ in range(self._rng.choice((1, 1, 2))):
            self._nest()
        return HEAD.format(dtype=self._dtype) + "\n".join(self._lines) + "\n"

    def _nest(self) -> None:
        rng = self._rng
        self._put(1, "for i in range(n):")
        both = rng.random() < 0.6
        if both:
            self._put(2, "for j in range(m + 1):")
        depth, self._loops = (3, ["j"]) if both else (2, [])
        starts = ["s[0]", "t[0]", *(f"v[{k}]" for k in range(3))]
        for place in starts:
            self._put(depth, f"{place} = {self._value(0)}")
        for _ in range(rng.randint(1, 4)):
            self._statement(depth, 3)
        self._store(depth)

    def _put(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _statement(self, depth: int, room: int) -> None:
        rng = self._rng
        kind = rng.choice(("set", "set", "add", "if", "for", "store") if room else ("set", "store"))
        if kind == "set":
            self._put(depth, f"{self._variable()} = {self._value(2)}")
        elif kind == "add":
            place = self._variable()
            self._put(depth, f"{place} = {self._bounded(f'{place} + {self._value(1)}')}")
        elif kind == "store":
            self._store(depth)
        elif kind == "if":
            self._put(depth, f"if {self._condition()}:")
            self._block(depth + 1, room - 1)
            if rng.random() < 0.4:
                self._put(depth, "else:")
                self._block(depth + 1, room - 1)
        else:
            var = f"e{len(self._loops)}"
            extent = rng.choice(("3", "3", "5", "m + 1", "K[i]"))
            self._put(depth, f"for {var} in range({extent}):")
            inside = {"3": "3", "m + 1": "j"}.get(extent)
            self._loops.append(f"{var}:{inside}" if inside else "")
            self._block(depth + 1, room - 1)
            self._loops.pop()

    def _block(self, depth: int, room: int) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._statement(depth, room)

    def _store(self, depth: int) -> None:
        place, column = self._rng.random(), self._column()
        if place < 0.25:
            self._put(depth, "C[i] = (C[i] + 1) % 100")
        elif place < 0.5:
            self._put(depth, f"P[i, {column}, {self._third()}] = {self._value(1)}")
        else:
            old = f"O[i, {column}]"
            value = self._value(2)
            added = self._bounded(f"{old} + {value}") if self._rng.random() < 0.5 else value
            self._put(depth, f"{old} = {added}")

    def _column(self) -> str:
        names = [x.split(":")[0] for x in self._loops if x == "j" or x.endswith(":j")]
        return self._rng.choice(names) if names else self._rng.choice(("0", "m"))

    def _third(self) -> str:
        names = [x.split(":")[0] for x in self._loops if x.endswith(":3")]
        return self._rng.choice([*names, "0", "1", "2"])

    def _variable(self) -> str:
        return self._rng.choice(("s[0]", "t[0]", f"v[{self._third()}]"))

    def _constant(self, value: int) -> str:
        return f"T.{self._dtype}({value})"

    def _bounded(self, text: str) -> str:
        low, high = self._constant(-LIMIT), self._constant(LIMIT)
        return f"T.max(T.min({text}, {high}), {low})"

    def _value(self, depth: int) -> str:
        rng = self._rng
        if depth and rng.random() < 0.6:
            a, b = self._value(depth - 1), self._value(depth - 1)
            form = rng.choice(("{a} + {b}", "{a} - {b}", "T.max({a}, {b})", "T.min({a}, {b})"))
            return self._bounded(form.format(a=a, b=b))
        column = self._column()
        return rng.choice(
            (f"X[i, {column}]", f"W[{column}]", self._variable() if depth else f"X[i, {column}]",
             self._constant(rng.randint(-3, 3)), f"P[i, {column}, {self._third()}]")
        )  # fmt: skip

    def _condition(self) -> str:
        rng = self._rng
        columns = [x.split(":")[0] for x in self._loops if x]
        if columns and rng.random() < 0.4:
            test = rng.choice(("== 0", "> 1", "< 2", "== 2"))
            return f"{rng.choice(columns)} {test}"
        if rng.random() < 0.2:
            return f"K[i] {rng.choice(('>', '<'))} 2"
        return f"{self._value(1)} {rng.choice(('<', '>', '=='))} {self._value(1)}"
