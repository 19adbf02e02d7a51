"""`tvm.script`: the namespaces of the script language, and the parser."""

from relaxlab.tvm.names import names

_HOMES = {
    "tir": "relaxlab.tvm.script.tir",
    "tirx": "relaxlab.tvm.script.tir",
    "ir_module": "relaxlab.tvm.script.ir:ir_module",
    "from_source": "relaxlab.tvm.script.normal:from_source",
    "parse": "relaxlab.tvm.script.normal:from_source",
}

__getattr__, __dir__ = names(__name__, _HOMES)
