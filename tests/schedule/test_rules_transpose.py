"""Transposes by tiles: the kernels that the rule takes, and their results at any size."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target

TILED = {
    "two": ("R.permute_dims(x)", '("n", "m")'),
    "last two": ("R.permute_dims(x, [0, 2, 1])", '("b", "n", "m")'),
    "reversed": ("R.permute_dims(x)", '("b", "n", "m")'),
    "first to last": ("R.permute_dims(x, [1, 2, 0])", '("b", "n", "m")'),
    "fused": ("R.exp(R.permute_dims(R.add(x, x)))", '("n", "m")'),
    "of a constant width": ("R.permute_dims(x)", '("n", 70)'),
    "of a narrow one": ("R.permute_dims(x)", '("n", 20)'),
    "of constant sizes": ("R.permute_dims(x)", "(130, 67)"),
    "beside rows": ("R.add(R.permute_dims(x), R.ones((m, n), 'float32'))", '("n", "m")'),
}
NOT_TILED = {
    "rows stay": ("R.permute_dims(x, [1, 0, 2])", '("b", "n", "m")'),
    "both ways": ("R.add(x, R.permute_dims(x))", '("n", "n")'),
    "narrow": ("R.permute_dims(x)", '("n", 3)'),
    "small": ("R.permute_dims(x)", "(22, 22)"),
}


def program(body: str, shape: str, dtype: str = "float32") -> rl.Module:
    return rl.parse(f"""
@R.function
def main(x: R.Tensor({shape}, "{dtype}")):
    b, n, m = T.int64(), T.int64(), T.int64()
    return {body}
