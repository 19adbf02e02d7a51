import pytest

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
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.script import ir as I
from relaxlab.script import parse
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs
from relaxlab.tracing import recording


@I.ir_module
class User:
    """Functions that a user wrote."""

    @T.prim_func
    def shift(A: T.Buffer(("n", 8), "float32"), B: T.Buffer(("n", 8), "float32")):
        n = T.int64()
        for i, j in T.grid(n, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    @T.prim_func
    def total(A: T.Buffer(("n", 8), "float32"), B: T.Buffer(("n",), "float32")):
        n = T.int64()
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


def test_scalars_are_merged_too():
    """A scalar tensor has a known shape, which is empty."""

    @I.ir_module
    class Scalars:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), s: R.Tensor((), "float32")):
            with R.dataflow():
                y = R.add(R.multiply(x, s), s)
                R.output(y)
            return y

    merged = cpu_pipeline().run(Scalars).result
    assert [name for name, f in merged.items() if isinstance(f, loops.PrimFunc)] == [
        "fused_multiply_add"
    ]


def test_nothing_to_merge():
    check_pass(fuse_tir, User)


GROUPS = """
@T.prim_func(private=True)
def add(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"),
        O: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("O"):
            vi = T.axis.spatial(4, i)
            O[vi] = A[vi] + B[vi]

@T.prim_func(private=True)
def double(A: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("A"):
            vi = T.axis.spatial(4, i)
            A[vi] = A[vi] * T.float32(2)

@R.function(private=True)
def group(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
    R.func_attr({{"Primitive": True}})
    with R.dataflow():
        a = t[0]
        b = t[1]
        {body}
        R.output(r)
    return r

@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    with R.dataflow():
        pair = (x, y)
        z = cls.group(pair)
        w = cls.group((y, R.exp(z)))
        R.output(w)
    return w
"""
ADD = 'R.call_tir(cls.add, ({}, {}), out_ty=R.Tensor((4,), "float32"))'
DOUBLE = 'R.call_tir_inplace(cls.double, ({},), 0, out_ty=R.Tensor((4,), "float32"))'


@pytest.mark.parametrize(
    ("steps", "why_not"),
    [
        ([("r", ADD.format("a", "b"))], None),
        ([("u", ADD.format("a", "b")), ("r", ADD.format("u", "b"))], None),
        ([("u", ADD.format("a", "a")), ("r", DOUBLE.format("u"))], None),
        ([("u", ADD.format("a", "b")), ("v", DOUBLE.format("u")), ("r", ADD.format("v", "a"))],
         None),
        ([("u", ADD.format("a", "b")), ("v", DOUBLE.format("u")), ("r", DOUBLE.format("v"))], None),
        ([("r", "R.add(a, b)")], "`r` is not the one result of a loop function"),
        ([("r", "(a, b)"), ("r", "r[1]")], "is not the one result of a loop function"),
    ],
)  # fmt: skip
def test_groups_by_hand(steps: list[tuple[str, str]], why_not: str | None) -> None:
    body = "\n        ".join(f"{name} = {value}" for name, value in steps)
    start = normalize(parse(GROUPS.format(body=body)))
    with recording() as notes:
        merged = fuse_tir(start)
    check_module(fuse_tir, start, merged)
    compare_runs(start, merged)
    assert isinstance(merged["group"], loops.PrimFunc) == (why_not is None)
    assert why_not is None or why_not in notes[0].reason
    compare_runs(start, cpu_pipeline().run(start).result)


@pytest.mark.parametrize(
    ("made", "arguments", "reason"),
    [
        ("", "lengths, at", None),
        ("w = R.call_tir(cls.copy, (lengths,), R.Tensor((n,), 'int32'))", "w, at",
         "has index functions, whose facts are checked before it runs"),
        ("", "at, at", "is given one array for several index functions"),
    ],
)  # fmt: skip
def test_what_facts_mention_is_there_before_the_kernel(
    made: str, arguments: str, reason: str | None
) -> None:
    """The array whose elements an index function sums up, too."""
    mod = normalize(
        parse(f"""
@T.prim_func(private=True)
def pick(v: T.Buffer(("n",), "int32"), s_: T.handle, y: T.Buffer(("n",), "int32")):
    s = T.index_function(s_, (n,), "int32", facts=[T.prefix_sums(lambda i: v[i])])
    for i in range(n):
        with T.sblock("y"):
            k = T.axis.spatial(n, i)
            y[k] = s[k] + v[k]

@T.prim_func(private=True)
def copy(x: T.Buffer(("n",), "int32"), y: T.Buffer(("n",), "int32")):
    for i in range(n):
        with T.sblock("copy"):
            k = T.axis.spatial(n, i)
            y[k] = x[k]

@R.function(private=True)
def group(lengths: R.Tensor(("n",), "int32"), at: R.Tensor(("n",), "int32")):
    R.func_attr({{"Primitive": True}})
    with R.dataflow():
        {made or "pass"}
        a = R.call_tir(cls.pick, ({arguments}), R.Tensor((n,), "int32"))
        b = R.call_tir(cls.copy, (a,), R.Tensor((n,), "int32"))
        R.output(b)
    return b

@R.function
def main(lengths: R.Tensor(("n",), "int32"), at: R.Tensor(("n",), "int32")):
    y = cls.group(lengths, at)
    return y
""")
    )
    with recording() as remarks:
        after = fuse_tir(mod)
    if reason is not None:
        assert after is mod and any(reason in r.reason for r in remarks)
    else:
        group = after["group"]
        lengths, at, _ = group.buffers
        (fact,) = at.facts
        assert lengths in walk(fact)
