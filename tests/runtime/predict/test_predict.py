"""Predicted seconds of GPU kernels: their work against that of whole runs, and known bounds."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda.nvrtc import Resources
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.expr import const
from relaxlab.ir.gpus import GPUS
from relaxlab.ir.loops import Buffer
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.predict import occupancy as occupancies
from relaxlab.runtime.predict.model import COPY, LAUNCH, _copies, _from_cache
from relaxlab.runtime.predict.occupancy import occupancy
from relaxlab.runtime.predict.predict import Prediction, predict
from relaxlab.runtime.predict.sampled import BlockWork, SampledTeam
from relaxlab.runtime.simt.access import Cost, Site
from relaxlab.runtime.simt.counters import Counters
from relaxlab.runtime.simt.counting import CountingTeam
from relaxlab.runtime.simt.kernel import Kernel, geometry_of
from relaxlab.runtime.simt.memory import Memory
from relaxlab.runtime.simt.report import Problems
from relaxlab.script import parse
from tests.runtime.simt import programs


def program(params: str, value: str) -> rl.Module:
    text = f"@R.function\ndef main({params}):\n    with R.dataflow():\n        r = {value}\n"
    return parse(f"{text}        R.output(r)\n    return r\n")


ROWS = 'R.Tensor(("n", 4096), "float32")'
ADD = program(f"x: {ROWS}, y: {ROWS}", "R.add(x, y)")


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers are estimated: the same on every machine."""
    monkeypatch.setattr("relaxlab.codegen.cuda.nvrtc.is_available", lambda: False)


@pytest.mark.parametrize("gpu", GPUS)
def test_a_copy_takes_what_its_bytes_take(gpu: str) -> None:
    found = predict(ADD, gpu, n=4096)
    (launch,) = found.launches
    assert launch.times.bound == "main memory"
    assert launch.times.bytes == 3 * 4096 * 4096 * 4
    copied = launch.times.bytes / (GPUS[gpu].bandwidth * COPY)
    assert copied < found.seconds - LAUNCH < 1.15 * copied
    assert f"main on {gpu}:" in repr(found) and "main memory" in repr(found)


def test_edges_are_counted_once() -> None:
    """Blocks at the end of a row are cut off; the others are not."""
    odd = program('x: R.Tensor(("n", "m"), "float32")', "R.nn.relu(x)")
    moved = [predict(odd, n=1021, m=m).launches[0].times.bytes for m in (1000, 1003)]
    assert np.allclose(moved, [2 * 1021 * 1000 * 4, 2 * 1021 * 1003 * 4], rtol=0.02)


def bound_kernel() -> Kernel:
    """The launch of a product of 70 x 210 and 210 x 40 elements by tiles of 16 x 16."""
    func = programs.tiled_matmul
    (launch,) = lower_launches(func, "matmul").launches
    shapes = {"A": (70, 210), "B": (210, 40), "C": (70, 40)}
    sizes = {v: {"n": 70, "m": 40, "k": 210}[v.name] for v in launch.scalars}
    geometry = geometry_of(launch, sizes)
    memory = {}
    for b in launch.buffers:
        memory[b] = Memory(np.ones(int(np.prod(shapes[b.name])), "float32"))
        memory[b].watch()
    private = {b: tuple(d.value for d in b.shape) for b in (*launch.shared, *launch.local)}  # type: ignore[attr-defined]
    known = {b: shapes[b.name] for b in launch.buffers}
    scalars = {v: np.int64(n) for v, n in sizes.items()}
    return Kernel(launch, scalars, memory, {**known, **private}, geometry, Problems())