""")


def rule_of(mod: rl.Module) -> str:
    record = rl.trace(mod).find("schedule_kernels")
    (reason,) = {r.reason for r in record.remarks if r.applied}
    return reason.removeprefix("scheduled by the rule ")


@pytest.mark.parametrize("name", TILED)
def test_transposes_are_tiled_and_right(name: str, rng: np.random.Generator) -> None:
    body, shape = TILED[name]
    mod = program(body, shape)
    assert rule_of(mod) == "transpose"
    exe = rl.compile(mod, threads=2)
    declared = [d.strip() for d in shape.strip("()").split(",")]
    for sizes in ((1, 1, 1), (2, 64, 64), (3, 63, 65), (2, 1, 130), (1, 200, 17), (0, 5, 7)):
        symbols: dict[str, int] = dict(zip(('"b"', '"n"', '"m"'), sizes, strict=True))
        x = rng.standard_normal([symbols.get(d) or int(d.strip('"') if d.isdigit() else 0)
                                 for d in declared]).astype("float32")  # fmt: skip
        np.testing.assert_allclose(exe["main"](x), rl.interpret(mod, "main", x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int8", "bool"])
def test_tiles_of_other_widths(dtype: str, rng: np.random.Generator) -> None:
    mod = program("R.permute_dims(x)", '("n", "m")', dtype)
    exe = rl.compile(mod, threads=2)
    for shape in ((65, 129), (64, 64), (3, 200)):
        x = rng.integers(0, 2, shape).astype(numpy_dtype(dtype))
        np.testing.assert_array_equal(exe["main"](x), x.T)


@pytest.mark.parametrize(
    ("dtype", "extents", "axes", "widths"),
    [
        ("float32", "4 m 8 24", (0, 3, 2, 1), [4, 8, 16, 32]),
        ("float32", "m 16 8 24", (3, 2, 1, 0), [4, 8, 16, 32]),
        ("float64", "m n 8 24", (3, 2, 1, 0), [4, 8, 16]),
        ("float32", "4 16 m 24", (0, 3, 1, 2), []),  # joined rows of 16 * m
        ("int8", "4 m 8 24", (0, 3, 2, 1), [4, 32, 64]),
    ],
)
def test_short_rows(
    dtype: str, extents: str, axes: tuple[int, ...], widths: list[int], rng: np.random.Generator
) -> None:
    """Rows of results of one or two vectors are whole in a version each; other axes need none."""
    dims = extents.split()
    shape = ", ".join(d if d.isdigit() else f'"{d}"' for d in dims)
    mod = program(f"R.permute_dims(x, {list(axes)})", f"({shape})", dtype)
    target = Target(features=frozenset({"avx2", "avx512f", "avx512bw"}))
    record = rl.trace(mod, target).find("schedule_kernels")
    assert [r.reason for r in record.remarks if r.applied] == ["scheduled by the rule transpose"]
    (kernel,) = record.after.loop_functions().values()
    versions = [n for n in walk(kernel.body) if isinstance(n, loops.IfThenElse)]
    assert [str(v.condition) for v in versions] == [f"m <= {n}" for n in widths]
    for version, width in zip(versions, widths, strict=True):
        rows = [n for n in walk(version.then_case) if isinstance(n, loops.For)]
        assert (str(rows[-1].kind), str(rows[-1].extent)) == ("vectorized", str(width))
        lanes = target.lanes(dtype)
        square = max(side for side in (16, 8, 4) if side <= min(width, lanes))
        turned = [str(n.extent) for n in rows[:-1] if n.kind == "vectorized"]
        assert turned == [str(square)], "no rows that the version has not"
    exe = rl.compile(mod, threads=2)
    for m in (*range(10), 15, 17, 31, 33, 70):
        sizes = [int(d) if d.isdigit() else {"m": m, "n": 16}[d] for d in dims]
        x = rng.integers(0, 99, sizes).astype(dtype)
        np.testing.assert_array_equal(exe["main"](x), x.transpose(axes))


@pytest.mark.parametrize(
    ("extents", "axes", "copies"),
    [
        ("m 4096", (1, 0), 1),
        ("4096 m", (1, 0), 1),
        ("m n", (1, 0), 2),
        ("32 m n", (0, 2, 1), 2),
        ("m m", (1, 0), 1),
        ("m 16 n 24", (3, 2, 1, 0), 0),
    ],
)
def test_one_row_is_copied(
    extents: str, axes: tuple[int, ...], copies: int, rng: np.random.Generator
) -> None:
    """A transpose that a symbol of one makes a copy has a version for it."""
    dims = extents.split()
    shape = ", ".join(d if d.isdigit() else f'"{d}"' for d in dims)
    mod = program(f"R.permute_dims(x, {list(axes)})", f"({shape})")
    assert rule_of(mod) == "transpose"
    (kernel,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    versions = [n for n in walk(kernel.body) if isinstance(n, loops.IfThenElse)]
    assert sum(str(n.condition).endswith(" == 1") for n in versions) == copies
    exe = rl.compile(mod, threads=2)
    for m, n in ((1, 1), (1, 70), (70, 1), (2, 65)):
        sizes = [int(d) if d.isdigit() else {"m": m, "n": n}[d] for d in dims]
        x = rng.standard_normal(sizes, np.float32)
        np.testing.assert_array_equal(exe["main"](x), x.transpose(axes))


@pytest.mark.parametrize("name", NOT_TILED)
def test_small_transposes_go_to_other_rules(name: str) -> None:
    assert rule_of(program(*NOT_TILED[name])) != "transpose"


def test_elements_that_a_condition_leaves_out_are_not_copied() -> None:
    mod = rl.parse("""
@T.prim_func
def main(A: T.Buffer((70, 90), "float32"), B: T.Buffer((90, 71), "float32")):
    for i, j in T.grid(90, 71):
        with T.sblock("B"):
            y, x = T.axis.remap("SS", [i, j])
            B[y, x] = T.if_then_else(x >= 1, A[x - 1, y], T.float32(0))
""")
    assert rule_of(mod) == "elementwise"
    a, b = np.random.default_rng(0).standard_normal((70, 90)).astype("float32"), np.zeros((90, 71))
    out = b.astype("float32")
    rl.compile(mod, checks="all")["main"](a, out)
    np.testing.assert_array_equal(out, np.pad(a.T, ((0, 0), (1, 0))))
