"""The inputs of a batch, and values of data types, in machine code: from Python objects to words.

An integer is a word, an array the address of its input record. A value becomes the number of its
constructor, then a word per field: an integer, the number of an array, or the address of another
value. Each is read once, however often it is met. There is no work in Python for an instance or a
value; what is not as the plan has it is left to Python, which says what it is.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.flushing import copy_memory
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Byte,
    Flag,
    Int,
    Word,
    address_of,
    external,
    low_level,
)
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.plan import DENSE, WRITEABLE, ArrayObject, Object
from relaxlab.codegen.llvm.python_call import (
    as_integer,
    clear_error,
    list_item,
    list_size,
    pending_error,
    tuple_item,
    tuple_size,
)
from relaxlab.codegen.llvm.reading_plan import (
    DATA,
    DONE,
    ENTRY_OBJECT,
    ENTRY_PLACE,
    ENTRY_STAMP,
    ENTRY_WORDS,
    NO_ROOM,
    PENDING_OBJECT,
    PENDING_TARGET,
    PENDING_TYPE,
    PENDING_WORDS,
    SCALAR,
    TENSOR,
    UNEXPECTED,
    FieldPlan,
    InputPlan,
    Instances,
    Reading,
    ScalarObject,
    ValueObject,
)
from relaxlab.ir.recording import RECORD_DATA, RECORD_DIMS, RECORD_SLOT

HASH = 2654435761
"""Knuth's multiplier for words of 32 bits; the bits above the lowest 20 of a product are used."""


@external("PyUnicode_Compare")
def compare_texts(a: Object, b: Object) -> Int: ...


@low_level
def same_text(a: Object, b: Object) -> Flag:
    """True if two names are equal; most often they are one object."""
    return a == b or compare_texts(a, b) == 0


@low_level
def entry_of(table: Array[Word], mask: Word, stamp: Word, value: Word) -> Array[Word]:
    """The entry of an address in a table, or the one that is free for it."""
    at = value // 8 * HASH // 1048576 & mask
    while True:
        entry = Array[Word](address_of(table[at * ENTRY_WORDS]))
        if entry[ENTRY_STAMP] // 2 != stamp // 2 or entry[ENTRY_OBJECT] == value:
            return entry
        at = (at + 1) & mask


@low_level
def integer_at(place: Address, size: Word, signed: Word) -> Word:
    """An integer of so many bytes in memory."""
    if size == 8:
        return Array[Word](place)[0]
    narrow = Array[Byte](place)
    value = 0
    for byte in range(size):
        value += narrow[byte] * (1 << (8 * byte))
    if signed != 0 and narrow[size - 1] >= 128:
        value = value - (1 << (8 * size))
    return value


@low_level
def read_array(reading: Reading, item: Object, field: FieldPlan, at: Word) -> Word:
    """Read a field that is an array: its one integer into the word `at`, or its elements behind
    those of other arrays."""
    array = ArrayObject(item)
    dense = DENSE - WRITEABLE
    if item.type != reading.array_type or array.descr != field.descr:
        return UNEXPECTED
    if array.ndim != field.ndim or array.flags & dense != dense:
        return UNEXPECTED
    for axis in range(field.ndim):
        if array.dims[axis] != field.dims[axis]:
            return UNEXPECTED
    if field.kind == SCALAR:
        reading.words[at] = integer_at(array.data, field.size, field.signed)
        return DONE
    group = reading.groups[field.group]
    copy_memory(group.data + group.used, array.data, field.size)
    group.at[group.count] = at
    group.sizes[group.count] = field.size
    group.used = group.used + field.size
    group.count = group.count + 1
    reading.words[at] = group.count - 1
    return DONE


