"""Torch-like modules that build graph functions: `module.export(...)` gives a compilable module.

    class MLP(nn.Module):
        def __init__(self):
            self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

        def main(self, x):
            return self.down(self.up(x).op("nn.relu"))

    mod, names = MLP().export({"main": {"x": nn.spec.Tensor(("n", 8))}})

`names` lists the weights, which `main` takes after `x`.
"""

from relaxlab.nn import spec
from relaxlab.nn.attention import Attention, Cache, HeadNorm, Heads, KVCache, RotaryEmbedding
from relaxlab.nn.bidirectional import CrossAttention, SelfAttention
from relaxlab.nn.builder import FunctionBuilder, ModuleBuilder, Parameter, Tensor
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

__all__ = [
    "FLOAT32",
    "MLP",
    "Activation",
    "Activations",
    "Attention",
    "BlockEmbedding",
    "Cache",
    "Conv1d",
    "CrossAttention",
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
    "Parameter",
    "PositionEmbedding",
    "Precision",
    "RMSNorm",
    "RotaryEmbedding",
    "Scores",
    "SelfAttention",
    "Tensor",
    "Weight",
    "spec",
]
