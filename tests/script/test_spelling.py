"""The spellings of the paper and the courses and those of current TVM releases mean the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.script import parse
from relaxlab.testing.script_corpus import PROGRAMS


def loop(body: str, params: str = 'A: T.Buffer((16, 16), "float32"), n: T.int64') -> loops.PrimFunc:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    mod = parse(f"@T.prim_func\ndef f({params}):\n{lines}\n", check=False)
    return mod["f"]


def value(text: str, params: str = 'A: T.Buffer((16, 16), "float32"), n: T.int64') -> expr.PrimExpr:
    return loop(f"T.evaluate({text})", params).body.value


def same(a: str, b: str) -> None:
    wrap = "@I.ir_module\nclass M:\n"
    one, two = (
        parse(wrap + "\n".join("    " + line for line in t.strip("\n").splitlines()), check=False)
        for t in (a, b)
    )
    assert_structural_equal(one, two)


def test_old_and_new_programs() -> None:
    old = PROGRAMS["paper_era"]
    new = (
        old.replace("T.block(", "T.sblock(")
        .replace("T.alloc_buffer", "T.sblock_alloc_buffer")
        .replace("out_sinfo=", "out_ty=")
        .replace("@T.prim_func", "@T.prim_func(s_tir=True)")
        .replace("T.axis.S(", "T.axis.spatial(")
        .replace("T.axis.R(", "T.axis.reduce(")
        .replace('T.Buffer[(128,), "float32"]', 'T.Buffer((128,), "float32")')
        .replace("tir as T", "tirx as T")
        .replace("T.Buffer(128)", 'T.Buffer((128,), "float32")')
        .replace("Y[vi, vj] += A", "Y[vi, vj] = Y[vi, vj] + A")
        .replace("@tvm.script.ir_module", "@I.ir_module")
        .replace("MyModule.mm_relu", "cls.mm_relu")
    )
    assert new != old
    assert_structural_equal(parse(old), parse(new))


def test_symbols_in_every_way() -> None:
    template = """
@R.function
def main({}) -> R.Tensor(("n * 4",), "float32"):
    {}
    return R.reshape(x, (n * 4,))
"""
    strings = template.format('x: R.Tensor(("n", 4), "float32")', "n = T.int64()")
    for params, declaration in [
        ('x: R.Tensor(("n", 4), dtype="float32")', 'n = T.var("int64")'),
        ('x: R.Tensor(("n", 4), dtype="float32")', 'n = T.Var("n", "int64")'),
        ('x: R.Tensor(["n", 4], "float32")', "n, = (T.int64(),)"),
        ('x: R.Tensor(("n", 4), "float32")', "pass"),
    ]:
        same(strings, template.format(params, declaration))


def test_a_compound_dimension_before_its_symbol() -> None:
    mod = parse("""
@R.function
def main(x: R.Tensor(("n * 4", "m + n"), "float32"), s: R.Shape(["n", "m"])):
    return R.reshape(x, s)
""")
    x, s = mod["main"].params
    n, m = s.ty.values
    assert x.ty.shape == (expr.Mul(n, expr.const(4)), expr.Add(m, n))


def test_a_scalar_parameter_is_a_symbol() -> None:
    mod = parse(
        """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), n: T.int64):
    return R.reshape(x, (n * 4,))
