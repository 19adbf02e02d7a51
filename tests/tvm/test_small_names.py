"""Names that programs for TVM use beside its nodes and passes: dtypes, constants in shapes, maps of
numbers, what a tensor expression is computed from, and modules of `nn` that are changed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import relaxlab.tvm as tvm
from relaxlab.tvm import te, tir
from relaxlab.tvm.relax.frontend import nn
from relaxlab.tvm.topi import utils


@pytest.mark.parametrize(
    ("text", "bits", "lanes", "itemsize"),
    [("float16x4", 16, 4, 8), ("int32", 32, 1, 4), ("uint8x16", 8, 16, 16), ("bfloat16", 16, 1, 2)],
)
def test_dtypes(text: str, bits: int, lanes: int, itemsize: int) -> None:
    dtype = tvm.DataType(text)
    assert (dtype.bits, dtype.lanes, dtype.itemsize, dtype) == (bits, lanes, itemsize, text)


def test_tensors_that_statements_fill() -> None:
    a, b = te.placeholder((4, 5), name="A"), te.placeholder((5, 6), name="B")
    c = te.extern((4, 6), [a, b], lambda ins, outs: tir.call_packed("f", *ins, outs[0]), name="C")
    d = te.compute((4, 6), lambda i, j: c[i, j] + 1.0, name="D")
    text = te.create_prim_func([a, b, d]).script()
    assert 'T.call_packed("f", T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(4, 5)' in text
    assert "T.reads(A[0:4, 0:5], B[0:5, 0:6])" in text
    e, f = te.extern(
        [(4,), 3], [a],
        lambda ins, outs: tir.call_extern("int32", "g", ins[0].data, *(o.data for o in outs)),
        dtype=["float32", "int8"],
    )  # fmt: skip
    assert (e.dtype, f.dtype, f.shape) == ("float32", "int8", (tir.const(3, "int64"),))
    assert 'T.call_extern("int32", "g", A.data, ' in te.create_prim_func([a, e, f]).script()
    mixed = [a, te.placeholder((4,), "int8")]
    with pytest.raises(ValueError, match="inputs of several dtypes states its own"):
        te.extern((4,), mixed, lambda ins, outs: tir.call_packed("f", outs[0]))


def test_constants_in_shapes() -> None:
    a = te.placeholder((3, 4), name="A")
    n = te.var("n")
    assert utils.get_const_tuple(a.shape) == (3, 4)
    assert utils.get_const_tuple((n, a.shape[0])) == (n, 3)
    assert utils.get_const_int(a.shape[0] * a.shape[1]) == 12
    assert utils.get_const_float(tir.const(1.5, "float32")) == 1.5
    assert utils.prod((2, 3)) == 6
    assert utils.is_empty_shape((2, 0))
    assert utils.is_dynamic_shape((2, n))
    assert utils.equal_const_int(utils.ceil_div(a.shape[1], 3), 2)
    with pytest.raises(ValueError, match="expected a constant integer, got n"):
        utils.get_const_int(n)
    with pytest.raises(ValueError, match="expected a constant of floating point, got 3"):
        utils.get_const_float(a.shape[0])


def test_operations_of_tensors() -> None:
    a = te.placeholder((8, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((8,), lambda i: b[i] + a[i, 0], name="C")
    assert [t.op.name for t in c.op.input_tensors] == ["B", "A"]
    assert (len(b.op.axis), len(b.op.reduce_axis), len(c.op.reduce_axis)) == (1, 1, 0)


def test_axes_of_threads() -> None:
    plain, long = te.thread_axis("threadIdx.x"), te.thread_axis((0, 32), "threadIdx.y", "ty")
    assert (plain.thread_tag, plain.dom, plain.var.name) == ("threadIdx.x", None, "threadIdx.x")
    assert (long.thread_tag, long.dom, long.var.name) == ("threadIdx.y", (0, 32), "ty")
    with pytest.raises(ValueError, match="has a tag"):
        te.thread_axis((0, 4))


def test_index_maps_of_numbers() -> None:
    index_map = tir.IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    numbers = [tir.const(5, "int32"), 3]
    assert list(map(int, index_map.map_indices(numbers))) == [1, 3, 1]
    assert list(map(int, index_map.map_shape([16, 8]))) == [4, 8, 4]
    assert list(map(int, index_map.inverse([16, 8]).map_indices([1, 3, 1]))) == [5, 3]


def test_operators_by_their_files() -> None:
    from relaxlab.tvm import relax, topi

    for name, home in (("op.base", "call_tir"), ("op.manipulate", "reshape"), ("op.set", "unique")):
        assert hasattr(import_module(f"relaxlab.tvm.relax.{name}"), home)
    assert import_module("relaxlab.tvm.relax.op.binary") is relax.op
    assert import_module("relaxlab.tvm.topi.transform") is topi
    to_expr = import_module("relaxlab.tvm.relax.utils").convert_to_expr
    assert to_expr("text").value == "text"


def test_functions_with_another_body() -> None:
    @tvm.script.tir.prim_func
    def add_one(A: tvm.script.tir.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = ~A[i]

    func: Any = add_one
    assert [b.name for b in func.buffer_map.values()] == ["A"]
    assert func.with_body(tir.Evaluate(tir.const(0))).script().count("evaluate") == 1
    assert (~tir.Var("x", "int32")).dtype == "int32"


class _Pair(nn.Module):
    def __init__(self) -> None:
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)


class _Nested(nn.Module):
    def __init__(self) -> None:
        self.pairs = nn.ModuleList([_Pair(), nn.Linear(2, 2)])
        self.pair = _Pair()
        self.named = nn.ModuleDict({"x": nn.Linear(3, 3)})


class _WithoutBias(nn.Mutator):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_module(self, name: str, node: Any) -> Any:
        self.seen.append(name)
        if isinstance(node, nn.Linear):
            return nn.Linear(node.in_features, node.out_features, bias=False)
        return self.visit(name, node)


def test_modules_are_replaced_by_name() -> None:
    mutator = _WithoutBias()
    module = mutator.visit("", _Nested())
    assert mutator.seen == [
        "pairs.0", "pairs.0.a", "pairs.0.b", "pairs.1", "pair", "pair.a", "pair.b", "named.x",
    ]  # fmt: skip
    assert not any(name.endswith("bias") for name in module.state_dict())
    assert mutator.visit("m", module) is module
    assert mutator.seen[8] == "m.pairs.0"


def test_classes_of_errors() -> None:
    from relaxlab.tvm import error

    for name in ("OpNotImplemented", "OpAttributeRequired", "OpAttributeInvalid"):
        assert issubclass(getattr(error, name), error.OpError)
    assert issubclass(error.OpError, tvm.TVMError)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("llvm -num-cores 4 -mcpu=znver4", {"num-cores": 4, "mcpu": "znver4"}),
        ("llvm --num-cores=4", {"num-cores": 4}),
        ("cuda -arch sm_80 -libs", {"arch": "sm_80", "libs": True}),
    ],
)
def test_options_of_targets(text: str, options: dict[str, Any]) -> None:
    assert tvm.target.Target(text).attrs == options


def test_facts_of_targets() -> None:
    gpu, cpu = tvm.target.Target("nvidia/geforce-rtx-3080"), tvm.target.Target("llvm")
    assert (gpu.arch, gpu.max_num_threads, gpu.thread_warp_size) == ("sm_86", 1024, 32)
    assert gpu.max_shared_memory_per_block == 49152 and gpu.keys == ("cuda", "gpu")
    assert cpu.keys == ("cpu",) and cpu.mcpu is None
    assert tvm.target.Target("cuda -max_num_threads=256").max_num_threads == 256
    with pytest.raises(ValueError, match="did you mean 'nvidia/geforce-rtx-3090'.*known: llvm, c"):
        tvm.target.Target("nvidia/geforce-rtx-3091")
    with pytest.raises(ValueError, match="an option of a target begins with '-'; 'x' does not"):
        tvm.target.Target("llvm x")
