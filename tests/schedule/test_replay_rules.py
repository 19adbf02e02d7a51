"""The trace of each kernel's schedule makes the kernel again, on CPUs and on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.models.build import precision_for
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.schedule import apply_trace, rules, rules_gpu
from relaxlab.schedule.trace import to_json
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram
from relaxlab.tracing import recording

Scheduler = Callable[[str, PrimFunc, Target], PrimFunc]
TARGETS = {"cpu": Target.host(), "cuda": Target.cuda()}
SCHEDULERS: dict[str, Scheduler] = {
    "cpu": rules.schedule_kernel,
    "cuda": rules_gpu.schedule_kernel,
}


def replayed(name: str, func: PrimFunc, target: Target) -> PrimFunc:
    """The kernel as its rule schedules it, after a look at what its trace makes."""
    with recording() as remarks:
        made = SCHEDULERS[target.kind](name, func, target)
    about: dict[str, Any] = dict(remarks[-1].about)
    if "steps" in about:
        again = apply_trace(func, to_json(about["steps"].trace)).func
        assert_structural_equal(again, made)
    else:
        assert remarks[-1].reason.startswith(("already", "left as it is")), remarks[-1]
    return made


def check_modules(modules: Iterable[Module], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile up to the schedules, each of which is replayed."""
    seen: list[str] = []

    def schedule(name: str, func: PrimFunc, target: Target) -> PrimFunc:
        seen.append(name)
        return replayed(name, func, target)

    room = "rules" if kind == "cpu" else "rules_gpu"
    monkeypatch.setattr(f"relaxlab.schedule.{room}.schedule_kernel", schedule)
    monkeypatch.setattr("relaxlab.passes.schedule_kernels.SECONDS", 0)  # in this process
    pipeline = cpu_pipeline() if kind == "cpu" else cuda_pipeline(TARGETS["cuda"])
    for module in modules:
        pipeline.run(module)
    assert seen


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_operators(family: str, kind: str) -> None:
    for case in FAMILIES[family]():
        program = CaseProgram(case, case.sizes[0], symbolic=True)
        assert program.row.lower is not None
        func = program.row.lower(program.call, program.types, program.out)
        replayed("f", func, TARGETS[kind])


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("activations", ["float32", "q8"])
def test_language_models(activations: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_model("tiny")
    precision = precision_for(activations, TARGETS[kind])
    model = Decoder(checkpoint.config, checkpoint.formats, max_context=64, precision=precision)
    check_modules([model.build(bounds={"s": 16, "p": 64})[0], model.build()[0]], kind, monkeypatch)


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
def test_products_of_symbols(kind: str, inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        PRODUCT.format(columns=columns, inputs=inputs, call=call)
        for columns, call in [
            ('"k", "m"', "R.matmul(x, w)"),
            ('"m", "k"', "R.nn.relu(R.matmul(x, R.permute_dims(w)))"),
            ('"k", 1', "R.sum(R.nn.softmax(x, axis=0) * R.permute_dims(w), axis=1)"),
        ]
    ]
    check_modules(map(rl.parse, texts), kind, monkeypatch)


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
