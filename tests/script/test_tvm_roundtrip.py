"""The printed scripts are parsed by the current TVM release, after the import line is changed.

TVM lives in an environment of its own (`make tvm-env`); the test is skipped only when that
environment is missing.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from collections.abc import Mapping
from functools import cache

import pytest

import relaxlab.ops  # noqa: F401  (the operator table)
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.module import Module
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.ops import te
from relaxlab.runtime.build import trace
from relaxlab.script import parse, print_module
from relaxlab.script.printer import HEADER
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram
from relaxlab.testing.script_corpus import PROGRAMS

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = pathlib.Path(os.environ.get("RELAXLAB_TVM_PYTHON", ROOT / ".venv-tvm/bin/python"))
IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T"


def matmul_relu() -> loops.PrimFunc:
    """A kernel built with tensor expressions, with symbolic extents."""
    n, k, m = (expr.Var(name) for name in "nkm")
    a, b = te.placeholder((n, k), "float32", "A"), te.placeholder((k, m), "float32", "B")
    r = te.reduce_axis(k, "k")
    c = te.compute((n, m), lambda i, j: te.te_sum(a[i, r.var] * b[r.var, j], r), "C")
    d = te.compute((n, m), lambda i, j: expr.Max(c[i, j], expr.const(0.0)), "D")
    return te.create_prim_func([a, b, d])


def operators() -> Module:
    """A kernel for each operator and data type of results, with symbolic extents."""
    kernels: dict[str, loops.PrimFunc] = {}
    for family in FAMILIES.values():
        for case in family():
            program = CaseProgram(case, case.sizes[0], symbolic=True)
            dtypes = "_".join(re.findall(r"'(\w+)'", str(program.out)))
            name = f"{case.op}_{dtypes}".replace(".", "_")
            lowered = program.row.lower is not None and case.op not in LOOPS_NOT_IN_TVM
            if lowered and name not in kernels:
                assert program.row.lower is not None
                kernels[name] = program.row.lower(program.call, program.types, program.out)
    return Module.of(kernels)


# Operators whose loops have functions of scalars or facts of arrays, which the TVM release lacks.
LOOPS_NOT_IN_TVM = {
    "cbrt", "digamma", "erfc", "erfinv", "expm1", "lgamma", "nn.attention_var_len",
    "nn.attention_within", "nn.key_ranges", "nn.ragged_attention",
    "nn.segment_reduce", "nn.segment_softmax",
}  # fmt: skip
# Operators that the TVM release lacks, takes with other kinds of arguments (one_hot), or prints as
# it does not read them itself (the last two).
NOT_IN_TVM = {
    "log2", "log10", "log1p", "nn.rope", "one_hot", "masked_fill", "softmax_with_temperature",
    "renormalize_top_p_top_k", "decode_blocks", "dynamic_quantize",
    "quantized_linear", "grad.take_backward", "bitcast", "cumlogsumexp", "cummax", "cummin", "exp2",
    "grad.reduce_window_max_backward", "popcount", "reduce_window", *LOOPS_NOT_IN_TVM,
}  # fmt: skip


def calls() -> Module:
    """A graph function for each operator."""
    functions: dict[str, graph.Function] = {}
    for family in FAMILIES.values():
        for case in family():
            name = case.op.replace(".", "_")
            if case.op not in NOT_IN_TVM and name not in functions:
                functions[name] = CaseProgram(case, case.sizes[0], symbolic=True).function()
    return Module.of(functions)


def model() -> tuple[Module, Module]:
    """The tiny model as it is built, with weights of floats since TVM has no operators for those
    in blocks, and after the whole pipeline with the weights that it has."""
    checkpoint = open_model("tiny")

    def built(formats: Mapping[str, str]) -> Module:
        decoder = Decoder(checkpoint.config, formats, max_context=24)
        return decoder.build(methods=("prefill",), batch="b")[0]

    return built(dict.fromkeys(checkpoint.formats, "F32")), trace(built(checkpoint.formats)).result


def for_tvm(text: str) -> str:
    assert HEADER in text
    return text.replace(HEADER, IMPORTS)


@cache
def printed() -> dict[str, str]:
    texts = {name: print_module(parse(text)) for name, text in PROGRAMS.items()}
    texts["te"] = print_module(Module.of({"matmul_relu": matmul_relu()}))
    texts["function"] = print_module(matmul_relu())
    texts["operators"] = print_module(operators())
    texts["calls"] = print_module(calls())
    texts["model"], texts["lowered_model"] = map(print_module, model())
    # TVM wants extra symbols before the outputs of a loop function, relaxlab after them: its
    # parser reads these programs, its check of the calls would refuse them.
    relaxed = "@I.ir_module(check_well_formed=False)"
    for name in ("extra", "model", "lowered_model"):
        texts[name] = texts[name].replace("@I.ir_module", relaxed)
    return {name: for_tvm(text) for name, text in texts.items()}


def printed_here(name: str) -> str:
    return printed()[name].replace(IMPORTS, HEADER)


Answers = dict[str, tuple[str | None, str | None]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; `make tvm-env` makes it")
    program = pathlib.Path(__file__).with_name("tvm_parse.py")
    texts = {**printed(), "wrong": for_tvm(f"{HEADER}\n\n@R.function\ndef main(x): return y\n")}
    done = subprocess.run(
        [PYTHON, program], input=json.dumps(texts), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name", [*PROGRAMS, "te", "function", "operators", "calls", "model", "lowered_model"]
)
def test_tvm_parses_what_is_printed(name: str, answers: Answers) -> None:
    assert answers[name][0] is None


# "graph" has constants, which TVM leaves out of its print; in "operators" it leaves out
# parentheses around a comparison of comparisons.
@pytest.mark.parametrize("name", ["loops", "paper_era", "extra", "local", "te", "calls", "model"])
def test_scripts_printed_by_tvm_are_parsed(name: str, answers: Answers) -> None:
    text = answers[name][1]
    assert text is not None
    assert set(parse(text, check=False)) == set(parse(printed_here(name), check=False))


def test_the_check_can_fail(answers: Answers) -> None:
    assert answers["wrong"][0] is not None
