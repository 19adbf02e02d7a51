"""Compilers that are broken on purpose: `check` must name the pass, the rewrite and the step."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

import relaxlab as rl
from relaxlab.codegen.llvm import arithmetic
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.node import replace, rewrite
from relaxlab.ops.define import builder
from relaxlab.passes.base import NoOptions, Pass
from relaxlab.passes.blas_patterns import BLAS
from relaxlab.passes.patterns import is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_call
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.check.bisect import FaultyRewrite
from relaxlab.runtime.check.check import CheckReport
from relaxlab.runtime.check.compare import Difference
from relaxlab.schedule import split_fuse_reorder
from relaxlab.schedule.known_schedules import KnownSchedules
from relaxlab.tracing import first_rewrites, may_apply


def parse(params: str, *lines: str, result: str) -> rl.Module:
    """A module with one function of one dataflow block."""
    outputs = ", ".join(line.partition(" =")[0] for line in lines)
    body = "".join(f"        {line}\n" for line in (*lines, f"R.output({outputs})"))
    text = f"@R.function\ndef main({params}):\n    with R.dataflow():\n{body}"
    return rl.parse(f"{text}    return {result}\n")


X = 'x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("n", 8), "float32")'
SQUARE = 'x: R.Tensor((8, 8), "float32")'


def found(report: CheckReport, pass_name: str | None) -> str:
    """The report's text after checking that it blames the pass."""
    assert not report.ok, report
    assert report.finding is not None and report.finding.pass_name == pass_name, report
    return str(report)


def test_nothing_is_found_in_what_is_not_broken():
    mod = parse(X, "a = R.exp(x)", "b = R.subtract(a, y)", "c = R.sum(b, axis=-1)", result="c")
    assert rl.check(mod, runs=2).ok


def test_wrong_fusion(monkeypatch):
    """Groups of two equal arguments are called with them swapped."""
    from relaxlab.passes import fuse_ops

    right = fuse_ops.outline

    def outline(members):
        fn, args = right(members)
        return fn, args[::-1] if len(args) == 2 else args

    monkeypatch.setattr(fuse_ops, "outline", outline)
    mod = parse(
        X, "a = R.exp(x)", "b = R.tanh(a)", "c = R.subtract(x, y)", "d = R.negative(c)",
        result="(b, d)",
    )  # fmt: skip
    report = rl.check(mod, runs=1)
    text = found(report, "fuse_ops")
    assert "main.c (subtract) into main.d (negative)" in text and "(2 of 2)" in text
    finding = report.finding
    assert finding is not None and isinstance(finding.problem, Difference)
    assert finding.problem.place == "field 1 of the result" and finding.problem.index == (0, 0)
    assert finding.problem.worst > 0.1 and dict(finding.symbols).keys() == {"n"}
    assert finding.again == "relaxlab.check(mod, 'main', seed=0, runs=1)"


def test_fusion_past_an_overwrite(monkeypatch):
    monkeypatch.setattr("relaxlab.passes.fuse_ops._Block._overwritten", lambda *_: False)
    mod = rl.parse("""
@T.prim_func
def bump(A: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("bump"):
            vi = T.axis.spatial(4, i)
            A[vi] = A[vi] + T.float32(1)

@R.function
def main(x: R.Tensor((4,), "float32")):
    a = R.sin(x)
    b = R.exp(a)
    c = R.call_tir_inplace(
        cls.bump, (a,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32"))
    d = R.tanh(b)
    return (c, d)
""")
    text = found(rl.check(mod, runs=1), "fuse_ops")
    assert "main.b (exp) into main.d (tanh)" in text


def test_common_subexpression_that_is_none(monkeypatch):
    """Calls that differ in their attributes alone count as one."""
    from relaxlab.passes import eliminate_common_subexpr as cse

    right = cse.expr_key
    monkeypatch.setattr(
        cse, "expr_key",
        lambda e: (e.op, e.args) if isinstance(e, graph.Call) else right(e),
    )  # fmt: skip
    mod = parse(
        SQUARE, "a = R.cumsum(x, axis=0)", "b = R.cumsum(x, axis=0)", "c = R.cumsum(x, axis=1)",
        "d = R.add(a, b)", result="(c, d)",
    )  # fmt: skip
    text = found(rl.check(mod, runs=1), "eliminate_common_subexpr")
    assert "main.c: is computed as a (2 of 2)" in text


