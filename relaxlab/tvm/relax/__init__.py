"""`tvm.relax`: graph functions, builders, passes and the virtual machine."""

from relaxlab.tvm.names import names

_HOMES = {
    "BlockBuilder": "relaxlab.ops.block_builder:BlockBuilder",
}

__getattr__, __dir__ = names(__name__, _HOMES)
