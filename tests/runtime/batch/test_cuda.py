"""Batches on GPUs: NVRTC compiles their kernels; simulated threads, a stand-in for CuPy and a GPU
compute what the interpreter does."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.codegen.cuda import nvrtc
from relaxlab.ir.module import Module
from relaxlab.runtime.batch import cuda as batch_cuda
from relaxlab.runtime.batch.cuda import BatchedCudaExecutable
from relaxlab.runtime.vm import cuda, native_launches
from relaxlab.runtime.vm.capture import NotCapturable
from relaxlab.runtime.vm.gpu import NoGpu
from relaxlab.testing.batch_check import differs
from relaxlab.testing.data_programs import random_data_program, random_instance
from tests.codegen.cuda.on_cpu import COMPILER, CpuCuda
from tests.models.dynamic.networks import NETWORKS, arguments, assert_results_agree
from tests.runtime.vm.cupy_stand_in import CupyStandIn, compile_as_text
from tests.runtime.vm.test_cuda import has_gpu

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))


@cache
def compiled(name: str, target: str = "cuda") -> tuple[Module, BatchedCudaExecutable]:
    mod = NETWORKS[name].make()
    return mod, rl.compile(mod, target, pipeline=rl.batched_pipeline("cuda"))


def run(name: str, mod: Module, main: Any, count: int, checked: int) -> None:
    """Run a batch, and compare so many of its results with the interpreter's."""
    rng = np.random.default_rng(3)
    weights = dynamic.random_weights(mod, np.random.default_rng(1), 0.5)
    main.bind(*weights)
    instances = [NETWORKS[name].given(mod, rng, int(rng.integers(1, 6))) for _ in range(count)]
    results = main.batch(instances)
    assert len(results) == count
    for i in rng.permutation(count)[:checked]:
        expected = rl.interpret(mod, "main", *arguments(instances[i]), *weights)
        assert_results_agree(results[i], expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_simulated_threads_compute_batches(name: str) -> None:
    mod, exe = compiled(name)
    main = exe.simulated_batches()
    run(name, mod, main, 3, 2)
    assert main.last_batch is not None
    assert max(rows for _, rows in main.last_batch.launches) > 1


@pytest.mark.parametrize("number", range(2))
def test_random_programs_on_simulated_threads(number: int) -> None:
    print(f"RELAXLAB_SEED={SEED}: program {number}")
    rng = np.random.default_rng([SEED, number])
    mod = rl.parse(random_data_program(rng))
    weights = dynamic.random_weights(mod, rng, 0.5)
    instances = [random_instance(mod, rng) for _ in range(3)]
    pipeline = rl.batched_pipeline("cuda:sm_90a")
    if rng.integers(2):
        pipeline = pipeline.with_options("make_blocks", coarse=False)
    main = rl.compile(mod, "cuda:sm_90a", pipeline=pipeline).simulated_batches().bind(*weights)
    for instance, found in zip(instances, main.batch(instances), strict=True):
        expected = rl.interpret(mod, "main", *instance, *weights)
        assert differs(found, expected, "the result") is None


def test_the_function_that_runs_batches_is_among_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, exe = compiled("tree_fc")
    monkeypatch.setattr(batch_cuda, "require_cupy", lambda: np)
    try:
        assert exe.main is exe["main"] and "main" in dir(exe) and next(iter(exe)) == "main"
    finally:
        exe._entry = None
    assert repr(exe).startswith("BatchedCudaExecutable(main, ")
    with pytest.raises(KeyError, match="'nope'; there are: main, "):
        exe["nope"]
    with pytest.raises(AttributeError, match="'nope'; its functions: main, "):
        exe.nope  # noqa: B018
    with pytest.raises(ValueError, match="`main` runs batches: `exe.simulated_batches"):
        exe.simulate("main")
    with pytest.raises(NotCapturable, match="the launches of `main` depend on the instances"):
        exe.captured("main")


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_computes_batches(name: str) -> None:
    mod, exe = compiled(name)
    for count in (1, 40):
        run(name, mod, exe["main"], count, 3)


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_the_host_side_with_a_stand_in_for_cupy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The network's instances wait for tensors, and it has scalars in memory of the device."""
    stand_in = CupyStandIn(lambda source: CpuCuda(source, tmp_path))
    for module in (cuda, batch_cuda):
        monkeypatch.setattr(module, "require_cupy", lambda: stand_in)
    monkeypatch.setattr(nvrtc, "compile_cuda", compile_as_text)
    monkeypatch.setattr(native_launches, "driver_functions", stand_in.driver_functions)
    mod, exe = compiled("drnn", "cuda:sm_80")
    run("drnn", mod, exe["main"], 2, 2)
    assert exe["main"].last_batch.flushes > 1


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
@pytest.mark.parametrize("name", ["tree_lstm", "tree_gru"])
def test_nvrtc_compiles_them(name: str) -> None:
    _, exe = compiled(name)
    assert set(exe.compiled("sm_90").resources) == {
        source.name for sources in exe.gpu.functions.values() for source in sources
    }


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_a_batch_without_a_gpu() -> None:
    _, exe = compiled("tree_fc")
    with pytest.raises(NoGpu, match="needs (CuPy|a GPU)"):
        exe["main"]
    assert "main" in exe and "cell_block_batched" in exe


def test_a_pipeline_for_another_machine_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kernels for cpu; .*rl.batched_pipeline\('cuda'\)"):
        rl.compile(NETWORKS["tree_fc"].make(), "cuda", pipeline=rl.batched_pipeline())


@pytest.mark.parametrize("target", ["wgsl", "interpreter"])
def test_other_targets_refuse_batches(target: str) -> None:
    with pytest.raises(ValueError, match=f"on CPUs and by CUDA, not on '{target}'"):
        rl.compile(NETWORKS["tree_fc"].make(), target, pipeline=rl.batched_pipeline(target))
