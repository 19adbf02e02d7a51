"""Images of other sizes, steps of diffusion, samples, lists of parameters, functions in place."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op, spec
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def doubled(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        with T.sblock("A"):
            vi = T.axis.remap("S", [i])
            A[vi] = A[vi] * T.float32(2)


class Model(nn.Module):
    def __init__(self):
        self.up = nn.ConvTranspose1D(3, 4, 3, stride=2, padding=1, output_padding=1)
        self.scales = nn.ParameterList([nn.Parameter((4, 1))])
        self.scales.append(nn.Parameter((18,)))
        self.scales.extend([nn.Parameter((1,))])
        self.biases = nn.ParameterDict({"first": nn.Parameter((18,))})
        self.biases["second"] = nn.Parameter((18,))
        self.parts = nn.ModuleDict({"relu": nn.ReLU()})

    def signals(self, x):
        y = self.up(x)
        for scale in self.scales:
            y = y * scale
        for bias in self.biases.values():
            y = y + bias
        return self.parts["relu"](y)

    def images(self, x):
        sizes = [op.interpolate(x, (6, 7)), op.interpolate(x, 7, mode="bilinear")]
        factors = [
            op.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
            op.interpolate(x, scale_factor=(2.0, 1.0), mode="bicubic", align_corners=True),
        ]
        last = op.permute_dims(x, [0, 2, 3, 1])
        return *sizes, *factors, op.interpolate(last, (2, 3), data_layout="NHWC")

    def steps(self, t):
        slow = op.get_timestep_embedding(t, 8, downscale_freq_shift=0, scale=2.0, max_period=100)
        return op.get_timestep_embedding(t, 8), op.get_timestep_embedding(t, 6, True), slow

    def samples(self, p, u, rows):
        return op.multinomial_from_uniform(p, u, rows), op.multinomial_from_uniform(
            p, u, dtype="int32"
        )

    def twice(self, x):
        y = op.add(x, x)
        return op.tensor_ir_inplace_op(
            doubled, "doubled", [y], 0, nn.Tensor.placeholder((5,), "float32")
        )


model = Model()
mod, params = model.export_tvm(
    spec={
        "signals": {"x": spec.Tensor((1, 3, 9), "float32")},
        "images": {"x": spec.Tensor((1, 3, 4, 5), "float32")},
        "steps": {"t": spec.Tensor((2,), "int32")},
        "samples": {
            "p": spec.Tensor((3, 5), "float32"),
            "u": spec.Tensor((3, 1), "float32"),
            "rows": spec.Tensor((3, 1), "int64"),
        },
        "twice": {"x": spec.Tensor((5,), "float32")},
    }
)
print([(name, param.shape) for name, param in params])
print(len(model.scales), "first" in model.biases, len(model.biases), list(model.parts.keys()))
rng = np.random.default_rng(0)
weights = [tvm.runtime.tensor(rng.standard_normal(p.shape).astype(p.dtype)) for _, p in params]
p = rng.random((3, 5)).astype("float32")
inputs = {
    "signals": [rng.standard_normal((1, 3, 9)).astype("float32")],
    "images": [rng.standard_normal((1, 3, 4, 5)).astype("float32")],
    "steps": [np.array([3, 20], "int32")],
    "samples": [
        p / p.sum(1, keepdims=True),
        rng.random((3, 1)).astype("float32"),
        np.array([[2], [0], [1]], "int64"),
    ],
    "twice": [np.arange(5, dtype="float32")],
}
vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
for function, given in inputs.items():
    out = vm[function](*map(tvm.runtime.tensor, given), *weights)
    for value in [out] if hasattr(out, "numpy") else out:
        value = value.numpy()
        shown = np.round(value.astype("float64").ravel()[:9], 3) + 0.0
        print(function, value.shape, value.dtype, shown)


class Cached(nn.Module):
    """A cache, to which each call adds."""

    def __init__(self):
        self.rows = nn.KVCache(2, [3])

    def forward(self, x: nn.Tensor, total: T.int64):
        self.rows.append(x)
        nn.print_(x)
        return self.rows.view(total)


described = {"forward": {"x": spec.Tensor((1, 3), "float32"), "total": int}}
exported, _ = Cached().export_tvm(described, debug=True)
assert [v.name_hint for v in exported.get_global_vars()] == ["_initialize_effect", "forward"]
assert len(exported["forward"].params) == 4 and exported["forward"].attrs["num_input"] == 4
described["forward"]["$"] = {"effect_mode": "packed"}
packed, _ = Cached().export_tvm(described, debug=True)
assert len(packed["forward"].params) == 3
