"""Programs with weights are called with the weights that their authors have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.runtime.native.arguments import ArgumentError

Arrays = dict[str, np.ndarray[Any, Any]]


class Two(nn.Module):
    """Square matrices: packed weights may have the types of the others."""

    def __init__(self, hidden: int = 32) -> None:
        self.up, self.down = nn.Linear(32, hidden), nn.Linear(hidden, 32)

    def main(self, x: Any) -> Any:
        return self.down(self.up(x).op("nn.relu"))

    def half(self, x: Any) -> Any:
        return self.up(x)


def compiled(hidden: int, *methods: str) -> tuple[rl.Executable, list[str]]:
    mod, names = Two(hidden).export({m: {"x": nn.spec.Tensor(("n", 32))} for m in methods})
    return rl.compile(mod), names


def drawn(rng: np.random.Generator, names: list[str], hidden: int) -> Arrays:
    shapes = ((hidden, 32), (32, hidden))
    return {n: rng.normal(size=s).astype("float32") for n, s in zip(names, shapes, strict=True)}


def expected(x: Any, weights: Arrays) -> Any:
    up, down = weights.values()
    return np.maximum(x @ up.T, 0) @ down.T


@pytest.mark.parametrize("hidden", [32, 48])
@pytest.mark.parametrize("methods", [("main",), ("main", "half")])
@pytest.mark.parametrize("form", [dict, lambda w: list(w.values()), lambda w: {
    name.replace(".", "_"): a for name, a in w.items()
}])  # fmt: skip
def test_weights_are_bound_once(
    hidden: int, methods: tuple[str, ...], form: Callable[[Arrays], Any], rng: np.random.Generator
) -> None:
    exe, names = compiled(hidden, *methods)
    weights = drawn(rng, names, hidden)
    x = rng.normal(size=(5, 32)).astype("float32")
    assert exe.load(form(weights)) is exe
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(exe["main"](x), expected(x, weights), **close)
    if "half" in methods:
        np.testing.assert_allclose(exe["half"](x), x @ weights[names[0]].T, **close)
    other = drawn(rng, names, hidden)
    np.testing.assert_allclose(exe.load(other)(x), expected(x, other), **close)


@pytest.mark.parametrize("hidden", [32, 48])
@pytest.mark.parametrize("methods", [("main",), ("main", "half")])
def test_weights_of_a_call_are_those_of_the_program(
    hidden: int, methods: tuple[str, ...], rng: np.random.Generator
) -> None:
    """At each call anew: somebody who trains them changes them in place."""
    exe, names = compiled(hidden, *methods)
    weights = drawn(rng, names, hidden)
    x = rng.normal(size=(3, 32)).astype("float32")
    for factor in (1, 2):
        for w in weights.values():
            w *= factor
        close = {"rtol": 1e-4, "atol": 1e-3}
        got = exe["main"](x, *weights.values())
        np.testing.assert_allclose(got, expected(x, weights), **close)
    transform = next((n for n in exe if n.endswith("transform_params")), None)
    assert transform is not None
    packed = exe[transform](tuple(weights.values()))
    np.testing.assert_allclose(exe["main"](x, *packed), got)


def test_packed_weights_are_recognised_while_they_live(rng: np.random.Generator) -> None:
    """However many others were packed since; those of square matrices look like the others."""
    exe, names = compiled(32, "main")
    drawn_weights = [drawn(rng, names, 32) for _ in range(40)]
    packed = [exe["main_transform_params"](tuple(w.values())) for w in drawn_weights]
    x = rng.normal(size=(3, 32)).astype("float32")
    for weights, held in zip(drawn_weights, packed, strict=True):
        for given in (weights.values(), held, weights.values()):
            got = exe["main"](x, *given)
            np.testing.assert_allclose(got, expected(x, weights), rtol=1e-4, atol=1e-3)


def test_weights_that_do_not_fit_are_named(rng: np.random.Generator) -> None:
    exe, names = compiled(48, "main")
    weights = drawn(rng, names, 48)
    with pytest.raises(ArgumentError, match="weight `down_weight_data` of `main` is missing"):
        exe.load({names[0]: weights[names[0]]})
    with pytest.raises(ArgumentError, match=r"no function has a weight 'extra' \(1 in all\)"):
        exe.load(weights | {"extra": weights[names[0]]})
    with pytest.raises(ArgumentError, match="has 2 weights .*, got 1"):
        exe.load([weights[names[0]]])
    with pytest.raises(ArgumentError, match=r"`up_weight_data` of `main` has shape \(32, 48\)"):
        exe.load(list(weights.values())[::-1])


def test_each_group_of_functions_has_its_own_transformation(rng: np.random.Generator) -> None:
    """Two functions share a weight, two others another one: both transformations would have the
    same name, which a function of the program has, too."""
    functions = "".join(
        f"""
