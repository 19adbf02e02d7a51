"""Calls from Python as machine code: arguments to words, the program's entry, results to arrays.

One C function serves all functions of all programs. It is called as CPython calls a builtin
(`METH_FASTCALL | METH_KEYWORDS`); the first item of its `self`, a tuple, is the address of a
*plan*, words that describe the arguments and where they go. Arrays are read where NumPy's C
interface has their fields, results are made by it. Calls that a plan does not cover are left to
Python, before anything was computed (`slow`) or after (`finish`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from relaxlab.codegen.llvm.builder import Builder
from relaxlab.codegen.llvm.support import BLOCK_HEADER, CONTEXT

PLAN = ("open", "params", "entry", "context", "state", "slow", "finish", "acquire", "release",
        "spare", "guards", "guarded", "grows", "out", "words", "results", "leaves", "single",
        "ndarray")  # fmt: skip
"""Names of a plan's words. open: the number of arguments of a call. params, results: one record
each (`PARAM`, `RESULT`). slow, finish, acquire, release, spare: Python objects. guards: first and
last address of memory that no argument may touch, `guarded` of them; if it `grows`, arguments join.
leaves: arrays in the result, -1 where Python makes it; if it is not `single`, they are a tuple."""
STATE = ("busy", "threads", "code")
"""Words that an executable's functions share: whether one runs, the threads it uses, and the last
one's return value."""
PARAM = ("kind", "type", "to", "ndim", "descr", "mask", "flags", "size", "dims")
"""kind: a number of `KINDS`. type: the only Python type that is taken. to: where its words go.
descr: an array's dtype, the type of a shape's dimensions. mask: bits that are 0 in the address of
an array. flags: those it must have. dims: an array's, -1 for any; an integer's least and most."""
KINDS = ("tensor", "shape", "integer", "real")
RESULT = ("at", "ndim", "descr")
"""at: the number of the word that has the address."""
CALL, NEW_ARRAY, SET_BASE = "relaxlab_call", "PyArray_NewFromDescr", "PyArray_SetBaseObject"
"""The function, and those of NumPy, which has them in a table instead of offering symbols."""

TYPE, DATA, NDIM, DIMS, DESCR, FLAGS = 8, 16, 24, 32, 56, 64
"""Bytes before the fields of a `PyArrayObject`; all objects have the type."""
CONTIGUOUS, WRITEABLE, DENSE = 0x1, 0x400, 0x501
"""Flags of arrays: C-contiguous; writeable; both, and aligned."""


class _Function(Builder):
    """Writes one function over words in memory."""

    def at(self, pointer: str, byte: int | str) -> str:
        return self.emit(f"getelementptr i8, ptr {pointer}, i64 {byte}", "p")

    def load(self, pointer: str, byte: int | str, ty: str = "ptr") -> str:
        return self.emit(
            f"load {ty}, ptr {self.at(pointer, byte)}, align {4 if ty == 'i32' else 8}"
        )

    def store(self, pointer: str, byte: int | str, value: str, ty: str = "ptr") -> None:
        self.raw(f"store {ty} {value}, ptr {self.at(pointer, byte)}, align 8")

    def get(self, table: Sequence[str], pointer: str, name: str, ty: str = "ptr") -> str:
        return self.load(pointer, 8 * table.index(name), ty)

    def set(
        self, table: Sequence[str], pointer: str, name: str, value: str, ty: str = "i64"
    ) -> None:
        self.store(pointer, 8 * table.index(name), value, ty)

    def item(self, pointer: str, index: str, words: int = 1) -> str:
        """Return the address of a record in a table of them."""
        return self.at(pointer, self.emit(f"mul i64 {index}, {8 * words}"))

    def is_(self, how: str, a: str, b: str, ty: str = "i64") -> str:
        return self.emit(f"icmp {how} {ty} {a}, {b}")

    def require(self, condition: str, otherwise: str) -> None:
        """Go on if the condition holds."""
        then = self.label("so")
        self.branch(condition, then, otherwise)
        self.place(then)

    def variable(self, value: str, ty: str = "i64") -> str:
        slot = self.alloca(1, ty, 8)
        self.store(slot, 0, value, ty)
        return slot

    @contextmanager
    def each(self, count: str) -> Generator[str, None, None]:
        """A loop from 0 to below the count."""
        index = self.variable("0")
        head, body, done = self.label("each"), self.label("body"), self.label("done")
        self.jump(head)
        self.place(head)
        i = self.load(index, 0, "i64")
        self.branch(self.is_("slt", i, count), body, done)
        self.place(body)
        yield i
        self.store(index, 0, self.emit(f"add i64 {i}, 1"), "i64")
        self.jump(head)
        self.place(done)

    @contextmanager
    def linked(self, first: str) -> Generator[str, None, None]:
        """Loop over a linked list of blocks; the body may free its block."""
        link = self.variable(first, "ptr")
        head, body, done = self.label("each"), self.label("body"), self.label("done")
        self.jump(head)
        self.place(head)
        block = self.load(link, 0)
        self.branch(self.is_("ne", block, "null", "ptr"), body, done)
        self.place(body)
        self.store(link, 0, self.load(block, 0))
        yield block
        self.jump(head)
        self.place(done)

    def text(self, head: str) -> str:
        return f"define {head} #0 {{\nentry:\n" + "\n".join([*self.allocas, *self.lines]) + "\n}\n"