def test_wrong_index_in_a_rewrite():
    """A user's rewrite: every flip is one along axis 1."""
    wrong = rewrite_call(
        is_op("flip")(wildcard()),
        lambda call, match: call if call.attrs["axis"] == 1 else builder("flip")(call.args[0], 1),
        "flip_columns",
    )
    mod = parse(
        SQUARE, "a = R.flip(x, axis=1)", "b = R.exp(a)", "c = R.flip(b, axis=0)", result="c"
    )
    text = found(rl.check(mod, runs=1, pipeline=cpu_pipeline().after("normalize", wrong)),
                 "flip_columns")  # fmt: skip
    assert "pass 2, flip_columns" in text and "main.c: matched" in text and "pipeline=..." in text


def test_overlapping_storage(monkeypatch):
    from relaxlab.passes import plan_memory

    right = plan_memory.pack
    monkeypatch.setattr(plan_memory, "pack", lambda b, e: ([0] * len(b), right(b, e)[1]))
    mod = parse(
        X, "a = R.sum(x, axis=-1)", "b = R.max(y, axis=-1)", "c = R.nn.softmax(a)",
        "d = R.nn.softmax(b)", "e = R.add(R.sum(c), R.sum(d))", result="e",
    )  # fmt: skip
    report = rl.check(mod, runs=2)
    assert " bytes at " in found(report, "plan_memory")
    finding = report.finding
    assert finding is not None and isinstance(finding.cause, FaultyRewrite)
    assert finding.cause.number > 1 and finding.cause.rewrite.subject.startswith("main.")
    assert finding.after is not None and "memory.alloc_tensor" in finding.after.script()


def test_dropped_guard(monkeypatch):
    """`split` forgets the condition on the last, partial piece."""
    right = split_fuse_reorder.split

    def split(func, loop, factors, **options):
        func, new = right(func, loop, factors, **options)
        true = expr.const(True)
        body = rewrite(
            func.body,
            lambda n: replace(n, predicate=true) if isinstance(n, loops.BlockRealize) else None,
        )
        return replace(func, body=body), new

    monkeypatch.setattr(split_fuse_reorder, "split", split)
    monkeypatch.setattr("relaxlab.passes.schedule_kernels.KNOWN", KnownSchedules())
    mod = parse('x: R.Tensor(("n",), "float32")', "a = R.exp(x)", result="a")
    text = found(rl.check(mod, runs=1, sizes=(17,)), "schedule_kernels")
    assert "exp: scheduled by the rule elementwise (1 of 1)" in text
    assert "step " in text and "sch.split(loop=" in text
    assert "is outside its extent 17" in text and "n = 17" in text


def test_wrong_library_call(monkeypatch):
    pytest.importorskip("scipy_openblas64")
    from relaxlab.passes import blas_patterns

    right = blas_patterns._flags
    monkeypatch.setattr(
        blas_patterns, "_flags", lambda match, linear=False: right(match, linear)[::-1]
    )
    mod = parse(
        f'{SQUARE}, w: R.Tensor((8, 8), "float32")', "a = R.matmul(x, w)", "t = R.permute_dims(w)",
        "b = R.matmul(a, t)", result="b",
    )  # fmt: skip
    pipeline = cpu_pipeline().with_options("lower_to_libraries", use=BLAS)
    text = found(rl.check(mod, runs=1, pipeline=pipeline), "lower_to_libraries")
    assert "main.b: " in text and "(2 of 2)" in text


def test_dropped_live_binding(monkeypatch):
    """A binding that is read is removed: the module is ill-formed before anything runs."""
    from relaxlab.passes import dead_code_elimination

    right = dead_code_elimination.use_counts

    def use_counts(fn):
        counts = right(fn)
        for var in [v for v in counts if v.name == "b"]:
            del counts[var]
        return counts

    monkeypatch.setattr(dead_code_elimination, "use_counts", use_counts)
    mod = parse(X, "a = R.exp(x)", "b = R.tanh(y)", "c = R.add(a, b)", result="c")
    text = found(rl.check(mod, runs=1), "dead_code_elimination")
    assert "main.b: nobody reads it" in text and "E03" in text


