"""Values of data types in machine code: from the words that a program has left to Python objects.

An object is made before those that it holds, each of which is a *hole* in its tuple of fields until
it is made, too: deep values need no recursion. What several hold is one object.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.flushing import copy_memory
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Word,
    address_of,
    external,
    low_level,
)
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.plan import ArrayObject, Object
from relaxlab.codegen.llvm.python_call import (
    append,
    array_of_descr,
    drop,
    keep,
    new_tuple,
    pending_error,
    set_tuple_item,
)
from relaxlab.codegen.llvm.reading import entry_of
from relaxlab.codegen.llvm.reading_plan import (
    DATA,
    DONE,
    ENTRY_OBJECT,
    ENTRY_PLACE,
    ENTRY_STAMP,
    HOLE_FIELDS,
    HOLE_INDEX,
    HOLE_TYPE,
    HOLE_VALUE,
    HOLE_WORDS,
    NO_ROOM,
    SCALAR,
    UNEXPECTED,
    ConstructorPlan,
    FieldPlan,
    Making,
    ValueObject,
)
from relaxlab.ir.recording import VALUE_FIELDS, VALUE_TAG


@external("PyType_GenericAlloc")
def new_object(type: Address, items: Word) -> Object: ...


@low_level
def made_array(making: Making, field: FieldPlan, word: Array[Word]) -> Object:
    """The array of a field, from its word; null where there is no memory for it."""
    keep(field.descr)
    made = array_of_descr(
        making.array_type, field.descr, field.ndim, field.dims, NULL, NULL, 0, NULL
    )
    if made != NULL:
        place = Address(word[0])
        if field.kind == SCALAR:
            place = word  # its lowest bytes come first
        elif making.offsets != NULL:
            place = Address(making.arena + making.offsets[word[0]])
        copy_memory(ArrayObject(made).data, place, field.size)
    return made


@low_level
def fill_fields(
    making: Making, of: ConstructorPlan, words: Array[Word], fields: Object
) -> Word:
    """Fill a tuple with the arrays among some fields, and note the values among them as holes.
    Return `DONE`, or `UNEXPECTED` where there is no memory for an array."""
    for k in range(of.count):
        field = making.fields[of.first + k]
        word = Array[Word](address_of(words[k]))
        if field.kind == DATA:
            hole = Array[Word](address_of(making.holes[making.depth * HOLE_WORDS]))
            hole[HOLE_VALUE] = word[0]
            hole[HOLE_TYPE] = field.data
            hole[HOLE_FIELDS] = Word(fields)
            hole[HOLE_INDEX] = k
            making.depth = making.depth + 1
        else:
            item = made_array(making, field, word)
            if item == NULL:
                return UNEXPECTED
            set_tuple_item(fields, k, item)
    return DONE


@low_level
def made_object(making: Making, words: Array[Word], of: Word) -> Object:
    """A reference to the object of the value at an address, which has holes if it is new. Null
    where there is no room or no memory for it."""
    data = making.data[of]
    constructor = making.constructors[data.first + words[VALUE_TAG]]
    if constructor.only != NULL:
        keep(constructor.only)
        return constructor.only
    entry = entry_of(making.table, making.mask, making.stamp, Word(words))
    if entry[ENTRY_STAMP] == making.stamp:
        known = Object(entry[ENTRY_PLACE])
        keep(known)
        return known
    if making.nodes == making.room:
        making.code = NO_ROOM
        return NULL
    made = new_object(making.value_type, 0)
    if made == NULL:
        return NULL
    value = ValueObject(made)
    keep(data.name)
    value.data = data.name
    keep(constructor.name)
    value.constructor = constructor.name
    keep(constructor.tag)
    value.tag = constructor.tag
    value.fields = new_tuple(constructor.count)
    if value.fields == NULL:
        drop(made)
        return NULL
    # Allocating may have run the collector, and code of others with it, but none that makes values.
    entry[ENTRY_OBJECT] = Word(words)
    entry[ENTRY_PLACE] = Word(made)
    entry[ENTRY_STAMP] = making.stamp
    making.nodes = making.nodes + 1
    place = Array[Word](address_of(words[VALUE_FIELDS]))
    if fill_fields(making, constructor, place, value.fields) != DONE:
        drop(made)
        return NULL
    return made


@low_level
def begin_making(making: Making) -> None:
    """Forget the objects that were made before."""
    making.stamp = making.stamp + 2
    making.nodes = 0
    making.code = DONE


@low_level
def make_value(making: Making, words: Array[Word], of: Word) -> Object:
    """The value at an address with all that it holds; null where there is no room or no memory."""
    making.depth = 0
    root = made_object(making, words, of)
    while root != NULL and making.depth > 0:
        making.depth = making.depth - 1
        hole = Array[Word](address_of(making.holes[making.depth * HOLE_WORDS]))
        fields = Object(hole[HOLE_FIELDS])
        index = hole[HOLE_INDEX]
        item = made_object(making, Array[Word](hole[HOLE_VALUE]), hole[HOLE_TYPE])
        if item == NULL or set_tuple_item(fields, index, item) != 0:
            drop(root)
            root = NULL
    return root


@low_level
def make_values(
    making: Making, to: Object, addresses: Array[Word], count: Word, of: Word
) -> Word:
    """Append the values at some addresses to a list. Return `DONE`, `NO_ROOM`, or `UNEXPECTED` with
    an error of Python's."""
    begin_making(making)
    for i in range(count):
        item = make_value(making, Array[Word](addresses[i]), of)
        if item == NULL:
            return making.code if pending_error() == NULL else UNEXPECTED
        append(to, item)
        drop(item)
    return DONE


def making_texts(declarations: dict[str, str]) -> list[str]:
    """The LLVM texts of all functions."""
    functions = (
        made_array, fill_fields, made_object, begin_making, make_value, make_values,
    )  # fmt: skip
    return [low_level_text(f, declarations) for f in functions]
