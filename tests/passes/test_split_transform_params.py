import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.lift_transform_params import lift_transform_params
from relaxlab.passes.normalize import normalize
from relaxlab.passes.split_transform_params import MAX_WHOLE, split_transform_params
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.testing.pass_check import assert_same, check_module, random_arguments

HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), {params}):
        R.func_attr({{"num_input": 1}})
        with R.dataflow():
            y = x
{lines}
            R.output(y)
        return y
"""


def module(layers: int) -> rl.Module:
    """Layers with a weight that is transformed, a bias that is not, and two weights whose
    transformed values are combined."""
    params, lines = list[str](), list[str]()
    for i in range(layers):
        params += [f'w{i}: R.Tensor((4, 4), "float32")', f'b{i}: R.Tensor((4,), "float32")']
        lines += [f"t{i} = R.permute_dims(w{i})", f"m{i} = R.matmul(y, t{i})"]
        lines.append(f"y = R.add(m{i}, b{i})")
    params += [f'{n}: R.Tensor((4, 4), "float32")' for n in ("u", "v")]
    lines += ["e = R.exp(u)", "f = R.add(e, R.permute_dims(v))", "y = R.matmul(y, f)"]
    text = "\n".join(" " * 12 + line for line in lines)
    return rl.parse(HEAD.format(params=", ".join(params), lines=text))


def lifted(layers: int) -> rl.Module:
    return lift_transform_params(normalize(module(layers)))


def test_parts_compute_what_the_whole_does(rng: np.random.Generator) -> None:
    before = lifted(MAX_WHOLE)
    after = split_transform_params(before)
    check_module(split_transform_params, before, after)
    name = "main_transform_params"
    parts = after[name].attrs["parts"]
    # Equal layers share a function; the two weights that are combined have another.
    assert len({function for function, _, _ in parts if function}) == 2
    (weights,) = random_arguments(before[name], rng)
    whole = interpret(after, name, weights)
    found = {}
    for function, inputs, outputs in parts:
        given = [weights[i] for i in inputs]
        results = interpret(after, function, *given) if function else given
        assert len(results) == len(outputs)
        found |= dict(zip(outputs, results, strict=True))
    assert sorted(found) == list(range(len(whole)))
    for number, value in enumerate(whole):
        assert_same(found[number], value, f"result {number}")


def test_few_weights_are_transformed_at_once() -> None:
    before = lifted(2)
    assert split_transform_params(before) is before


@pytest.mark.parametrize("layers", [2, MAX_WHOLE])
def test_compiled_programs_list_their_parts(layers: int) -> None:
    exe = rl.compile(module(layers), use_cache=False)
    assert bool(exe.artifact.parts) == (layers > 2)
    assert {f for p in exe.artifact.parts.values() for f, _, _ in p if f} <= set(exe)
