"""`tvm.script.parser`, from which older programs import the namespaces."""

from relaxlab.tvm.names import names

_HOMES = {
    "ir": "relaxlab.tvm.script.ir",
    "relax": "relaxlab.tvm.script.relax",
    "tir": "relaxlab.tvm.script.tir",
    "tirx": "relaxlab.tvm.script.tir",
    "ir_module": "relaxlab.tvm.script.ir:ir_module",
    "parse": "relaxlab.tvm.script.normal:from_source",
}

__getattr__, __dir__ = names(__name__, _HOMES)
