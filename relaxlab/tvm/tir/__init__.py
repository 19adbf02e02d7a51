"""`tvm.tir`, today's `tvm.tirx` and `tvm.s_tir`: loop functions, their nodes and schedules."""

from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.tvm.names import names

_NODES = (
    "AssertStmt", "Block", "BlockRealize", "Buffer", "BufferLoad", "BufferRegion", "BufferStore",
    "Evaluate", "For", "IfThenElse", "IterVar", "LetStmt", "MatchBufferRegion", "PrimFunc",
    "SeqStmt", "Stmt", "While",
)  # fmt: skip
_EXPRESSIONS = ("Broadcast", "Call", "Let", "Not", "PrimExpr", "Ramp", "StringImm", "Var")
_SPELLED = (
    "Add", "And", "Cast", "Div", "EQ", "FloatImm", "FloorDiv", "FloorMod", "GE", "GT", "IntImm",
    "LE", "LT", "Max", "Min", "Mod", "Mul", "NE", "Or", "Select", "Sub",
)  # fmt: skip
_FUNCTIONS = (
    "abs", "all", "any", "ceildiv", "const", "div", "floordiv", "floormod", "if_then_else",
    "indexdiv", "indexmod", "infinity", "likely", "max", "max_value", "min", "min_value", "power",
    "truncdiv", "truncmod", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right",
    "call_intrin", "call_pure_extern", "convert", "stmt_list", "stmt_seq",
)  # fmt: skip
_HOMES = {
    **{n: f"relaxlab.tvm.tir.op:{n}" for n in INTRINSICS if n.isidentifier()},
    **{n: f"relaxlab.tvm.tir.op:{n}" for n in _FUNCTIONS},
    **{n: f"relaxlab.ir.loops:{n}" for n in _NODES},
    **{n: f"relaxlab.ir.expr:{n}" for n in _EXPRESSIONS},
    **{n: f"relaxlab.tvm.tir.expr:{n}" for n in _SPELLED},
    "SBlock": "relaxlab.ir.loops:Block",
    "SBlockRealize": "relaxlab.ir.loops:BlockRealize",
    "SizeVar": "relaxlab.ir.expr:Var",
    "BitwiseAnd": "relaxlab.ir.expr:BitAnd",
    "BitwiseOr": "relaxlab.ir.expr:BitOr",
    "BitwiseXor": "relaxlab.ir.expr:BitXor",
    "LShift": "relaxlab.ir.expr:ShiftLeft",
    "RShift": "relaxlab.ir.expr:ShiftRight",
    "ForKind": "relaxlab.tvm.tir.function:ForKind",
    "Range": "relaxlab.tvm.ir.range:Range",
    "Reduce": "relaxlab.ops.te:Reduce",
    "IndexMap": "relaxlab.tvm.tir.function:IndexMap",
    "TensorIntrin": "relaxlab.tvm.tir.function:TensorIntrin",
    "Schedule": "relaxlab.tvm.tir.schedule.schedule:Schedule",
    "ScheduleError": "relaxlab.schedule.error:ScheduleError",
    "meta_schedule": "relaxlab.tvm.meta_schedule",
    "build": "relaxlab.tvm.runtime:build",
    "comm_reducer": "relaxlab.tvm.te:comm_reducer",
    "decl_buffer": "relaxlab.tvm.tir.function:decl_buffer",
    "sum": "relaxlab.tvm.te:sum",
}

__getattr__, __dir__ = names(__name__, _HOMES)