def python_call(declarations: dict[str, str], large: int) -> list[str]:
    """Return the function `CALL` and its helpers; blocks of `large` bytes and more are left to
    Python."""
    return [
        _fill(_Function(declarations)),
        _lend(_Function(declarations)),
        _take_back(_Function(declarations)),
        _own(_Function(declarations), large),
        _find(_Function(declarations)),
        _drop(_Function(declarations)),
        _array(_Function(declarations)),
        _make(_Function(declarations)),
        _call(_Function(declarations)),
    ]


def _fill(b: _Function) -> str:
    """True if all arguments are as foreseen; their words are written."""
    no = b.label("no")
    guarded = b.variable(b.get(PLAN, "%plan", "guarded", "i64"))
    params = b.get(PLAN, "%plan", "params")
    with b.each(b.get(PLAN, "%plan", "open", "i64")) as i:
        value, param = b.load(b.item("%args", i), 0), b.item(params, i, len(PARAM))
        given, wanted = b.load(value, TYPE), b.get(PARAM, param, "type")
        b.require(b.is_("eq", given, wanted, "ptr"), no)
        labels, done = [b.label(kind) for kind in KINDS], b.label("filled")
        cases = " ".join(f"i64 {n}, label %{label}" for n, label in enumerate(labels))
        b.raw(f"switch i64 {b.get(PARAM, param, 'kind', 'i64')}, label %{no} [{cases}]")
        for label, fill in zip(labels, (_tensor, _shape, _integer, _real), strict=True):
            b.place(label)
            size = fill(b, value, param, no)
            if label == labels[0]:
                _keep_apart(b, value, size, guarded, no)
            b.jump(done)
        b.place(done)
    b.raw("ret i1 true")
    b.place(no)
    b.call("PyErr_Clear", "void", [])
    b.raw("ret i1 false")
    return b.text("internal i1 @relaxlab_fill(ptr %plan, ptr %args)")


def _tensor(b: _Function, value: str, param: str, no: str) -> str:
    """Returns the bytes that it has."""
    same = b.is_("eq", b.load(value, DESCR), b.get(PARAM, param, "descr"), "ptr")
    b.require(same, no)
    flags, wanted = b.load(value, FLAGS, "i32"), b.get(PARAM, param, "flags", "i32")
    b.require(b.is_("eq", b.emit(f"and i32 {flags}, {wanted}"), wanted, "i32"), no)
    ndim = b.get(PARAM, param, "ndim", "i64")
    b.require(b.is_("eq", b.emit(f"sext i32 {b.load(value, NDIM, 'i32')} to i64"), ndim), no)
    data, to = b.load(value, DATA, "i64"), b.get(PARAM, param, "to")
    low = b.emit(f"and i64 {data}, {b.get(PARAM, param, 'mask', 'i64')}")
    b.require(b.is_("eq", low, "0"), no)
    b.store(to, 0, data, "i64")
    size = b.variable(b.get(PARAM, param, "size", "i64"))
    given, fixed = b.load(value, DIMS), b.get(PARAM, param, "dims")
    with b.each(ndim) as axis:
        dim = b.load(b.item(given, axis), 0, "i64")
        want = b.load(b.item(fixed, axis), 0, "i64")
        fits = b.emit(f"or i1 {b.is_('eq', dim, want)}, {b.is_('slt', want, '0')}")
        b.require(fits, no)
        b.store(b.item(to, axis), 8, dim, "i64")
        b.store(size, 0, b.emit(f"mul i64 {b.load(size, 0, 'i64')}, {dim}"), "i64")
    return b.load(size, 0, "i64")


