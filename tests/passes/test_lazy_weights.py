"""lazy_get_input, lazy_set_output and rename_functions: interfaces of models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.passes.lazy_get_input import lazy_get_input
from relaxlab.passes.lazy_set_output import lazy_set_output
from relaxlab.passes.lazy_transform_params import lazy_transform_params
from relaxlab.passes.normalize import normalize
from relaxlab.passes.rename_functions import rename_functions
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Layers:
    @R.function
    def main(
        x: R.Tensor(("n", 3), "float32"),
        w: R.Tensor((3, "m"), "float32"),
        b: R.Tensor(("m",), "float32"),
        unread: R.Tensor((2,), "float32"),
    ) -> R.Tuple(R.Tensor(("n", "m"), "float32"), R.Tensor(("m",), "float32")):
        n, m = T.int64(), T.int64()
        R.func_attr({"num_input": 1})
        with R.dataflow():
            start = R.zeros(R.shape([m]), "float32")
            y = R.add(R.matmul(x, w), start)
            R.output(y)
        return (y, b)


def test_weights_are_asked_for_where_they_are_first_read() -> None:
    after = lazy_get_input(normalize(Layers))
    assert not check_well_formed(after)
    main = after.graph_functions()["main"]
    assert [p.name for p in main.params] == ["x", "fget_param"] and main.attrs["num_input"] == 2
    text = after.script()
    places = [text.index(t) for t in ("w_untyped", "R.zeros", "R.matmul", "b_untyped", "return")]
    assert places == sorted(places)  # a symbol of w's shape is needed before w is
    assert "unread" not in text


def test_results_are_handed_out_when_they_are_computed() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), b: R.Tensor((3,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.exp(x)
                z = R.add(y, b)
                R.output(y, z)
            return (z, y, b)

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(
            x: R.Tensor((2, 3), "float32"),
            fset_output: R.Callable((R.Prim("int64"), R.Object), R.Tuple(), False),
            b: R.Tensor((3,), "float32"),
        ) -> R.Tuple():
            R.func_attr({"num_input": 2})
            fset_output(2, b)
            y = R.exp(x)
            fset_output(1, y)
            z = R.add(y, b)
            fset_output(0, z)
            return R.tuple()

    after = lazy_set_output(normalize(Before))
    assert not check_well_formed(after)
    assert_structural_equal(after, normalize(Expected))


def test_functions_get_the_names_that_they_are_to_be_known_by() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def run(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            R.func_attr({"global_symbol": "run"})
            y = Before.run(x)
            return y

    after = rename_functions(Before)
    assert sorted(after) == ["run", "run_1"] and rename_functions(after) is after
    x = np.array([0, 1, 2], "float32")
    np.testing.assert_allclose(rl.interpret(normalize(after), "run", x), np.exp(x), rtol=1e-6)
    main = Before.graph_functions()["main"]
    with pytest.raises(ValueError, match="`main` and `other` are both 'run'"):
        rename_functions(rl.ir.module.Module.of({"main": main, "other": main}))


def test_weights_are_transformed_one_by_one() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main_transform_params(
            params: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((3,), "float32")),
        ):
            a, b = params[0], params[1]
            c = R.permute_dims(a)
            d = R.add(a, b)
            return (c, d, b)

    weights = [np.arange(6, dtype="float32").reshape(2, 3), np.ones(3, "float32")]
    events: list[tuple[str, int]] = []
    results: dict[int, np.ndarray] = {}

    def load(number: int) -> np.ndarray:
        events.append(("load", number))
        return weights[number]

    def store(number: int, value: np.ndarray) -> None:
        events.append(("store", number))
        results[number] = np.array(value)

    rl.register_func("test.load", load)
    rl.register_func("test.store", store)
    options = {"get_item": "test.load", "set_item": "test.store"}
    after = lazy_transform_params.with_options(**options)(normalize(Before))
    assert not check_well_formed(after)
    rl.interpret(after, "main_transform_params")
    wanted = rl.interpret(normalize(Before), "main_transform_params", tuple(weights))
    for number, value in enumerate(wanted):
        np.testing.assert_array_equal(results[number], value)
    assert events == [("load", 0), ("load", 1), ("store", 2), ("store", 0), ("store", 1)]


@pytest.mark.parametrize(
    ("shape", "order"),
    [("2 * m", "w v u"), ("m + 1", "w v u"), ("m * m", "v w u"), ("m * k", "v u w"),
     ("2 * m + k", "v w u")],
)  # fmt: skip
def test_weights_come_after_those_that_determine_their_symbols(shape: str, order: str) -> None:
    mod = normalize(
        rl.parse(f"""
@R.function
def main(
    w: R.Tensor(("{shape}",), "float32"), v: R.Tensor(("m",), "float32"),
    u: R.Tensor(("k",), "float32"),
):
    R.func_attr({{"num_input": 0}})
    with R.dataflow():
        y = R.concat((R.exp(w), v, u), axis=0)
        R.output(y)
    return y
""")
    )
    after = lazy_get_input(mod)
    assert not check_well_formed(after)
    m, k = 3, 2
    sizes = {"w": eval(shape, {"m": m, "k": k}), "v": m, "u": k}
    weights = {name: np.arange(size, dtype="float32") for name, size in sizes.items()}
    asked: list[str] = []

    def get(_: int, name: str) -> np.ndarray[Any, Any]:
        asked.append(name)
        return weights[name]

    want = rl.interpret(mod, "main", *weights.values())
    np.testing.assert_array_equal(rl.interpret(after, "main", get), want)
    assert asked == order.split()
