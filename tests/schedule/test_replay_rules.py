"""The trace of each kernel's schedule makes the kernel again, on CPUs and on GPUs: operators,
benchmarks, random programs, and all scripts in lessons, labs, documents and tests. Those of models
are replayed in `tests/models`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from benchmarks.operators import operator_calls
from relaxlab.ir.equal import structural_key
from relaxlab.ir.errors import UserError
from relaxlab.ir.expr import LE, IntImm
from relaxlab.ir.loops import Buffer, BufferLoad
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.rules import schedule_kernel
from relaxlab.schedule.rules.context import Context
from relaxlab.testing.function_programs import FunctionProgram
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram
from relaxlab.testing.ragged_programs import SCORES
from relaxlab.testing.replay import replay_for, replay_kernels, replay_remarks
from relaxlab.tracing import recording

TARGETS = {"cpu": Target.host(), "cuda": Target.cuda()}
PIPELINES = {"cpu": cpu_pipeline(), "cuda": cuda_pipeline(TARGETS["cuda"])}
ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "tutorials": 100, "notebooks": 10, "docs": 10, "relaxlab/testing": 4,
    **{str(p.relative_to(ROOT)): 0 for p in sorted((ROOT / "tests").iterdir()) if p.is_dir()},
}  # fmt: skip
"""Folders whose files have scripts, and how many modules with kernels there are at least."""


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_operators(family: str, kind: str) -> None:
    for case in FAMILIES[family]():
        program = CaseProgram(case, case.sizes[0], symbolic=True)
        assert program.row.lower is not None
        func = program.row.lower(program.call, program.types, program.out)
        with recording() as remarks:
            made = schedule_kernel("f", func, Context(TARGETS[kind]))
        replay_remarks(remarks, {"f": made})


def test_programs_of_the_benchmark_of_operators() -> None:
    """Those for CPUs, and those of the benchmark of symbols, are replayed in test_rule_table.py."""
    for call in operator_calls():
        program = CaseProgram(call.case, call.sizes, symbolic=True)
        replay_kernels(PIPELINES["cuda"].run(Module.of({"main": program.function()})))


@pytest.mark.parametrize("kind", TARGETS)
def test_random_programs(kind: str, rng: np.random.Generator) -> None:
    for seed in rng.integers(1 << 31, size=12):
        print(f"seed {seed}")
        replay_for(FunctionProgram(int(seed)).random_module(), PIPELINES[kind])


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("folder", SCRIPTS)
def test_scripts(folder: str, kind: str) -> None:
    """Scripts that are wrong on purpose, or texts with places to be filled in, are left out; of
    those that are the same but for names of variables one is replayed."""
    compiled = 0
    for text in dict.fromkeys(_scripts(ROOT / folder)):
        try:
            module = rl.parse(text)
        except UserError:
            continue
        key = kind, structural_key(module)
        if key not in _has_kernels:
            trace, error = PIPELINES[kind].attempt(module)
            assert error is None or trace.passes[-1].name != "schedule_kernels", error
            _has_kernels[key] = replay_kernels(trace) > 0
        compiled += _has_kernels[key]
    assert compiled >= SCRIPTS[folder]


_has_kernels: dict[tuple[str, str], bool] = {}
"""By target and structure, the modules that were replayed: one script in four is the same again."""


def _scripts(folder: Path) -> Iterator[str]:
    """The texts of decorated functions and modules in Python files and documents, and of strings
    that have such."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ClassDef(decorator_list=[_]) | ast.FunctionDef(decorator_list=[_]):
                    if ast.unparse(node.decorator_list[0]) in DECORATORS:
                        yield ast.unparse(node)
                case ast.Constant(str(text)) if any(f"@{d}" in text for d in DECORATORS):
                    yield text
                case _:
                    pass
    for path in sorted(folder.rglob("*.md")):
        yield from re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)


DECORATORS = ("I.ir_module", "R.function", "T.prim_func")


PRODUCT = """
@R.function
def main(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(({columns}), "float32")):
    R.func_attr({{"num_input": {inputs}}})
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
"""


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("inputs", [1, 2])
def test_products_of_symbols(kind: str, inputs: int) -> None:
    for columns, call in [
        ('"k", "m"', "R.matmul(x, w)"),
        ('"m", "k"', "R.nn.relu(R.matmul(x, R.permute_dims(w)))"),
        ('"k", 1', "R.sum(R.nn.softmax(x, axis=0) * R.permute_dims(w), axis=1)"),
    ]:
        text = PRODUCT.format(columns=columns, inputs=inputs, call=call)
        assert replay_kernels(PIPELINES[kind].run(rl.parse(text)))


@pytest.mark.parametrize("kind", TARGETS)
def test_a_function_without_blocks(kind: str) -> None:
    """It calls a C function alone: no rule has something to schedule, and none stumbles."""
    text = """
@T.prim_func
def main(b: T.Buffer((4,)), a: T.Buffer((4,))):
    T.call_extern("void", "double_four", T.address_of(b[0]), T.address_of(a[0]))
"""
    trace, error = PIPELINES[kind].attempt(rl.parse(text))
    assert error is None or trace.passes[-1].name != "schedule_kernels", error
    assert replay_kernels(trace) == 1


def test_programs_for_another_device_have_no_kernels() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    return R.to_vdevice(x, dst_vdevice="llvm")
"""
    assert replay_for(rl.parse(text), PIPELINES["cuda"]) == 0
    with pytest.raises(UserError):
        replay_for(rl.parse(text.replace("R.to_vdevice", "R.no_operator")), PIPELINES["cpu"])


def test_a_kernel_that_is_not_that_of_its_trace_is_found() -> None:
    call = "R.nn.softmax(R.matmul(x, w))"
    trace = rl.trace(rl.parse(PRODUCT.format(columns='"k", "m"', inputs=2, call=call)))
    record = trace.find("schedule_kernels")
    first, second, *_ = record.after.loop_functions()
    replay_remarks(record.remarks, {first: record.after[first]})
    with pytest.raises(AssertionError):
        replay_remarks(record.remarks, {first: record.after[second]})
    with pytest.raises(AssertionError, match="has no record of a schedule"):
        replay_remarks(record.remarks, {"other": record.after[first]})


def test_rules_that_do_not_fit_say_why() -> None:
    text = PRODUCT.format(columns='"k", "m"', inputs=2, call="R.nn.softmax(R.matmul(x, w))")
    trace = rl.trace(rl.parse(text))
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    of_product = [w for w in remarks if "matmul" in w.subject]
    refused = {w.reason for w in of_product if not w.applied}
    assert "the rule elementwise does not fit: T_matmul is a reduction" in refused
    assert all(w.reason.split("fit: ")[1] for w in of_product if "does not fit" in w.reason)
    (chosen,) = [w for w in of_product if w.applied]
    assert chosen.reason == "scheduled by the rule matmul"
    assert dict(chosen.about)["steps"].trace[-1].name == "guarded_versions"


def test_what_is_known_of_a_kernel_does_not_depend_on_earlier_questions() -> None:
    """Analyzers of a kernel with index functions do not share the elements they were asked about,
    so that a replayed schedule is decided by the same facts."""
    (kernel,) = rl.parse(SCORES).loop_functions().values()
    offsets = next(p for p in kernel.params if isinstance(p, Buffer) and p.name == "o")
    first, then = (BufferLoad(offsets, (IntImm(i, "int64"),)) for i in (1, 2))
    one, other = shape_analyzer(kernel), shape_analyzer(kernel)
    assert one.prove(LE(first, then))
    assert other._ctx.elements == {}  # pyright: ignore[reportPrivateUsage]