def _keep_apart(b: _Function, value: str, size: str, guarded: str, no: str) -> None:
    """Emit a check that no argument shares memory with one that is updated in place."""
    start, guards = b.load(value, DATA, "i64"), b.get(PLAN, "%plan", "guards")
    end, count = b.emit(f"add i64 {start}, {size}"), b.load(guarded, 0, "i64")
    with b.each(count) as g:
        guard = b.item(guards, g, 2)
        before = b.is_("ule", end, b.load(guard, 0, "i64"))
        after = b.is_("uge", start, b.load(guard, 8, "i64"))
        b.require(b.emit(f"or i1 {before}, {after}"), no)
    grows = b.get(PLAN, "%plan", "grows", "i64")
    with b.when(b.is_("ne", grows, "0")):
        own = b.item(guards, count, 2)
        b.store(own, 0, start, "i64")
        b.store(own, 8, end, "i64")
        b.store(guarded, 0, b.emit(f"add i64 {count}, 1"), "i64")


def _shape(b: _Function, value: str, param: str, no: str) -> str:
    ndim, to = b.get(PARAM, param, "ndim", "i64"), b.get(PARAM, param, "to")
    b.require(b.is_("eq", b.call("PyTuple_Size", "i64", _args(value)), ndim), no)
    with b.each(ndim) as axis:
        item = b.call("PyTuple_GetItem", "ptr", [("ptr", value), ("i64", axis)])
        known = b.is_("eq", b.load(item, TYPE), b.get(PARAM, param, "descr"), "ptr")
        b.require(known, no)
        dim = b.call("PyLong_AsLongLong", "i64", _args(item))
        b.require(b.is_("sge", dim, "0"), no)  # -1 where it does not fit
        b.store(b.item(to, axis), 0, dim, "i64")
    return ""


def _integer(b: _Function, value: str, param: str, no: str) -> str:
    number, range_ = b.call("PyLong_AsLongLong", "i64", _args(value)), b.get(PARAM, param, "dims")
    b.require(b.is_("eq", b.call("PyErr_Occurred", "ptr", []), "null", "ptr"), no)
    b.require(b.is_("sge", number, b.load(range_, 0, "i64")), no)
    b.require(b.is_("sle", number, b.load(range_, 8, "i64")), no)
    b.store(b.get(PARAM, param, "to"), 0, number, "i64")
    return ""


def _real(b: _Function, value: str, param: str, no: str) -> str:
    number, to = b.call("PyFloat_AsDouble", "double", _args(value)), b.get(PARAM, param, "to")
    single = b.emit(f"bitcast float {b.emit(f'fptrunc double {number} to float')} to i32")
    short = b.is_("eq", b.get(PARAM, param, "size", "i64"), "4")
    bits = b.emit(f"zext i32 {single} to i64"), b.emit(f"bitcast double {number} to i64")
    b.store(to, 0, b.emit(f"select i1 {short}, i64 {bits[0]}, i64 {bits[1]}"), "i64")
    return ""


def _lend(b: _Function) -> str:
    """The blocks in the Python list `spare` become the context's linked list."""
    context, spare = b.get(PLAN, "%plan", "context"), b.get(PLAN, "%plan", "spare")
    count = b.call("PyList_Size", "i64", _args(spare))
    with b.each(count) as i:
        number = b.call("PyList_GetItem", "ptr", [("ptr", spare), ("i64", i)])
        block = b.call("PyLong_AsVoidPtr", "ptr", _args(number))
        b.store(block, 0, b.get(CONTEXT, context, "spare"))
        b.set(CONTEXT, context, "spare", block, "ptr")
    with b.when(b.is_("ne", count, "0")):
        whole = [("ptr", spare), ("i64", "0"), ("i64", count), ("ptr", "null")]
        b.call("PyList_SetSlice", "i32", whole)
    b.raw("ret void")
    return b.text("internal void @relaxlab_lend(ptr %plan)")


