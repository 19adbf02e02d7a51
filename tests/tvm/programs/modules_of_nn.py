"""Modules of `relax.frontend.nn` are exported, compiled and run."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op, spec


class Feed(nn.Module):
    def __init__(self, size, dtype="float32"):
        super().__init__()
        self.norm = nn.LayerNorm(size, dtype=dtype)
        self.up = nn.Linear(size, 2 * size, dtype=dtype)
        self.down = nn.Linear(2 * size, size, bias=False, dtype=dtype)
        self.scale = nn.Parameter((size,), dtype=dtype)

    def forward(self, x):
        y = op.gelu(self.up(self.norm(x)), approximate="tanh")
        return x + self.down(y) * self.scale * 0.5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([Feed(8), Feed(8)])
        self.norm = nn.RMSNorm(8, -1, 1e-5, bias=False)
        self.image = nn.Conv2D(3, 4, 3, padding=1)
        self.group = nn.GroupNorm(2, 4)

    def tokens(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        first, second = op.split(x, 2, axis=-1)
        scores = op.softmax(op.matmul(first, op.permute_dims(second, [0, 2, 1])), axis=-1)
        values, places = op.topk(scores, k=2)
        joined = op.concat([op.matmul(scores, first), op.silu(second)], dim=-1)
        mask = op.triu(op.full((8, 8), tvm_one(), "float32"), diagonal=1)
        return op.max(op.matmul(joined, mask), axis=-1, keepdims=True), values, places

    def images(self, x):
        y = op.relu(self.group(self.image(x)))
        y = y.reshape(*[1, 4, 36]).permute_dims(0, 2, 1)
        z = op.tensor_expr_op(lambda t: tvm.topi.add(t, t), "twice", [y])
        z = op.squeeze(op.unsqueeze(z, 0), 0)
        return op.sum(op.maximum(z, y), axis=[1, 2]), op.negative(y / 2.0).astype("float16")


def tvm_one():
    return nn.Tensor.from_scalar(1.0, "float32")


model = Model()
mod, params = model.export_tvm(
    spec={
        "tokens": {"ids": spec.Tensor((1, "n"), "int32")},
        "images": {"x": spec.Tensor((1, 3, 6, 6), "float32")},
    }
)
for name, param in params:
    print(name, param.shape, param.dtype)
print(sorted(gv.name_hint for gv in mod.get_global_vars() if "twice" not in gv.name_hint))
rng = np.random.default_rng(0)
weights = [tvm.runtime.tensor(rng.standard_normal(p.shape).astype(p.dtype) / 3) for _, p in params]
ids = tvm.runtime.tensor(np.array([[1, 5, 10, 2, 7]], "int32"))
image = tvm.runtime.tensor(rng.standard_normal((1, 3, 6, 6)).astype("float32"))
vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
for function, x in (("tokens", ids), ("images", image)):
    for out in vm[function](x, *weights):
        out = out.numpy()
        print(function, out.shape, out.dtype, np.round(out.astype("float64").ravel()[:6], 3) + 0.0)
print(sorted(model.state_dict()) == sorted(name for name, _ in params))
known = nn.Parameter((8,))
known.data = np.full(8, 2, "float32")
print(model.load_state_dict({"norm.weight": known, "other": known}, strict=False)[1])
print(model.norm.weight.data.numpy())
