"""`tvm.relax.frontend.nn`: modules as in PyTorch, which `export_tvm` makes programs of."""

from typing import Any

from relaxlab.tvm.names import names

_HOMES = {
    **{
        name: f"relaxlab.tvm.relax.frontend.nn.core:{name}"
        for name in (
            "Parameter", "Tensor", "get_default_dtype", "wrap_nested",
        )
    },
    **{
        name: f"relaxlab.tvm.relax.frontend.nn.module:{name}"
        for name in ("Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList")
    },
    **{
        name: f"relaxlab.tvm.relax.frontend.nn.effects:{name}"
        for name in ("Effect", "IOEffect", "KVCache", "debug_func", "print_")
    },
    "Mutator": "relaxlab.tvm.relax.frontend.nn.visitor:Mutator",
    **{
        name: f"relaxlab.tvm.relax.frontend.nn.modules:{name}"
        for name in (
            "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Embedding", "GELU", "GroupNorm",
            "Identity", "LayerNorm", "Linear", "RMSNorm", "ReLU", "SiLU",
        )
    },
}  # fmt: skip

_own, __dir__ = names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    """A name of the package, or an operator: `nn.relu` is `nn.op.relu`."""
    try:
        return _own(name)
    except AttributeError:
        if name.startswith("_"):
            raise
        return getattr(_own("op"), name)
