"""The layout of what reads inputs from Python objects, and makes values of data types: plans of
types, and memory.

Loading a program reads this, so it imports no part of the compiler.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.lowlevel import Address, Array, Byte, Record, Table, Word
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
HOLE_VALUE, HOLE_TYPE, HOLE_FIELDS, HOLE_INDEX, HOLE_WORDS = 0, 1, 2, 3, 4
"""Words of what is still to be made: the address of a value, the number of its data type, and the
tuple of fields and the place in it where its object goes."""


class ValueObject(Record):
    """A `DataValue` of Python, whose slots CPython orders by their names."""

    references: Word
    type: Address
    constructor: Object
    data: Object
    fields: Object
    tag: Object


class ScalarObject(Record):
    """An integer of NumPy's; `value` is the first of its bytes."""

    references: Word
    type: Address
    value: Byte


class FieldPlan(Record):
    """kind: `DATA`, `SCALAR` or `TENSOR`. data: the number of a data type. Of arrays their dtype,
    the bytes of all elements, the dimensions, and the group of those with equal dtypes; of integers
    1 if they have a sign."""

    kind: Word
    data: Word
    descr: Address
    size: Word
    ndim: Word
    dims: Array[Word]
    group: Word
    signed: Word


class ConstructorPlan(Record):
    """The name, and the fields: `count` rows of the table of fields, from `first` on. tag: its
    number, as an object. only: the value of a constructor without fields, null of others."""

    name: Object
    first: Word
    count: Word
    tag: Object
    only: Object


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
    `mask` + 1. groups: `group_count` of them."""

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
    group_count: Word


class Making(Record):
    """stamp, nodes, room, table, mask: as in `Reading`; entries are by addresses and have the
    objects that were made. holes: what is still to be made, `depth` of them. arena, offsets: where
    tensors are, by their slots; their words are addresses if `offsets` is null. code: `NO_ROOM`
    where there was too little, else `DONE`."""

    stamp: Word
    nodes: Word
    room: Word
    table: Array[Word]
    mask: Word
    holes: Array[Word]
    depth: Word
    value_type: Address
    array_type: Address
    data: Table[DataPlan]
    constructors: Table[ConstructorPlan]
    fields: Table[FieldPlan]
    arena: Word
    offsets: Array[Word]
    code: Word


class InputPlan(Record):
    """An input of an instance: where it is in the tuple of arguments (the number of the parameter,
    then `depth` numbers in tuples inside of it), and its kind. Of values the number of their data
    type; of integers the least and the most, 1 if they have a sign, and the types of Python's and
    of NumPy's numbers (`word_type`: those of 64 bits, if they are taken); of arrays as in
    `FieldPlan`, where a dimension below zero is -1 - the number of a symbol, and `size` are the
    bytes of an element. records: where those of arrays go, one per instance; placed: 1 for those
    that blocks read, which have slots from `first_slot` on; bytes: of all that were read."""

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
    data: Word
    signed: Word
    python_type: Address
    scalar_type: Address
    word_type: Address


class Instances(Record):
    """The inputs of a batch: `count` plans, and for each instance `count` words. symbols: room for
    the values of one instance's symbols. reading: for values of data types, null without any."""

    count: Word
    arguments: Word
    words: Array[Word]
    symbols: Array[Word]
    symbol_count: Word
    array_type: Address
    tuple_type: Address
    plans: Table[InputPlan]
    reading: Reading


READ_INSTANCES = "relaxlab_read_instances"
"""The function `(instances, list)` that reads all inputs."""
READ_VALUE = "relaxlab_read_one_value"
"""The function `(reading, object, data type, target)` that reads a value alone."""
BEGIN_MAKING, MAKE_VALUE = "relaxlab_begin_making", "relaxlab_make_value"
"""The function `(making)` with which values of a result begin; and `(making, address, data type)`
that makes one: the address of a new reference, or 0."""
MAKE_VALUES = "relaxlab_make_values"
"""The function `(making, list, addresses, count, data type)` that appends values to a list."""
