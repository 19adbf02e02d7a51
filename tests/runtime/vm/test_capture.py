"""Functions that are captured as CUDA graphs: with a stand-in for CuPy, and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.models.loader import open_model
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.vm import capture, cuda, native_launches
from relaxlab.runtime.vm.capture import NotCapturable
from relaxlab.runtime.vm.cuda import CudaExecutable, require_cupy
from relaxlab.script.parser import parse
from tests.codegen.cuda.on_cpu import COMPILER, CpuCuda
from tests.codegen.cuda.test_model import CONTEXT, model
from tests.runtime.vm.cupy_stand_in import CupyStandIn, compile_as_text

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
PROGRAM = """
@T.prim_func
def put(x: T.Buffer((1, 8), "float32"), rows: T.Buffer((16, 8), "float32"), at: T.int64):
    for i in range(8):
        with T.block("put"):
            v = T.axis.spatial(8, i)
            rows[at, v] = x[0, v]

@T.prim_func
def total(rows: T.Buffer((16, 8), "float32"), y: T.Buffer((1, 8), "float32"), count: T.int64):
    for i in range(8):
        with T.block("total"):
            v = T.axis.spatial(8, i)
            y[0, v] = T.float32(0)
            for k in range(count):
                y[0, v] = y[0, v] + rows[k, v]

@T.prim_func
def positive(x: T.Buffer((4,), "int32"), y: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("positive"):
            v = T.axis.spatial(4, i)
            assert x[v] > 0, "x is not positive"
            y[v] = x[v]

@R.function
def step(
    x: R.Tensor((1, 8), "float32"), past: R.Shape(["p"]), rows: R.Tensor((16, 8), "float32"),
    w: R.Tensor((8,), "float32"),
):
    R.func_attr({"num_input": 3})
    y = R.add(x, w)
    filled = R.call_tir_inplace(
        cls.put, (y, rows), inplace_indices=[1], out_ty=R.Tensor((16, 8), "float32"),
        tir_vars=R.shape([p]),
    )
    z = R.call_tir(
        cls.total, (filled,), out_ty=R.Tensor((1, 8), "float32"), tir_vars=R.shape([p + 1])
    )
    return R.exp(R.multiply(z, R.const(0.125, "float32")))

@R.function
def rows(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8,), "float32")):
    with R.dataflow():
        y = R.exp(R.add(x, w))
        R.output(y)
    return y

@R.function
def checked(x: R.Tensor((4,), "int32")):
    return R.call_tir(cls.positive, (x,), out_ty=R.Tensor((4,), "int32"))

@R.function
def chosen(x: R.Tensor((4,), "int32")):
    if R.astype(R.max(x), "bool"):
        y = x + x
    else:
        y = x * x
    return y
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CpuCuda]:
    return cache(lambda source: CpuCuda(source, tmp_path_factory.mktemp("code")))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, compiled: Callable[[str], CpuCuda]) -> CupyStandIn:
    stand_in = CupyStandIn(compiled)
    monkeypatch.setattr(native_launches, "driver_functions", stand_in.driver_functions)
    monkeypatch.setattr(cuda, "require_cupy", lambda: stand_in)
    monkeypatch.setattr(nvrtc, "compile_cuda", compile_as_text)
    return stand_in


def program(target: str = "cuda:sm_80") -> CudaExecutable:
    return rl.compile(parse(PROGRAM), target=target)


def rows(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).random((count, 8), "float32")


@needs_compiler
def test_loop_functions_alone_make_their_outputs(cupy: CupyStandIn) -> None:
    text = """
@T.prim_func
def first(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(2):
        with T.sblock("B"):
            vi = T.axis.spatial(2, i)
            B[vi] = A[vi]
"""
    exe = rl.compile(parse(text), target="cuda:sm_80")
    a = cupy.asarray(np.arange(1, 5, dtype="float32"))
    got = exe(a)
    assert isinstance(got, cupy.ndarray)
    np.testing.assert_array_equal(got, [1, 2, 0, 0])
    np.testing.assert_array_equal(exe(a, B=cupy.asarray(np.full(4, 7, "float32"))), [1, 2, 7, 7])


