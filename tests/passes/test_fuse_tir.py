from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import loops
from relaxlab.ir.node import walk
from relaxlab.passes.annotate_pattern_kind import annotate_pattern_kind
from relaxlab.passes.base import Pipeline
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.fuse_ops import fuse_ops
from relaxlab.passes.fuse_tir import fuse_tir
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs
from relaxlab.tracing import recording


@I.ir_module
class User:
    """Functions that a user wrote."""

    @T.prim_func
    def shift(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    @T.prim_func
    def total(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i, j in T.grid(n, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vj]

    @R.function
    def main(x: R.Tensor(("m", 8), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        cls = User
        with R.dataflow():
            a = R.call_tir(cls.shift, (x,), out_sinfo=R.Tensor((m, 8), "float32"))
            b = R.call_tir(cls.shift, (a,), out_sinfo=R.Tensor((m, 8), "float32"))
            c = R.call_tir(cls.total, (b,), out_sinfo=R.Tensor((m,), "float32"))
            R.output(c)
        return c


def test_kinds_are_annotated_once():
    start = normalize(User)
    with recording() as remarks:
        after = annotate_pattern_kind(start)
    check_module(annotate_pattern_kind, start, after)
    assert {n.subject: n.reason for n in remarks} == {"shift": "ELEMENTWISE", "total": "REDUCTION"}
    assert after["total"].attrs["op_pattern"] == int(PatternKind.REDUCTION)


def test_one_function_called_twice_gets_names_of_its_own():
    start = Pipeline((normalize, canonicalize, legalize_ops, annotate_pattern_kind)).run(User)
    grouped = fuse_ops(start.result)
    merged = fuse_tir(grouped)
    check_module(fuse_tir, grouped, merged)
    compare_runs(User, merged)
    func = merged["fused_shift_shift_total"]
    blocks = [n for n in walk(func.body) if isinstance(n, loops.Block) and n.iter_vars]
    assert [b.name for b in blocks] == ["B", "B_1", "B_2"]
    axes = [v.var for b in blocks for v in b.iter_vars]
    assert len(set(axes)) == len(axes) == 6
    assert func.attrs["op_pattern"] == int(PatternKind.REDUCTION)
    assert [p.name for p in func.params] == ["x", "out"]


def test_nothing_to_merge():
    check_pass(fuse_tir, User)
