"""The figures of the Relax paper that make a claim, each as a program that shows it.

Programs are the paper's, as far as it prints them. Every test quotes the claim in our words, and
fails when it does not hold; all compile to native code once and run for several sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.passes.blas_patterns import BLAS
from relaxlab.passes.expand_calls import expand_calls
from relaxlab.passes.fuse_ops import fuse_ops
from relaxlab.passes.lift_workspace import lift_workspace
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.passes.plan_memory import memory_plan_of
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

Array = np.ndarray[Any, Any]


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


def agree(mod: Module, *args: Any, exe: Any = None, rtol: float = 1e-5) -> Any:
    """Native code and the interpreter, which must give the same."""
    got = (exe or rl.compile(mod, use_cache=False))["main"](*args)
    want = rl.interpret(mod, "main", *args)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for a, b in pairs:
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max(initial=0))
    return got


def types_of(mod: Module, name: str = "main") -> dict[str, str]:
    """Return the deduced type of each variable of a function."""
    fn = normalize(mod)[name]
    return {b.var.name: str(b.var.ty) for block in fn.body.blocks for b in block.bindings}


@I.ir_module
class Figure3:
    @R.function
    def main(x: R.Tensor(("n", 2, 2), "float32")):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            lv0 = R.reshape(x, R.shape([n, 4]))
            lv1 = R.flatten(lv0)
            lv2 = R.unique(lv1)
            lv3 = R.match_cast(lv2, R.Tensor((m,), "float32"))
            gv0 = R.exp(lv3)
            R.output(gv0)
        return gv0


def test_figure_3_symbols_survive_reshapes_and_data_dependent_shapes() -> None:
    """`reshape` and `flatten` keep exact symbolic relations, n * 4; `unique` falls back to knowing
    the rank alone; `match_cast` names the length, and what follows keeps that name."""
    assert types_of(Figure3) == {
        "lv0": "R.Tensor((n, 4), 'float32')",
        "lv1": "R.Tensor((n * 4,), 'float32')",
        "lv2": "R.Tensor(dtype='float32', ndim=1)",
        "lv3": "R.Tensor((m,), 'float32')",
        "gv0": "R.Tensor((m,), 'float32')",
    }
    exe = rl.compile(Figure3, use_cache=False)
    few = np.array([[[1, 2], [2, 1]], [[3, 1], [1, 1]]], "float32")
    assert agree(Figure3, few, exe=exe).shape == (3,)
    assert agree(Figure3, floats(5, 2, 2), exe=exe).shape == (20,)
    assert agree(Figure3, floats(0, 2, 2), exe=exe).shape == (0,)


@I.ir_module
class Figure7:
    @R.function
    def subfn(s: R.Shape(["n", "m"])) -> R.Tensor(("n * m",), "float32"):
        n, m = T.int64(), T.int64()
        a = R.ones(R.shape([n * m]), "float32")
        return a

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Shape(ndim=2)):
        n = T.int64()
        cls = Figure7
        lv0 = cls.subfn(R.shape([n, 4]))
        lv1 = cls.subfn(R.shape([3, n]))
        f = cls.subfn
        lv2 = f(R.shape([n, n]))
        lv3 = cls.subfn(y)
        return lv0, lv1, lv2, lv3


def test_figure_7_deduction_across_functions_needs_the_signature_alone() -> None:
    """The result's type follows from the callee's signature: for a direct call, for a call of the
    function as a value, and coarsely for an argument of which only the rank is known, whose
    dimensions are then checked at run time. Its body plays no part."""
    known = types_of(Figure7)
    assert known["lv0"] == "R.Tensor((n * 4,), 'float32')"
    assert known["lv1"] == "R.Tensor((n * 3,), 'float32')"
    assert known["lv2"] == "R.Tensor((n * n,), 'float32')"
    assert known["lv3"] == "R.Tensor(dtype='float32', ndim=1)"
    assert known["f"].startswith("R.Callable((R.Shape([n, m])), R.Tensor((n * m,)")
    body = Figure7.script().replace("R.ones(R.shape([n * m])", "R.zeros(R.shape([m * n])")
    assert types_of(rl.parse(body)) == known
    exe = rl.compile(Figure7, use_cache=False)
    for n, shape in ((5, (2, 6)), (1, (0, 3))):
        results = agree(Figure7, floats(n), shape, exe=exe)
        assert [r.size for r in results] == [4 * n, 3 * n, n * n, shape[0] * shape[1]]


def test_figure_7_provably_different_shapes_are_an_error() -> None:
    """An argument that cannot match the signature is refused when the program is compiled."""
    call = "cls.subfn(R.shape([n, 4]))"
    assert call in Figure7.script()
    wrong = Figure7.script().replace(call, "cls.subfn(R.shape([n, 4, 2]))")
    with pytest.raises(DiagnosticError, match="R.Shape\\(\\[n, 4, 2\\]\\)"):
        normalize(rl.parse(wrong, check=False))


@I.ir_module
class Figure8:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n * 2",), "float32"):
        n = T.int64()
        y = R.reshape(x, R.shape([n * 2]))
        with R.dataflow():
            lv = R.add(y, R.const(1.0, "float32"))
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv


def test_figure_8_outlined_groups_get_the_symbols_that_no_argument_binds() -> None:
    """A group whose parameter has the shape (2 * n,) cannot find n in it: it gets an additional
    Shape parameter from which n comes, and stays symbolic."""
    passes = cpu_pipeline().passes
    until = passes[: passes.index(fuse_ops) + 1]
    mod = Module.of(dict(Figure8.functions))
    for one in until:
        mod = one(mod)
    (group,) = [f for n, f in mod.graph_functions().items() if f.attrs.get("Primitive")]
    tensor, shape = (p.ty for p in group.params)
    assert isinstance(tensor, types.TensorType) and str(tensor) == "R.Tensor((n * 2,), 'float32')"
    assert isinstance(shape, types.ShapeType) and [str(v) for v in shape.values or ()] == ["n"]
    assert tensor.shape is not None and shape.values is not None
    main = mod["main"]
    calls = [c for c in walk(main) if isinstance(c, graph.Call)]
    (outer,) = [c for c in calls if isinstance(c.op, graph.GlobalVar)]
    assert isinstance(outer.args[-1], graph.ShapeExpr) and str(outer.args[-1].values[0]) == "n"
    exe = rl.compile(Figure8, use_cache=False)
    for n in (0, 1, 7):
        agree(Figure8, floats(n, 2), exe=exe)


@I.ir_module
class Figure9:
    @T.prim_func
    def decode_q4(
        packed: T.Buffer((128, 16), "uint32"),
        scale: T.Buffer((128, 4), "float32"),
        W: T.Buffer((128, 128), "float32"),
    ):
        for i, j in T.grid(128, 128):
            with T.block("decode"):
                vi, vj = T.axis.remap("SS", [i, j])
                W[vi, vj] = (
                    T.cast(
                        T.bitwise_and(
                            T.shift_right(packed[vi, vj // 8], T.cast(vj % 8 * 4, "uint32")),
                            T.uint32(15),
                        ),
                        "float32",
                    )
                    - T.float32(7)
                ) * scale[vi, vj // 32]

    @R.function
    def main(
        x: R.Tensor(("n", 128), "float32"),
        packed: R.Tensor((128, 16), "uint32"),
        scale: R.Tensor((128, 4), "float32"),
    ) -> R.Tensor(("n", 128), "float32"):
        cls = Figure9
        with R.dataflow():
            w = R.call_tir(
                cls.decode_q4, (packed, scale), out_sinfo=R.Tensor((128, 128), "float32")
            )
            y = R.matmul(x, w)
            R.output(y)
        return y


def test_figure_9_a_user_s_decoding_fuses_into_the_product() -> None:
    """4-bit decoding written as a loop program is classified by analysis, as a broadcast of its
    scales, and fused into the product that reads it: one kernel, no decoded matrix in memory."""
    trace = cpu_pipeline().run(Figure9)
    kinds = {w.subject: w.reason for r in trace.passes for w in r.remarks
             if r.name == "annotate_pattern_kind"}  # fmt: skip
    assert any("decode" in subject for subject in kinds)
    called = [c.op.name for c in walk(trace.result["main"])
              if isinstance(c, graph.Call) and isinstance(c.op, graph.GlobalVar)]  # fmt: skip
    assert called == ["fused_decode_q4_matmul"]
    unfused = rl.compile(Figure9, use_cache=False, pipeline=cpu_pipeline().without("fuse_ops"))
    fused = rl.compile(Figure9, use_cache=False)
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 2**32, (128, 16), dtype="uint32")
    for n in (1, 5, 33):
        args = (floats(n, 128), packed, floats(128, 4))
        agree(Figure9, *args, exe=fused)
        agree(Figure9, *args, exe=unfused)
    decoded = 128 * 128 * 4
    assert unfused.arena_bytes() >= decoded > fused.arena_bytes()


@I.ir_module
class Figure10:
    @R.function
    def main(x: R.Tensor((2, "n"), "float32")) -> R.Tensor(("n", 2), "float32"):
        n = T.int64()
        with R.dataflow():
            lv0 = R.exp(x)
            lv1 = R.permute_dims(lv0)
            lv2 = R.nn.relu(lv1)
            lv3 = R.add(lv2, R.const(1.0, "float32"))
            R.output(lv3)
        return lv3


def test_figure_10_memory_of_provably_equal_symbolic_size_is_reused() -> None:
    """exp, transpose, relu and an addition need (2, n) and (n, 2) temporaries. Their sizes are
    2 * n elements, provably equal whatever n: two storages serve all of them."""
    alone = cpu_pipeline().without("fuse_ops").without("fuse_tir").without("rewrite_layouts")
    trace = alone.run(Figure10)
    before = next(r.before for r in trace.passes if r.name == "plan_memory")
    main = before["main"]
    plan = memory_plan_of(main, before)
    (arena,) = plan.arenas
    places = {p.var.name: (str(p.offset), str(p.size)) for p in arena.placements}
    assert len({size for _, size in places.values()}) == 1
    assert places["lv0"] == places["lv2"] and len({at for at, _ in places.values()}) == 2
    assert [v.name for v, _ in plan.unplanned] == ["lv3"]
    exe = rl.compile(Figure10, use_cache=False, pipeline=alone)
    for n in (0, 1, 9, 100):
        agree(Figure10, floats(2, n), exe=exe)
    one = 2 * 100 * 4
    assert 2 * one <= exe.arena_bytes() < 3 * one


@I.ir_module
class Figure11:
    @T.prim_func
    def mm_split_k(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 64), "float32")
        B = T.match_buffer(b, (64, 16), "float32")
        C = T.match_buffer(c, (n, 16), "float32")
        workspace = T.alloc_buffer((4, n, 16), "float32")
        for s, i, j, k in T.grid(4, n, 16, 16):
            with T.block("partial"):
                vs, vi, vj, vk = T.axis.remap("SSSR", [s, i, j, k])
                with T.init():
                    workspace[vs, vi, vj] = T.float32(0)
                workspace[vs, vi, vj] = (
                    workspace[vs, vi, vj] + A[vi, vs * 16 + vk] * B[vs * 16 + vk, vj]
                )
        for i, j, s in T.grid(n, 16, 4):
            with T.block("total"):
                vi, vj, vs = T.axis.remap("SSR", [i, j, s])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + workspace[vs, vi, vj]

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 16), "float32")) -> R.Tensor(
        ("n", 16), "float32"
    ):
        n = T.int64()
        cls = Figure11
        with R.dataflow():
            lv0 = R.concat((x, x, x, x), axis=1)
            lv1 = R.strided_slice(lv0, (1,), (128,), (192,))
            gv0 = R.call_tir(cls.mm_split_k, (lv1, w), out_sinfo=R.Tensor((n, 16), "float32"))
            gv1 = R.exp(gv0)
            R.output(gv1)
        return gv1


def test_figure_11_workspace_is_lifted_and_planned_with_everything_else() -> None:
    """The scratch memory of a split-k product, inside a loop function, becomes an allocation of
    the graph function; the planner then lets it share memory with tensors that are dead."""
    lifted = lift_workspace(normalize(Figure11))
    func = lifted.loop_functions()["mm_split_k"]
    assert len(func.buffers) == 4
    main = expand_calls(lifted)["main"]
    allocated = [tuple(map(str, c.args[0].values)) for c in walk(main) if isinstance(c, graph.Call)
                 and c.op == graph.Op("builtin.alloc_tensor")
                 and isinstance(c.args[0], graph.ShapeExpr)]  # fmt: skip
    assert ("4", "n", "16") in allocated
    passes = cpu_pipeline().without("fuse_ops").without("fuse_tir")
    before = next(r.before for r in passes.run(Figure11).passes if r.name == "plan_memory")
    main = before["main"]
    plan = memory_plan_of(main, before)
    (arena,) = plan.arenas
    places = {p.var.name: (p.offset, p.size) for p in arena.placements}
    (workspace,) = [name for name in places if "workspace" in name and name.endswith("_1")]
    assert str(places[workspace][1]) == "n * 256"
    assert str(places["lv0"][1]) == "n * 1024"
    assert places[workspace][0] == places["lv0"][0]  # where `concat`'s result has been read
    exe = rl.compile(Figure11, use_cache=False, pipeline=passes)
    for n in (1, 6, 17):
        agree(Figure11, floats(n, 64), floats(64, 16), exe=exe, rtol=1e-5)


@I.ir_module
class Figure12:
    @T.prim_func
    def scale(A: T.Buffer(("n", 64), "float32"), B: T.Buffer(("n", 64), "float32")):
        n = T.int64()
        for i, j in T.grid(n, 64):
            with T.block("scale"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(0.5)

    @R.function
    def main(
        x: R.Tensor(("n", 128), "float32"),
        w: R.Tensor((128, 64), "float32"),
        b: R.Tensor((64,), "float32"),
    ) -> R.Tensor(("n", 64), "float32"):
        n = T.int64()
        cls = Figure12
        with R.dataflow():
            lv0 = R.matmul(x, w)
            lv1 = R.add(lv0, b)
            lv2 = R.call_tir(cls.scale, (lv1,), out_sinfo=R.Tensor((n, 64), "float32"))
            gv = R.nn.silu(lv2)
            R.output(gv)
        return gv


def test_figure_12_part_of_a_program_goes_to_a_library_the_rest_is_generated() -> None:
    """Lowering is partial: what a registered pattern matches, a product with its bias, becomes a
    call of a library in destination-passing style; operators that are left and the user's loop
    function are generated and fused, in one program, under one memory plan."""
    pipeline = cpu_pipeline().with_options("lower_to_libraries", use=BLAS)
    trace = pipeline.run(Figure12)
    lowered = next(r.after for r in trace.passes if r.name == "lower_to_libraries")
    ops = [c.op.name for c in walk(lowered["main"])
           if isinstance(c, graph.Call) and isinstance(c.op, graph.Op)]  # fmt: skip
    assert ops == ["call_dps_packed", "call_tir", "nn.silu"]
    calls = [c.op for c in walk(trace.result["main"]) if isinstance(c, graph.Call)]
    assert graph.ExternFunc("relaxlab.blas.matmul_bias") in calls
    generated = [op.name for op in calls if isinstance(op, graph.GlobalVar)]
    assert generated == ["fused_scale_silu"]
    main = next(r.before for r in trace.passes if r.name == "plan_memory")
    fn = main["main"]
    (arena,) = memory_plan_of(fn, main).arenas
    assert [str(p.size) for p in arena.placements] == ["n * 256"]  # the library's result
    exe = rl.compile(Figure12, use_cache=False, pipeline=pipeline)
    plain = rl.compile(Figure12, use_cache=False)
    for n in (1, 3, 50):
        args = (floats(n, 128), floats(128, 64), floats(64))
        agree(Figure12, *args, exe=exe, rtol=1e-5)
        agree(Figure12, *args, exe=plain, rtol=1e-5)


@I.ir_module
class Narrow:
    @R.function
    def main(x: R.Tensor(("n", 2, 2), "float32")):
        n = T.int64()
        flat = R.unique(R.flatten(x))
        lv = R.match_cast(flat, R.Tensor((n,), "float32"))
        return R.exp(lv)


def test_figure_3_what_deduction_left_open_is_checked_when_the_program_runs() -> None:
    """`match_cast` asserts a finer type: it is checked, and a failure says which dimension of
    which value, what was expected and what came."""
    exe = rl.compile(Narrow, use_cache=False)
    assert exe["main"](np.ones((1, 2, 2), "float32")).shape == (1,)
    with pytest.raises(CheckFailed, match="dimension 0 of `lv`.* is 8, expected n = 2"):
        exe["main"](np.arange(8, dtype="float32").reshape(2, 2, 2))
