"""Kernels that run batches of blocks, scheduled for GPUs: NVRTC compiles them, and simulated
threads compute what the interpreter does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.program import launches_of, sources_of
from relaxlab.ir import expr, graph
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.ir.types import TensorType
from relaxlab.models.dynamic import tree_gru, tree_lstm
from relaxlab.passes.base import Pipeline
from relaxlab.passes.batch_blocks import BATCHED
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.passes.write_results import write_results
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.simt.simt import simt

HIDDEN, ROWS = 8, 5
MODELS: dict[str, Callable[[], Module]] = {
    "tree_lstm": lambda: tree_lstm(HIDDEN, words=20),
    "tree_gru": lambda: tree_gru(HIDDEN, words=20),
}


@pytest.fixture(scope="module", params=MODELS)
def scheduled(request: pytest.FixtureRequest) -> Module:
    passes = batched_pipeline().passes
    end = 1 + next(i for i, p in enumerate(passes) if p.name == write_results.name)
    for_gpus = schedule_kernels.with_options(target=Target.cuda())
    return Pipeline((*passes[:end], for_gpus)).run(MODELS[request.param]()).result


def arguments(fn: graph.Function, rng: np.random.Generator) -> list[Any]:
    """Arguments for a batch of ROWS: an arena of as many tensors, where they begin, in any order,
    integers, and weights."""
    made: list[Any] = []
    for p in fn.params:
        assert isinstance(p.ty, TensorType)
        sizes = {"b": ROWS}
        dims = p.ty.shape or ()
        shape = [d.value if isinstance(d, expr.IntImm) else sizes.get(str(d), 64) for d in dims]
        if p.name.startswith("at_"):
            made.append(8 * rng.permutation(8)[:ROWS])  # some overlap: they are read alone
        elif p.ty.dtype == "int64":
            made.append(rng.integers(0, 20, shape))
        else:
            made.append(rng.standard_normal(shape).astype(p.ty.dtype))
    return made


def test_simulated_threads_compute_batches(scheduled: Module) -> None:
    rng = np.random.default_rng(0)
    names = [n for n, f in scheduled.graph_functions().items() if BATCHED in f.attrs]
    assert names
    for name in names:
        given = arguments(scheduled[name], rng)  # type: ignore[arg-type]
        expected = interpret(scheduled, name, *[a.copy() for a in given])
        report = simt(scheduled, name, *[a.copy() for a in given])
        assert not report.problems, f"{name}:\n{report}"
        found = report.result
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [
            (found, expected)
        ]  # fmt: skip
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.skipif(
    not nvrtc.is_available(), reason="needs the wheels nvidia-cuda-nvrtc-cu12 and -runtime-cu12"
)
def test_nvrtc_compiles_them(scheduled: Module) -> None:
    called = {n: f for n, f in scheduled.loop_functions().items() if "rows" in n}
    assert called
    functions, source = sources_of(launches_of(called), CUDA_C)
    result = nvrtc.compile_cuda(source, "sm_90")
    assert set(result.resources) == {k.name for ks in functions.values() for k in ks}


@pytest.mark.parametrize("target", ["cuda", "wgsl", "interpreter"])
def test_recording_is_for_cpus(target: str) -> None:
    with pytest.raises(ValueError, match=f"batches, .* on CPUs alone, not on '{target}'"):
        rl.compile(tree_lstm(HIDDEN, words=20), target, pipeline=batched_pipeline())