@low_level
def read_fields(reading: Reading, value: ValueObject, of: Word, depth: Word) -> Word:
    """Write the tag and the fields of a value, and note the values among them as pending. Return
    how many are pending then, or -1 - `NO_ROOM` or -1 - `UNEXPECTED`."""
    data = reading.data[of]
    # Slots that nobody has filled are null.
    if value.tag == NULL or value.data == NULL:
        return -1 - UNEXPECTED
    if value.constructor == NULL or value.fields == NULL:
        return -1 - UNEXPECTED
    tag = as_integer(value.tag)
    if tag < 0 or tag >= data.count or not same_text(value.data, data.name):
        return -1 - UNEXPECTED
    constructor = reading.constructors[data.first + tag]
    count = constructor.count
    if not same_text(value.constructor, constructor.name) or tuple_size(value.fields) != count:
        return -1 - UNEXPECTED
    if reading.nodes == reading.room:
        return -1 - NO_ROOM
    reading.nodes = reading.nodes + 1
    first = reading.used
    reading.used = first + 1 + count
    reading.words[first] = tag
    for k in range(count):
        field = reading.fields[constructor.first + k]
        item = tuple_item(value.fields, k)
        if field.kind == DATA:
            pending = Array[Word](address_of(reading.pending[depth * PENDING_WORDS]))
            pending[PENDING_OBJECT] = Word(item)
            pending[PENDING_TYPE] = field.data
            pending[PENDING_TARGET] = Word(address_of(reading.words[first + 1 + k]))
            depth += 1
        else:
            code = read_array(reading, item, field, first + 1 + k)
            if code != DONE:
                return -1 - code
    return depth


@low_level
def read_value(reading: Reading, value: Address, of: Word, to: Address) -> Word:
    """Read a value with all that it is made of; its address goes to `to`. Deep trees need no
    recursion."""
    pending = reading.pending
    pending[PENDING_OBJECT] = Word(value)
    pending[PENDING_TYPE] = of
    pending[PENDING_TARGET] = Word(to)
    depth = 1
    while depth > 0:
        depth -= 1
        top = Array[Word](address_of(reading.pending[depth * PENDING_WORDS]))
        item = ValueObject(top[PENDING_OBJECT])
        target = Array[Word](top[PENDING_TARGET])
        if item == NULL:
            target[ENTRY_STAMP] = reading.stamp
            continue
        if item.type != reading.value_type:
            return UNEXPECTED
        entry = entry_of(reading.table, reading.mask, reading.stamp, Word(item))
        if entry[ENTRY_STAMP] // 2 == reading.stamp // 2:
            if entry[ENTRY_STAMP] != reading.stamp:
                return UNEXPECTED  # it contains itself
            target[0] = entry[ENTRY_PLACE]
            continue
        kind = top[PENDING_TYPE]
        place = Word(address_of(reading.words[reading.used]))
        entry[ENTRY_OBJECT] = Word(item)
        entry[ENTRY_PLACE] = place
        entry[ENTRY_STAMP] = reading.stamp + 1
        target[0] = place
        top[PENDING_OBJECT] = 0
        top[PENDING_TARGET] = Word(entry)
        depth = read_fields(reading, item, kind, depth + 1)
        if depth < 0:
            return -1 - depth
    return DONE


@low_level
def begin_reading(reading: Reading) -> None:
    """Forget what was read before."""
    reading.stamp = reading.stamp + 2
    reading.used = 0
    reading.nodes = 0
    for i in range(reading.group_count):
        group = reading.groups[i]
        group.used = 0
        group.count = 0


@low_level
def read_one_value(reading: Reading, value: Object, of: Word, to: Address) -> Word:
    """Read a value of the data type with a number; its address goes to `to`."""
    begin_reading(reading)
    code = read_value(reading, value, of, to)
    if code != DONE:
        clear_error()  # of a field that is no text, number or tuple: Python says what it is
    return code


# -- inputs ----------------------------------------------------------------------------------------


