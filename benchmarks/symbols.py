"""The programs that are compiled with symbols and with constants: kernels, and where symbols stand.

A program is one operator or a few; each of its extents has a name. `Case.script` writes it with
some of the extents as symbols and the others as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

DTYPES = ("int64", "int32")
"""Dtypes that a parameter may name after its extents; float32 where it names none."""


@dataclass(frozen=True, slots=True)
class Case:
    """params: `x: n k; w: k m`, extents in order, perhaps with a dtype. result: the expression that
    is computed, in which extents go by their names. sizes: the value of each extent. symbols: the
    sets of extents that are symbols together, one version each; `a b` are two at once."""

    kind: str
    params: str
    result: str
    sizes: Mapping[str, int]
    symbols: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.kind} {' '.join(f'{k}={v}' for k, v in self.sizes.items())}"

    def _params(self) -> Iterator[tuple[str, list[str], str]]:
        """The name, extents and dtype of each parameter."""
        for param in self.params.split(";"):
            name, _, dims = param.partition(":")
            words = dims.split()
            dtype = words.pop() if words and words[-1] in DTYPES else "float32"
            yield name.strip(), words, dtype

    def script(self, symbols: Collection[str]) -> str:
        """The module with these extents as symbols."""
        numbers = {k: str(v) for k, v in self.sizes.items() if k not in symbols}

        def fixed(text: str) -> str:
            return re.sub(r"[a-z]\w*", lambda found: numbers.get(found[0], found[0]), text)

        def dim(text: str) -> str:
            value = fixed(text)
            return f'"{value}"' if re.search("[a-z]", value) else value

        params = ", ".join(
            f'{name}: R.Tensor(({"".join(f"{dim(d)}, " for d in dims)}), "{dtype}")'
            for name, dims, dtype in self._params()
        )
        # The extents in an expression stand between operators, brackets and commas, never before
        # a bracket or an equals sign, as names of operators and options do.
        result = re.sub(
            r"(?<![\w.\"'>-])[a-z]\w*(?![\w.(\"'=>-])",
            lambda found: numbers.get(found[0], found[0]),
            self.result,
        )
        return f"""
@R.function
def main({params}):
    with R.dataflow():
        out = {result}
        R.output(out)
    return out