""",
        check=False,
    )
    x, n = mod["main"].params
    assert isinstance(n.ty, types.PrimType) and n.ty.value is x.ty.shape[0]
    assert mod["main"].body.body.args[1].values[0].a is x.ty.shape[0]


def test_numbers_take_the_dtype_of_the_other_operand() -> None:
    assert value("A[0, 0] + 1").b == expr.FloatImm(1.0, "float32")
    assert value("n + 1").b == expr.IntImm(1, "int64")
    assert value("2 * A[0, 0]").a == expr.FloatImm(2.0, "float32")
    assert value("T.max(A[0, 0], 0)").b == expr.FloatImm(0.0, "float32")
    assert value("x << 4", "x: T.uint8").b == expr.IntImm(4, "uint8")
    assert value("T.if_then_else(n > 0, A[0, 0], 0)").args[2].dtype == "float32"
    assert value("T.pow(A[0, 0], 2)").args[1].dtype == "float32"
    assert value("T.exp(1)").args[0] == expr.FloatImm(1.0, "float32")
    assert value("7") == expr.IntImm(7, "int64")
    assert value("0.5") == expr.FloatImm(0.5, "float32")
    assert value("True") == expr.IntImm(1, "bool")


def test_operands_are_widened() -> None:
    assert value("x + n", "x: T.int32, n: T.int64").a.to == "int64"
    assert value("x * y", "x: T.float16, y: T.float32").dtype == "float32"
    half = value("x * 0.5", "x: T.int32")
    assert isinstance(half.a, expr.Cast) and half.dtype == "float32"


def test_python_numbers_fold_and_others_stay_as_written() -> None:
    assert value("2 * 3 + 1") == expr.IntImm(7)
    assert isinstance(value("n + 0"), expr.Add)
    assert isinstance(value("T.int64(2) * T.int64(3)"), expr.Mul)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("T.serial(0, n)", "serial"),
        ("range(n)", "serial"),
        ("T.parallel(n)", "parallel"),
        ("T.vectorized(0, 16)", "vectorized"),
        ("T.unroll(4)", "unrolled"),
        ("T.unrolled(4)", "unrolled"),
        ('T.thread_binding(16, thread="threadIdx.x")', "thread_binding"),
        ('T.thread_binding(0, 16, "blockIdx.x")', "thread_binding"),
    ],
)
def test_kinds_of_loops(text: str, kind: str) -> None:
    made = loop(f"for i in {text}:\n    A[i, 0] = 0").body
    assert isinstance(made, loops.For) and made.kind == kind
    assert (made.thread is not None) == (kind == "thread_binding")


def test_conditions() -> None:
    chained = value("0 <= n < 4")
    assert isinstance(chained, expr.And) and isinstance(chained.b, expr.LT)
    assert isinstance(value("n > 1 and n < 3 or not n == 2"), expr.Or)
    made = loop("if n > 3:\n    A[0, 0] = 1\nelif n > 2:\n    A[0, 0] = 2\nelse:\n    A[0, 0] = 3")
    assert isinstance(made.body.else_case, loops.IfThenElse)


def test_lets() -> None:
    text = "{}\nA[0, 0] = x + x"
    plain = loop(text.format("x = A[0, 1] * 2"))
    assert isinstance(plain.body, loops.LetStmt)
    for spelling in ("x: T.let = A[0, 1] * 2", "x: T.float32 = A[0, 1] * 2",
                     "x: T.let[T.float32] = A[0, 1] * 2"):  # fmt: skip
        assert_structural_equal(loop(text.format(spelling)), plain)
    assert_structural_equal(loop("with T.LetStmt(A[0, 1] * 2) as x:\n    A[0, 0] = x + x"), plain)
    rebound = loop("x = A[0, 1]\nx = x * 2\nA[0, 0] = x")
    assert rebound.body.body.value.a is rebound.body.var


def test_slices_are_vectors_and_regions() -> None:
    made = loop("A[0, 0:8] = A[1, n:n + 8]").body
    assert made.indices[1] == expr.Ramp(expr.const(0), expr.const(1), 8)
    assert made.value.dtype == "float32x8"
    block = loop("with T.block('b'):\n    T.reads(A[0:4, n:n + 4], [A])\n    A[0, 0] = 0"
                 .replace("[A]", "A")).body.block.body.block  # fmt: skip
    assert [r.extent for r in block.reads[0].region] == [expr.const(4), expr.const(4)]
    assert [r.extent for r in block.reads[1].region] == [expr.const(16), expr.const(16)]
    assert [str(r.min) for r in block.writes[0].region] == ["0", "0"]  # from the body


def test_buffers_and_blocks() -> None:
    made = loop(
        "C = T.alloc_local((4,), 'float32')\n"
        "with T.block():\n"
        "    vi = T.axis.S((2, 8), n)\n"
        "    T.where(n < 3)\n"
        "    T.where(n > 1)\n"
        "    T.block_attr({'k': 1})\n"
        "    D = T.match_buffer(A[vi, 0:4], (4,))\n"
        "    C[0] = D[vi]"
    )
    root = made.body.block
    inner = root.body.block
    assert root.alloc_buffers[0].scope == "local"
    assert inner.iter_vars[0].dom.extent == expr.const(6)
    assert isinstance(root.body.predicate, expr.And)
    assert inner.match_buffers[0].source.region[1].extent == expr.const(4)
    assert dict(inner.annotations) == {"k": 1}


def test_root_blocks() -> None:
    store = "A[0, 0] = 0"
    assert isinstance(loop(store).body, loops.BufferStore)
    block = loop(f"with T.block('b'):\n    {store}").body
    assert block.block.name == "root" and block.block.body.block.name == "b"
    explicit = loop(f"with T.block('root'):\n    with T.block('b'):\n        {store}")
    assert explicit.body.block.body.block.name == "b"
    text = "@T.prim_func(s_tir={})\ndef f(A: T.Buffer((4,))):\n    A[0] = 0\n"
    assert isinstance(parse(text.format(True))["f"].body, loops.BlockRealize)
    assert isinstance(parse(text.format(False))["f"].body, loops.BufferStore)


def test_casts_and_limits() -> None:
    for spelling in ("T.float32(n)", 'T.Cast("float32", n)', 'T.cast(n, "float32")'):
        made = value(spelling)
        assert isinstance(made, expr.Cast) and made.to == "float32"
    assert value('T.min_value("int8")') == expr.IntImm(-128, "int8")
    assert value('T.max_value("float16")') == expr.FloatImm(65504.0, "float16")
    assert value('T.float32("-inf")') == expr.FloatImm(float("-inf"), "float32")
    assert value('T.infinity("float32")') == expr.FloatImm(float("inf"), "float32")
    assert value("T.ceildiv(17, 4)") == expr.IntImm(5)
    assert str(value("-A[0, 0]").b) == "-1.0"
    assert value("-3") == expr.IntImm(-3)


def test_graph_operators() -> None:
    body = parse("""
