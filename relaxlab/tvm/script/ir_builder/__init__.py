"""`tvm.script.ir_builder`: programs that are built by calls."""

from relaxlab.tvm.names import names

_HOMES = {
    "IRBuilder": "relaxlab.tvm.script.ir_builder.base:IRBuilder",
    "tirx": "relaxlab.tvm.script.ir_builder.tir",
}

__getattr__, __dir__ = names(__name__, _HOMES)