@low_level
def read_integer(instances: Instances, item: Object, plan: InputPlan, to: Array[Word]) -> Word:
    """Read an integer: Python's own, NumPy's, or an array of one."""
    if item.type == instances.array_type:
        array = ArrayObject(item)
        if array.descr != plan.descr or array.ndim != 0:
            return UNEXPECTED
        to[0] = integer_at(array.data, plan.size, plan.signed)
        return DONE
    if item.type == plan.scalar_type:
        to[0] = integer_at(address_of(ScalarObject(item).value), plan.size, plan.signed)
        return DONE
    if item.type != plan.python_type and item.type != plan.word_type:
        return UNEXPECTED
    number = as_integer(item)
    if pending_error() != NULL:
        clear_error()
        return UNEXPECTED
    if number < plan.least or number > plan.most:
        return UNEXPECTED
    to[0] = number
    return DONE


@low_level
def read_input(instances: Instances, item: Object, plan: InputPlan, i: Word) -> Word:
    """Write the record of instance `i` for an array."""
    array = ArrayObject(item)
    dense = DENSE - WRITEABLE
    if item.type != instances.array_type or array.descr != plan.descr:
        return UNEXPECTED
    if array.ndim != plan.ndim or array.flags & dense != dense:
        return UNEXPECTED
    words = RECORD_DIMS + plan.ndim
    record = Array[Word](address_of(plan.records[i * words]))
    size = plan.size
    for axis in range(plan.ndim):
        dim = array.dims[axis]
        expected = plan.dims[axis]
        if expected < 0:
            symbol = -1 - expected
            expected = instances.symbols[symbol]
            if expected < 0:
                instances.symbols[symbol] = dim
                expected = dim
        if dim != expected:
            return UNEXPECTED
        record[RECORD_DIMS + axis] = dim
        size *= dim
    record[RECORD_DATA] = Word(array.data)
    record[RECORD_SLOT] = plan.first_slot + i
    plan.bytes = plan.bytes + size
    return DONE


@low_level
def read_instance(instances: Instances, given: Object, i: Word) -> Word:
    """Read the inputs of instance `i`: a tuple, or the argument where there is one."""
    is_tuple = given.type == instances.tuple_type
    if is_tuple and tuple_size(given) != instances.arguments:
        return UNEXPECTED
    if not is_tuple and instances.arguments != 1:
        return UNEXPECTED
    for symbol in range(instances.symbol_count):
        instances.symbols[symbol] = -1
    for column in range(instances.count):
        plan = instances.plans[column]
        item = given
        if is_tuple:
            item = tuple_item(given, plan.parameter)
        for level in range(plan.depth):
            if item.type != instances.tuple_type or tuple_size(item) <= plan.path[level]:
                return UNEXPECTED
            item = tuple_item(item, plan.path[level])
        word = Array[Word](address_of(instances.words[i * instances.count + column]))
        code = DONE
        if plan.kind == SCALAR:
            code = read_integer(instances, item, plan, word)
        elif plan.kind == TENSOR:
            code = read_input(instances, item, plan, i)
            word[0] = Word(address_of(plan.records[i * (RECORD_DIMS + plan.ndim)]))
        else:
            code = read_value(instances.reading, item, plan.data, word)
        if code != DONE:
            return code
    return DONE


@low_level
def read_instances(instances: Instances, given: Object) -> Word:
    """Read the inputs of all instances."""
    for column in range(instances.count):
        plan = instances.plans[column]
        plan.bytes = 0
    if instances.reading != NULL:
        begin_reading(instances.reading)
    for i in range(list_size(given)):
        code = read_instance(instances, list_item(given, i), i)
        if code != DONE:
            clear_error()  # of a field that is no text, number or tuple: Python says what it is
            return code
    return DONE


def reading_texts(declarations: dict[str, str]) -> list[str]:
    """The LLVM texts of `READ_VALUE` and `READ_INSTANCES`, and of what they call."""
    functions = (
        same_text, entry_of, integer_at, read_array, read_fields, read_value, begin_reading,
        read_one_value, read_integer, read_input, read_instance, read_instances,
    )  # fmt: skip
    return [low_level_text(f, declarations) for f in functions]
