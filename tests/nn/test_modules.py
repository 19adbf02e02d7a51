"""Modules: exported functions against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from relaxlab import nn
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.quant_formats import FORMAT_BY_NAME
from relaxlab.nn.attention import HeadNorm, Heads
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import parse, print_module


class Network(nn.Module):
    """One layer, and a method that applies it."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def main(self, x):
        return self.layer(x)


def export(layer, shape, dtype="float32"):
    mod, names = Network(layer).export({"main": {"x": nn.spec.Tensor(shape, dtype)}})
    assert not check_well_formed(mod)
    assert_structural_equal(parse(print_module(mod)), mod)
    return mod, names


def stored(format, values):
    """Fields of a matrix in a storage format, by name; the values they stand for."""
    row = FORMAT_BY_NAME[format]
    raw = row.quantise(values)
    return row.split_fields(raw, values.shape), row.dequantise(raw, values.shape)


def arrays_for(names, fields):
    """The arrays by the last part of their names, which the fields have, too."""
    return [fields[name.rpartition(".")[2]] for name in names]


@pytest.mark.parametrize("format", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_linear_and_embedding(rng, format):
    fields, w = stored(format, rng.normal(size=(6, 64)).astype(np.float32))
    mod, names = export(nn.Linear(64, 6, format=format), ("n", 64))
    x = rng.normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_allclose(
        interpret(mod, "main", x, *arrays_for(names, fields)), x @ w.T, rtol=1e-4, atol=1e-4
    )
    mod, names = export(nn.Embedding(6, 64, format=format), ("n",), "int32")
    ids = np.array([5, 0, 5], np.int32)
    np.testing.assert_allclose(
        interpret(mod, "main", ids, *arrays_for(names, fields)), w[ids], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("activations", "tolerance"), [("q8", 0.02), ("q16", 2e-4), ("bfloat16", 0.01)]
)
def test_quantised_activations(rng, activations, tolerance):
    fields, w = stored("Q4_1", rng.normal(size=(6, 64)).astype(np.float32))
    layer = nn.Linear(64, 6, format="Q4_1", precision=nn.Precision(activations, activations))
    mod, names = export(layer, ("n", 64))
    x = rng.normal(size=(3, 64)).astype(np.float32)
    y = interpret(mod, "main", x, *arrays_for(names, fields))
    want = x @ w.T
    assert np.abs(y - want).max() <= tolerance * np.abs(want).max()


def test_plain_weights_ignore_quantised_activations():
    plain, _ = export(nn.Linear(8, 4, precision=nn.Precision("q8", "q8")), ("n", 8))
    assert_structural_equal(plain, export(nn.Linear(8, 4), ("n", 8))[0])


@pytest.mark.parametrize("format", ["F32", "F16", "BF16"])
def test_activations_are_rounded_for_plain_bfloat16_weights_alone(rng, format):
    fields, w = stored(format, rng.normal(size=(6, 64)).astype(np.float32))
    layer = nn.Linear(64, 6, format=format, precision=nn.Precision("q8", "q8", plain="bfloat16"))
    mod, names = export(layer, ("n", 64))
    x = rng.normal(size=(3, 64)).astype(np.float32)
    used = x.astype(ml_dtypes.bfloat16).astype(np.float32) if format == "BF16" else x
    y = interpret(mod, "main", x, *arrays_for(names, fields))
    np.testing.assert_allclose(y, used @ w.T, rtol=1e-5, atol=1e-5)


def test_biases_are_added_whatever_the_precision(rng):
    x, bias = rng.normal(size=(3, 64)).astype(np.float32), np.arange(6, dtype=np.float32)
    fields, w = stored("Q8_0", rng.normal(size=(6, 64)).astype(np.float32))
    for precision in (nn.FLOAT32, nn.Precision("q16", "q16")):
        layer = nn.Linear(64, 6, format="Q8_0", precision=precision, bias=True)
        mod, names = export(layer, ("n", 64))
        y = interpret(mod, "main", x, *arrays_for(names, {**fields, "bias": bias}))
        np.testing.assert_allclose(y, x @ w.T + bias, rtol=1e-2, atol=1e-2)
    merged = nn.MergedLinear(64, {"a": 2, "b": 4}, {"a": "F32", "b": "Q8_0"}, bias=True)
    shapes = {n: p.shape for n, p in merged.named_parameters().items() if n.endswith("bias")}
    assert shapes == {"linears.0.bias": (2,), "linears.1.bias": (4,)}


def test_a_precision_for_few_rows_needs_a_bound_on_their_number():
    precision = nn.Precision("q8", "float32", "q16")
    assert [precision.of(n) for n in (1, 2, 32, 33, None)] == [
        "q8", "q16", "q16", "float32", "float32",
    ]  # fmt: skip
    assert nn.Precision("q8", "float32").of(2) == "float32"
    layer = nn.Linear(64, 6, format="Q4_1", precision=precision)
    x = nn.spec.Tensor(("n", 64))
    for bound, used in ((None, False), (33, False), (32, True), (8, True)):
        bounds = None if bound is None else {"n": bound}
        module, _ = layer.export({"forward": {"x": x}}, bounds)
        assert ("R.quantized_linear" in module.script()) == used


def test_methods_may_return_several_tensors(rng):
    class Both(nn.Module):
        def main(self, x):
            return [x + x, x.op("nn.relu")]

    mod, _ = Both().export({"main": {"x": nn.spec.Tensor(("n", 3))}})
    assert not check_well_formed(mod)
    assert_structural_equal(parse(print_module(mod)), mod)
    x = rng.normal(size=(4, 3)).astype(np.float32)
    twice, positive = interpret(mod, "main", x)
    np.testing.assert_array_equal(twice, 2 * x)
    np.testing.assert_array_equal(positive, np.maximum(x, 0))


def test_norms(rng):
    x = rng.normal(size=(3, 16)).astype(np.float32)
    weight, bias = rng.normal(size=(2, 16)).astype(np.float32)
    mod, names = export(nn.RMSNorm(16, 1e-3), ("n", 16))
    assert names == ["layer.weight"]
    want = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * weight
    np.testing.assert_allclose(interpret(mod, "main", x, weight), want, rtol=1e-5, atol=1e-6)
    mod, names = export(nn.LayerNorm(16, 1e-3), ("n", 16))
    assert names == ["layer.weight", "layer.bias"]
    centred = x - x.mean(-1, keepdims=True)
    want = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * weight + bias
    np.testing.assert_allclose(interpret(mod, "main", x, weight, bias), want, rtol=1e-4, atol=1e-5)


def test_norms_of_some_heads(rng):
    class Some(nn.Module):
        def __init__(self):
            self.norm = HeadNorm(8, 1e-2)

        def main(self, x):
            return self.norm(Heads(x, 1, 2)).tensor

    mod, _ = Some().export({"main": {"x": nn.spec.Tensor(("b", "s", 5, 8))}})
    x, weight = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 5, 8), (8,)))
    part = x[:, :, 1:3]
    want = part / np.sqrt((part * part).mean(-1, keepdims=True) + 1e-2) * weight
    np.testing.assert_allclose(interpret(mod, "main", x, weight), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("formats", [("Q4_0", "Q4_0"), ("Q4_0", "Q8_0"), ("F32", "F32")])
def test_gated_mlp_merged_or_not(rng, formats):
    kinds = dict(zip(("gate", "up"), formats, strict=True))
    merged = nn.MergedLinear(32, {"gate": 64, "up": 64}, kinds)
    assert len(merged.groups) == len(set(formats))
    mod, names = export(nn.GatedMLP(merged, nn.Linear(64, 32)), ("n", 32))
    gate, up = (stored(f, rng.normal(size=(64, 32)).astype(np.float32)) for f in formats)
    down = rng.normal(size=(32, 64)).astype(np.float32)
    if len(merged.groups) == 1:
        first = {k: np.concatenate([gate[0][k], up[0][k]]) for k in gate[0]}
        arrays = list(first.values())
        order = [n.rpartition(".")[2] for n in names[:-1]]
        arrays = [first[n] for n in order]
    else:
        per_group = {"0": gate[0], "1": up[0]}
        arrays = [per_group[n.split(".")[3]][n.rpartition(".")[2]] for n in names[:-1]]
    assert names[-1] == "layer.down.weight.data"
    x = rng.normal(size=(3, 32)).astype(np.float32)
    g, u = x @ gate[1].T, x @ up[1].T
    want = (g / (1 + np.exp(-g)) * u) @ down.T
    np.testing.assert_allclose(interpret(mod, "main", x, *arrays, down), want, rtol=1e-3, atol=1e-2)


class Deep(nn.Module):
    """Layers in a list, two of which share a weight."""

    def __init__(self, count: int) -> None:
        q8 = nn.Precision("q8", "q8")
        layers = [nn.Linear(32, 32, format="Q8_0", precision=q8) for _ in range(count)]
        self.layers = nn.ModuleList(layers)
        self.tied = nn.Linear(32, 32, weight=self.layers[0].weight, precision=q8)

    def main(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.tied(x)


def test_shared_weights_occur_once():
    mod, names = Deep(5).export({"main": {"x": nn.spec.Tensor(("n", 32))}})
    assert list(mod) == ["main"]
    assert names == [f"layers.{i}.weight.{field}" for i in range(5) for field in ("d", "qs")]
    assert mod["main"].attrs["num_input"] == 1


def test_methods_have_the_same_weights_and_their_own_symbols():
    class Two(nn.Module):
        def __init__(self):
            self.norm = nn.RMSNorm(4)

        def first(self, x):
            return self.norm(x)

        def second(self, parts, shape):
            assert len(shape) == 1
            return self.norm(parts[0] + parts[1])

    spec = nn.spec.Tensor(("n", 4))
    mod, names = Two().export(
        {"first": {"x": spec}, "second": {"parts": [spec, spec], "shape": nn.spec.Shape(("p",))}},
        {"n": 16},
    )
    assert not check_well_formed(mod)
    first, second = mod["first"], mod["second"]
    assert [p.name for p in first.params] == ["x", "norm_weight"]
    assert [p.name for p in second.params] == ["parts_0", "parts_1", "shape", "norm_weight"]
    assert (first.attrs["num_input"], second.attrs["num_input"]) == (1, 3)
    assert dict(first.attrs["tir_var_upper_bound"]) == {"n": 16}
    assert first.params[0].ty.shape[0] is not second.params[0].ty.shape[0]
    assert second.params[0].ty.shape[0] is second.params[1].ty.shape[0]
    assert names == ["norm.weight"]
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(interpret(mod, "second", x, x, (7,), x[0]), x, rtol=1e-5)


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="unknown weight format 'Q9_9'; known: F32"):
        nn.Linear(32, 4, format="Q9_9")
    with pytest.raises(ValueError, match="33 columns do not fill the blocks of 32 of Q8_0"):
        nn.Linear(33, 4, format="Q8_0")
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(1)


class Calls(nn.Module):
    """A module whose `forward` is a function of its argument."""

    def __init__(self, compute):
        self.compute = compute

    def forward(self, x):
        return self.compute(x)


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda x: x if x else -x, "a tensor has no truth value while its program is built"),
        (lambda x: [row for row in x], "a tensor cannot be iterated over"),
        (lambda x: None, "a method returns a tensor, or a sequence of tensors, not None"),
        (lambda x: [x, 1], "a method returns a tensor, or a sequence of tensors, not a list"),
    ],
)
def test_methods_that_build_no_function(compute, message):
    with pytest.raises(TypeError, match=message):
        Calls(compute).export({"forward": {"x": nn.spec.Tensor(("n", 4), "float32")}})


