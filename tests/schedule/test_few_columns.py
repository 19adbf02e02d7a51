"""Products of many rows by a matrix of few columns, compiled, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import loops
from relaxlab.ir.node import walk

PRODUCTS = {
    "plain": ("x: n k; w: k m", "R.matmul(x, w)", "nk,km->nm"),
    "batches": ("x: b n k; w: b k m", "R.matmul(x, w)", "bnk,bkm->bnm"),
    "one matrix": ("x: b n k; w: k m", "R.matmul(x, w)", "bnk,km->bnm"),
    "columns apart": ('x: b n k; w: k b m', 'R.einsum((x, w), "bnk,kbm->bnm")', "bnk,kbm->bnm"),
    "rows apart": ("x: k n; w: k m", 'R.einsum((x, w), "kn,km->nm")', "kn,km->nm"),
    "transposed": ("x: n k; w: m k", "R.linear(x, w)", "nk,mk->nm"),
}


def program(params: str, result: str, sizes: dict[str, int], symbols: str, dtype: str) -> rl.Module:
    """The product with a bias and a maximum behind it, some of its extents as symbols."""

    def dim(name: str) -> str:
        return f'"{name}"' if name in symbols else str(sizes[name])

    def tensor(text: str) -> str:
        name, dims = text.split(": ")
        return f'{name}: R.Tensor(({"".join(dim(d) + ", " for d in dims.split())}), "{dtype}")'

    return rl.parse(f"""
@R.function
def main({", ".join(map(tensor, params.split("; ")))}, c: R.Tensor(({dim("m")},), "{dtype}")):
    with R.dataflow():
        y = R.nn.relu(R.add({result}, c))
        R.output(y)
    return y
""")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("columns", [2, 3, 7])
def test_few_columns_of_integers(columns: int, dtype: str, rng: np.random.Generator) -> None:
    """Sums are exact, up to wrapping around."""
    n, k = int(rng.integers(0, 200)), int(rng.integers(1, 200))
    sums = "int64" if dtype == "int64" else "int32"
    exe = rl.compile(rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", {k}), "{dtype}"), w: R.Tensor(({k}, {columns}), "{dtype}")):
    return R.matmul(x, w, out_dtype="{sums}")
"""), threads=2, checks="all")  # fmt: skip
    of = np.iinfo(dtype)
    x, w = (rng.integers(of.min, of.max, s, dtype, endpoint=True) for s in ((n, k), (k, columns)))
    np.testing.assert_array_equal(exe["main"](x, w), x.astype(sums) @ w.astype(sums))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_few_columns(kind: str, dtype: str, rng: np.random.Generator) -> None:
    """Rows and columns as constants and as symbols, of any number from one vector's half on."""
    params, result, einsum = PRODUCTS[kind]
    for symbols in ("", "n", "m"):
        sizes = {"b": 3, "n": int(rng.integers(17, 300)), "k": int(rng.integers(1, 200)),
                 "m": int(rng.integers(2, 9))}  # fmt: skip
        mod = program(params, result, sizes, symbols, dtype)
        exe = rl.compile(mod, threads=2, checks="default" if symbols == "n" else "all")
        for _ in range(4):
            sizes |= {s: int(rng.integers(0, {"n": 300, "m": 20}[s])) for s in symbols}
            shapes = (p.split(": ")[1].split() for p in params.split("; "))
            x, w = (rng.standard_normal([sizes[d] for d in dims]).astype(dtype) for dims in shapes)
            c = rng.standard_normal(sizes["m"]).astype(dtype)
            got = exe["main"](x, w, c)
            want = np.maximum(np.einsum(einsum, x, w) + c, 0)
            np.testing.assert_allclose(got, want, 1e-4, 1e-4, err_msg=f"{symbols} {sizes}")


@pytest.mark.parametrize(("columns", "depth", "fits"), [
    ("2", "100", True), ("3", "1024", True), ("7", "64", True), ("'m'", "64", True),
    ("8", "64", True), ("3", "'k'", False), ("3", "131072", False),
])  # fmt: skip
def test_columns_become_rows_of_a_copy(columns: str, depth: str, fits: bool) -> None:
    """Fewer columns than half a vector do, where the copy has a known size and stays in a
    second-level cache; symbolic ones have a version for as many."""
    half = rl.Target.host().lanes("float32") // 2
    copied = fits and (half > 2 if columns == "'m'" else int(columns) < half)
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor((200, {depth}), "float32"), w: R.Tensor(({depth}, {columns}), "float32")):
    return R.matmul(x, w)
""")
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    made = [b for n in walk(kernel) if isinstance(n, loops.Block) for b in n.alloc_buffers]
    shapes = [[str(d) for d in b.shape] for b in made]
    assert any(s[1:] == [depth] and int(s[0]) < 8 for s in shapes if len(s) == 2) == copied


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [270, 260, 17])
def test_tiles_without_rows_read_no_sums(rows: int, dtype: str, rng: np.random.Generator) -> None:
    """The last share of the rows has whole tiles past the end, whose sums are guarded."""
    exe = rl.compile(rl.parse(f"""
@R.function
def main(x: R.Tensor(({rows}, 64), "{dtype}"), w: R.Tensor((64, "m"), "{dtype}")):
    return R.matmul(x, w)
"""), checks="all")  # fmt: skip
    constant = rl.compile(program(*PRODUCTS["plain"][:2], {"n": rows, "k": 64, "m": 3}, "", dtype),
                          checks="all")  # fmt: skip
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((rows, 64), (64, 3)))
    got = constant["main"](x, w, np.zeros(3, dtype))
    np.testing.assert_allclose(got, np.maximum(x @ w, 0), 1e-4, 1e-4)
    for columns in (0, 2, 3, 5, 7):
        x = rng.standard_normal((rows, 64)).astype(dtype)
        w = rng.standard_normal((64, columns)).astype(dtype)
        np.testing.assert_allclose(exe["main"](x, w), x @ w, 1e-4, 1e-4)


def test_a_matrix_by_itself(rng: np.random.Generator) -> None:
    exe = rl.compile(rl.parse("""
@R.function
def main(x: R.Tensor(("b", 5, 5), "float32")):
    return R.matmul(x, x)
"""), checks="all")  # fmt: skip
    for b in (0, 1, 40):
        x = rng.standard_normal((b, 5, 5), np.float32)
        np.testing.assert_allclose(exe["main"](x), x @ x, 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_reductions_of_few_columns(dtype: str, rng: np.random.Generator) -> None:
    """Short and long columns, whose rows are lanes together, as constants and as symbols."""
    for width in rng.choice(np.arange(2, 9), 3, replace=False):
        for rows in ("n", int(rng.integers(1, 40_000))):
            shape = f"({rows!r}, {width})".replace("'", '"')
            exe = rl.compile(rl.parse(f"""
@R.function
def main(x: R.Tensor({shape}, "{dtype}")):
    return (R.sum(x, axis=0), R.max(x, axis=0), R.min(R.abs(x), axis=0))
"""), threads=2, checks="all")  # fmt: skip
            for n in [1, 63, 255, 257, 16_385, 70_001] if rows == "n" else [rows]:
                x = rng.integers(-4, 5, (n, width)).astype(dtype)
                found = exe["main"](x)
                wide = "int8" if dtype == "int8" else "float64"
                want = (x.sum(0, wide), x.max(0), np.abs(x).min(0))
                for got, expected in zip(found, want, strict=True):
                    np.testing.assert_array_equal(got, expected.astype(dtype), f"{n} {width}")