"""

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Arguments. Integers are places along the extent `n`; `starts` are the even bounds of
        `parts` sequences of `n` rows together, `longest` the length of one."""
        found: list[np.ndarray] = []
        for name, dims, dtype in self._params():
            shape = [eval(d, {"__builtins__": {}}, dict(self.sizes)) for d in dims]  # noqa: S307
            if name == "starts":
                found.append(np.linspace(0, self.sizes["n"], shape[0]).astype(dtype))
            elif name == "longest":
                found.append(np.array(-(-self.sizes["n"] // self.sizes["parts"]), dtype))
            elif dtype == "float32":
                found.append(rng.standard_normal(shape, np.float32))
            else:
                found.append(rng.integers(0, self.sizes["n"], shape, dtype))
        return found


def _products() -> Iterator[Case]:
    mm = ("n", "k", "m", "n k", "n m", "k m", "n k m")
    for sizes in ({"n": 512, "k": 512, "m": 512}, {"n": 500, "k": 509, "m": 499}):
        yield Case("matmul", "x: n k; w: k m", "R.matmul(x, w)", sizes, mm)
    sizes = {"n": 512, "k": 512, "m": 512}
    yield Case("linear", "x: n k; w: m k", "R.linear(x, w)", sizes, mm)
    yield Case("linear, bias", "x: n k; w: m k; b: m", "R.linear(x, w, b)", sizes, ("m", "n k m"))
    yield Case("matmul, gelu", "x: n k; w: k m", "R.nn.gelu(R.matmul(x, w))", sizes, ("m", "n k m"))
    yield Case(
        "matmul, transposed rows", "x: k n; w: k m", "R.matmul(R.permute_dims(x), w)", sizes,
        ("n", "k", "m", "n k m"),
    )  # fmt: skip
    yield Case("square", "x: n n", "R.matmul(x, x)", {"n": 512}, ("n",))
    yield Case(
        "matmul of a view", "x: n m k; w: k p", "R.matmul(R.reshape(x, (n * m, k)), w)",
        {"n": 16, "m": 32, "k": 512, "p": 512}, ("n m", "n m k p"),
    )  # fmt: skip
    yield Case(
        "matmul by a view", "x: p k; w: k n m", "R.matmul(x, R.reshape(w, (k, n * m)))",
        {"n": 16, "m": 32, "k": 512, "p": 512}, ("n m", "n m k p"),
    )  # fmt: skip
    few = {"n": 1, "k": 1024, "m": 1024}
    yield Case("matmul", "x: n k; w: k m", "R.matmul(x, w)", few, ("n", "k", "m", "n k m"))
    yield Case("linear", "x: n k; w: m k", "R.linear(x, w)", few, ("n", "k", "m", "n k m"))
    some = few | {"n": 8}
    yield Case("matmul", "x: n k; w: k m", "R.matmul(x, w)", some, ("n", "k", "m", "n k m"))
    batched = {"b": 8, "n": 256, "k": 256, "m": 256}
    yield Case(
        "batched matmul", "x: b n k; w: b k m", "R.matmul(x, w)", batched,
        ("b", "n", "k", "m", "b n", "b n k m"),
    )  # fmt: skip
    for kind, params, subscripts in (
        ("einsum", "x: n k; w: k m", "ij,jk->ik"),
        ("einsum", "x: n k; w: m k", "ij,kj->ik"),
        ("einsum", "x: k n; w: k m", "ji,jk->ki"),
    ):
        result = f'R.einsum((x, w), subscripts="{subscripts}")'
        yield Case(f"{kind} {subscripts}", params, result, sizes, ("n", "k", "m", "n k m"))
    yield Case(
        "einsum of heads", "x: b n h d; w: b m h d",
        'R.einsum((x, w), subscripts="bnhd,bmhd->bhnm")',
        {"b": 2, "n": 256, "m": 256, "h": 8, "d": 64}, ("b", "n", "m", "h", "d", "b n m h d"),
    )  # fmt: skip
    yield Case(
        "einsum over two", "x: n h d; w: h d m", 'R.einsum((x, w), subscripts="nhd,hdm->nm")',
        {"n": 256, "h": 8, "d": 64, "m": 512}, ("n", "h", "d", "m", "n h d m"),
    )  # fmt: skip

    for sub, x, w in (
        ("bhnm,bmhd->bnhd", "b h n m", "b m h d"),
        ("bnhd,bmhd->bnmh", "b n h d", "b m h d"),
        ("nhd,mhd->mn", "n h d", "m h d"),
        ("bki,bkj->bij", "b k i", "b k j"),
    ):
        sizes = {"b": 4, "n": 128, "m": 128, "h": 4, "d": 64, "k": 256, "i": 128, "j": 128}
        used = [name for name in sizes if name in sub]
        yield Case(
            f"einsum {sub}", f"x: {x}; w: {w}", f'R.einsum((x, w), subscripts="{sub}")',
            {name: sizes[name] for name in used}, (used[0], " ".join(used)),
        )  # fmt: skip
    yield Case(
        "einsum of one row of heads", "x: b n h d; w: b m h d",
        'R.einsum((x, w), subscripts="bnhd,bmhd->bhnm")',
        {"b": 2, "n": 1, "m": 1024, "h": 8, "d": 64}, ("n", "m", "b n m h d"),
    )  # fmt: skip


def _odd_products() -> Iterator[Case]:
    """Products whose extents fill no vectors or tiles, and those of a few microseconds."""
    for width in (1, 3, 7, 15, 17, 65):
        sizes = {"n": 512, "k": 512, "m": width}
        yield Case("matmul", "x: n k; w: k m", "R.matmul(x, w)", sizes, ("n", "m", "n k m"))
        yield Case("linear", "x: n k; w: m k", "R.linear(x, w)", sizes, ("n", "m", "n k m"))
    for size in (4, 15, 17, 33, 64):
        sizes = {"n": size, "k": size, "m": size}
        yield Case("matmul", "x: n k; w: k m", "R.matmul(x, w)", sizes, ("n", "n k m"))
        yield Case("linear", "x: n k; w: m k", "R.linear(x, w)", sizes, ("n", "n k m"))
    sizes = {"b": 16, "n": 65, "k": 33, "m": 17}
    yield Case(
        "batched matmul", "x: b n k; w: b k m", "R.matmul(x, w)", sizes, ("b", "n", "m", "b n k m")
    )


def _attentions() -> Iterator[Case]:
    sizes = {"b": 2, "n": 256, "h": 8, "d": 64}
    params, call = "q: b n h d; k: b n h d; v: b n h d", "R.nn.attention(q, k, v{})"
    places = ("b", "n", "h", "d", "b n", "b n h", "b n h d")
    yield Case("attention", params, call.format(""), sizes, places)
    causal = call.format(', causal_mask="TopLeft"')
    yield Case("causal attention", params, causal, sizes, ("n", "b n h", "b n h d"))
    odd = sizes | {"n": 100, "d": 72}
    yield Case("attention", params, call.format(""), odd, ("n", "d", "b n h d"))
    yield Case(
        "cross attention", "q: b n h d; k: b m h d; v: b m h d", call.format(""),
        {"b": 2, "n": 64, "m": 500, "h": 8, "d": 64}, ("n", "m", "n m", "b n m h", "b n m h d"),
    )  # fmt: skip
    yield Case(
        "grouped attention", "q: b n h*g d; k: b n h d; v: b n h d", call.format(""),
        {"b": 2, "n": 256, "h": 3, "g": 3, "d": 64}, ("n", "h", "b n h", "b n h d"),
    )  # fmt: skip
    for parts in (2, 16):
        yield Case(
            "attention_var_len",
            "q: b n h d; k: b n h d; v: b n h d; starts: parts+1 int32; longest: int32",
            "R.nn.attention_var_len(q, k, v, starts, longest)",
            {"b": 1, "n": 1024, "h": 8, "d": 64, "parts": parts},
            ("n", "parts", "n parts", "n h", "n parts h d"),
        )  # fmt: skip


def _convolutions() -> Iterator[Case]:
    sizes = {"n": 4, "c": 32, "o": 64, "h": 56, "w": 56}
    call = "R.nn.conv2d(x, f, padding={}{})"
    yield Case(
        "conv2d", "x: n c h w; f: o c 3 3", call.format(1, ""), sizes,
        ("n", "c", "o", "h", "w", "h w", "n h w", "n c o h w"),
    )  # fmt: skip
    yield Case(
        "conv2d without padding", "x: n c h w; f: o c 3 3", call.format(0, ""), sizes,
        ("h w", "n c o h w"),
    )  # fmt: skip
    yield Case(
        "conv2d NHWC", "x: n h w c; f: 3 3 c o",
        call.format(1, ', data_layout="NHWC", kernel_layout="HWIO"'), sizes,
        ("n", "c", "o", "w", "n h w", "n c o h w"),
    )  # fmt: skip
    yield Case(
        "conv2d 1x1", "x: n c h w; f: o c 1 1", call.format(0, ""), sizes,
        ("n", "c", "o", "h w", "n c o h w"),
    )  # fmt: skip
    yield Case(
        "conv2d depthwise", "x: n c h w; f: c 1 3 3", call.format(1, ", groups=c"), sizes,
        ("n", "h w", "n h w"),
    )  # fmt: skip
    yield Case(
        "conv2d grouped", "x: n c h w; f: o 8 3 3", call.format(1, ", groups=4"), sizes,
        ("n", "o", "h w", "n h w"),
    )  # fmt: skip
    call = "R.nn.conv2d_transpose(x, f, strides=2, padding=1, output_padding=1)"
    yield Case(
        "conv2d_transpose", "x: n c h w; f: c o 3 3", call,
        {"n": 1, "c": 64, "o": 32, "h": 56, "w": 56}, ("n", "h w", "n c o h w"),
    )  # fmt: skip
    yield Case(
        "conv1d", "x: n c w; f: o c 5", "R.nn.conv1d(x, f, padding=2)",
        {"n": 8, "c": 64, "o": 64, "w": 512}, ("n", "c", "o", "w", "n w", "n c o w"),
    )  # fmt: skip


def _rows() -> Iterator[Case]:
    sizes = {"n": 1024, "d": 1000}
    both = ("n", "d", "n d")
    for axis in (1, 0):
        yield Case(f"softmax axis {axis}", "x: n d", f"R.nn.softmax(x, axis={axis})", sizes, both)
    yield Case("log_softmax", "x: n d", "R.nn.log_softmax(x)", sizes, both)
    cube = {"a": 32, "n": 128, "d": 256}
    every = ("a", "n", "d", "a n", "a n d")
    yield Case("softmax axis 1 of 3", "x: a n d", "R.nn.softmax(x, axis=1)", cube, every)
    for name in ("layer_norm", "group_norm"):
        if name == "layer_norm":
            result = "R.nn.layer_norm(x, g, b, axes=[-1])"
            yield Case(name, "x: n d; g: d; b: d", result, sizes, both)
        else:
            result = "R.nn.group_norm(x, g, b, num_groups=8, channel_axis=1, axes=[2])"
            yield Case(name, "x: a n d; g: n; b: n", result, cube, ("a", "d", "a d"))
    yield Case("rms_norm", "x: n d; g: d", "R.nn.rms_norm(x, g, axes=[-1])", sizes, both)
    yield Case(
        "batch_norm", "x: a n d; g: n; b: n; m: n; v: n",
        "R.nn.batch_norm(x, g, b, m, v, axis=1)", cube, every,
    )  # fmt: skip
    for operator in ("sum", "max", "mean", "argmax", "variance"):
        for axis in (1, 0):
            result = f"R.{operator}(x, axis={axis})"
            yield Case(f"{operator} axis {axis}", "x: n d", result, sizes, both)
    for axes in ("[0, 1]", "[0, 2]", "[1, 2]", "[1]"):
        yield Case(f"sum axes {axes} of 3", "x: a n d", f"R.sum(x, axis={axes})", cube, every)
    yield Case("sum of all", "x: a n d", "R.sum(x)", cube, every)
    for axis in (1, 0):
        yield Case(f"cumsum axis {axis}", "x: n d", f"R.cumsum(x, axis={axis})", sizes, both)
    for columns in (3, 20):
        few = {"n": 1024, "d": columns}
        yield Case("cumsum axis 0", "x: n d", "R.cumsum(x, axis=0)", few, both)
    yield from _reductions()


def _reductions() -> Iterator[Case]:
    """Over each of four axes and several; rows of three elements; odd extents."""
    four = {"a": 16, "b": 30, "n": 33, "d": 67}
    places = ("a", "b", "n", "d", "a b n d")
    for operator in ("sum", "max", "std"):
        for axes in ("[0]", "[1]", "[2]", "[3]", "[0, 3]", "[1, 2]"):
            result = f"R.{operator}(x, axis={axes})"
            yield Case(f"{operator} axes {axes} of 4", "x: a b n d", result, four, places)
        for axis in (0, 1):
            result = f"R.{operator}(x, axis={axis})"
            narrow = {"n": 100_000, "d": 3}
            yield Case(f"{operator} axis {axis}", "x: n d", result, narrow, ("n", "d", "n d"))
    for columns in (17, 33, 49):
        for operator in ("sum", "max"):
            few = {"n": 1024, "d": columns}
            yield Case(
                f"{operator} axis 0", "x: n d", f"R.{operator}(x, axis=0)", few, ("d", "n d")
            )
    yield Case("argmax axis 1 of 4", "x: a b n d", "R.argmax(x, axis=1)", four, places)
    yield Case("mean axis 0", "x: n d", "R.mean(x, axis=0)", {"n": 7, "d": 5}, ("n", "d", "n d"))


def _moves() -> Iterator[Case]:
    sizes = {"n": 1024, "d": 1000}
    both = ("n", "d", "n d")
    yield Case("add", "x: n d; y: n d", "R.add(x, y)", sizes, both)
    yield Case("add a column", "x: n d; y: n 1", "R.add(x, y)", sizes, both)
    yield Case("add a row", "x: n d; y: d", "R.add(x, y)", sizes, both)
    yield Case("transpose", "x: n d", "R.permute_dims(x)", sizes, both)
    cube = {"a": 32, "n": 128, "d": 256}
    every = ("a", "n", "d", "a n d")
    for axes in ("[0, 2, 1]", "[1, 0, 2]", "[2, 1, 0]"):
        yield Case(f"transpose {axes}", "x: a n d", f"R.permute_dims(x, axes={axes})", cube, every)
    small = {"a": 4, "b": 16, "c": 8, "d": 24}
    for axes in ("[0, 2, 1, 3]", "[0, 3, 1, 2]", "[3, 2, 1, 0]"):
        yield Case(
            f"transpose {axes}", "x: a b c d", f"R.permute_dims(x, axes={axes})", small,
            ("a", "b", "c", "d", "a b c d"),
        )  # fmt: skip
    yield Case(
        "take a few", "x: n d; i: m int64", "R.take(x, i, axis=0)", {"n": 64, "d": 33, "m": 16},
        ("n", "d", "m", "n d m"),
    )  # fmt: skip
    taken = {"n": 1024, "d": 1000, "m": 512}
    yield Case(
        "take rows", "x: n d; i: m int64", "R.take(x, i, axis=0)", taken, ("n", "d", "m", "n d m")
    )
    yield Case(
        "take columns", "x: d n; i: m int64", "R.take(x, i, axis=1)", taken,
        ("n", "d", "m", "n d m"),
    )  # fmt: skip
    yield Case(
        "gather_elements", "x: n d; i: m d int64", "R.gather_elements(x, i, axis=0)", taken,
        ("n", "d", "m", "n d m"),
    )  # fmt: skip
    for axis, params in ((0, "x: n d; y: m d"), (1, "x: d n; y: d m")):
        yield Case(
            f"concat axis {axis}", params, f"R.concat((x, y), axis={axis})", taken,
            ("n", "d", "m", "n d m"),
        )  # fmt: skip
        yield Case(
            f"split axis {axis}", params.partition(";")[0], f"R.split(x, 2, axis={axis})", sizes,
            both,
        )  # fmt: skip
    yield Case(
        "reshape and add", "x: a n d; y: n*d", "R.add(R.reshape(x, (a, n * d)), y)", cube, every
    )


def all_cases() -> list[Case]:
    """All cases, products first."""
    return [*_products(), *_odd_products(), *_attentions(), *_convolutions(), *_rows(), *_moves()]