def _take_back(b: _Function) -> str:
    """Emit the return of the list's unused rest to the spare blocks."""
    context, spare = b.get(PLAN, "%plan", "context"), b.get(PLAN, "%plan", "spare")
    with b.linked(b.get(CONTEXT, context, "spare")) as block:
        number = b.call("PyLong_FromVoidPtr", "ptr", _args(block))
        b.call("PyList_Append", "i32", _args(spare, number))
        b.call("Py_DecRef", "void", _args(number))
    b.set(CONTEXT, context, "spare", "null", "ptr")
    b.raw("ret void")
    return b.text("internal void @relaxlab_take_back(ptr %plan)")


def _own(b: _Function, large: int) -> str:
    """True if every array of the result is an argument or a block of its own, and no block is
    large. Then `%values` has the arguments, null for blocks, and the other blocks are freed. The
    third word of a block says whether it belongs to the result."""
    no, context = b.label("no"), b.get(PLAN, "%plan", "context")
    owned = b.get(CONTEXT, context, "owned")
    with b.linked(owned) as block:
        rest = b.emit(f"sub i64 {b.load(block, 8, 'i64')}, 1")  # empty arrays are left to Python
        b.require(b.is_("ult", rest, str(large - 1)), no)
        b.store(block, 16, "0", "i64")
    results, out = b.get(PLAN, "%plan", "results"), b.get(PLAN, "%plan", "out")
    with b.each(b.get(PLAN, "%plan", "leaves", "i64")) as i:
        result = b.item(results, i, len(RESULT))
        word = b.item(out, b.get(RESULT, result, "at", "i64"))
        wanted, found = b.at(b.load(word, 0), -BLOCK_HEADER), b.variable("null", "ptr")
        with b.linked(owned) as block, b.when(b.is_("eq", block, wanted, "ptr")):
            b.store(found, 0, block)
        block, value = b.load(found, 0), b.item("%values", i)
        b.store(value, 0, "null")
        fresh, given, done = b.label("fresh"), b.label("given"), b.label("done")
        b.branch(b.is_("ne", block, "null", "ptr"), fresh, given)
        b.place(fresh)
        b.require(b.is_("eq", b.load(block, 16, "i64"), "0"), no)
        b.store(block, 16, "1", "i64")
        b.jump(done)
        b.place(given)
        argument = b.call("relaxlab_find", "ptr", _args("%plan", "%args", result, word))
        b.store(value, 0, argument)
        b.require(b.is_("ne", argument, "null", "ptr"), no)
        b.jump(done)
        b.place(done)
    with b.linked(owned) as block, b.when(b.is_("eq", b.load(block, 16, "i64"), "0")):
        b.call("free", "void", _args(block))
    b.set(CONTEXT, context, "owned", "null", "ptr")
    b.raw("ret i1 true")
    b.place(no)
    b.raw("ret i1 false")
    return b.text("internal i1 @relaxlab_own(ptr %plan, ptr %args, ptr %values)")


def _find(b: _Function) -> str:
    """The argument that is the same array as a result, or null."""
    params = b.get(PLAN, "%plan", "params")
    ndim, descr = (b.get(RESULT, "%result", name, "i64") for name in ("ndim", "descr"))
    with b.each(b.get(PLAN, "%plan", "open", "i64")) as i:
        param, value, other = (
            b.item(params, i, len(PARAM)),
            b.load(b.item("%args", i), 0),
            b.label("other"),
        )
        for name, wanted in (("kind", "0"), ("ndim", ndim), ("descr", descr)):
            b.require(b.is_("eq", b.get(PARAM, param, name, "i64"), wanted), other)
        same = b.is_("eq", b.load(value, DATA), b.load("%word", 0), "ptr")
        b.require(same, other)
        dims = b.load(value, DIMS)
        with b.each(ndim) as axis:
            dim, got = b.load(b.item(dims, axis), 0, "i64"), b.load(b.item("%word", axis), 8, "i64")
            b.require(b.is_("eq", dim, got), other)
        b.raw(f"ret ptr {value}")
        b.place(other)
    b.raw("ret ptr null")
    return b.text("internal ptr @relaxlab_find(ptr %plan, ptr %args, ptr %result, ptr %word)")


