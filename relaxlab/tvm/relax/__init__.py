"""`tvm.relax`: graph functions, builders, passes and the virtual machine."""

from relaxlab.tvm.names import names

_HOMES = {
    "BlockBuilder": "relaxlab.tvm.relax.block_builder:BlockBuilder",
    "type": "relaxlab.tvm.relax.ty",
    **{
        name: f"relaxlab.tvm.relax.expr:{name}"
        for name in (
            "BindingBlock", "Binding", "Call", "Constant", "DataTypeImm", "DataflowBlock",
            "DataflowVar", "Expr", "ExternFunc", "Function", "GlobalVar", "If", "MatchCast",
            "PrimValue", "SeqExpr", "ShapeExpr", "StringImm", "Tuple", "TupleGetItem", "Var",
            "VarBinding", "const", "convert_to_expr", "get_shape_of", "prim_value",
        )
    },
    **{
        name: f"relaxlab.tvm.relax.ty:{name}"
        for name in (
            "AnyType", "FuncType", "ObjectType", "PrimType", "ShapeType", "TensorType",
            "TupleType", "Type",
        )
    },
    **{
        f"{name}StructInfo": f"relaxlab.tvm.relax.ty:{name}Type"
        for name in ("Func", "Object", "Prim", "Shape", "Tensor", "Tuple")
    },
    "StructInfo": "relaxlab.tvm.relax.ty:Type",
    **{
        name: f"relaxlab.tvm.relax.op:{name}"
        for name in (
            "call_dps_packed", "call_pure_packed", "call_tir", "call_tir_inplace",
            "call_tir_with_grad",
        )
    },
    "VDevice": "relaxlab.tvm.ir.module:VDevice",
    "PyExprMutator": "relaxlab.tvm.relax.expr_functor:PyExprMutator",
    "PyExprVisitor": "relaxlab.tvm.relax.expr_functor:PyExprVisitor",
    "VirtualMachine": "relaxlab.tvm.relax.vm:VirtualMachine",
    "build": "relaxlab.tvm.relax.vm:build",
    "ExecBuilder": "relaxlab.tvm.relax.exec_builder:ExecBuilder",
    "VMExecutable": "relaxlab.tvm.relax.vm:VMExecutable",
    "DataflowBlockRewrite": "relaxlab.tvm.relax.binding_rewrite:DataflowBlockRewrite",
    "get_default_pipeline": "relaxlab.tvm.relax.pipeline:get_default_pipeline",
    "register_pipeline": "relaxlab.tvm.relax.pipeline:register_pipeline",
    "get_pipeline": "relaxlab.tvm.relax.pipeline:get_pipeline",
}  # fmt: skip

__getattr__, __dir__ = names(__name__, _HOMES)
