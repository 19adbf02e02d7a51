"""Run by the reference environment: networks of PyTorch with their states and results."""

import sys

import numpy as np
import torch
from torch import nn

torch.manual_seed(int(sys.argv[2]))
out = {}


def keep(name, module, x, *more):
    with torch.no_grad():
        y = module(x, *more)
    out[f"{name}/x"], out[f"{name}/y"] = x.numpy(), y.numpy()
    for key, value in module.state_dict().items():
        out[f"{name}/state/{key}"] = value.numpy()


keep("linear", nn.Linear(12, 5), torch.randn(3, 12))
keep("embedding", nn.Embedding(7, 4), torch.tensor([0, 6, 3]))
keep("layer_norm", nn.LayerNorm(9), torch.randn(2, 9))
keep("conv2d", nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 2), dilation=1, groups=2),
     torch.randn(2, 4, 9, 8))  # fmt: skip
keep("conv2d_plain", nn.Conv2d(3, 5, 3, dilation=2, bias=False), torch.randn(1, 3, 10, 9))
keep("sequential", nn.Sequential(
    nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.SiLU(), nn.LayerNorm(16),
    nn.Linear(16, 4), nn.ReLU(), nn.GELU("tanh"),
), torch.randn(5, 8))  # fmt: skip
np.savez(sys.argv[1], **out)