def _drop(b: _Function) -> str:
    """Emit the function that the last array over a block calls."""
    block = b.call("PyCapsule_GetPointer", "ptr", _args("%capsule", "null"))
    b.call("free", "void", _args(block))
    b.raw("ret void")
    return b.text("internal void @relaxlab_drop(ptr %capsule)")


def _array(b: _Function) -> str:
    """An array over a block, which it owns; null where there is no memory for it."""
    descr, data = b.get(RESULT, "%result", "descr"), b.load("%word", 0)
    drop = [("ptr", b.at(data, -BLOCK_HEADER)), ("ptr", "null"), ("ptr", "@relaxlab_drop")]
    owner = b.call("PyCapsule_New", "ptr", drop)
    b.call("Py_IncRef", "void", _args(descr))
    array = b.call(NEW_ARRAY, "ptr", [
        *_args(b.get(PLAN, "%plan", "ndarray"), descr),
        ("i32", b.get(RESULT, "%result", "ndim", "i32")), *_args(b.at("%word", 8), "null", data),
        ("i32", str(DENSE)), ("ptr", "null"),
    ])  # fmt: skip
    no = b.label("no")
    for part in (owner, array):
        b.require(b.is_("ne", part, "null", "ptr"), no)
    b.call(SET_BASE, "i32", _args(array, owner))
    b.raw(f"ret ptr {array}")
    b.place(no)
    b.call("Py_DecRef", "void", _args(array))
    b.call("Py_DecRef", "void", _args(owner))
    b.raw("ret ptr null")
    return b.text("internal ptr @relaxlab_array(ptr %plan, ptr %result, ptr %word)")


def _make(b: _Function) -> str:
    """Write the function that makes the result from its words and from `%values`. Each block gets
    its owner, whatever fails."""
    leaves, results = b.get(PLAN, "%plan", "leaves", "i64"), b.get(PLAN, "%plan", "results")
    several = b.is_("eq", b.get(PLAN, "%plan", "single", "i64"), "0")
    made, failed = b.variable("null", "ptr"), b.variable("false", "i1")
    with b.when(several):
        b.store(made, 0, b.call("PyTuple_New", "ptr", [("i64", leaves)]))
    with b.each(leaves) as i:
        result, slot = b.item(results, i, len(RESULT)), b.item("%values", i)
        fresh = b.is_("eq", b.load(slot, 0), "null", "ptr")
        with b.when(fresh):
            word = b.item("%words", b.get(RESULT, result, "at", "i64"))
            b.store(slot, 0, b.call("relaxlab_array", "ptr", _args("%plan", result, word)))
        with b.when(b.emit(f"xor i1 {fresh}, true")):
            b.call("Py_IncRef", "void", _args(b.load(slot, 0)))
        value = b.load(slot, 0)
        with b.when(b.is_("eq", value, "null", "ptr")):
            b.store(failed, 0, "true", "i1")
        tuple_, whole = b.load(made, 0), b.variable(value, "ptr")
        with b.when(several):
            b.call("PyTuple_SetItem", "i32", [("ptr", tuple_), ("i64", i), ("ptr", value)])
            b.store(whole, 0, tuple_)
        b.store(made, 0, b.load(whole, 0))
    value = b.load(made, 0)
    with b.when(b.load(failed, 0, "i1")):
        b.call("Py_DecRef", "void", _args(value))
        b.raw("ret ptr null")
        b.place(b.label("unreachable"))
    b.raw(f"ret ptr {value}")
    return b.text("internal ptr @relaxlab_make(ptr %plan, ptr %words, ptr %values)")


