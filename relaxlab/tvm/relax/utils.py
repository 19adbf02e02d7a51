"""`tvm.relax.utils`: values as expressions."""

from relaxlab.tvm.names import names

_HOMES = {
    "convert_to_expr": "relaxlab.tvm.relax.expr:convert_to_expr",
}

__getattr__, __dir__ = names(__name__, _HOMES)
