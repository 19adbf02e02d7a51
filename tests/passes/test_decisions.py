"""Every decision of every pass is in the trace with its reason.

A table: per pass what it must say of a program, applied (+) or refused (-). And for random
programs: no pass changes a module without saying why.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from textwrap import indent

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import passes
from relaxlab.ir.module import Module
from relaxlab.passes.adjust_matmul_order import adjust_matmul_order
from relaxlab.passes.base import _REGISTRY, Pipeline
from relaxlab.passes.batch_twins import batch_twins
from relaxlab.passes.bind_params import bind_params
from relaxlab.passes.bind_symbolic_vars import bind_symbolic_vars
from relaxlab.passes.blas_patterns import BLAS
from relaxlab.passes.combine_parallel_matmul import combine_parallel_matmul
from relaxlab.passes.convert_layout import convert_layout
from relaxlab.passes.convert_to_mixed_precision import convert_to_mixed_precision
from relaxlab.passes.decompose_norms import decompose_norms
from relaxlab.passes.expand_matmul_of_sum import expand_matmul_of_sum
from relaxlab.passes.expand_tuple_arguments import expand_tuple_arguments
from relaxlab.passes.fold_batch_norm import fold_batch_norm
from relaxlab.passes.fuse_ops_by_pattern import FusionPattern
from relaxlab.passes.fuse_transpose_matmul import fuse_transpose_matmul
from relaxlab.passes.group_composites import group_composites
from relaxlab.passes.inherit_bounds import inherit_bounds
from relaxlab.passes.inline_functions import inline_functions
from relaxlab.passes.lift_workspace import lift_workspace
from relaxlab.passes.mark_capture_regions import mark_capture_regions
from relaxlab.passes.move_reshapes import move_reshapes
from relaxlab.passes.move_slices import move_slices
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import is_op, wildcard
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.passes.quantize_activations import quantize_activations
from relaxlab.passes.remove_redundant_layouts import remove_redundant_layouts
from relaxlab.passes.remove_redundant_reshape import remove_redundant_reshape
from relaxlab.passes.remove_unused_outputs import remove_unused_outputs
from relaxlab.passes.remove_unused_parameters import remove_unused_parameters
from relaxlab.passes.reorder_permute_dims_after_concat import reorder_permute_dims_after_concat
from relaxlab.passes.reorder_take_after_matmul import reorder_take_after_matmul
from relaxlab.passes.replace_kernels import replace_kernels
from relaxlab.passes.rewrite_dataflow_reshape import rewrite_dataflow_reshape
from relaxlab.passes.use_inplace_calls import use_inplace_calls
from tests.passes.graph_programs import Programs
from tests.passes.test_replace_kernels import LAYOUTS, PROGRAM, TILED

HEAD = """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
"""
LAYERS = f"""
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), {", ".join(
        f'w{i}: R.Tensor((8, 8), "float32")' for i in range(9)
    )}):
        R.func_attr({{"num_input": 1}})
        y0 = x
{"".join(f"        y{i + 1} = R.matmul(y{i}, R.exp(w{i}))" + chr(10) for i in range(9))}
        return y9
"""
MANY = """
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32"),
             b: R.Tensor((64,), "float32"), i: R.Tensor(("k",), "int64")):
        R.func_attr({"num_input": 1})
        n = T.int64()

        @R.function
        def scaled(y: R.Tensor((n, 64), "float32")):
            return R.multiply(y, b)

        unused = R.sin(x)
        d = R.to_vdevice(x, "cpu")
        c = R.add(R.const([1.0, 2.0], "float32"), R.const([3.0, 4.0], "float32"))
        e = R.exp(d)
        f = R.exp(x)
        g = R.matmul(R.add(e, f), R.permute_dims(w))
        h = R.nn.relu(R.add(g, b))
        s = scaled(h)
        t = R.sum(s, axis=1)
        u = R.unique(i)
        v = R.abs(u)
        z = R.nn.softmax(R.matmul(s, w))
        return s, t, v, z, c