@R.function
def {name}(x: R.Tensor((3, 48), "float32"), {weight}: R.Tensor(({rows}, 48), "float32")):
    R.func_attr({{"num_input": 1}})
    y = R.matmul(R.multiply(x, R.const({factor}, "float32")), R.permute_dims({weight}))
    return y
"""
        for name, weight, rows, factor in (
            ("one", "w", 32, 1.0), ("two", "w", 32, 2.0), ("three", "v", 40, 3.0),
            ("four", "v", 40, 4.0),
        )
    )  # fmt: skip
    own = """
@R.function
def transform_params(x: R.Tensor((3,), "float32")):
    y = R.exp(x)
    return y
"""
    exe = rl.compile(rl.parse(own + functions))
    assert len(set(exe.artifact.transforms.values())) == 2
    w, v = (rng.normal(size=(rows, 48)).astype("float32") for rows in (32, 40))
    x = rng.normal(size=(3, 48)).astype("float32")
    for bound in (False, True):
        for name, factor, weight in (("one", 1, w), ("two", 2, w), ("three", 3, v), ("four", 4, v)):
            got = exe[name](x) if bound else exe[name](x, weight)
            np.testing.assert_allclose(got, factor * x @ weight.T, rtol=1e-4, atol=1e-3)
        exe.load({"w": w, "v": v})
    # Where one function cannot take its weights, the others keep theirs.
    with pytest.raises(ArgumentError, match=r"has shape \(32, 48\)"):
        exe.load({"w": 2 * w, "v": w})
    for name, factor, weight in (("one", 1, w), ("four", 4, v)):
        np.testing.assert_allclose(exe[name](x), factor * x @ weight.T, rtol=1e-4, atol=1e-3)


def test_a_program_without_weights_loads_none() -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = R.exp(x)
    return y
""")
    with pytest.raises(ArgumentError, match="no function of this executable declares weights"):
        rl.compile(mod).load({})


def test_the_packing_function_is_not_the_default_one(rng: np.random.Generator) -> None:
    exe, names = compiled(48, "half")
    assert any("transform_params" in name for name in exe)
    weights = {n: w for n, w in drawn(rng, ["up.weight.data", "down.weight.data"], 48).items()}
    x = rng.normal(size=(2, 32)).astype("float32")
    got = exe(x, *weights.values())
    np.testing.assert_allclose(got, x @ weights["up.weight.data"].T, rtol=1e-4, atol=1e-4)
    assert names == list(weights)


@pytest.mark.parametrize("hidden", [32, 48])
def test_a_function_binds_the_weights_of_the_program(
    hidden: int, rng: np.random.Generator
) -> None:
    """Those of square matrices fit as they are, too, and gave other results then."""
    exe, names = compiled(hidden, "main")
    weights = drawn(rng, names, hidden)
    x = rng.normal(size=(5, 32)).astype("float32")
    main = exe["main"].bind(*weights.values())
    assert main is exe["main"]
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(main(x), expected(x, weights), **close)
    with pytest.raises(ArgumentError, match="packs its 2 weights .* bind all of them"):
        main.bind(weights[names[1]])
    np.testing.assert_allclose(main(x), expected(x, weights), **close)
    np.testing.assert_allclose(main.bind(x, *weights.values())(), expected(x, weights), **close)
    packed = exe["main_transform_params"](tuple(weights.values()))
    np.testing.assert_allclose(main.bind(*packed)(x), expected(x, weights), **close)
    main.bind()
    np.testing.assert_allclose(main(x, *weights.values()), expected(x, weights), **close)


def test_a_weight_that_does_not_fit_is_named(rng: np.random.Generator) -> None:
    exe, names = compiled(48, "main")
    weights = drawn(rng, names, 48)
    weights[names[1]] = weights[names[1]].T.copy()
    x = rng.normal(size=(5, 32)).astype("float32")
    message = rf"the weight `{names[1].replace('.', '_')}` of `main` has shape \(48, 32\)"
    for use in (exe.load, lambda w: exe(x, *w.values()), lambda w: exe["main"].bind(*w.values())):
        with pytest.raises(ArgumentError, match=message):
            use(weights)


def test_constants_of_a_program_without_weights_are_its_own(rng: np.random.Generator) -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    R.func_attr({"num_input": 1})
    return R.matmul(x, R.const([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], "float32"))
""")
    x = rng.normal(size=(3, 4)).astype("float32")
    matrix = np.arange(1.0, 9.0, dtype="float32").reshape(4, 2)
    np.testing.assert_allclose(rl.compile(mod)["main"](x), x @ matrix, rtol=1e-5, atol=1e-5)
