"""Which arguments are the same weight for all instances, and which values control flow knows."""

from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.host_values import Kind, host_values
from relaxlab.passes.normalize import normalize
from relaxlab.passes.shared_values import Source, shared_values
from relaxlab.script import parse

PROGRAM = """
@R.function(private=True)
def layer(x: R.Tensor((4,), "float32"), pair: R.Tuple(R.Tensor((4,), "float32"),
          R.Tensor((4,), "float32"))):
    y = R.add(R.multiply(x, pair[0]), pair[1])
    return y

@R.function(private=True)
def walk(i: R.Tensor((), "int64"), at: R.Tensor(("n",), "int64"), x: R.Tensor((4,), "float32"),
         a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")
         ) -> R.Tensor((4,), "float32"):
    j = R.take(at, i, axis=0)
    if R.less(j, R.const(0, "int64")):
        r = x
    else:
        y = cls.layer(x, (a, b))
        z = cls.layer(y, (a, x))
        r = cls.walk(j, at, z, a, b)
    return r

@R.function(private=True)
def same(w: R.Tensor((4,), "float32")):
    v = R.exp(w)
    return w

@R.function
def main(i: R.Tensor((), "int64"), at: R.Tensor(("n",), "int64"), x: R.Tensor((4,), "float32"),
         a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
    R.func_attr({"num_input": 3})
    c = cls.same(b)
    r = cls.walk(i, at, x, a, c)
    top = R.argmax(r)
    return r
"""


def module():
    return normalize(parse(PROGRAM))


def test_weights_are_followed_through_calls_tuples_and_results():
    mod = module()
    found = shared_values(mod, "main")

    def source(function, index, *path):
        return found.source(function, mod[function].params[index], path)

    assert source("walk", 3) == Source(3) and source("walk", 4) == Source(4)
    assert source("layer", 1, 0) == Source(3)
    # One call gives it `b`, the other something that instances compute.
    assert source("layer", 1, 1) is None
    assert source("walk", 2) is None and source("main", 0) is None


def test_a_call_does_not_spoil_what_is_known_of_another():
    mod = module()
    found = shared_values(mod, "main")
    second = mod["layer"].params[1]
    by_call = {c.name: v[1] for c, v in found.in_contexts("layer", second).items()}
    assert by_call["y"].constant and by_call["y"].sources == {Source(4)}
    assert not by_call["z"].constant


def test_integers_are_known_while_recording_and_what_tensors_decide_is_not():
    mod = module()
    found = host_values(mod, "main")
    kinds = {b.var.name: found.of(b.var) for n in found.functions for b in all_bindings(mod[n])}
    assert kinds["j"] is Kind.HOST and kinds["y"] is Kind.TENSOR
    assert kinds["top"] is Kind.TENSOR
    walk = [found.kinds[p] for p in mod["walk"].params]
    assert walk == [Kind.HOST, Kind.INPUT, Kind.TENSOR, Kind.TENSOR, Kind.TENSOR]
    assert set(found.functions) == {"main", "walk", "layer", "same"}
