"""Facts about machines, and what reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.facts import CUDA, KB, MB, Facts
from relaxlab.ir.loops import Block
from relaxlab.ir.node import walk
from relaxlab.ir.target import GENERIC, Target
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.cache import artifact_key
from relaxlab.schedule.ranges import constant
from relaxlab.targets.machines import system_caches
from tests.passes.row_programs import low_rank

AVX2 = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64-v3", frozenset({"avx2"}))
SMALL = replace(AVX2, caches=(32 * KB, 256 * KB))


def test_caches_of_the_system(tmp_path: Path) -> None:
    rows = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("3", "Unified", "30M"),
            ("2", "Unified", "2048K")]  # fmt: skip
    for number, row in enumerate(rows):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in zip(("level", "type", "size"), row, strict=True):
            (folder / name).write_text(f"{text}\n")
    assert system_caches(str(tmp_path)) == (48 * KB, 2 * MB, 30 * MB)
    assert system_caches(str(tmp_path / "index0")) == ()


def test_facts_by_features_and_names() -> None:
    assert (GENERIC.facts.vector_bits, GENERIC.facts.vector_registers) == (128, 16)
    assert (AVX2.facts.vector_bits, AVX2.facts.masked_bits) == (256, 32)
    arm = Target("cpu", "aarch64-unknown-linux-gnu", "neoverse-n1", frozenset({"neon"}))
    assert (arm.facts.vector_registers, arm.facts.caches) == (32, (64 * KB, 1 * MB, 32 * MB))
    assert Target("cpu", cpu="znver4").facts.prefetch_level == 1
    assert Target.cuda().facts == CUDA
    rooms = [Target.cuda(arch).facts.most_shared for arch in ("sm_80", "sm_86", "sm_90", "sm_90a")]
    assert rooms == [163 * KB, 99 * KB, 227 * KB, 227 * KB]
    assert Target.cuda("sm_80").facts.tensor_cores
    turing = replace(CUDA, shared_at_launch=0, tensor_cores=False)
    assert Target.cuda("sm_75").facts == Target.cuda("sm_70").facts == turing
    assert Target.cuda().lanes("float32") == 4


def test_schedules_count_on_no_more_than_was_measured() -> None:
    large = Facts(caches=(64 * KB, 8 * MB))
    assert [large.cache(level) for level in (1, 2, 3)] == [32 * KB, 1 * MB, 8 * MB]


def test_a_target_as_json() -> None:
    for target in (SMALL, Target.cuda("sm_90"), Target.host()):
        assert Target.from_json(target.to_json()) == target


def test_facts_are_in_the_key_of_a_program() -> None:
    keys = [artifact_key("module", t, ()) for t in (AVX2, SMALL, replace(SMALL, contract=False))]
    assert len({*keys}) == 3


def panels(target: Target) -> list[int]:
    """The elements of the private buffers of the kernels of a product."""
    mod = rl.parse("""
@R.function
def main(x: R.Tensor((64, 4096), "float32"), w: R.Tensor((512, 4096), "float32")):
    y = R.linear(x, w)
    return y
""")
    funcs = rl.trace(mod, target).result.loop_functions().values()
    blocks = [n for f in funcs for n in walk(f.body) if isinstance(n, Block)]
    buffers = [b for n in blocks for b in n.alloc_buffers if b.scope == "local"]
    return [int(np.prod([constant(d) or 0 for d in b.shape])) for b in buffers]


def test_panels_fit_the_second_level_cache() -> None:
    assert 64 * KB < 4 * max(panels(SMALL)) <= 128 * KB < 4 * max(panels(AVX2)) <= 512 * KB


def test_fusion_takes_its_limits_from_the_target() -> None:
    mod = low_rank("softmax", "4000")
    kernels = [len(rl.trace(mod, t).result.loop_functions()) for t in (AVX2, SMALL)]
    assert kernels == [1, 2]  # rows of 16 KB on a stack, or in main memory


def test_gpu_limits_are_those_of_the_target() -> None:
    kernels = cuda_pipeline().run(low_rank("softmax", "33")).result.loop_functions()
    (name, func), *_ = kernels.items()
    assert lower_launches(func, name).launches[0].facts == CUDA
    with pytest.raises(CodegenError, match="threads per block; CUDA allows 16"):
        lower_launches(func, name, facts=replace(CUDA, block_threads=16))
