"""Products by quantised weights on GPUs with quantised activations: results on simulated threads,
and the code."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.codegen.cuda import nvrtc, sass
from relaxlab.ir.module import Module
from relaxlab.ops.block_formats import FORMATS
from relaxlab.runtime.vm.cuda import require_cupy
from relaxlab.schedule.rules.decisions import THREAD_COLUMNS
from tests.disassembler import needs_disassembler

LANES = 4
"""Bytes that an instruction multiplies."""


def product(rows: int | str, columns: int, terms: int, format: str, activations: str) -> Module:
    """x @ w.T of quantised x, with a bias behind it."""

    class Product(nn.Module):
        def __init__(self) -> None:
            precision = nn.Precision(one=activations, several=activations)
            self.linear = nn.Linear(terms, columns, format=format, precision=precision, bias=True)

        def main(self, x):
            return self.linear(x)

    return Product().export({"main": {"x": nn.spec.Tensor((rows, terms), "float32")}})[0]


def arguments(mod: Module, rows: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random arguments; scales are small, and bytes any."""
    made: list[np.ndarray] = []
    for param in mod["main"].params:
        shape = tuple(d.value if hasattr(d, "value") else rows for d in param.ty.shape)
        dtype = np.dtype(param.ty.dtype)
        if dtype.kind in "iu":
            bounds = np.iinfo(dtype)
            made.append(rng.integers(bounds.min, bounds.max, shape, dtype, endpoint=True))
        else:
            made.append(rng.normal(size=shape).astype(dtype))
    return made


def check(mod: Module, rows: int, rng: np.random.Generator, **decisions: int) -> None:
    """Compare simulated threads with the interpreter."""
    names = rl.trace(mod, "cuda:sm_90").result.loop_functions()
    name = next(n for n in names if "quantized_linear" in n)
    exe = rl.compile(mod, "cuda:sm_90", decisions={name: decisions} if decisions else None)
    assert "dp4a_u8s8(" in exe.source()
    given = arguments(mod, rows, rng)
    want = rl.interpret(mod, "main", *given)
    got = exe.simulate("main", *given)
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("activations", ["q8", "q16"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_format(format: str, activations: str) -> None:
    terms = 3 * FORMATS[format].block
    mod = product("m", 16, terms, format, activations)
    rng = np.random.default_rng(0)
    for rows in (1, 3, 9):
        check(mod, rows, rng)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 48), (5, 7), (8, 50), (17, 33)])
def test_known_rows(rows: int, columns: int) -> None:
    check(product(rows, columns, 1056, "Q4_0", "q16"), rows, np.random.default_rng(rows))


@pytest.mark.parametrize("columns", THREAD_COLUMNS.candidates)
def test_columns_of_a_warp(columns: int) -> None:
    mod = product(3, 96, 256, "Q4_1", "q8")
    check(mod, 3, np.random.default_rng(columns), thread_columns=columns, results_per_block=4)


def test_sums_keep_their_order_where_they_are_not_reassociated() -> None:
    target = rl.Target("cuda", cpu="sm_80", reassociate=False)
    trace = rl.trace(product(2, 16, 96, "Q4_0", "q8"), target)
    reasons = [r.reason for p in trace.passes for r in p.remarks if "dot_product" in r.reason]
    assert any("quantized_linear adds its groups in order" in reason for reason in reasons)


@needs_disassembler
@pytest.mark.parametrize("activations", ["q8", "q16"])
def test_bytes_stay_in_words(activations: str) -> None:
    """Four bits become bytes four at a time: two instructions and a half per word, no permutation
    of bytes, and all loads of weights and activations are of 16 bytes."""
    exe = rl.compile(product(1, 4096, 4096, "Q4_0", activations), "cuda:sm_90a")
    compiled = nvrtc.compile_cuda(exe.source(), "sm_90a")
    found = sass.disassemble(compiled.cubin)
    (name,) = (n for n in found if "linear" in n)
    resources, counts = compiled.resources[name], sass.opcodes(found[name])
    assert resources.spill_stores == resources.stack == 0
    products = counts["IDP"]
    weights = products * LANES // (1 if activations == "q8" else 2)
    assert weights % 256 == 0
    assert counts["PRMT"] == 0
    assert counts["LOP3"] + counts["SHF"] <= weights // LANES * 1.7
    assert counts["LDG.E.128.CONSTANT"] >= weights // 32


@pytest.mark.gpu
@pytest.mark.parametrize("activations", ["q8", "q16"])
@pytest.mark.parametrize("format", ["Q4_0", "Q4_K", "Q6_K", "Q8_0"])
def test_on_a_gpu(format: str, activations: str) -> None:
    cupy = require_cupy()
    rng = np.random.default_rng(1)
    mod = product("m", 256, 2048, format, activations)
    exe = rl.compile(mod, "cuda")
    for rows in (1, 4, 16, 33):
        given = arguments(mod, rows, rng)
        want = rl.interpret(mod, "main", *given)
        got = cupy.asnumpy(exe["main"](*map(cupy.asarray, given)))
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
