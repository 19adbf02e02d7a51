"""The layout of what reads the inputs of a batch from Python objects: plans of types, and memory.

Loading a program reads this, so it imports no part of the compiler.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.lowlevel import Address, Array, Record, Table, Word
from relaxlab.codegen.llvm.plan import Object

DATA, SCALAR, TENSOR = range(3)
"""Kinds of fields: a value of a data type, an integer, the elements of an array."""
DONE, NO_ROOM, UNEXPECTED = range(3)
"""Results: all was read; the caller makes room and begins again; something is not as the plan has
it, and is left to Python."""
ENTRY_OBJECT, ENTRY_PLACE, ENTRY_STAMP, ENTRY_WORDS = 0, 1, 2, 3
"""Words of an entry of the table of values: the object, the address of its words, and twice the
number of the reading, plus 1 while its fields are read."""
PENDING_OBJECT, PENDING_TYPE, PENDING_TARGET, PENDING_WORDS = 0, 1, 2, 3
"""Words of what is still to be read: a value, the number of its data type, and where its address
goes; or 0 and the entry of a value whose fields have all been read."""


class ValueObject(Record):
    """A `DataValue` of Python, whose slots CPython orders by their names."""

    references: Word
    type: Address
    constructor: Object
    data: Object
    fields: Object
    tag: Object


class FieldPlan(Record):
    """kind: `DATA`, `SCALAR` or `TENSOR`. data: the number of a data type. Of arrays their dtype,
    the bytes of all elements, the dimensions, and the group of those with equal dtypes."""

    kind: Word
    data: Word
    descr: Address
    size: Word
    ndim: Word
    dims: Array[Word]
    group: Word


class ConstructorPlan(Record):
    """The name, and the fields: `count` rows of the table of fields, from `first` on."""

    name: Object
    first: Word
    count: Word


class DataPlan(Record):
    """The name, and the constructors: `count` rows of their table, from `first` on."""

    name: Object
    first: Word
    count: Word


class Group(Record):
    """The arrays of one dtype, in the order in which they were read: `data` has the elements of
    all, `used` bytes; `at` has for each of them the word of a value that stands for it, `sizes` its
    bytes."""

    data: Address
    used: Word
    count: Word
    at: Array[Word]
    sizes: Array[Word]


GROUP_WORDS = len(Group.__annotations__)
"""Words of a group."""


class Reading(Record):
    """stamp: twice the number of this reading. words: where values go, of which `used` are taken.
    nodes: the values that were read; there is room for `room`. table: entries by objects; there are
    `mask` + 1."""

    stamp: Word
    words: Array[Word]
    used: Word
    nodes: Word
    room: Word
    table: Array[Word]
    mask: Word
    pending: Array[Word]
    value_type: Address
    array_type: Address
    data: Table[DataPlan]
    constructors: Table[ConstructorPlan]
    fields: Table[FieldPlan]
    groups: Table[Group]


class InputPlan(Record):
    """An input of an instance: where it is in the tuple of arguments (the number of the parameter,
    then `depth` numbers in tuples inside of it), and its kind. Of integers the least and the most;
    of arrays as in `FieldPlan`, where a dimension below zero is -1 - the number of a symbol, and
    `size` are the bytes of an element. records: where those of arrays go, one per instance;
    placed: 1 for those that blocks read, which have slots from `first_slot` on; bytes: of all that
    were read."""

    kind: Word
    parameter: Word
    depth: Word
    path: Array[Word]
    descr: Address
    ndim: Word
    dims: Array[Word]
    size: Word
    least: Word
    most: Word
    records: Array[Word]
    placed: Word
    first_slot: Word
    bytes: Word


class Instances(Record):
    """The inputs of a batch: `count` plans, and for each instance `count` words. symbols: room for
    the values of one instance's symbols."""

    count: Word
    arguments: Word
    words: Array[Word]
    symbols: Array[Word]
    symbol_count: Word
    array_type: Address
    tuple_type: Address
    int_type: Address
    word_type: Address
    plans: Table[InputPlan]


READ_INSTANCES = "relaxlab_read_instances"
"""The function `(instances, list)` that reads all inputs but values of data types."""
READ_VALUES = "relaxlab_read_values"
"""The function `(reading, values, data type, target, step)` that reads a list of values."""
