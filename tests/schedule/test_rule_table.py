"""Which rule schedules which kernel, of every call that the benchmarks of operators and of symbols
make and of a model: the tables in `tests/goldens/schedule` are for a processor with AVX-512."""

from __future__ import annotations

from collections import defaultdict

import relaxlab as rl
from benchmarks.gpu.cases import cases
from benchmarks.operators import operator_calls
from benchmarks.symbols import all_cases
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.models.build import precision_for
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.passes.pipeline import cuda_pipeline, default_pipeline
from relaxlab.testing.op_check import CaseProgram
from relaxlab.testing.replay import replay_kernels
from relaxlab.tracing import Trace
from tests.golden import Golden

FEATURES = (
    "avx avx2 avx512f avx512bw avx512cd avx512dq avx512vl avx512vnni bmi bmi2 f16c fma "
    "sse sse2 sse3 sse4.1 sse4.2 ssse3"
)
SERVER = Target("cpu", "x86_64-unknown-linux-gnu", "cascadelake", frozenset(FEATURES.split()))
SCHEDULED = "scheduled by the rule "


def rules_of(trace: Trace) -> dict[str, str]:
    """The rule of each kernel that one scheduled, by name."""
    return {
        remark.subject: remark.reason.removeprefix(SCHEDULED)
        for record in trace.passes
        for remark in record.remarks
        if remark.reason.startswith(SCHEDULED)
    }


def test_operators(golden: Golden) -> None:
    """All calls with symbolic leading extents, a line for each, by operator; the trace of each
    schedule makes its kernel again."""
    pipeline = default_pipeline(SERVER)
    lines: dict[str, list[str]] = defaultdict(list)
    for call in operator_calls():
        program = CaseProgram(call.case, call.sizes, symbolic=True)
        trace = pipeline.run(Module.of({"main": program.function()}))
        replay_kernels(trace)
        rules = rules_of(trace)
        lines[call.op].append(f"{call.program}: {', '.join(rules.values()) or 'no kernel'}")
    golden.file("schedule/rules", {op: "\n".join(dict.fromkeys(v)) for op, v in lines.items()})


def test_symbols(golden: Golden) -> None:
    """The programs of the benchmark of symbols, with the most symbols, whose schedules make their
    kernels again. A rule that is not that of the operator's calls with constants may be a cliff."""
    pipeline = default_pipeline(SERVER)
    texts: dict[str, str] = {}
    done: set[str] = set()
    for case in all_cases():
        symbols = max(case.symbols, key=lambda s: len(s.split()))
        script = case.script(symbols.split())
        if script in done:  # the same program, which is measured at other sizes
            continue
        done.add(script)
        trace = pipeline.run(rl.parse(script))
        replay_kernels(trace)
        texts[case.name] = f"{symbols}: {', '.join(rules_of(trace).values())}"
    golden.file("schedule/symbol_rules", texts)


def test_the_tiny_model(golden: Golden) -> None:
    """Its kernels by rule, with activations of 32 bits and of 8."""
    checkpoint = open_model("tiny")
    texts: dict[str, str] = {}
    for activations in ("float32", "q8"):
        precision = precision_for(activations, SERVER)
        decoder = Decoder(
            checkpoint.config, checkpoint.formats, max_context=64, precision=precision
        )
        module, _ = decoder.build(bounds={"s": 16, "p": 64})
        by_rule: dict[str, list[str]] = defaultdict(list)
        for name, rule in rules_of(default_pipeline(SERVER).run(module)).items():
            by_rule[rule].append(name)
        for rule, names in sorted(by_rule.items()):
            texts[f"{activations}: {rule}"] = "\n".join(sorted(names))
    golden.file("schedule/model_rules", texts)


def test_gpus(golden: Golden) -> None:
    """The kernels that are measured on GPUs, on one with instructions of warpgroups and on one
    without. One that falls to a later rule is a cliff."""
    texts: dict[str, str] = {}
    for arch in ("sm_80", "sm_90a"):
        pipeline = cuda_pipeline(Target.cuda(arch))
        lines = [
            f"{case.name}: {', '.join(rules_of(pipeline.run(case.module())).values())}"
            for case in cases()
            if arch == "sm_90a" or case.group in ("products", "attention")
        ]
        texts[arch] = "\n".join(lines)
    golden.file("schedule/gpu_rules", texts)
