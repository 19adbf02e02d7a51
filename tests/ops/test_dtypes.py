"""Every operator with every data type: which it takes is a table here, and each of those it takes
is tried.

One use of each operator, with the type of its main argument exchanged. All are interpreted and
compared with NumPy; one type per operator, drawn at random, runs as machine code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import is_float, is_uint
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import TypeDeductionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase, T, check_op, compare, concrete_call

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTS, "bool")

# Which types an operator takes, by operator, and why not the others.
TAKES: dict[tuple[str, ...], str] = {
    # Everything is moved, compared or counted alike. Scans add bools up in the type they are given.
    (*FLOATS, *INTS, "bool"): """
        argmax argmin argsort astype broadcast_to ccl.allgather ccl.allreduce
        ccl.broadcast_from_worker0 ccl.scatter_from_worker0 concat cumprod cumsum
        dist.redistribute_replica_to_shard equal expand_dims eye_like flatten flip full full_like
        gather_elements gather_nd grad.end_checkpoint grad.no_grad grad.start_checkpoint greater
        greater_equal index_put index_tensor layout_transform less less_equal masked_fill meshgrid
        nn.batch_flatten nn.pad nn.pixel_shuffle not_equal one_hot ones_like outer permute_dims
        repeat reshape reverse_sequence scatter_elements scatter_nd size slice_scatter sort split
        squeeze stack strided_slice take tile topk tril triu where wrap_param zeros_like""",
    # Arithmetic: a bool is no number, convert it with astype. (What is dequantized are integers,
    # by scales that are floats. Averages of integers in pools are rounded, as Relax has them.)
    (*FLOATS, *INTS): """
        abs add bucketize ceil clip collapse_sum_like collapse_sum_to cummax cummin dequantize
        divide einsum ewise_fma floor floor_divide floor_mod
        image.resize2d image.resize3d linear matmul max maximum median min
        minimum mod multiply negative nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d
        nn.adaptive_avg_pool3d
        nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.conv1d nn.conv1d_transpose nn.conv2d
        nn.conv2d_transpose nn.conv3d
        nn.conv3d_transpose nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.relu nn.relu6 prod
        reduce_window round sign square subtract sum trunc""",
    # The result lies between integers, or is about NaN and infinity, which integers do not have.
    # A power of integers is none where the exponent is negative.
    FLOATS: """
        acos acosh asin asinh atan atan2 atanh cbrt cos cosh cumlogsumexp digamma erf erfc erfinv
        exp exp2 expm1 grad.avg_pool2d_backward grad.reduce_window_max_backward lgamma
        grad.max_pool2d_backward grad.nll_loss_backward grad.take_backward isfinite isinf isnan
        image.affine_grid image.grid_sample log log10 log1p log2 log_add_exp mean
        multinomial_from_uniform nn.attention nn.attention_bias nn.attention_within nn.batch_norm
        nn.cross_entropy_with_logits nn.dropout nn.gelu nn.gelu_tanh nn.group_norm nn.instance_norm
        nn.layer_norm nn.leakyrelu nn.log_softmax nn.nll_loss nn.prelu nn.rms_norm nn.rope
        nn.segment_reduce nn.segment_softmax nn.selu nn.silu nn.softmax nn.softplus power quantize
        renormalize_top_p_top_k rsqrt sigmoid sin sinh softmax_with_temperature sqrt std tan tanh
        variance vision.multibox_transform_loc vision.roi_align vision.roi_pool""",
    # The bits of a float are not its value.
    (*INTS, "bool"): "bitwise_and bitwise_not bitwise_or bitwise_xor",
    INTS: "left_shift popcount right_shift",
    # Positions.
    ("int32", "int64"): "nn.key_ranges",
    # Bits stay bits of as many.
    ("float32", "int32", "uint32"): "bitcast",
    # Numbers are compared with 0 first.
    # Formats of files say of which type each field is: the first is a scale, or bytes.
    ("float16", "uint8"): "decode_blocks",
    # Activations and their scales are float32.
    ("float32",): "dynamic_quantize quantized_linear",
    ("bool",): "logical_and logical_not logical_or logical_xor",
}
NO_ARGUMENT = "zeros ones arange eye hamming_window"
"""These make tensors of a stated type; their own cases have several."""


def tensors(arg: Any) -> Iterator[T]:
    """The tensors among the arguments."""
    if isinstance(arg, tuple):
        for a in arg:  # type: ignore[reportUnknownVariableType]
            yield from tensors(a)
    elif isinstance(arg, T):
        yield arg


def in_dtype(arg: Any, old: str, dtype: str) -> Any:
    """An argument with its tensors of type `old` in another one; integers have whole bounds."""
    if isinstance(arg, tuple):
        return tuple(in_dtype(a, old, dtype) for a in arg)  # type: ignore[reportUnknownVariableType]
    if not isinstance(arg, T) or arg.dtype != old:
        return arg
    if is_float(dtype):
        return T(*arg.shape, dtype=dtype, low=arg.low, high=arg.high, values=arg.values)
    low = max(np.ceil(arg.low), 0) if is_uint(dtype) else np.ceil(arg.low)
    values = None if arg.values is None else np.asarray(arg.values)
    if values is not None:  # boundaries stay in order
        values = np.maximum(np.ceil(values), low) if np.isfinite(values).all() else None
    return T(*arg.shape, dtype=dtype, low=low, high=max(np.floor(arg.high), low), values=values)


def taken(case: OpCase, dtype: str) -> OpCase | None:
    """The case with its main type, float32 if there is one, exchanged; None if that is refused."""
    dtypes = [t.dtype for t in tensors(case.args)]
    old = "float32" if "float32" in dtypes else dtypes[0]
    args = in_dtype(case.args, old, dtype)
    other = replace(case, args=args, sizes=case.sizes[:1])
    try:
        CaseProgram(other, other.sizes[0], symbolic=True)
    except TypeDeductionError:
        return None
    return other


@cache
def accepted(dtype: str) -> dict[str, OpCase]:
    """A case of each operator that takes the type."""
    found: dict[str, OpCase] = {}
    for case in (c for family in FAMILIES.values() for c in family()):
        if case.op not in found and list(tensors(case.args)):
            other = taken(case, dtype)
            if other is not None:
                found[case.op] = other
    return found


def test_the_types_that_operators_take() -> None:
    """No cell is a hole by accident: what is refused is refused by the table."""
    cells: dict[str, list[str]] = {}
    for dtype in DTYPES:
        for op in accepted(dtype):
            cells.setdefault(op, []).append(dtype)
    stated = {op: set(types) for types, ops in TAKES.items() for op in ops.split()}
    for op in {*cells, *stated}:
        assert set(cells.get(op, ())) == stated.get(op), op
    every = {c.op for family in FAMILIES.values() for c in family()}
    assert every == {*stated, *NO_ARGUMENT.split()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_interpreted(dtype: str) -> None:
    seed = random.getrandbits(64)
    cases = accepted(dtype).values()
    assert len(cases) > 20
    for case in cases:
        check_op(case, case.sizes[0], symbolic=True, run=interpret_prim_func, seed=seed)


def test_native() -> None:
    seed = random.getrandbits(64)
    rng = np.random.default_rng(seed)
    by_op: dict[str, list[OpCase]] = {}
    for dtype in DTYPES:
        for case in accepted(dtype).values():
            by_op.setdefault(case.op, []).append(case)
    drawn = [cases[rng.integers(len(cases))] for cases in by_op.values()]
    programs = {f"f{i}": CaseProgram(c, c.sizes[0], symbolic=True) for i, c in enumerate(drawn)}
    mod = Module.of({name: p.function() for name, p in programs.items()})
    exe = rl.compile(mod, use_cache=False, threads=1)
    for name, case in zip(programs, drawn, strict=True):
        arrays, expected = concrete_call(case, case.sizes[0], seed)
        got = exe[name](*arrays, tuple(case.sizes[0].values()))
        results = got if isinstance(got, tuple | list) else (got,)
        for result, want in zip(results, expected, strict=True):
            compare(np.asarray(result), want, f"{case}, seed={seed}")
