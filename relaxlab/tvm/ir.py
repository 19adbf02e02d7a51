"""`tvm.ir`: modules, and structural equality."""

from relaxlab.tvm.names import names

_HOMES = {
    "IRModule": "relaxlab.ir.module:Module",
    "assert_structural_equal": "relaxlab.ir.equal:assert_structural_equal",
    "structural_equal": "relaxlab.ir.equal:structural_equal",
}

__getattr__, __dir__ = names(__name__, _HOMES)
