"""Rules that schedule kernels for a GPU, and their results."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import GRAPH_PASSES, cuda_pipeline
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.build import compile
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.simt.simt import simt
from relaxlab.schedule.rules_gpu import rules
from relaxlab.script.parser import parse
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, compare, concrete_call
from relaxlab.tracing import Trace
from tests.passes.row_programs import low_rank
from tests.test_repo import ROOT

SCHEDULED = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))

PROGRAM = """
@R.function
def main(
    x: R.Tensor(("n", 96), "float32"),
    w: R.Tensor((80, 96), "float32"),
    q: R.Tensor((1, "n", 2, 16), "float32"),
):
    with R.dataflow():
        a = R.nn.gelu(x) + R.const(1.0, "float32")
        b = R.nn.softmax(a)
        c = R.linear(b, w)
        d = R.argsort(c)
        e = R.nn.attention(q, q, q)
        R.output(a, b, c, d, e)
    return a, b, c, d, e
"""


def rule_of(trace: Trace) -> dict[str, str]:
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    made = [w for w in remarks if w.applied]
    return {w.subject: w.reason.removeprefix("scheduled by the rule ") for w in made}


def test_rules_by_kind() -> None:
    found = rule_of(SCHEDULED.run(parse(PROGRAM)))
    kinds = {name.split("_")[-1]: rule for name, rule in found.items()}
    assert kinds == {
        "add": "elementwise", "softmax": "rows", "linear": "matmul", "argsort": "elementwise",
        "attention": "attention",
    }  # fmt: skip


@pytest.mark.parametrize("n", [1, 3, 70])
def test_threads_agree_with_the_program(n: int) -> None:
    mod = parse(PROGRAM)
    rng = np.random.default_rng(n)
    shapes = [(n, 96), (80, 96), (1, n, 2, 16)]
    args = [rng.normal(size=s).astype("float32") for s in shapes]
    report = simt(SCHEDULED.run(mod).result, "main", *args).check()
    for got, want in zip(report.result, interpret(mod, "main", *args), strict=True):
        if want.dtype == np.float32:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        else:  # the order of sums that differ in the last bit
            assert (np.sort(got) == np.sort(want)).all()


@pytest.mark.parametrize("kind", ["rms norm", "softmax"])
@pytest.mark.parametrize("width", ['"d"', "33"])
def test_threads_make_the_rows_that_they_read(kind: str, width: str) -> None:
    mod = low_rank(kind, width)
    trace = SCHEDULED.run(mod)
    assert list(rule_of(trace).values()) == ["rows"]
    rng = np.random.default_rng(7)
    for n in (1, 3):
        d = 70 if width == '"d"' else int(width)
        args = [rng.standard_normal(s, "float32") for s in ((n, d), (n, 8), (8, d), (d,))]
        report = simt(trace.result, "main", *args).check()
        np.testing.assert_allclose(report.result, interpret(mod, "main", *args), 1e-4, 1e-4)
    if nvrtc.is_available():
        assert rl.compile(mod, "cuda:sm_80").ptx


def test_symbolic_rows_have_a_version_for_one_row() -> None:
    mod = SCHEDULED.run(parse(PROGRAM)).result
    kernel = lower_launches(mod.loop_functions()["linear"], "linear")
    single, several = kernel.launches
    assert str(single.condition) == "n == 1" and not single.shared
    assert [str(d) for d in single.extents("threadIdx")] == ["32", "8", "1"]
    assert [str(d) for d in several.extents("threadIdx")] == ["16", "16", "1"]
    assert {b.name for b in several.shared} == {"B_shared", "A_shared"} or len(several.shared) == 2
    (sums,) = several.local
    assert [str(d) for d in sums.shape] == ["4", "4"]


def test_scores_of_bounded_length_stay_in_shared_memory() -> None:
    text = PROGRAM.replace('(1, "n", 2, 16)', "(1, 40, 2, 16)")
    mod = SCHEDULED.run(parse(text)).result
    (launch,) = lower_launches(mod.loop_functions()["attention"], "attention").launches
    assert sum(math.prod(d.value for d in b.shape if isinstance(d, IntImm)) for b in launch.shared)
    assert not [b for b in launch.buffers if b not in mod.loop_functions()["attention"].buffers]


def test_no_kernel_of_the_model_is_left_to_the_fallback() -> None:
    checkpoint = open_model("tiny")
    llama = Decoder(checkpoint.config, checkpoint.formats, max_context=256)
    module, _ = llama.build(bounds={"s": 128, "p": 256})
    found = rule_of(cuda_pipeline().run(module))
    products = {"matmul", "register_tiles"}
    assert set(found.values()) == {"elementwise", "rows", "attention", *products}
    assert {r for name, r in found.items() if "linear" in name} == products


ONE_THREAD = {"index_put"}
"""Operators in which a later update may overwrite an earlier one, wherever it is."""


def test_every_kernel_of_the_operators_is_bound_to_threads() -> None:
    """One use of each; kernels of one thread compute one result, or have an order to keep."""
    cases = {case.op: case for family in FAMILIES.values() for case in reversed(family())}
    functions = {
        f"case{i}": CaseProgram(c, c.sizes[0], symbolic=True).function()
        for i, c in enumerate(cases.values())
    }
    mod = SCHEDULED.run(Module.of(functions)).result
    alone = {
        name
        for name, func in mod.loop_functions().items()
        for launch in lower_launches(func, name).launches
        if {str(e) for e in launch.extents("threadIdx")} == {"1"} and _results(func) > 1
    }
    assert alone == ONE_THREAD


def _results(func: PrimFunc) -> int:
    shape = func.buffers[-1].shape
    return math.prod(d.value if isinstance(d, IntImm) else 2 for d in shape)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_operators_on_threads(family: str) -> None:
    """One use of each operator on the SIMT interpreter against its reference."""
    ones = {case.op: case for case in reversed(FAMILIES[family]())}
    cases = {f"case{i}": c for i, c in enumerate(ones.values())}
    functions = {n: CaseProgram(c, c.sizes[0], symbolic=True).function() for n, c in cases.items()}
    mod = SCHEDULED.run(Module.of(functions)).result
    for name, case in cases.items():
        for seed, env in enumerate(case.sizes[:1]):
            arrays, expected = concrete_call(case, env, seed)
            got = simt(mod, name, *arrays, tuple(env.values())).check().result
            results = got if isinstance(got, tuple | list) else (got,)
            for result, want in zip(results, expected, strict=True):
                compare(np.asarray(result), want, f"{case} with {dict(env)}, seed={seed}")


def test_rules_are_described_in_the_order_in_which_they_are_tried() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    table = page.split("| GPU rule |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == [name for name, _ in rules()]


LONG = """
@R.function
def main(q: R.Tensor((1, "n", 4, 8), "float32"), k: R.Tensor((1, "m", 2, 8), "float32"),
         v: R.Tensor((1, "m", 2, 6), "float32")):
    y = R.nn.attention(q, k, v, causal_mask="BottomRight")
    return y
