"""Torch-like modules that build graph functions: `module.export(...)` gives a compilable module.

    class MLP(nn.Module):
        def __init__(self):
            self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

        def main(self, x):
            return self.down(self.up(x).relu())

    model = MLP()
    mod, names = model.export({"main": {"x": nn.spec.Tensor(("n", 8))}})
    exe = rl.compile(mod).load(model.state_dict())
    y = exe(x)

`names` lists the weights, which `main` takes after `x`; `load` gives them once. `state_dict` has
initial values, or those that `load_state_dict` was given: names and layouts are PyTorch's.
"""

from relaxlab.nn import spec
from relaxlab.nn.attention import Attention, Cache, HeadNorm, Heads, KVCache, RotaryEmbedding
from relaxlab.nn.basic import GELU, Conv2d, ReLU, Sequential, SiLU
from relaxlab.nn.bidirectional import CrossAttention, SelfAttention
from relaxlab.nn.builder import Data, FunctionBuilder, Parameter, Tensor, op
from relaxlab.nn.layers import (
    FLOAT32,
    MLP,
    Activation,
    Activations,
    BlockEmbedding,
    Conv1d,
    Embedding,
    GatedMLP,
    LayerNorm,
    Linear,
    MergedLinear,
    Precision,
    RMSNorm,
    Weight,
)
from relaxlab.nn.loop_functions import Scores
from relaxlab.nn.module import Module, ModuleList
from relaxlab.nn.positions import PositionEmbedding
from relaxlab.nn.recursion import DataType, cond, recursive
from relaxlab.nn.transformer import MultiheadAttention, TransformerEncoderLayer
from relaxlab.ops.block_builder import ModuleBuilder

__all__ = [
    "FLOAT32",
    "MLP",
    "Activation",
    "Activations",
    "GELU",
    "Attention",
    "BlockEmbedding",
    "Cache",
    "Conv1d",
    "Conv2d",
    "CrossAttention",
    "Data",
    "DataType",
    "Embedding",
    "FunctionBuilder",
    "GatedMLP",
    "HeadNorm",
    "Heads",
    "KVCache",
    "LayerNorm",
    "Linear",
    "MergedLinear",
    "Module",
    "ModuleBuilder",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "PositionEmbedding",
    "Precision",
    "RMSNorm",
    "ReLU",
    "RotaryEmbedding",
    "Scores",
    "SelfAttention",
    "Sequential",
    "SiLU",
    "Tensor",
    "TransformerEncoderLayer",
    "Weight",
    "cond",
    "op",
    "recursive",
    "spec",
]
