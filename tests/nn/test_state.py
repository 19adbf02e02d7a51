"""Values of parameters, small layers and operators on tensors: as in PyTorch, and as in NumPy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(12, 5, bias=True),
    "embedding": lambda: nn.Embedding(7, 4),
    "layer_norm": lambda: nn.LayerNorm(9),
    "conv2d": lambda: nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 2), groups=2),
    "conv2d_plain": lambda: nn.Conv2d(3, 5, 3, dilation=2, bias=False),
    "sequential": lambda: nn.Sequential(
        nn.Linear(8, 16, bias=True), nn.GELU(), nn.Linear(16, 16, bias=True), nn.SiLU(),
        nn.LayerNorm(16), nn.Linear(16, 4, bias=True), nn.ReLU(), nn.GELU("tanh"),
    ),
}  # fmt: skip


class Of(nn.Module):
    """A model of one function."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute = compute

    def main(self, *args: Any) -> Any:
        return self.compute(*args)


class Whole(nn.Module):
    """A layer as a model, without a name of its own in the paths."""

    def __init__(self, layer: nn.Module) -> None:
        vars(self).update(vars(layer))
        self.main = layer.forward


@pytest.fixture(scope="module")
def torch_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip("needs .venv-reference")
    path = tmp_path_factory.mktemp("torch") / "networks.npz"
    script = Path(__file__).with_name("torch_networks.py")
    seed = int(np.random.default_rng().integers(1 << 30))
    print("seed of PyTorch", seed)
    subprocess.run([PYTHON, script, path, str(seed)], check=True, capture_output=True)
    with np.load(path) as found:
        return dict(found)


@pytest.mark.parametrize("name", LAYERS)
def test_states_of_pytorch(name: str, torch_answers: dict[str, Any]) -> None:
    """Names, layouts and meanings are the same."""
    prefix = f"{name}/state/"
    state = {k.removeprefix(prefix): v for k, v in torch_answers.items() if k.startswith(prefix)}
    x, y = torch_answers[f"{name}/x"], torch_answers[f"{name}/y"]
    layer = LAYERS[name]()
    assert {k: v.shape for k, v in layer.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }
    layer.load_state_dict(state)
    for key, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, state[key])
    if name == "embedding":
        x = x.astype("int32")
    shape = ("n", *x.shape[1:])
    model = Whole(layer)
    mod, _ = model.export({"main": {"x": nn.spec.Tensor(shape, str(x.dtype))}})
    got = rl.compile(mod).load(state)(x)
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-5)


def test_initial_values_are_those_of_their_layers() -> None:
    model = nn.Sequential(
        nn.Linear(100, 400, bias=True), nn.Embedding(200, 100), nn.LayerNorm(8),
        nn.Conv2d(4, 50, 5), nn.Conv1d(4, 50, 25),
    )  # fmt: skip
    state = model.state_dict(seed=3)
    for name, bound in (("0.weight", 0.1), ("0.bias", 0.1), ("3.weight", 0.1), ("4.weight", 0.1)):
        values = state[name]
        assert np.abs(values).max() <= bound
        assert abs(values.std() - bound / np.sqrt(3)) < 0.1 * bound and values.dtype == np.float32
    assert abs(state["1.weight"].std() - 1) < 0.05
    assert (state["2.weight"] == 1).all() and (state["2.bias"] == 0).all()
    again, other = model.state_dict(seed=3), model.state_dict(seed=4)
    assert all((again[k] == v).all() for k, v in state.items())
    assert not np.array_equal(other["0.weight"], state["0.weight"])
    assert not np.array_equal(state["0.weight"][:50, :50], state["1.weight"][:50, :50])