"""
BOUNDED = """
    @R.function(private=True)
    def inner(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        R.func_attr({"tir_var_upper_bound": {"n": 8}})
        return cls.inner(x)
"""
BLOCKS = """
    @R.function
    def main(x: R.Tensor(("n", 32), "float32"), d: R.Tensor((4, 1), "float16"),
             qs: R.Tensor((4, 1, 32), "int8"), b: R.Tensor((4, 1, 34), "uint8")):
        with R.dataflow():
            w = R.decode_blocks((d, qs), format="Q8_0")
            y = R.linear(x, w)
            r = R.reshape(y, (n, 2, 2))
            z = R.nn.relu(r)
            v = R.linear(x, R.decode_blocks((b,), format="Q8_0"))
            R.output(z, v)
        return z, v
"""
SLICES = """
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        with R.dataflow():
            t = R.split(x, 2, axis=1)
            second = t[1]
            heads = R.reshape(second, (n, 2, 2))
            R.output(heads)
        return heads
"""
RESIDUAL = """
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            h = R.nn.softmax(x, axis=-1)
            y = R.add(h, R.linear(R.nn.softmax(h, axis=0), w))
            z = R.nn.softmax(y, axis=-1)
            R.output(z)
        return z
"""
PART = """
    @T.prim_func
    def part(a: T.handle, n: T.int64):
        m = T.int64()
        A = T.match_buffer(a, (m,), "float32")
        for i in range(n):
            A[i] = T.float32(0)
"""
"""The first rows of an array."""
TOKEN = """
    @T.prim_func
    def total(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 64), "float32")
        B = T.match_buffer(b, (n, 64), "float32")
        scratch = T.alloc_buffer((n, 64), "float32")
        for i, j in T.grid(n, 64):
            with T.block("scratch"):
                vi, vj = T.axis.remap("SS", [i, j])
                scratch[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(n, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = scratch[vi, 63 - vj]

    @T.prim_func
    def bump(A: T.Buffer((1, 64), "float32")):
        for j in range(64):
            with T.block("A"):
                vj = T.axis.spatial(64, j)
                A[0, vj] = A[0, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((1, 64), "float32"), w: R.Tensor((64, 256), "float32"),
             g: R.Tensor((64,), "float32")):
        R.func_attr({"num_input": 1})
        cls = Module
        a = R.call_tir(cls.total, (x,), out_sinfo=R.Tensor((1, 64), "float32"))
        k = R.call_tir_inplace(cls.bump, (a,), out_sinfo=R.Tensor((1, 64), "float32"),
                               inplace_indices=[0])
        r = R.nn.rms_norm(k, R.exp(g))
        y = R.matmul(r, w)
        z = R.nn.softmax(y)
        return z
"""
ROW = """
    @R.function
    def main(x: R.Tensor((1, 64), "float32"), w: R.Tensor((64, 2048), "float32"),
             g: R.Tensor((64,), "float32")):
        r = R.nn.rms_norm(x, g)
        y = R.matmul(r, w)
        z = R.nn.softmax(y)
        return z
"""
PRODUCTS = """
    @R.function(private=True)
    def helper(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"),
             v: R.Tensor((8, 8), "float32"), o: R.Tensor((8, 1), "float32"),
             k: R.Tensor((16, 8), "float32")):
        cls = Module
        y = cls.helper(x)
        a = R.matmul(y, w)
        b = R.matmul(y, v)
        c = R.matmul(R.matmul(x, w), o)
        d = R.matmul(x, R.add(w, v))
        e = R.matmul(R.matmul(k, w), o)
        return a, b, c, d, e
"""
IMAGE = """
    @R.function
    def main(x: R.Tensor((2, 4, 9, 9), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")):
        y = R.nn.conv2d(x, w)
        z = R.nn.relu(y)
        t = R.reshape(z, R.shape([2, 392]))
        s = R.nn.softmax(t)
        return s
"""
LIBRARIES = cpu_pipeline().with_options("lower_to_libraries", use=BLAS)
GELU = FusionPattern("mine.exp_add", is_op("add")(is_op("exp")(wildcard()), wildcard()))
LOST = FusionPattern("mine.lost", is_op("nn.gelu")(wildcard()))
PATTERNS = cpu_pipeline().with_options("fuse_ops_by_pattern", patterns=(GELU, LOST))


def alone(*passes: object) -> Pipeline:
    return Pipeline((normalize, *passes))  # type: ignore[arg-type]


DOUBLE = rl.parse(TILED.replace("tiled", "double")).loop_functions()
DOUBLED = PROGRAM.split("class M:\n")[1].replace("M.double", "Module.double")
EIGHT = np.eye(8, dtype="float32")
TABLE: list[tuple[str, Pipeline, str, list[str]]] = [
    ("lambda_lifting", LIBRARIES, MANY, ["[+] main.scaled: is `main_scaled`, which is given `b`"]),
    ("realize_devices", LIBRARIES, MANY, ["[+] main.d: is on cpu already"]),
    ("canonicalize", LIBRARIES, MANY, ["[+] main.d: is x"]),
    ("inherit_bounds", alone(inherit_bounds), BOUNDED, ["[+] inner: every call has m <= 8"]),
    ("check_inplace_calls", cpu_pipeline(), TOKEN, ["[+] main.k: in place of a"]),
    ("eliminate_common_subexpr", LIBRARIES, MANY, ["[+] main.f: is computed as e"]),
    ("fold_constant", LIBRARIES, MANY, ["[+] main.c: all its arguments are constants"]),
    ("dead_code_elimination", LIBRARIES, MANY, ["[+] main.unused: nobody reads it"]),
    ("fuse_ops_by_pattern", PATTERNS, MANY, [
        "[+] main.lv: mine.exp_add: `e`, `lv` become one function",
        "- mine.lost: matched nothing; no call of the right operator; there are calls of .*exp",
    ]),
    ("merge_composites", PATTERNS, MANY, ["[+] fused_mine_exp_add: is one kernel"]),
    ("lower_to_libraries", LIBRARIES, MANY, [
        "[+] main.lv_2: matched with .* now a call of relaxlab.blas.matmul_bias",
        r"- is_op\(\"matmul\"\).* matched nothing; ",  # batches
    ]),
    ("legalize_ops", LIBRARIES, MANY, [
        "[+] main.z: nn.softmax: lowered to softmax",
        "- main.v: abs: not lowered: the shape or dtype of a value of type .* is unknown",
    ]),
    ("specialize_loop_functions", cpu_pipeline(), TOKEN, ["[+] main.a.*: .*total"]),
    ("annotate_pattern_kind", LIBRARIES, MANY, ["[+] relu: ELEMENTWISE", "[+] sum: REDUCTION"]),
    ("fuse_ops", LIBRARIES, MANY, [
        r"[+] main.e \(exp\) into main.lv \(add\): each element is made from single elements",
        r"- main.h \(relu\) into main.s: s is not made by a loop function",
    ]),
    ("fuse_tir", LIBRARIES, MANY, ["[+] fused_exp_add: one loop function with 2 blocks"]),
    ("state_preconditions", cpu_pipeline(), PART, ["[+] part: requires n <= m"]),
    ("schedule_kernels", LIBRARIES, MANY, ["[+] softmax: scheduled by the rule rows"]),
    ("rewrite_layouts", cpu_pipeline(), MANY, ["[+] main.w: .* for "]),
    ("lift_transform_params", cpu_pipeline(), TOKEN, ["[+] main.lv: depends only on weights"]),
    ("split_transform_params", cpu_pipeline(), LAYERS, [
        r"[+] main_transform_params: \d+ weights are transformed",
    ]),
    ("lift_workspace", alone(lift_workspace), TOKEN, ["[+] .*total.*: .*scratch"]),
    ("expand_calls", LIBRARIES, MANY, ["[+] main.h: `relu` writes into memory given to it"]),
    ("replicate_small_kernels", cpu_pipeline(), ROW, [
        "[+] main.*: filled by every thread for itself: .* cheaper than a barrier",
    ]),
    ("plan_memory", LIBRARIES, MANY, [
        r"[+] main.lv_3: n \* 256 bytes at 0, where lv lay",
        "- main.t: allocated apart: it is returned",
    ]),
    ("mark_capture_regions", cuda_pipeline().after("plan_memory", mark_capture_regions), TOKEN, [
        "[+] main: .* kernels",
    ]),
    ("inline_functions", alone(inline_functions), PRODUCTS, ["[+] main.*: inlined"]),
    ("combine_parallel_matmul", alone(combine_parallel_matmul), PRODUCTS, [
        "[+] main.a.*: ", "- main.*: ",
    ]),
    ("expand_matmul_of_sum", alone(expand_matmul_of_sum), PRODUCTS, ["[+] main.d: matched"]),
    ("adjust_matmul_order", alone(adjust_matmul_order), PRODUCTS, [
        "[+] main.e: matched", r"- main.c: it takes n \* 8 \* 8 \+ n \* 8 multiplications",
    ]),
    ("move_reshapes", alone(move_reshapes), BLOCKS, [
        r"[+] main.z: computed before `r`",
    ]),
    ("move_slices", alone(move_slices), SLICES, [
        "[+] main.second: field 1 of a split",
        "[+] main.heads: slices a reshape, in place of `second`",
    ]),
    ("overwrite_operands", cpu_pipeline(), RESIDUAL, [
        "[+] main.y: is written over `h`",
    ]),
    ("quantize_activations", alone(quantize_activations), BLOCKS, [
        r"[+] main.y: matched with `w`: now quantized_linear", "- main.v: its weight is stored in",
    ]),
    ("bind_params", alone(bind_params.with_options(params={"w": EIGHT})), PRODUCTS, [
        r"[+] main.w: is a constant of shape \(8, 8\)",
    ]),
    ("bind_symbolic_vars", alone(bind_symbolic_vars.with_options(values={"n": 3})), PRODUCTS, [
        "[+] main.n: is 3",
    ]),
    ("convert_layout", alone(convert_layout), IMAGE, [
        "[+] main.y: nn.conv2d: in NHWC", "- main.t: reshape: ",
    ]),
    ("convert_to_mixed_precision", alone(convert_to_mixed_precision), IMAGE, [
        "[+] main.y: nn.conv2d: in half precision", "- main.s: nn.softmax: it stays in float32",
    ]),
]  # fmt: skip
RAGGED = """
    @R.function
    def main(x: R.Tensor(("n", 2, 8), "float32"), s: R.Tensor(("b",), "int32")):
        return R.nn.ragged_attention(x, x, x, s)
"""
SAID = [r"[+] main.\w+: nn.ragged_attention: rows"]
TABLE.append(("flatten_ragged", cpu_pipeline(), RAGGED, SAID))
PARTS = """
    @R.function(private=True)
    def part(x: R.Tensor((4, 8), "float32"), unread: R.Tensor((4, 8), "float32"),
             t: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32"))):
        a = R.add(x, t[0])
        b = R.sin(t[1])
        return (a, b)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = Module
        z = cls.part(x, x, (x, x))
        r = z[0]
        return r
"""
MOVES = """
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((9, 8), "float32"),
             i: R.Tensor((3,), "int64"), v: R.Tensor((8, 16), "float32"),
             g: R.Tensor((8,), "float32")):
        a = R.permute_dims(x)
        b = R.permute_dims(w)
        c = R.concat((a, b), axis=1)
        s = R.take(v, i, axis=1)
        t = R.matmul(x, s)
        r = R.reshape(x, (4, 8))
        e = R.exp(r)
        d = R.nn.batch_norm(x, g, g, g, g, axis=1)
        return (c, t, e, d)
"""
OUTLINED = """
    @R.function(private=True)
    def relu(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        R.func_attr({"Primitive": True, "Composite": "cc.relu"})
        y = R.nn.relu(x)
        return y

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = Module.relu(x)
            b = Module.relu(a)
            R.output(b)
        return b
"""
OVER = """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.add(y, x)
            R.output(z)
        return z
"""
TURNED = """
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((4, 8), "float32")):
        t = R.permute_dims(w, axes=[1, 0])
        y = R.matmul(x, t)
        return y
"""
NORMED = """
    @R.function
    def main(x: R.Tensor((1, 1, 4, 4), "float32")):
        c = R.nn.conv2d(x, R.const([[[[1.5]]]], "float32"))
        o = R.const([1.0], "float32")
        n = R.nn.batch_norm(c, o, o, o, o, axis=1, training=False)
        return n[0]
"""
COPY = """
    @T.prim_func
    def flat(A: T.Buffer((4, 8), "float32"), B: T.Buffer((32,), "float32")):
        for i in range(32):
            with T.sblock("flat"):
                v = T.axis.spatial(32, i)
                B[v] = A[v // 8, v % 8]

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.flat, (x,), out_ty=R.Tensor((32,), "float32"))
            z = R.exp(y)
            R.output(z)
        return z
"""
TABLE += [
    ("remove_unused_parameters", alone(remove_unused_parameters), PARTS, [
        "[+] part: takes 2 of 3 parameters",
    ]),
    ("remove_unused_outputs", alone(remove_unused_outputs), PARTS, [
        "[+] part: returns 1 of 2 values",
    ]),
    ("expand_tuple_arguments", alone(expand_tuple_arguments), PARTS, [
        "[+] part: takes the fields of its tuples",
    ]),
    ("reorder_permute_dims_after_concat", alone(reorder_permute_dims_after_concat), MOVES, [
        "[+] main.c: transposed after it",
    ]),
    ("reorder_take_after_matmul", alone(reorder_take_after_matmul), MOVES, [
        "[+] main.t: matched with `s`: now take",
    ]),
    ("remove_redundant_reshape", alone(remove_redundant_reshape), MOVES, [
        "[+] main.r: matched: now x",
    ]),
    ("fuse_transpose_matmul", alone(fuse_transpose_matmul), TURNED, [
        "[+] main.y: matched with `t`: now linear",
    ]),
    ("use_inplace_calls", alone(use_inplace_calls), OVER, ["[+] main.z: is written over `y`"]),
    ("fold_batch_norm", alone(fold_batch_norm), NORMED, [
        "[+] main.n: matched with `c`: now ",
    ]),
    ("group_composites", alone(group_composites), OUTLINED, [
        "[+] main.b: `a`, `b` are one function for cc",
    ]),
    ("decompose_norms", alone(decompose_norms), MOVES, ["[+] main.d: matched: now "]),
    ("rewrite_dataflow_reshape", alone(rewrite_dataflow_reshape), COPY, [
        r"[+] main.y: ",
    ]),
    ("replace_kernels", alone(replace_kernels.with_options(kernels=DOUBLE)), DOUBLED, [
        "[+] main.y: another function for double",
    ]),
    ("remove_redundant_layouts", alone(remove_redundant_layouts), indent(LAYOUTS, "    "), [
        "[+] main.b: matched with `a`: now x", "- main.c: .*it is another layout",
    ]),
]  # fmt: skip
RECURSIVE = {
    "clone_by_weights": r"[+] cell: a clone for walk.back, which has other weights",
    "split_concat_product": r"[+] cell.\w+: one part of the rows is known before the recursion",
    "make_blocks": r"[+] \w+.\w+: \d+ bindings that no call or branch keeps apart",
    "combine_gates": r"[-] cell_block\w*.\w+: no other product of `\w*` fits",
    "batch_twins": r"[-] cell_block\w*.\w+: no other product is like it",
    "split_phases": r"[+] main_block: comes after the last recursion: it waits",
    "annotate_recording": r"[+] main: branches of unequal length end at the same depth",
    "batch_blocks": r"[+] main_block.\w+: differs between instances: gathered",
    "write_results": r"[+] main_block_batched.out0: is written by its kernel",
    "limit_rows": r"[+] walk_block_batched: \d+ rows of 192 bytes stay in the cache",
}
"""What the passes of `batched_pipeline` say of networks that go through a sequence and a tree."""
UNDECIDED = {
    "normalize": "it names and types what is there",
    "lower_match": "each match becomes conditionals",
    "build_prelude": "what a call leaves out is computed before it",
    "bundle_model_params": "all weights become one tuple",
    "lazy_get_input": "every weight is asked for where it is first read",
    "lazy_transform_params": "every weight is loaded, every result stored by itself",
    "lazy_set_output": "every result is handed out when it is computed",
    "rename_functions": "the names are stated",
    "convert_to_dataflow": "each run of bindings without effects becomes a block",
    "to_non_dataflow": "no block stays one of dataflow",
    "force_purity": "each pure function says so",
    "outline_scalars": "each scalar that is calculated becomes the result of a function",
    "sort_bindings": "the order follows from the dependences",
    "differentiate": "the gradient of one function is added",
    "append_loss": "the loss of one function is added",
    "kill_after_last_use": "each storage and object ends after its last use",
    "lower_builtins": "each of some operators is a call",
    "mark_free_layouts": "all weights are marked",
    "split_layout_rewrites": "each marked copy becomes a function",
    "store_shapes": "all shapes are kept in memory",
    "propagate_devices": "values are where hints and types say",
    "rename_device": "one device stands for the other everywhere",
    "lower_alloc_tensor": "each tensor gets a storage",
}
"""Passes that take no decision, and what they do."""


@pytest.mark.parametrize(
    ("name", "pipeline", "program", "expected"), TABLE, ids=[row[0] for row in TABLE]
)
def test_remarks_of_passes(
    name: str, pipeline: Pipeline, program: str, expected: list[str]
) -> None:
    trace = pipeline.run(rl.parse(HEAD + program))
    remarks = [
        f"{'+' if w.applied else '-'} {w.subject}: {w.reason}"
        for r in trace.passes if r.name == name
        for w in r.remarks
    ]  # fmt: skip
    for pattern in expected:
        assert any(re.match(pattern, n) for n in remarks), f"{pattern} is not among\n" + "\n".join(
            remarks
        )
    text = str(trace)
    assert all(remark.split(": ", 1)[1] in text for remark in remarks)


def test_remarks_on_recursive_programs() -> None:
    pipeline = rl.batched_pipeline().after("combine_gates", batch_twins)
    traces = [pipeline.run(mod) for mod in (rl.dynamic.bi_rnn(8), rl.dynamic.tree_lstm(8, 8))]
    for name, pattern in RECURSIVE.items():
        remarks = [
            f"{'+' if w.applied else '-'} {w.subject}: {w.reason}"
            for trace in traces for r in trace.passes if r.name == name
            for w in r.remarks
        ]  # fmt: skip
        assert any(re.match(pattern, remark) for remark in remarks), remarks


def test_every_pass_is_in_the_table() -> None:
    where = "relaxlab.passes."  # tests and the fuzzer register others
    for module in pkgutil.iter_modules(passes.__path__, where):
        importlib.import_module(module.name)
    ours = {p.name for p in _REGISTRY.values() if p.function.__module__.startswith(where)}
    assert ours == {row[0] for row in TABLE} | set(RECURSIVE) | set(UNDECIDED)


@pytest.mark.parametrize("seed", range(10))
def test_no_pass_changes_a_module_without_a_reason(seed: int) -> None:
    mod: Module = Programs(seed).module()
    for record in cpu_pipeline().run(mod).passes:
        if record.changed and record.name not in UNDECIDED:
            assert any(w.applied for w in record.remarks), record.name
        for w in record.remarks:
            assert w.rule and w.subject and w.reason