def _call(b: _Function) -> str:
    """The builtin. The interpreter's lock is given up while the program runs, the executable's is
    held until its words were read."""
    slow, refused = b.label("slow"), b.label("refused")
    address = b.call("PyTuple_GetItem", "ptr", [("ptr", "%self"), ("i64", "0")])
    plan = b.call("PyLong_AsVoidPtr", "ptr", _args(address))
    b.require(b.is_("eq", "%names", "null", "ptr"), slow)
    b.require(b.is_("eq", b.get(PLAN, plan, "open", "i64"), "%count"), slow)
    _lock(b, plan)
    state, context = b.get(PLAN, plan, "state"), b.get(PLAN, plan, "context")
    b.require(b.is_("eq", b.get(STATE, state, "busy", "i64"), "0"), refused)
    b.require(b.call("relaxlab_fill", "i1", _args(plan, "%args")), refused)
    b.set(STATE, state, "busy", "1")
    b.set(CONTEXT, context, "kernel_failed", "0")  # of a call whose report was interrupted
    b.call("relaxlab_lend", "void", _args(plan))
    entry, threads = b.get(PLAN, plan, "entry"), b.get(STATE, state, "threads", "i64")
    thread = b.call("PyEval_SaveThread", "ptr", [])
    code = b.emit(f"call i64 {entry}(ptr {context}, i64 {threads})")
    b.call("PyEval_RestoreThread", "void", _args(thread))
    b.call("relaxlab_take_back", "void", _args(plan))
    b.set(STATE, state, "code", code)

    finish = b.label("finish")
    b.require(b.is_("eq", code, "0"), finish)
    leaves, count = b.get(PLAN, plan, "leaves", "i64"), b.get(PLAN, plan, "words", "i64")
    b.require(b.is_("sge", leaves, "0"), finish)
    values = b.emit(f"alloca ptr, i64 {leaves}, align 8")
    b.require(b.call("relaxlab_own", "i1", _args(plan, "%args", values)), finish)
    words = b.emit(f"alloca i64, i64 {count}, align 8")
    size, out = b.emit(f"shl i64 {count}, 3"), b.get(PLAN, plan, "out")
    copied = [("ptr", words), ("ptr", out), ("i64", size), ("i1", "false")]
    b.call("llvm.memcpy.p0.p0.i64", "void", copied)
    b.set(STATE, state, "busy", "0")
    _unlock(b, plan)
    b.raw(f"ret ptr {b.call('relaxlab_make', 'ptr', _args(plan, words, values))}")

    b.place(finish)
    value = _python(b, b.get(PLAN, plan, "finish"))
    b.set(STATE, state, "busy", "0")
    pending = b.alloca(3, "ptr", 8)
    error = [("ptr", b.at(pending, 8 * i)) for i in range(3)]
    b.call("PyErr_Fetch", "void", error)  # `release` is not to be called with an error pending
    _unlock(b, plan)
    b.call("PyErr_Restore", "void", [("ptr", b.load(at, 0)) for _, at in error])
    b.raw(f"ret ptr {value}")

    b.place(refused)
    _unlock(b, plan)
    b.jump(slow)
    b.place(slow)
    given = [("ptr", b.get(PLAN, plan, "slow")), ("ptr", "%args"), ("i64", "%count")]
    b.raw(f"ret ptr {b.call('PyObject_Vectorcall', 'ptr', [*given, ('ptr', '%names')])}")
    return b.text(f"ptr @{CALL}(ptr %self, ptr %args, i64 %count, ptr %names)")


def _args(*pointers: str) -> list[tuple[str, str]]:
    return [("ptr", p) for p in pointers]


def _python(b: _Function, function: str, args: str = "%args", count: str = "%count") -> str:
    given = [("ptr", function), ("ptr", args), ("i64", count), ("ptr", "null")]
    return b.call("PyObject_Vectorcall", "ptr", given)


def _lock(b: _Function, plan: str) -> None:
    """Wait for one's turn; an interrupt ends that, and the call."""
    done = _python(b, b.get(PLAN, plan, "acquire"), "null", "0")
    with b.when(b.is_("eq", done, "null", "ptr")):
        b.raw("ret ptr null")
        b.place(b.label("unreachable"))
    b.call("Py_DecRef", "void", _args(done))


def _unlock(b: _Function, plan: str) -> None:
    done = _python(b, b.get(PLAN, plan, "release"), "null", "0")
    b.call("Py_DecRef", "void", _args(done))
