"""Programs that several views are tested with."""

from __future__ import annotations

from relaxlab.ir.module import Module
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.decoder import Decoder

NETWORK = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 128), "float32"),
             b: R.Tensor((128,), "float32"), v: R.Tensor((128, 64), "float32")):
        with R.dataflow():
            h = R.matmul(x, w)
            h1 = R.add(h, b)
            h2 = R.nn.gelu(h1)
            y = R.matmul(h2, v)
            z = R.add(y, x)
            s = R.nn.softmax(z)
            t = R.exp(R.multiply(z, s))
            R.output(t, s)
        return (t, s)
"""

CALLS = """
@I.ir_module
class Module:
    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def half(x: R.Tensor(("2 * k", 4), "float32")) -> R.Tensor(("k", 4), "float32"):
        k = T.int64()
        y: R.Tensor((k, 4), "float32") = R.strided_slice(x, axes=[0], begin=[0], end=[k])
        return y

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor(("m", 8), "float32")):
        n, m = T.int64(), T.int64()
        cls = Module
        a = R.concat((x, x), axis=0)
        b = cls.half(a)
        c = R.matmul(b, w)
        d = R.add(R.sum(x, axis=1), R.sum(w, axis=1))
        e = R.call_tir(cls.twice, (R.sum(c, axis=1),), out_sinfo=R.Tensor((n,), "float32"))
        f = R.call_pure_packed("outside", e, sinfo_args=R.Tensor((n,), "float32"))
        return (d, f)
"""

WRONG = CALLS.replace("axis=1), R.sum(w", "axis=7), R.sum(w")
"""A program of which one value has no type."""

CHAIN = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 512}})
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(a, w)
            c = R.matmul(b, w)
            d = R.matmul(c, w)
            R.output(d)
        return d
"""


def decoder(layers: int = 30, hidden: int = 576) -> Module:
    """A decoder of SmolLM2's structure with float32 weights, for any number of positions."""
    heads = hidden // 64
    config = DecoderConfig(
        hidden_size=hidden, num_layers=layers, num_heads=heads, num_kv_heads=heads // 3 or 1,
        head_dim=64, ffn_size=hidden * 8 // 3, vocab_size=49152, context_length=2048,
        norm_eps=1e-5, rope=Rope(10000.0, 64),
    )  # fmt: skip
    formats = dict.fromkeys(config.tensor_shapes(), "F32")
    return Decoder(config, formats, max_context=2048).build(methods=("prefill",))[0]
