"""The members of the namespaces `I`, `R` and `T` beside the operators: one row each.

The parser binds arguments by a row's parameters; completion, `help`, the stubs of editors and the
tests read all of it. Operators have their rows in `relaxlab.ops`; those that the script writes in
another way (`R.call_tir`) have a row here, too, without a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from relaxlab.ir.intrinsics import INTRINSICS, Intrinsic

Gives = Literal["type", "value", "scalar", "buffer", "axis", "loop", "context", "statement"]


@dataclass(frozen=True, slots=True)
class Member:
    """A name of a namespace. `parameters` are written as Python writes them; a default of None
    means that the argument may be left out. `gives` is the place where the name may stand."""

    name: str
    parameters: str
    gives: Gives
    doc: str = ""
    example: str = ""

    @property
    def optional(self) -> dict[str, bool]:
        """Per parameter, whether it may be left out."""
        parts = self.parameters.split(", ") if self.parameters else []
        return {p.partition("=")[0]: "=" in p for p in parts}


_LAYOUT = (
    "strides=None, elem_offset=None, scope=None, align=None, offset_factor=None, "
    "buffer_type=None, layout=None, name=None"
)
_BUFFER = f"shape, dtype='float32', data=None, {_LAYOUT}"
_ALLOC = f"{_BUFFER}, annotations=None"
_LOOP = "start, stop=None, thread=None, annotations=None, step=None"
_AXIS = "dom, binding, dtype=None"
OUT_TYPED = (
    "call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed", "call_py_func",
)  # fmt: skip
"""Operators that are written with a tuple of arguments and the types of the results, `out_ty`."""
PACKED = ("call_pure_packed", "call_inplace_packed", "call_builtin_with_ctx")
"""Operators that are written with the name of a registered function, then its arguments."""
_OUT = "func, args, out_ty, tir_vars=None"

_MODULES = (
    Member("I.module_global_infos", "infos", "statement",
           "What the functions of a module share beside attributes: its virtual devices.",
           'I.module_global_infos({"vdevice": [I.vdevice("cuda", 0)]})'),
    Member("I.vdevice", "target, vdevice_id=0, memory_scope='global'", "value",
           "A virtual device: a target, which of its devices, and a kind of memory.",
           'I.vdevice("cuda", 0, "global")'),
    Member("I.dummy_global_info", "", "value", "A piece of shared information that says nothing.",
           'I.module_global_infos({"dummy": [I.dummy_global_info()]})'),
    Member("I.module_attrs", "attrs", "statement", "Attributes of the module, as a dictionary.",
           'I.module_attrs({"owner": "me"})'),
    Member("I.meta_var", "value", "value",
           "A value of the surrounding Python, bound to a name as it is.",
           "tile = I.meta_var(32)"),
    Member("I.GlobalVar", "name", "value",
           "A function of the module by its name, where no class is around it.",
           'I.GlobalVar("main")'),
)  # fmt: skip

_TYPES = (
    Member("R.Tensor", "shape=None, dtype=None, vdevice=None, ndim=-1", "type",
           "The type of a tensor. Extents are integers, symbols, or expressions in strings; what "
           "is left out is not known. The virtual device is kept and means nothing else.",
           'x: R.Tensor(("n", 4), "float32")'),
    Member("R.Shape", "values=None, ndim=-1", "type", "The type of a shape.",
           's: R.Shape(["n", 4])'),
    Member("R.Prim", "dtype=None, value=None", "type", "The type of a scalar.",
           'k: R.Prim("int64")'),
    Member("R.Lengths", "sequences, rows, at_least=0, at_most=None", "type",
           "The type of the lengths of sequences that lie behind each other: int32, how many there "
           "are, and the number of rows that they have in all. In shapes, `s[i]` is each length, "
           "which is within the limits.",
           's: R.Lengths("b", "n", at_most=512)'),
    Member("R.Ragged", "dims, dtype", "type",
           "The type of a ragged tensor by named dimensions. The first counts sequences, another "
           "is as long as an earlier parameter with `R.Lengths` says for each, or as follows from "
           "the index along the first: `{\"i\": \"n\", \"j\": \"i + 1\"}` is a triangle.",
           'x: R.Ragged({"i": "b", "j": "s[i]", "d": 512}, "float32")'),
    Member("R.Tuple", "*fields", "type", "The type of a tuple.",
           'p: R.Tuple(R.Tensor((4,)), R.Tensor((4,)))'),
    Member("R.Callable", "params=None, ret=None, purity=None, derive_func=None", "type",
           "The type of a function.",
           'f: R.Callable((R.Tensor((4,)),), R.Tensor((4,)))'),
    Member("R.Object", "", "type", "The type of any value.", "o: R.Object"),
    Member("R.Any", "", "type", "The type of any value, as `R.Object`.", "o: R.Any"),
)  # fmt: skip

_GRAPH = (
    Member("R.dataflow", "", "context",
           "A block of bindings without effects, which passes may reorder and remove.",
           "with R.dataflow():"),
    Member("R.macro", "function=None, hygienic=True", "value",
           "The decorator of a function that stands for its statements, and for the value that it "
           "returns, wherever it is called.", "@R.macro"),
    Member("R.output", "*values", "statement",
           "Ends a dataflow block: these variables are visible after it.", "R.output(y)"),
    Member("R.func_attr", "attrs", "statement",
           "Attributes of the function, as a dictionary.", 'R.func_attr({"num_input": 1})'),
    Member("R.const", "value, dtype=None, shape=None", "value",
           "A constant tensor: a number, nested lists, an array, or compressed text with its dtype "
           "and shape.", 'R.const([1, 2, 3], "float32")'),
    Member("R.shape", "values", "value", "A shape as a value.", "R.shape([n, 4])"),
    Member("R.outer_index", "count", "value",
           "The index along the first dimension, of `count` elements, of ragged tensors, in shapes "
           "and bounds of slices.", "R.outer_index(n) + 1"),
    Member("R.prim_value", "value", "value", "A scalar as a value.", "R.prim_value(n + 1)"),
    Member("R.str", "value", "value", "A string as a value.", 'R.str("message")'),
    Member("R.dtype", "value", "value", "A dtype as a value.", 'R.dtype("float32")'),
    Member("R.device", "device_type, index=0", "value", "A device by its kind and number.",
           'R.hint_on_device(x, R.device("cuda", 0))'),
    *(Member(f"R.{kind}", "index=0", "value", f"A device of the kind {kind}, by its number.",
             f"R.hint_on_device(x, R.{kind}(0))")
      for kind in ("cpu", "cuda", "metal", "opencl", "rocm", "vulkan")),
    Member("R.tuple", "*fields", "value", "A tuple; `(x, y)` means the same.", "R.tuple(x, y)"),
    Member("R.ShapeExpr", "values", "value", "A shape as a value, as `R.shape`.",
           "R.ShapeExpr([n, 4])"),
    Member("R.TupleGetItem", "tuple_value, index", "value", "A field of a tuple, as `t[0]`.",
           "R.TupleGetItem(t, 0)"),
    Member("R.emit", "value", "value", "The value itself, bound to a variable.",
           "y = R.emit(R.add(x, x))"),
    *(Member(f"R.{name}", "op, args, ty_args=None", "value",
             "The call of an operator by its name, with types as arguments.",
             f'y = R.{name}("relax.add", (x, x), (R.Tensor((4,), "float32"),))')
      for name in ("emit_with_type", "emit_with_ty", "emit_with_sinfo")),
    Member("R.ExternFunc", "name", "value", "A function that is registered under a name.",
           'f = R.ExternFunc("library.f")'),
    *(Member(f"R.{name}", "value, ty", "value",
             "The same value with a type that is claimed, and checked at run time where it is not "
             "proved; its symbols are bound.", f'y = R.{name}(x, R.Tensor((n, 4), "float32"))')
      for name in ("match_cast", "emit_match_cast")),
    Member("R.call_packed", "name, *args", "value",
           "A call of a registered function that may have effects.",
           'R.call_packed("library.f", x, ty_args=R.Tensor((4,), "float32"))'),
    Member("R.call_tir", _OUT, "value", "",
           'R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 4), "float32"))'),
    Member("R.call_tir_inplace", "func, args, inplace_indices, out_ty, tir_vars=None", "value", "",
           'R.call_tir_inplace(cls.add, (x, y), [0], out_ty=R.Tensor((4,), "float32"))'),
    Member("R.call_tir_with_grad",
           "func, args, out_ty, te_grad_name, te_grad_kwargs=None, tir_vars=None", "value", "",
           'R.call_tir_with_grad(cls.f, (x,), out_ty=R.Tensor((4,)), te_grad_name="f_grad")'),
    Member("R.call_dps_packed", _OUT, "value", "",
           'R.call_dps_packed("library.f", (x,), out_ty=R.Tensor((4,), "float32"))'),
    Member("R.call_py_func", _OUT, "value", "",
           'R.call_py_func("f", (x,), out_ty=R.Tensor((4,), "float32"))'),
    Member("R.call_pure_packed", "func, *args", "value", "",
           'R.call_pure_packed("library.f", x, ty_args=R.Tensor((4,), "float32"))'),
    Member("R.call_inplace_packed", "func, *args, inplace_indices", "value", "",
           'R.call_inplace_packed("library.f", x, inplace_indices=[0], ty_args=R.Tensor((4,)))'),
    Member("R.call_builtin_with_ctx", "func, *args", "value", "",
           'R.call_builtin_with_ctx("library.f", x, ty_args=R.Tensor((4,)))'),
)  # fmt: skip

_BUFFERS = (
    Member("T.Buffer", _BUFFER, "type",
           "A parameter that is memory: an array of a shape and dtype.",
           'A: T.Buffer((4, 8), "float32")'),
    Member("T.handle", "dtype=None, scope=None", "type",
           "A parameter whose shape `T.match_buffer` gives: needed for symbolic shapes.",
           "a: T.handle"),
    Member("T.match_buffer", f"param, shape=None, dtype=None, data=None, {_LAYOUT}", "buffer",
           "The buffer behind a `T.handle` parameter, whose shape binds symbols; in a block, a "
           "view of a region.", 'A = T.match_buffer(a, (n, 4), "float32")'),
    Member("T.decl_buffer", _BUFFER, "buffer",
           "The elements of another buffer in another shape, where its memory is given; else "
           "memory, as `T.alloc_buffer`.", 'C = T.decl_buffer((32,), "float32", data=B.data)'),
    Member("T.index_function", "param, shape, dtype, facts", "buffer",
           "An array of integers, one-dimensional and only read, behind a `T.handle` parameter, of "
           "which facts are stated. They are checked before the function runs, and used to prove "
           "what depends on the integers.",
           's = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])'),
    Member("T.ragged_buffer", "param, dims, dtype, starts, facts=None", "buffer",
           "The buffer behind a `T.handle` parameter, seen as slices of different extents behind "
           "each other. Dimensions have names; a string is an extent that depends on outer ones. "
           "`starts` is an index function with the prefix sums of the extents' products; several "
           "are those of slices in slices. With `facts`, it is an index function.",
           'x = T.ragged_buffer(x_, {"i": b, "j": "s[i]", "d": 8}, "float32", starts=o)'),
    Member("T.range", "low, high", "value",
           "The fact that each integer of an index function is at least `low` and less than "
           "`high`.", "T.range(0, n)"),
    Member("T.nondecreasing", "first=None, last=None", "value",
           "The fact that no integer of an index function is less than the one before it, and "
           "where the integers begin and end.", "T.nondecreasing(first=0, last=n)"),
    Member("T.prefix_sums", "of", "value",
           "The fact that an index function begins with 0, and that integer i + 1 is integer i "
           "plus a function of i.", "T.prefix_sums(lambda i: s[i])"),
    Member("T.segment_ids", "of", "value",
           "The fact that integer f of an index function is the segment that f lies in, of those "
           "that begin at the integers of another one.", "T.segment_ids(lambda i: o[i])"),
    Member("T.permutation", "of", "value",
           "The fact that an index function has each of the numbers from 0 up to their count, "
           "shown by its inverse, another one.", "T.permutation(lambda i: inverse[i])"),
    *(Member(f"T.{name}", _ALLOC, "buffer", doc, f'B = T.{name}((4, 8), "float32")')
      for name, doc in (
          ("alloc_buffer", "Memory that belongs to the block or function around it."),
          ("sblock_alloc_buffer", "Memory that belongs to the block or function around it."),
          ("alloc_local", "Memory of one thread: registers or stack."),
          ("alloc_shared", "Memory that the threads of a GPU block share."))),
    *(Member(f"T.{name}", f"dtype='float32'{more}", "buffer",
             "Memory of one element, whose name stands for the element.", f'x = T.{name}("int32")')
      for name, more in (
          ("local_scalar", ""), ("shared_scalar", ""), ("alloc_scalar", ", scope=None"))),
)  # fmt: skip

_LOOPS = (
    Member("T.grid", "*extents", "loop",
           "Nested loops; an extent is `n` or `(start, stop)`.", "for i, j in T.grid(4, 8):"),
    Member("T.serial", f"{_LOOP}, unroll=None", "loop",
           "A loop in order; `range` means the same. `unroll` is a note for compilers.",
           "for i in T.serial(8):"),
    *(Member(f"T.{name}", _LOOP, "loop", doc, example)
      for name, doc, example in (
          ("parallel", "A loop whose rounds are shared out to the threads.",
           "for i in T.parallel(8):"),
          ("vectorized", "A loop whose rounds are the lanes of vector instructions.",
           "for i in T.vectorized(8):"),
          ("unroll", "A loop that is written out round by round.", "for i in T.unroll(4):"),
          ("unrolled", "A loop that is written out round by round.", "for i in T.unrolled(4):"),
          ("thread_binding", "A loop whose rounds are the threads of a GPU axis.",
           'for i in T.thread_binding(128, thread="threadIdx.x"):'))),
)  # fmt: skip

_THREADS = (
    Member("T.launch_thread", "thread, extent", "loop",
           "Starts the threads of a GPU axis for the statements that follow, or those inside the "
           "`with`.", 'tx = T.launch_thread("threadIdx.x", 128)'),
    Member("T.attr", "node, attr_key=None, value=None", "loop",
           "Attributes of the statements that follow, or of those inside the `with`, kept as "
           "annotations of a loop.", 'T.attr({"pragma_unroll": 1})'),
    Member("T.iter_var", "var, dom=None, iter_type='ThreadIndex', thread_tag=''", "value",
           "A GPU axis with its variable, for `T.attr` of its number of threads.",
           'T.attr(T.iter_var(T.int32(), (0, 4), "ThreadIndex", "vthread"), "virtual_thread", 4)'),
    Member("T.env_thread", "thread_tag", "loop",
           "A GPU axis that `T.launch_thread` gives its number of threads.",
           'tx = T.env_thread("threadIdx.x")'),
)  # fmt: skip

_BLOCKS = (
    Member("T.sblock", "name=''", "context",
           "A block: the unit of scheduling. It declares its axes and the regions it reads and "
           "writes.", 'with T.sblock("C"):'),
    Member("T.block", "name=''", "context", "A block: the older name of `T.sblock`.",
           'with T.block("C"):'),
    Member("T.init", "", "context",
           "What a block does before the first round of its reduction.", "with T.init():"),
    *(Member(f"T.axis.{name}", _AXIS, "axis", doc, f"v = T.axis.{name}(8, i)")
      for name, doc in (
          ("spatial", "A block axis whose points are independent of each other."),
          ("S", "A block axis whose points are independent of each other: `T.axis.spatial`."),
          ("reduce", "A block axis that is reduced over."),
          ("R", "A block axis that is reduced over: `T.axis.reduce`."),
          ("scan", "A block axis whose points must be visited in order."),
          ("opaque", "A block axis about which nothing is known."))),
    Member("T.axis.remap", "kinds, bindings, dtype=None", "axis",
           "Several block axes, one per loop: a letter S (spatial) or R (reduce) for each.",
           'vi, vj, vk = T.axis.remap("SSR", [i, j, k])'),
    Member("T.reads", "*regions", "statement",
           "The regions that the block reads; inferred from its body where it is left out.",
           "T.reads(A[vi, 0:8])"),
    Member("T.writes", "*regions", "statement",
           "The regions that the block writes; inferred from its body where it is left out.",
           "T.writes(B[vi])"),
    Member("T.where", "predicate", "statement", "The block runs only where this holds.",
           "T.where(i * 8 + j < n)"),
    Member("T.sblock_attr", "attrs", "statement", "Attributes of the block, as a dictionary.",
           'T.sblock_attr({"pragma": 1})'),
    Member("T.block_attr", "attrs", "statement",
           "Attributes of the block: the older name of `T.sblock_attr`.",
           'T.block_attr({"pragma": 1})'),
    Member("T.func_attr", "attrs", "statement", "Attributes of the function, as a dictionary.",
           'T.func_attr({"tir.noalias": True})'),
    *(Member(f"T.{name}", "function=None, hygienic=True", "value",
             "The decorator of a function whose statements stand wherever it is called.",
             f"@T.{name}") for name in ("macro", "inline")),
    Member("T.evaluate", "value", "statement", "An expression evaluated for its effect.",
           'T.evaluate(T.call_extern("int32", "f", 1))'),
    *(Member(f"T.{name}", "", "statement", "Leaves the loop around it: `break`.", f"T.{name}()")
      for name in ("break_loop", "Break")),
    *(Member(f"T.{name}", "", "statement", "Goes on with the next iteration: `continue`.",
             f"T.{name}()") for name in ("continue_loop", "Continue")),
    *(Member(f"T.{name}", "value, var=None", "scalar", "A value that gets a name: `x = value`.",
             f"x = T.{name}(n * 2)") for name in ("bind", "Bind")),
    Member("T.Range", "begin, end=None", "value",
           "The numbers from `begin` to `end`, which is excluded, as the domain of an axis.",
           "vi = T.axis.spatial(T.Range(2, n), i)"),
    Member("T.meta_var", "value", "value",
           "A value of the surrounding Python, bound to a name as it is.",
           "tile = T.meta_var(32)"),
    *(Member(f"T.{name}", "target, host=None", "value",
             "The description of a target, as an attribute.",
             f'T.func_attr({{"target": T.{name}("cuda")}})') for name in ("target", "Target")),
    Member("T.If", "condition", "context", "A choice, by `T.Then` and `T.Else` in it.",
           "with T.If(n > 2):"),
    *(Member(f"T.{name}", "", "context", f"What a `T.If` does where its condition {holds}.",
             f"with T.{name}():") for name, holds in (("Then", "holds"), ("Else", "does not"))),
    Member("T.While", "condition", "context", "Statements that are repeated while it holds.",
           "with T.While(A[0] < n):"),
    Member("T.Assert", "condition, message, error_kind='RuntimeError'", "context",
           "Stops with the message unless the condition holds.", 'T.Assert(n > 2, "n is small")'),
    Member("T.LetStmt", "value", "context", "A name for a value inside the `with`.",
           "with T.LetStmt(n * 2) as m:"),
    Member("T.let", "body, where=None", "scalar",
           "An expression with a name for a value in it; also the annotation of a value that never "
           "changes.", "m: T.let[T.int64] = n * 2"),
    Member("T.Let", "body, where", "scalar", "An expression with a name for a value in it.",
           "T.Let(m + 1, where={m: n * 2})"),
)  # fmt: skip

_SCALARS = (
    *(Member(f"T.{name}", f"{first}, {second}", "scalar", "The value converted to a dtype.",
             f"T.{name}({example})")
      for name, first, second, example in (
          ("Cast", "dtype", "value", '"float32", n'), ("cast", "value", "dtype", 'n, "float32"'))),
    *(Member(f"T.{name}", "name=None, dtype='int64'", "scalar",
             "A symbol; `n = T.int64()` means the same.", f'n = T.{name}("int64")')
      for name in ("var", "Var")),
    Member("T.min_value", "dtype", "scalar", "The smallest finite value of a dtype.",
           'T.min_value("float32")'),
    Member("T.max_value", "dtype", "scalar", "The largest finite value of a dtype.",
           'T.max_value("float32")'),
    Member("T.infinity", "dtype", "scalar", "Infinity.", 'T.infinity("float32")'),
    Member("T.ceildiv", "a, b", "scalar", "The quotient of integers rounded up.",
           "T.ceildiv(n, 8)"),
    Member("T.if_then_else", "condition, true_value, false_value", "scalar",
           "One of two values; only that one is evaluated.", "T.if_then_else(i < n, A[i], 0.0)"),
    Member("T.Select", "condition, true_value, false_value", "scalar",
           "One of two values; both are evaluated.", "T.Select(i < n, a, b)"),
    *(Member(f"T.{name}", "base, stride, lanes", "scalar",
             "The vector base, base + stride, …: as an index, a vector of elements.",
             f"A[T.{name}(0, 1, 8)]") for name in ("Ramp", "ramp")),
    *(Member(f"T.{name}", "value, lanes", "scalar", "A vector that has a value in each lane.",
             f"T.{name}(0.0, 8)") for name in ("Broadcast", "broadcast")),
    Member("T.IntImm", "dtype, value", "scalar", "A constant of a dtype, as `T.int32(3)`.",
           'T.IntImm("int32", 3)'),
    Member("T.FloatImm", "dtype, value", "scalar", "A constant of a dtype, as `T.float32(3)`.",
           'T.FloatImm("float32", 3.0)'),
    Member("T.Shuffle", "vectors, indices", "scalar",
           "Lanes of several vectors or scalars, counted one after the other.",
           "T.Shuffle([x, y], [1, 0])"),
    Member("T.Not", "a", "scalar", "The opposite of a condition; `not a` means the same.",
           "T.Not(i < n)"),
    Member("T.index_map", "map", "scalar", "A map of indices, written as a lambda.",
           "T.index_map(lambda i, j: (j, i))"),
    Member("T.comm_reducer", "combiner, identity", "scalar",
           "A commutative reduction, as an attribute for threads that reduce together.",
           'T.attr({"reduce_scope": T.comm_reducer(lambda x, y: x + y, [T.float32(0)])})'),
)  # fmt: skip

_CALLS = (
    Member("T.call_intrin", "dtype, name, *args", "scalar", "A call of an intrinsic by its name.",
           'T.call_intrin("float32", "exp", x)'),
    Member("T.call_extern", "dtype, name, *args", "scalar",
           "A call of a C function that may have effects.", 'T.call_extern("int32", "f", 1)'),
    Member("T.call_pure_extern", "dtype, name, *args", "scalar",
           "A call of a C function without effects, or of an intrinsic.",
           'T.call_pure_extern("float32", "f", x)'),
    Member("T.call_llvm_intrin", "dtype, name, *args", "scalar", "A call of an LLVM intrinsic.",
           'T.call_llvm_intrin("float32", "llvm.fabs.f32", x)'),
    Member("T.call_llvm_pure_intrin", "dtype, name, *args", "scalar",
           "A call of an LLVM intrinsic without effects.",
           'T.call_llvm_pure_intrin("float32", "llvm.fabs.f32", x)'),
    Member("T.type_annotation", "dtype", "scalar", "A dtype among the arguments of a call.",
           'T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 16, 1)'),
    Member("T.reinterpret", "dtype, value", "scalar", "The bits of a value as another dtype.",
           'T.reinterpret("int32", x)'),
)  # fmt: skip

_BINARY = {
    "min": "The smaller of two scalars.", "max": "The larger of two scalars.",
    "truncdiv": "The quotient of integers rounded toward zero.",
    "truncmod": "The remainder of `truncdiv`: it has the sign of `a`.",
    "floordiv": "The quotient rounded down; `a // b` means the same.",
    "floormod": "The remainder of `floordiv`; `a % b` means the same.",
    "bitwise_and": "The bitwise AND; `a & b` means the same.",
    "bitwise_or": "The bitwise OR; `a | b` means the same.",
    "bitwise_xor": "The bitwise exclusive OR; `a ^ b` means the same.",
    "shift_left": "The bits of `a` shifted left by `b`; `a << b` means the same.",
    "shift_right": "The bits of `a` shifted right by `b`; `a >> b` means the same.",
    "Add": "The sum `a + b`.", "Sub": "The difference `a - b`.", "Mul": "The product `a * b`.",
    "Div": "The quotient; of integers, rounded toward zero.",
    "Mod": "The remainder of `T.Div`: it has the sign of `a`.",
    "FloorDiv": "The quotient rounded down: `a // b`.",
    "FloorMod": "The remainder of `T.FloorDiv`: `a % b`.",
    "Min": "The smaller of two scalars.", "Max": "The larger of two scalars.",
    "EQ": "The condition `a == b`.", "NE": "The condition `a != b`.",
    "LT": "The condition `a < b`.", "LE": "The condition `a <= b`.",
    "GT": "The condition `a > b`.", "GE": "The condition `a >= b`.",
    "And": "Both conditions: `a and b`.", "Or": "One condition or both: `a or b`.",
}  # fmt: skip

ALIASES = {
    "power": "pow", "BitwiseNot": "bitwise_not", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "LShift": "shift_left",
    "RShift": "shift_right",
}  # fmt: skip
"""Other names of intrinsics and operators."""

_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
).split()
SHORT_DTYPES = {
    "boolean": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64",
}  # fmt: skip
"""Other names of dtypes as members of `T`."""


def _alias(name: str, of: str) -> Member:
    if of in INTRINSICS:
        return _intrinsic(name, INTRINSICS[of])
    return Member(f"T.{name}", "a, b", "scalar", _BINARY[of], f"T.{name}(a, b)")


def _intrinsic(name: str, row: Intrinsic) -> Member:
    names = "*args" if row.arity < 0 else ", ".join("xyzabcd"[: row.arity])
    return Member(f"T.{name}", names, "scalar", row.doc, f"T.{name}({names})" * (row.arity > 0))


def _dtype(name: str, dtype: str) -> Member:
    symbol = f"Without a value, a symbol of that dtype: `n = T.{name}()`. "
    doc = f"A value as {dtype}. {symbol}As an annotation, a scalar parameter."
    return Member(f"T.{name}", "value=None", "type", doc, f"T.{name}(4)")


MEMBERS: dict[str, Member] = {
    m.name: m
    for m in (
        *(_intrinsic(n, row) for n, row in INTRINSICS.items()),
        *(_alias(n, of) for n, of in ALIASES.items()),
        # Some intrinsics are written in a form of their own, which replaces the general one.
        *_MODULES, *_TYPES, *_GRAPH, *_BUFFERS, *_LOOPS, *_THREADS, *_BLOCKS, *_SCALARS,
        *_CALLS,
        *(Member(f"T.{n}", "a, b", "scalar", doc, f"T.{n}(a, b)") for n, doc in _BINARY.items()),
        *(_dtype(d, d) for d in _DTYPES),
        *(_dtype(name, d) for name, d in SHORT_DTYPES.items()),
    )
}  # fmt: skip


@cache
def members_of(namespace: str) -> frozenset[str]:
    """The names of the members of `I`, `R` or `T`, without the namespace."""
    return frozenset(n[2:] for n in MEMBERS if n.startswith(f"{namespace}."))
