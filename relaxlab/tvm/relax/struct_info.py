"""`tvm.relax.struct_info`: the older names of the types."""

from relaxlab.tvm.names import names

_KINDS = ("Func", "Object", "Prim", "Shape", "Tensor", "Tuple")
_HOMES = {
    "StructInfo": "relaxlab.tvm.relax.ty:Type",
    **{f"{kind}StructInfo": f"relaxlab.tvm.relax.ty:{kind}Type" for kind in _KINDS},
}

__getattr__, __dir__ = names(__name__, _HOMES)
