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

from relaxlab.nn import spec as spec
from relaxlab.nn.attention import Attention as Attention
from relaxlab.nn.attention import Cache as Cache
from relaxlab.nn.attention import HeadNorm as HeadNorm
from relaxlab.nn.attention import Heads as Heads
from relaxlab.nn.attention import KVCache as KVCache
from relaxlab.nn.attention import RotaryEmbedding as RotaryEmbedding
from relaxlab.nn.basic import GELU as GELU
from relaxlab.nn.basic import Conv2d as Conv2d
from relaxlab.nn.basic import ReLU as ReLU
from relaxlab.nn.basic import Sequential as Sequential
from relaxlab.nn.basic import SiLU as SiLU
from relaxlab.nn.bidirectional import CrossAttention as CrossAttention
from relaxlab.nn.bidirectional import SelfAttention as SelfAttention
from relaxlab.nn.builder import Data as Data
from relaxlab.nn.builder import FunctionBuilder as FunctionBuilder
from relaxlab.nn.builder import Parameter as Parameter
from relaxlab.nn.builder import Tensor as Tensor
from relaxlab.nn.builder import op as op
from relaxlab.nn.layers import FLOAT32 as FLOAT32
from relaxlab.nn.layers import MLP as MLP
from relaxlab.nn.layers import Activation as Activation
from relaxlab.nn.layers import Activations as Activations
from relaxlab.nn.layers import BlockEmbedding as BlockEmbedding
from relaxlab.nn.layers import Conv1d as Conv1d
from relaxlab.nn.layers import Embedding as Embedding
from relaxlab.nn.layers import GatedMLP as GatedMLP
from relaxlab.nn.layers import LayerNorm as LayerNorm
from relaxlab.nn.layers import Linear as Linear
from relaxlab.nn.layers import MergedLinear as MergedLinear
from relaxlab.nn.layers import Precision as Precision
from relaxlab.nn.layers import RMSNorm as RMSNorm
from relaxlab.nn.layers import Weight as Weight
from relaxlab.nn.loop_functions import Scores as Scores
from relaxlab.nn.module import Module as Module
from relaxlab.nn.module import ModuleList as ModuleList
from relaxlab.nn.positions import PositionEmbedding as PositionEmbedding
from relaxlab.nn.recursion import DataType as DataType
from relaxlab.nn.recursion import cond as cond
from relaxlab.nn.recursion import recursive as recursive
from relaxlab.nn.transformer import MultiheadAttention as MultiheadAttention
from relaxlab.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from relaxlab.ops.block_builder import ModuleBuilder as ModuleBuilder