@R.function
def main(x: R.Tensor((4, 4), "float32"), y: R.Tensor((4, 4), "float32")):
    a = -(x + y * 2.0) @ x
    b, c = R.split(a, 2)
    d = a > 0
    return (b, c, d)
""")["main"].body
    first = body.blocks[0].bindings[0].value
    assert first.op == graph.Op("matmul") and first.args[0].op == graph.Op("negative")
    two = first.args[0].args[0].args[1].args[1]
    assert isinstance(two, graph.Constant) and two.data.dtype == "float32"
    assert isinstance(body.blocks[0].bindings[2].value, graph.TupleGetItem)
    assert body.blocks[0].bindings[-1].value.op == graph.Op("greater")


def test_default_attributes_are_filled_in() -> None:
    short = "@R.function\ndef main(x: R.Tensor((4, 4), 'float32')):\n    return R.sum(x, 0)\n"
    call = parse(short)["main"].body.body
    assert dict(call.attrs) == {"axis": 0, "keepdims": False}
    same(short, short.replace("R.sum(x, 0)", "R.sum(x, axis=0, keepdims=False)"))


def test_dataflow_variables_and_outputs() -> None:
    body = parse("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.add(x, x)
        y = R.add(y, x)
        z = R.add(y, y)
        R.output(y)
    w = R.add(y, y)
    return w
""")["main"].body
    kinds = [type(b.var) for b in body.blocks[0].bindings]
    assert kinds == [graph.DataflowVar, graph.Var, graph.DataflowVar]
    assert body.blocks[1].bindings[0].value.args[0] is body.blocks[0].bindings[1].var


def test_branches_that_return() -> None:
    text = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    if c:
        y = R.add(x, x)
        return y
    else:
        return x
"""
    mod = parse(text)
    assert isinstance(mod["main"].body.body, graph.If)
    assert_structural_equal(mod, parse(mod.script()))


def test_call_tir_arguments() -> None:
    def calls(args: str) -> graph.Call:
        mod: Module = parse(f"""
@I.ir_module
class Module:
    @T.prim_func
    def f(a: T.handle, b: T.handle, k: T.int64):
        A = T.match_buffer(a, (k,), "float32")
        B = T.match_buffer(b, (k,), "float32")
        for i in range(k):
            B[i] = A[i]
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(cls.f, {args}, out_ty=R.Tensor((n,), "float32"))
        return y
""")
        return mod["main"].body.blocks[0].bindings[0].value

    for spelling in ("(x, n)", "(x,), tir_vars=R.shape([n])", "x, tir_vars=(n,)", "[x, n]"):
        made = calls(spelling)
        assert len(made.args) == 3 and len(made.args[1].fields) == 1
        assert made.args[2].values[0].name == "n"


def test_local_functions() -> None:
    mod = parse(PROGRAMS["local"])
    block, rest = mod["main"].body.blocks
    (binding,) = block.bindings
    assert isinstance(binding.value, graph.Function) and binding.var.name == "twice"
    assert rest.bindings[0].value.op is binding.var
    typed = PROGRAMS["local"].replace(
        "        @R.function\n        def twice",
        "        twice: R.Callable((R.Tensor(ndim=2),), R.Tensor(ndim=2), True)\n"
        "        @R.function\n        def twice",
    )
    mod = parse(typed, check=False)
    assert isinstance(mod["main"].body.blocks[0].bindings[0].var.ty, types.FuncType)
    assert_structural_equal(mod, parse(mod.script(), check=False))


def test_the_examples_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs/script.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(examples) == 3
    for example in examples:
        mod = parse(example)
        assert_structural_equal(mod, parse(mod.script()))


@pytest.mark.parametrize(
    ("bound", "annotation", "same"),
    [
        ("R.shape_of(x)", 'R.Tensor(s, "float32")', 'R.Tensor((n, 4), "float32")'),
        ("R.shape([n, 4])", 'R.Tensor(s, "float32", ndim=2)', 'R.Tensor((n, 4), "float32")'),
        ("q", 'R.Tensor(s, "float32")', 'R.Tensor("float32", ndim=2)'),
        ("p", "R.Tensor(s)", "R.Tensor((n, m))"),
    ],
)
def test_a_variable_that_holds_a_shape(bound: str, annotation: str, same: str) -> None:
    text = f"""
@R.function
def main(x: R.Tensor(("n", 4), "float32"), q: R.Shape(ndim=2), p: R.Shape(["n", "m"])):
    n, m = T.int64(), T.int64()
    s = {bound}
    y = R.match_cast(R.exp(x), {{}})
    return y
"""
    assert_structural_equal(parse(text.format(annotation)), parse(text.format(same)))


def test_a_variable_that_holds_no_shape() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    return R.match_cast(x, R.Tensor(x, "float32"))
"""
    with pytest.raises(DiagnosticError, match="a shape is needed here, not variable x"):
        parse(text)
