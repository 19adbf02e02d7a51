"""Options that narrow what a pass changes, or say how."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.passes.combine_parallel_matmul import combine_parallel_matmul
from relaxlab.passes.convert_layout import convert_layout
from relaxlab.passes.convert_to_mixed_precision import convert_to_mixed_precision
from relaxlab.passes.fuse_ops_by_pattern import FusionPattern, fuse_ops_by_pattern
from relaxlab.passes.lift_transform_params import lift_transform_params
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import is_op, wildcard
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import compare_runs


@I.ir_module
class Two:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), w: R.Tensor((2, 2), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            a = R.matmul(x, t)
            b = R.exp(R.matmul(x, w))
            c = R.add(a, R.const([1.0, 2.0], "float32"))
            d = R.add(b, c)
            R.output(d)
        return d

    @R.function
    def other(x: R.Tensor(("n", 2), "float32"), w: R.Tensor((2, 2), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            a = R.matmul(x, t)
            R.output(a)
        return a


Two: Module = normalize(Two)


def test_weights_of_named_functions_alone_are_lifted() -> None:
    after = lift_transform_params.with_options(functions=("other",))(Two)
    assert after["main"] is Two["main"]
    assert "transform_params" in after["other"].attrs


def test_groups_of_named_functions_with_their_constants_and_attributes() -> None:
    pattern = FusionPattern(
        "sum", is_op("add")(wildcard(), wildcard()), attrs=lambda match: {"kind": match.root.name}
    )
    chosen = fuse_ops_by_pattern.with_options(
        patterns=(pattern,), functions=("main",), inside=lambda _: True
    )
    after = chosen(Two)
    assert after["other"] is Two["other"]
    made = [f for name, f in after.graph_functions().items() if name not in Two]
    assert [(f.attrs["kind"], len(f.params)) for f in made] == [("c", 1), ("d", 2)]
    compare_runs(Two, after)
    outside = chosen.with_options(inside=lambda _: False)(Two)
    assert [len(f.params) for n, f in outside.graph_functions().items() if n not in Two] == [2, 2]


@pytest.mark.parametrize("answer", [True, False])
def test_a_check_may_keep_products_apart(answer: bool) -> None:
    seen: list[int] = []

    def check(x: object, weights: list[object], biases: list[object]) -> bool:
        seen.append(len(weights) + 10 * len(biases))
        return answer

    after = combine_parallel_matmul.with_options(check=check)(Two)
    assert seen == [2]
    assert (after is Two) != answer
    compare_runs(Two, after)


def test_parameters_in_half_precision() -> None:
    after = convert_to_mixed_precision.with_options(params=("w",), elementwise=True)(Two)
    assert [str(p.ty.dtype) for p in after["main"].params] == ["float32", "float16"]
    assert "exp(b_half" in after.script() or "R.exp(lv_half" in after.script()
    x, w = np.float32([[0.5, 1]]), np.float32([[0.25, 1], [2, 0.5]])
    wanted = interpret(Two, "main", x, w)
    got = interpret(after, "main", x, w.astype("float16"))
    np.testing.assert_allclose(got, wanted, rtol=2e-3)
    with pytest.raises(ValueError, match="there is no float32 parameter 'v'"):
        convert_to_mixed_precision.with_options(params=("v",))(Two)


@I.ir_module
class Transposed:
    @R.function
    def main(x: R.Tensor((1, 2, 5, "w"), "float32"), k: R.Tensor((2, 3, 3, 3), "float32")):
        with R.dataflow():
            a = R.nn.conv2d_transpose(x, k, strides=2, output_padding=1)
            b = R.nn.relu(a)
            R.output(b)
        return b


def test_transposed_convolutions_in_another_layout() -> None:
    layouts = convert_layout.with_options(kernel=None, transposed_kernel="IHWO")
    after = layouts(normalize(Transposed))
    compare_runs(normalize(Transposed), after)
    assert layouts(after) is after
    assert 'data_layout="NHWC"' in after.script() and 'kernel_layout="IHWO"' in after.script()
    kept = layouts.with_options(converts=lambda _: False)(normalize(Transposed))
    assert rl.structural_equal(kept, normalize(Transposed))