def test_modules_that_cannot_be():
    with pytest.raises(ValueError, match="cannot have -1 as a dimension"):
        nn.Linear(-1, 4)
    with pytest.raises(ValueError, match=r"cannot have 2\.5 as a dimension"):
        nn.Linear(2.5, 4)
    with pytest.raises(TypeError, match="3 is an int, not a module"):
        nn.Sequential(nn.Linear(8, 4), 3)
    with pytest.raises(TypeError, match="a state is a dictionary of arrays by name, not a list"):
        nn.Linear(8, 4).load_state_dict([1])
    outer = nn.ModuleList([nn.ModuleList([])])
    outer[0].back = outer
    with pytest.raises(ValueError, match="the ModuleList at '0.back' contains itself"):
        outer.state_dict()


@pytest.mark.parametrize("axes", [(0, 2, 1), ((2, 0, 1),), ([1, 0, 2],), ()])
def test_dimensions_are_permuted_by_numbers_or_by_a_list(axes, rng):
    class Permuted(nn.Module):
        def main(self, x):
            return x.permute_dims(*axes)

    mod, _ = Permuted().export({"main": {"x": nn.spec.Tensor((2, "n", 3))}})
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    np.testing.assert_array_equal(interpret(mod, "main", x), x.transpose(*axes))