@needs_compiler
def test_one_graph_for_all_positions(cupy: CupyStandIn) -> None:
    exe = program()
    step, kept, w = exe.captured("step"), cupy.zeros((16, 8), "float32"), cupy.asarray(rows(1)[0])
    want, seen = np.zeros((16, 8), "float32"), []
    for past in range(5):
        x = rows(1, past)  # on the host, and elsewhere at every call
        seen.append((step(x, (past,), kept, w), rl.interpret(parse(PROGRAM), "step", x, (past,),
                                                            want, rows(1)[0])))  # fmt: skip
    # Kernels are launched one by one at the first call and at the second, which captures them.
    assert (cupy.launches, cupy.graph_launches, len(step.graphs)) == (8, 3, 1)
    np.testing.assert_allclose(kept, want, rtol=1e-5)
    for got, expected in seen:  # no result is overwritten by a later call
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert step is exe.captured("step")


@needs_compiler
def test_other_arrays_have_graphs_of_their_own(
    cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, w = program().captured("step"), cupy.asarray(rows(1)[0])
    caches = [cupy.zeros((16, 8), "float32") for _ in range(3)]
    for past in range(3):
        results = [step(rows(1), (past,), kept, w) for kept in caches]
        for got in results[1:]:
            np.testing.assert_array_equal(got, results[0])
    assert len(step.graphs) == 3 and cupy.graph_launches == 3
    monkeypatch.setattr(capture, "KEPT", 2)
    for past in (3, 4):
        step(rows(1), (past,), cupy.zeros((16, 8), "float32"), w)
    assert len(step.graphs) <= 3 and all(np.any(kept[:3]) for kept in caches)


@needs_compiler
@pytest.mark.parametrize("captured", [False, True])
def test_calls_wait_for_those_of_other_threads(cupy: CupyStandIn, captured: bool) -> None:
    """They share planned memory."""
    exe = program()
    function = exe.captured("rows") if captured else exe["rows"]
    with ThreadPoolExecutor(1) as pool:
        with exe._lock:  # as a call of another function
            call = pool.submit(function, rows(2), rows(1)[0])
            with pytest.raises(TimeoutError):
                call.result(0.1)
        np.testing.assert_allclose(call.result(60), np.exp(rows(2) + rows(1)[0]), rtol=1e-5)


@needs_compiler
def test_sizes_of_launches_belong_to_the_key(cupy: CupyStandIn) -> None:
    function, w = program().captured("rows"), rows(1)[0]
    on_device = cupy.asarray(w)
    for turn in range(3):
        for n in (3, 5):
            x = rows(n, turn)
            want = rl.interpret(parse(PROGRAM), "rows", x, w)
            np.testing.assert_allclose(function(x, on_device), want, rtol=1e-5)
    assert len(function.graphs) == 2 and cupy.graph_launches == 2


@needs_compiler
def test_large_inputs_are_not_copied(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "COPIED", 100)
    function, w = program().captured("rows"), cupy.asarray(rows(1)[0])
    small, large = cupy.asarray(rows(3)), cupy.asarray(rows(5))
    for x in (small, large) * 3:
        function(x, w)
    keys = [key[0] for key in function.graphs]
    assert keys == [None, large.data.ptr] and cupy.graph_launches == 2


@needs_compiler
def test_failures_and_checks_are_reported_at_every_call(cupy: CupyStandIn) -> None:
    exe = program()
    checked, good = exe.captured("checked"), np.arange(1, 5, dtype="int32")
    for _ in range(3):
        assert checked(good).tolist() == [1, 2, 3, 4]
        with pytest.raises(ExecutionError, match="x is not positive in 'positive'"):
            checked(good - 1)
        assert exe["checked"](good).tolist() == [1, 2, 3, 4]
    assert cupy.graph_launches > 0
    step = exe.captured("step")
    with pytest.raises(ExecutionError, match="`past` of `step` must be a shape; -1 in"):
        step(rows(1), (-1,), cupy.zeros((16, 8), "float32"), rows(1)[0])
    with pytest.raises(ExecutionError, match="dimension 1 of parameter `x` of `rows` is 7"):
        exe.captured("rows")(rows(1)[:, :7].copy(), rows(1)[0])


@needs_compiler
def test_calls_inside_a_capture_of_somebody_else(cupy: CupyStandIn) -> None:
    function, x, w = program().captured("rows"), cupy.asarray(rows(3)), cupy.asarray(rows(1)[0])
    function(x, w)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        got = function(x, w)
        graph = stream.end_capture()
    x[...] = rows(3, 1)
    graph.launch()
    want = rl.interpret(parse(PROGRAM), "rows", rows(3, 1), rows(1)[0])
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_what_cannot_be_captured_says_why() -> None:
    exe = program()
    with pytest.raises(NotCapturable, match="`chosen` cannot .*: the host decides what is run"):
        exe.captured("chosen")
    with pytest.raises(KeyError, match="no function named 'setp'"):
        exe.captured("setp")
    mod = parse("""
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        y = R.reshape(x, (6,))
        R.output(y)
    return y
""")
    with pytest.raises(NotCapturable, match="`main` cannot be captured .*: it launches no kernel"):
        rl.compile(mod, target="cuda").captured("main")


def test_all_steps_of_a_decoder_are_one_graph() -> None:
    """Nothing but the position differs between two steps."""
    exe = rl.compile(model()[0], target="cuda")
    plan = capture.plan_capture(exe.program.functions["decode"], exe.gpu.kernels)
    assert plan.fixed == () and {len(v) for v in plan.in_memory.values()} == {1}
    assert len(plan.copied) == 1 and plan.fn.written == {*plan.arrays[:6]}


@pytest.mark.gpu
def test_decoding_on_a_gpu() -> None:
    gpu = require_cupy()
    module, weights, cache = model()
    exe = rl.compile(module, target="cuda")
    weights = [gpu.asarray(w) for w in weights]
    ids = open_model("tiny").tokenizer.encode("What is two plus three, and what is it times two?")
    results: list[list[Any]] = []
    for step in (exe["decode"], exe.captured("decode")):
        kept = [gpu.asarray(c) for c in cache]
        results.append([
            step(np.array([[token]], np.int32), (past,), *kept, *weights)
            for past, token in enumerate(ids[:CONTEXT])
        ])  # fmt: skip
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got.get(), want.get(), rtol=1e-5, atol=1e-6)
    assert len(exe.captured("decode").graphs) == 1


@pytest.mark.gpu
def test_arrays_of_pytorch_on_a_gpu() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    gpu = require_cupy()
    text = PROGRAM[PROGRAM.index("@R.function\ndef rows") :]
    text = text[: text.index("@R.function\ndef checked")].replace("float32", "bfloat16")
    function = rl.compile(parse(text), target="cuda").captured("rows")
    w, stream = torch.linspace(-1, 1, 8, device="cuda").bfloat16(), torch.cuda.Stream()
    with torch.cuda.stream(stream), gpu.cuda.ExternalStream(stream.cuda_stream):
        for _ in range(4):
            x = torch.randn(3, 8, device="cuda").bfloat16()
            got = torch.from_dlpack(function(x, w))
            torch.testing.assert_close(got, (x + w).exp(), rtol=2e-2, atol=1e-2)
    assert len(function.graphs) == 1


@pytest.mark.gpu
def test_failures_on_a_gpu() -> None:
    checked, good = program("cuda").captured("checked"), np.arange(1, 5, dtype="int32")
    for _ in range(4):
        assert checked(good).get().tolist() == [1, 2, 3, 4]
        with pytest.raises(ExecutionError, match="x is not positive in 'positive'"):
            checked(good - 1)