def test_states_that_do_not_fit_change_nothing() -> None:
    layer = nn.Linear(3, 2, bias=True)
    state = layer.state_dict()
    for wrong, error, message in (
        ({"weight": state["weight"]}, KeyError, r"misses 'bias' \(1 in all\)"),
        (state | {"scale": state["bias"]}, KeyError, r"has the unknown 'scale' \(1 in all\)"),
        (state | {"weight": np.ones((3, 2))}, ValueError, r"shape \(3, 2\), expected \(2, 3\)"),
    ):
        with pytest.raises(error, match=message):
            layer.load_state_dict(wrong)
        np.testing.assert_array_equal(layer.state_dict()["weight"], state["weight"])
    with pytest.raises(ValueError, match="'weight.*' has no initial values"):
        nn.Linear(32, 4, format="Q8_0").state_dict()


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / (y * y + 1),
        lambda x, y: 2 - x, lambda x, y: 1.5 + x, lambda x, y: 3 * x, lambda x, y: 1 / (x * x + 1),
        lambda x, y: -x, lambda x, y: x**2,
        lambda x, y: x[1], lambda x, y: x[:, 1:3], lambda x, y: x[..., -1], lambda x, y: x[:, -2],
        lambda x, y: x[None, :, ::2], lambda x, y: x[:, 0, None], lambda x, y: x[1:, 2:-1, ...],
        lambda x, y: np.arange(5, dtype="float32") + x,
        lambda x, y: x // 2 + x % y, lambda x, y: 2 % y + 3 // y, lambda x, y: 2**x,
        lambda x, y: abs(x) ** abs(y), lambda x, y: (x > 0) & (y > 0) | ~(x < y) ^ (y < 0),
        lambda x, y: (x == x) & (x != y), lambda x, y: np.ones((3, 4), "float32") @ x,
        lambda x, y: x.shape[0] * x, lambda x, y: x * x.shape[0] - x.shape[0] // 2 / y,
        lambda x, y: x.shape[0] - x + (x.shape[0] + x.shape[1]), lambda x, y: x.shape[0] > 3 * x,
        lambda x, y: x[: x.shape[0] // 2], lambda x, y: x[x.shape[0] - 1, :, : x.shape[1] // 2],
        lambda x, y: x[:, x.shape[0] - 1 :], lambda x, y: x.ndim * x,
        lambda x, y: x.reshape((x.shape[0] * 4, 5)),
    ],
)  # fmt: skip
def test_operators_on_tensors(compute: Callable[[Any, Any], Any], rng: np.random.Generator) -> None:
    """The same function of tensors that are built and of arrays."""
    model = Of(compute)
    mod, _ = model.export({"main": {n: nn.spec.Tensor(("n", 4, 5)) for n in "xy"}})
    x, y = (rng.normal(size=(3, 4, 5)).astype("float32") for _ in "xy")
    got = rl.compile(mod)(x, y)
    assert got.shape == compute(x, y).shape
    np.testing.assert_allclose(got, compute(x, y), rtol=1e-5, atol=1e-6)


def test_each_operator_is_a_method(rng: np.random.Generator) -> None:
    def compute(x: Any) -> Any:
        return x.relu().sum(axis=0) @ x.permute_dims((1, 0)).exp().softmax(axis=-1)

    mod, _ = Of(compute).export({"main": {"x": nn.spec.Tensor((4, 5))}})
    x = rng.uniform(-2, 2, (4, 5)).astype("float32")  # its exponential's is still a float32
    e = np.exp(np.exp(x.T))
    want = np.maximum(x, 0).sum(0) @ (e / e.sum(-1, keepdims=True))
    np.testing.assert_allclose(rl.compile(mod)(x), want, rtol=1e-4, atol=1e-5)


def test_operators_of_several_tensors_and_results(rng: np.random.Generator) -> None:
    def compute(x: Any) -> Any:
        left, right = x.split(2, axis=1)
        return nn.op("concat", [right, left * len(x)], axis=1)

    mod, _ = Of(compute).export({"main": {"x": nn.spec.Tensor((3, 4))}})
    x = rng.normal(size=(3, 4)).astype("float32")
    want = np.concatenate([x[:, 2:], x[:, :2] * 3], axis=1)
    np.testing.assert_allclose(rl.compile(mod)(x), want, rtol=1e-6)
    with pytest.raises(TypeError, match=r"nn.op\('exp', …\) has no tensor of the model"):
        nn.op("exp", np.zeros(3))


@pytest.mark.parametrize(
    ("compute", "error", "message"),
    [
        (lambda x: x.rellu(), AttributeError, "no attribute or operator 'rellu'"),
        (lambda x: x[1, 2, 3], IndexError, "3 indices for a tensor of 2 dimensions"),
        (lambda x: x[:, 7], IndexError, "index 7 is out of range for a dimension of 5"),
        (lambda x: x[::-1], IndexError, r"a step of -1: .*x.flip\(axis"),
        (lambda x: x["a"], TypeError, "not 'a'"),
        (lambda x: x[x > 0], TypeError, "not <greater: .*condition.where"),
        (lambda x: x[:: x.shape[0]], TypeError, "a step of n: it has to be a number"),
        (lambda x: len(x), TypeError, r"that of this tensor is n: `x.shape\[0\]` is its symbol"),
        (lambda x: x + None, TypeError, "operand"),
        (lambda x: x.op("split", 1, axis=0), TypeError, r"split has a tuple of .*nn.op\('split'"),
        (lambda x: x.shape[0] * "a", TypeError, "of type 'Var'"),
    ],
)
def test_tensors_refuse_wrong_operands(
    compute: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Of(compute).export({"main": {"x": nn.spec.Tensor(("n", 5))}})