def test_wrong_machine_code(monkeypatch):
    """Subtraction of floats adds: the passes are right, the kernel of the subtraction is not."""
    wrong = {**arithmetic._FLOAT, expr.Sub: "fadd contract"}
    monkeypatch.setattr(arithmetic, "_FLOAT", wrong)
    mod = parse(
        X, "a = R.nn.relu(x)", "b = R.sum(a, axis=0)", "c = R.subtract(b, R.const(1.0, 'float32'))",
        "d = R.flip(c, axis=0)", "e = R.cumsum(d)", result="e",
    )  # fmt: skip
    report = rl.check(mod, runs=1)
    text = found(report, None)
    assert "goes wrong in native code" in text and "the kernel `" in text and "subtract" in text


def test_dropped_barriers(monkeypatch):
    from relaxlab.codegen.gpu import program

    without = partial(program.lower_launches, synchronise=False)
    monkeypatch.setattr(program, "lower_launches", without)
    mod = parse(
        'x: R.Tensor(("n", 32), "float32"), w: R.Tensor((32, 64), "float32")',
        "a = R.matmul(x, w)", result="a",
    )  # fmt: skip
    text = found(rl.check(mod, target="cuda", runs=1, sizes=(17,)), None)
    assert "simulated GPU threads" in text and "race" in text and "target='cuda'" in text


def _asking(mod: rl.Module, _: object) -> rl.Module:
    for at in range(5):
        if may_apply("asking", f"place {at}", "fails at 3") and at == 3:
            raise KeyError("lost")
    return mod


def test_a_pass_that_fails():
    failing = Pass("asking", _asking, NoOptions())
    mod = parse(X, "a = R.exp(x)", result="a")
    text = found(rl.check(mod, pipeline=cpu_pipeline().after("normalize", failing)), "asking")
    assert "the program goes wrong in pass 2, asking" in text
    assert "place 3: fails at 3 (4 of 4)" in text and "KeyError: 'lost'" in text


def test_a_pass_that_does_not_ask_is_taken_apart_by_functions():
    def negate(mod: rl.Module, _: object) -> rl.Module:
        """A silent pass: `second` becomes a minimum, `first` stays what it is in another form."""

        def visit(n):
            if isinstance(n, graph.Call) and n.op == graph.Op("maximum"):
                return replace(n, op=graph.Op("minimum"))
            return None

        first, second = mod["first"], mod["second"]
        assert isinstance(first, graph.Function) and isinstance(second, graph.Function)
        same = replace(first, attrs=first.attrs.with_(seen=True))
        other = replace(second, body=rewrite(second.body, visit))
        return mod.with_functions({"first": same, "second": other})

    mod = rl.parse("""
@R.function(private=True)
def first(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    with R.dataflow():
        z = R.add(x, y)
        R.output(z)
    return z

@R.function(private=True)
def second(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    with R.dataflow():
        z = R.maximum(x, y)
        R.output(z)
    return z

@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    a = cls.first(x, y)
    b = cls.second(a, y)
    return b
""")
    silent = Pass("negate", negate, NoOptions())
    pipeline = rl.Pipeline((cpu_pipeline().passes[0], silent))
    report = rl.check(mod, pipeline=pipeline)
    assert "second: the function as a whole (2 of 2)" in found(report, "negate")


def test_every_pass_gives_a_valid_module_with_any_number_of_rewrites():
    """Bisection relies on it: leaving out rewrites does not change the results."""
    from tests.passes.graph_programs import Programs

    mod = Programs(7).module(8)
    current = mod
    for one in cpu_pipeline().passes:
        with first_rewrites(None) as made:
            after = one(current)
        for count in {0, len(made.made) // 2}:

            def cut(m: rl.Module, _: object, count: int = count, one: Pass = one) -> rl.Module:
                with first_rewrites(count):
                    return one(m)

            partly = dataclasses.replace(one, name="partly", function=cut, needs=(), ends=())
            report = rl.check(current, "main", runs=1, pipeline=rl.Pipeline((partly,)))
            assert report.ok, (one.name, count, str(report))
        current = after
