"""The layout of the plans of calls from Python, and of the objects that these read.

Loading a program reads this, so it imports no part of the compiler.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.context import Context
from relaxlab.codegen.llvm.lowlevel import Address, Array, Int, Record, Table, Word, layout_of


class Object(Record):
    """CPython's `PyObject`."""

    references: Word
    type: Address


class ArrayObject(Record):
    """NumPy's `PyArrayObject`."""

    references: Word
    type: Address
    data: Address
    ndim: Int
    dims: Array[Word]
    strides: Array[Word]
    base: Object
    descr: Address
    flags: Int


class Guard(Record):
    """First and last address of memory that no argument may touch."""

    start: Address
    end: Address


class Param(Record):
    """kind: a number of `KINDS`. type: the only Python type that is taken. to: where its words go.
    descr: an array's dtype, the type of a shape's dimensions. mask: bits that are 0 in the address
    of an array. flags: those it must have. dims: an array's, -1 for any; an integer's least and
    most."""

    kind: Word
    type: Address
    to: Array[Word]
    ndim: Word
    descr: Address
    mask: Word
    flags: Word
    size: Word
    dims: Array[Word]


class Result(Record):
    """at: the number of the word that has the address."""

    at: Word
    ndim: Word
    descr: Address


class State(Record):
    """Words that an executable's functions share: true if one runs, the threads it uses, and the
    last one's return value."""

    busy: Word
    threads: Word
    code: Word


class Plan(Record):
    """open: the number of arguments of a call. slow, finish, acquire, release, spare: Python
    objects. guards: `guarded` of them; if it `grows`, arguments join. leaves: arrays in the result,
    -1 where Python makes it; if it is not `single`, they are a tuple."""

    open: Word
    params: Table[Param]
    entry: Address
    context: Context
    state: State
    slow: Object
    finish: Object
    acquire: Object
    release: Object
    spare: Object
    guards: Table[Guard]
    guarded: Word
    grows: Word
    out: Array[Address]
    words: Word
    results: Table[Result]
    leaves: Word
    single: Word
    ndarray: Address


PLAN, STATE, PARAM, RESULT = (tuple(r.__annotations__) for r in (Plan, State, Param, Result))
"""Names of their words."""
TENSOR, SHAPE, INTEGER, REAL = range(4)
KINDS = {"tensor": TENSOR, "shape": SHAPE, "integer": INTEGER, "real": REAL}
CALL = "relaxlab_call"
"""The function by which Python calls a program."""
NEW_ARRAY, NEW_SCALAR = "PyArray_NewFromDescr", "PyArray_Scalar"
SET_BASE = "PyArray_SetBaseObject"
"""Functions of NumPy, which has them in a table instead of offering symbols."""
OFFSETS = {field: at for field, (at, _) in layout_of(ArrayObject).items()}
"""The bytes of an array object at which its fields start."""
CONTIGUOUS, WRITEABLE, DENSE = 0x1, 0x400, 0x501
"""Flags of arrays: C-contiguous; writeable; both, and aligned."""