"""


@pytest.mark.parametrize(("n", "m"), [(1, 90), (3, 2), (11, 70), (9, 200)])
def test_scores_of_any_length_take_a_constant_amount_of_shared_memory(n: int, m: int) -> None:
    mod = parse(LONG)
    scheduled = SCHEDULED.run(mod)
    assert set(rule_of(scheduled).values()) == {"attention"}
    (func,) = scheduled.result.loop_functions().values()
    single, tiles = lower_launches(func, "attention").launches
    assert str(single.condition) == "n == 1"
    assert not [b for b in tiles.buffers if b not in func.buffers]
    rng = np.random.default_rng(n)
    shapes = [(1, n, 4, 8), (1, m, 2, 8), (1, m, 2, 6)]
    args = [rng.normal(size=s).astype("float32") for s in shapes]
    report = simt(scheduled.result, "main", *args).check()
    np.testing.assert_allclose(report.result, interpret(mod, "main", *args), 1e-4, 1e-5)


def test_tiles_with_a_running_maximum_are_compiled_by_nvrtc() -> None:
    single, tiles = compile(parse(LONG), "cuda", use_cache=False).resources.values()
    assert single.registers and tiles.registers and 0 < tiles.shared < 48 * 1024


def test_sums_of_a_single_term_before_a_conversion(rng: np.random.Generator) -> None:
    """Windows that lie side by side: one of them holds a place, which is a sum over one term."""
    mod = parse("""
@R.function
def main(x: R.Tensor(("n", 2, 3, 3), "float16"), y: R.Tensor(("n", 2, 6, 6), "float16")):
    return R.grad.max_pool2d_backward(x, y, pool_size=(2, 2), strides=(2, 2))
""")
    x, y = (rng.random((3, 2, n, n)).astype("float16") for n in (3, 6))
    got = compile(mod, "cuda", use_cache=False).simulate("main", x, y)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(interpret(mod, "main", x, y)))
