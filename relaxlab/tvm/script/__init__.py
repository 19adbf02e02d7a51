"""`tvm.script`: the namespaces of the script language, and the parser."""

from relaxlab.tvm.names import names

_HOMES = {
    "ir": "relaxlab.script.ir",
    "relax": "relaxlab.script.relax",
    "tir": "relaxlab.script.tir",
    "tirx": "relaxlab.script.tir",
    "ir_module": "relaxlab.script.ir:ir_module",
    "from_source": "relaxlab.script:parse",
    "parse": "relaxlab.script:parse",
}

__getattr__, __dir__ = names(__name__, _HOMES)