def test_three_iterations_stand_for_all() -> None:
    """The last slice has two terms instead of 16, and the last block fewer rows and columns."""
    for block in (0, 14):
        whole, part = CountingTeam(bound_kernel(), block), SampledTeam(bound_kernel(), block)
        whole.run()
        part.run()
        want, got = whole.counters(), part.work().counters
        # Where in a line the rows of 840 bytes begin is another in each iteration.
        exact, about = ({k: (c.count, c.least, c.instructions) for k, c in x.by_buffer().items()}
                        for x in (want, got))  # fmt: skip
        assert exact == about
        assert (want.pipes, want.barriers) == (got.pipes, got.barriers)
        read = {b.name: n for b, n in part.work().read.items()}
        rows, columns = (16, 16) if block == 0 else (70 - 64, 40 - 32)
        sectors = {
            "A": rows * -(-210 * 4 // 32) * 32,  # perhaps one more per row, where it begins within
            "B": 210 * columns * 4,
        }
        assert sectors["A"] <= read["A"] <= sectors["A"] + rows * 32 * 14
        assert read["B"] == sectors["B"]


SHAPES = 'x: R.Tensor((2048, 1024), "float16"), w: R.Tensor((1024, 2048), "float16")'


def test_products_by_tensor_cores() -> None:
    found = predict(program(SHAPES, "R.matmul(x, w)"), "a100")
    (launch,) = found.launches
    assert launch.times.products == 2 * 2048 * 2048 * 1024
    # At least what the tensor cores need, and no more than three times as long.
    least = launch.times.products / (GPUS["a100"].products * GPUS["a100"].mma)
    assert least < found.seconds < 3 * least + LAUNCH
    conflicts = [c for c in launch.work.counters.costs.values() if c.unit == "rounds of banks"]
    assert conflicts and all(c.count == c.least for c in conflicts)


def test_products_by_warpgroups() -> None:
    """One warp copies boxes while others multiply: none of them waits in the model."""
    found = predict(program(SHAPES, "R.matmul(x, w)"), "h100")
    (launch,) = found.launches
    assert launch.times.products == 2 * 2048 * 2048 * 1024
    work = launch.work
    assert work.warpgroup_products == work.counters.products
    # Each of 128 blocks reads its rows and its columns, of 1024 terms, once.
    assert work.boxes == sum(work.read.values()) == (128 + 256) * 1024 * 2
    least = launch.times.products / (GPUS["h100"].products * GPUS["h100"].wgmma)
    assert least < found.seconds < 2 * least + LAUNCH


def of_copy(threads: int, registers: int, monkeypatch: pytest.MonkeyPatch, shared: int = 0) -> int:
    (launch,) = lower_launches(programs.vector_add, "add").launches
    monkeypatch.setattr(occupancies, "_bytes", lambda _: shared)
    report = Resources(registers, 0, 0, 0, shared)
    if shared:
        launch = rl.replace(launch, shared=launch.buffers[:1])
    found = occupancy(launch, threads, GPUS["h100"], report)
    return found.blocks


def test_occupancy(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand from 65536 registers, 2048 threads, 32 blocks and 228 KB of a multiprocessor."""
    assert of_copy(256, 32, monkeypatch) == 8
    assert of_copy(256, 33, monkeypatch) == 6  # 40 registers are given
    assert of_copy(256, 255, monkeypatch) == 1
    assert of_copy(32, 16, monkeypatch) == 32
    assert of_copy(64, 16, monkeypatch, shared=48 << 10) == 4


def test_what_cannot_be_predicted() -> None:
    with pytest.raises(KeyError, match="no figures of a GPU named 'v100'; there are: a100, h100"):
        predict(ADD, "v100", n=1)
    with pytest.raises(ExecutionError, match="'main' needs a value of n: n=1024"):
        predict(ADD)
    with pytest.raises(ExecutionError, match="'main' has no symbol 'k'; it has: n"):
        predict(ADD, n=3, k=4)
    with pytest.raises(KeyError, match="no function named 'other' in the program; it has: main"):
        predict(ADD, name="other", n=3)
    exe = rl.compile(program(SHAPES, "R.matmul(x, w)"), target="cuda:sm_90a")
    with pytest.raises(ExecutionError, match="'a100' has no tensor instructions of warpgroups"):
        predict(exe, "a100")


def test_equal_launches_are_predicted_once() -> None:
    params = 'x: R.Tensor((64, 512), "float32"), w: R.Tensor((512, 512), "float32")'
    twice = program(params, "R.matmul(R.matmul(x, w), w)")
    found: Prediction = predict(twice)
    assert sum(x.count for x in found.launches) >= 2
    assert found.seconds == sum(x.times.seconds * x.count for x in found.launches)


def test_what_all_blocks_read_lies_in_the_first_level_once() -> None:
    """64 KB that a block reads 16 times, beside five others on its multiprocessor."""
    x = Buffer("x", (const(16384),))
    counted = Counters({Site(x, False, ""): Cost("sectors", 32768, 32768, 1024)}, {}, 0, 0)
    work = BlockWork(counted, {x: 65536.0})
    assert _copies(1 / 792, 792, 6) == 1 and _copies(1.0, 792, 6) == 6
    assert _from_cache(work, 256 << 10, {x: 1}, 6) == 65536
    assert _from_cache(work, 256 << 10, {x: 6}, 6) == 32768 * 32
