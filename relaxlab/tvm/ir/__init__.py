"""`tvm.ir`: modules, operators, structural equality, passes."""

from relaxlab.tvm.names import names

_HOMES = {
    "IRModule": "relaxlab.tvm.ir.module:IRModule",
    "GlobalVar": "relaxlab.ir.graph:GlobalVar",
    "BaseFunc": "relaxlab.tvm.relax.expr:BaseFunc",
    "Op": "relaxlab.tvm.ir.op:Op",
    "Range": "relaxlab.tvm.ir.range:Range",
    "Node": "relaxlab.ir.node:Node",
    "Attrs": "relaxlab.ir.node:Attrs",
    "DictAttrs": "relaxlab.ir.node:Attrs",
    "make_node": "relaxlab.tvm.ir.module:make_node",
    "Call": "relaxlab.tvm.relax.expr:Call",
    "Tuple": "relaxlab.tvm.relax.expr:Tuple",
    "TupleGetItem": "relaxlab.tvm.relax.expr:TupleGetItem",
    "StringImm": "relaxlab.tvm.relax.expr:StringImm",
    "Type": "relaxlab.tvm.relax.ty:Type",
    "TupleType": "relaxlab.tvm.relax.ty:TupleType",
    "FuncType": "relaxlab.tvm.relax.ty:FuncType",
    "PrimType": "relaxlab.tvm.relax.ty:PrimType",
    "assert_structural_equal": "relaxlab.tvm.ir.equal:assert_structural_equal",
    "structural_equal": "relaxlab.tvm.ir.equal:structural_equal",
    "structural_hash": "relaxlab.tvm.ir.equal:structural_hash",
    "VDevice": "relaxlab.tvm.ir.module:VDevice",
    "Var": "relaxlab.tvm.relax.expr:Var",
    "Span": "relaxlab.ir.span:Span",
    "Array": "builtins:list",
    "Map": "builtins:dict",
    "load_json": "relaxlab.tvm.ir.module:load_json",
    "save_json": "relaxlab.tvm.ir.module:save_json",
}

__getattr__, __dir__ = names(__name__, _HOMES)
