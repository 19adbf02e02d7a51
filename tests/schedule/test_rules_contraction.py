"""Contractions over any axes in register tiles, compiled, against NumPy: every order of axes,
extents around a vector and a tile."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.testing.replay import replay_kernels

SUBSCRIPTS = [
    ("bnhd,bmhd->bhnm", {"matmul"}),
    ("bhnm,bmhd->bnhd", {"contraction"}),
    ("bnhd,bmhd->bnmh", {"contraction"}),
    ("nhd,mhd->mn", {"contraction"}),
    ("nk,bmk->mbn", {"matmul"}),
    ("ckn,ckm->nm", {"matmul"}),
    ("bki,bkj->bij", {"matmul"}),
]
EXTENTS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 32, 33)


def einsum(subscripts: str, sizes: dict[str, int] | None = None) -> Module:
    """The module of one contraction; extents without sizes are symbols."""
    left, right = subscripts.partition("->")[0].split(",")
    known = sizes or {}
    dims = [", ".join(str(known.get(a, f'"{a}"')) for a in side) for side in (left, right)]
    return rl.parse(f"""
@R.function
def main(x: R.Tensor(({dims[0]}), "float32"), y: R.Tensor(({dims[1]}), "float32")):
    with R.dataflow():
        out = R.einsum((x, y), subscripts="{subscripts}")
        R.output(out)
    return out
""")


def rules_of(module: Module) -> set[str]:
    """The rules that scheduled the module's kernels."""
    trace = cpu_pipeline().run(module)
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    return {w.reason.rpartition(" ")[2] for w in remarks if w.applied}


@pytest.mark.parametrize(("subscripts", "rules"), SUBSCRIPTS)
def test_contractions_of_symbols(subscripts, rules, rng):
    module = einsum(subscripts)
    assert rules_of(module) == rules
    main = rl.compile(module, use_cache=False)["main"]
    left, right = subscripts.partition("->")[0].split(",")
    for _ in range(40):
        sizes = {name: int(rng.choice(EXTENTS)) for name in sorted({*left, *right})}
        x, y = (rng.normal(size=[sizes[a] for a in side]) for side in (left, right))
        got = main(x.astype(np.float32), y.astype(np.float32))
        np.testing.assert_allclose(got, np.einsum(subscripts, x, y), 1e-4, 1e-4, err_msg=str(sizes))


@pytest.mark.parametrize("subscripts", ["bnhd,bmhd->bhnm", "nhd,mhd->mn"])
def test_panels_are_copied_line_by_line(subscripts):
    """Lanes are neighbours in a panel: a vector that is scattered over many lines would make
    threads write to the same lines at once."""
    passes = cpu_pipeline().run(einsum(subscripts)).passes
    scheduled = next(p.after for p in passes if p.name == "schedule_kernels")
    (kernel,) = scheduled.loop_functions().values()
    copies = 0
    for loop in (n for n in walk(kernel.body) if isinstance(n, loops.For)):
        match loop.body:
            case loops.BlockRealize(values, _, loops.Block() as block) if loop.kind == "vectorized":
                (written,) = block.writes
                if written.buffer.scope == "global" and written.buffer not in kernel.params:
                    axes = {it.var: v for it, v in zip(block.iter_vars, values, strict=True)}
                    *line, place = (substitute(r.min, axes) for r in written.region)
                    an = Analyzer()
                    an.bind(loop.loop_var, expr.const(0), loop.extent - 1)
                    assert an.prove_equal(place, loop.loop_var)
                    assert not any(loop.loop_var in symbols_in(an.simplify(i)) for i in line)
                    copies += 1
    assert copies


@pytest.mark.parametrize("width", [1, 3, 15, 17])
def test_narrow_contractions_of_constants(width, rng):
    """Sums of fewer columns than a vector has lanes are as wide as a vector."""
    for subscripts in ("nk,km->nm", "nk,mk->nm", "bnhk,bmhk->bhnm"):
        left, right = subscripts.partition("->")[0].split(",")
        sizes = {"b": 2, "n": 30, "h": 3, "k": 37, "m": width}
        used = {a: sizes[a] for a in {*left, *right}}
        main = rl.compile(einsum(subscripts, used), use_cache=False)["main"]
        x, y = (rng.normal(size=[sizes[a] for a in side]) for side in (left, right))
        got = main(x.astype(np.float32), y.astype(np.float32))
        np.testing.assert_allclose(got, np.einsum(subscripts, x, y), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("dtype", "subscripts"), [("int8", "ki,kj->ij"), ("float64", "bki,bkj->bij")]
)
def test_deep_products_of_rows_are_made_in_blocks(dtype, subscripts, rng):
    """Operands that lie across the terms, which are a symbol, are copied block by block."""
    text = str(einsum(subscripts, {"b": 2, "i": 20, "j": 37})).replace("float32", dtype)
    module = rl.parse(text)
    trace = cpu_pipeline().run(module)
    replay_kernels(trace)
    (kernel,) = trace.result.loop_functions().values()
    blocks = [n for n in walk(kernel.body) if isinstance(n, loops.Block)]
    assert len([b for n in blocks for b in n.alloc_buffers if b.dtype == dtype]) >= 3
    main = rl.compile(module, use_cache=False)["main"]
    left, right = subscripts.partition("->")[0].split(",")
    for depth in (0, 1, 64, 65, 300):
        sizes = {"b": 2, "i": 20, "j": 37, "k": depth}
        shapes = ([sizes[a] for a in side] for side in (left, right))
        x, y = (rng.integers(-3, 3, shape).astype(dtype) for shape in shapes)
        np.testing.assert_array_equal(main(x, y), np.einsum(subscripts, x, y))
