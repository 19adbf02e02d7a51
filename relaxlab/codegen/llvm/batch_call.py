"""A batch like the one before as machine code: from a list of Python's to a list of arrays.

A builtin as in `python_call`: what depends on the program and on the number of instances was
written down when a batch of as many ran before. What is not as it was then is left to Python.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.flushing import copy_memory
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Flag,
    Int,
    Record,
    Table,
    Word,
    address_of,
    external,
    invoke,
    low_level,
    stack,
)
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.plan import NEW_SCALAR, ArrayObject, Object, State
from relaxlab.codegen.llvm.python_call import (
    array_of_descr,
    as_address,
    call_object,
    clear_error,
    drop,
    fetch_error,
    give_up_lock,
    keep,
    list_size,
    new_tuple,
    pending_error,
    restore_error,
    set_tuple_item,
    take_lock,
    tuple_item,
)
from relaxlab.codegen.llvm.reading_plan import DATA, DONE, SCALAR, Instances, Making
from relaxlab.codegen.llvm.starting import Start

CALL_BATCH = "relaxlab_call_batch"
"""The builtin."""


class BatchResult(Record):
    """A leaf of the results, whose word among those of an instance has the same number. kind: as of
    fields. data: the number of a data type; else the bytes and the form of an array or an integer.
    """

    kind: Word
    data: Word
    size: Word
    ndim: Word
    dims: Array[Word]
    descr: Address


class BatchPlan(Record):
    """A batch like the one before. known: 1 where there is one; ran: 1 where it has run since
    Python looked; code: what `run` returned. busy: 1 while a batch runs. read, run: the functions
    `READ_INSTANCES` and `run_batch`. slow, finish, acquire, release: Python objects. form: of the
    result of an instance, from its outermost tuple inwards: the number of fields of a tuple, after
    which these follow, or the number of a leaf as -1, -2 and so on; form_at: the word that is read
    next. making: of values of data types, by the functions `BEGIN_MAKING` and `MAKE_VALUE`."""

    known: Word
    ran: Word
    code: Word
    busy: Array[Word]
    instances: Instances
    start: Start
    state: State
    read: Address
    run: Address
    slow: Object
    finish: Object
    acquire: Object
    release: Object
    results: Table[BatchResult]
    form: Array[Word]
    form_at: Word
    list_type: Address
    array_type: Address
    making: Making
    begin_making: Address
    make_value: Address


@external("PyList_GetSlice")
def part_of_list(items: Object, start: Word, end: Word) -> Object: ...
@external("PyList_New")
def new_list(size: Word) -> Object: ...
@external("PyList_SetItem")
def set_list_item(items: Object, index: Word, item: Object) -> Int: ...
@external(NEW_SCALAR)
def new_scalar(data: Address, descr: Address, of: Object) -> Object: ...


@low_level
def copied_row(plan: BatchPlan, leaf: Word, slot: Word) -> Object:
    """An array with the elements of the tensor in a slot; null where there is no memory for it."""
    result, flush = plan.results[leaf], plan.start.flush
    keep(result.descr)
    made = array_of_descr(
        plan.array_type, result.descr, result.ndim, result.dims, NULL, NULL, 0, NULL
    )
    if made != NULL:
        copy_memory(ArrayObject(made).data, Address(flush.arena + flush.offsets[slot]), result.size)
    return made


@low_level
def made_leaf(plan: BatchPlan, leaf: Word, words: Array[Word]) -> Object:
    """A leaf of an instance's results; null where there is no memory for it, or no room."""
    result = plan.results[leaf]
    if result.kind == DATA:
        return Object(invoke(plan.make_value, plan.making, words[leaf], result.data))
    if result.kind == SCALAR:
        return new_scalar(address_of(words[leaf]), result.descr, NULL)
    return copied_row(plan, leaf, words[leaf])


@low_level
def result_of(plan: BatchPlan, words: Array[Word]) -> Object:
    """A field of the result of an instance, or all of it; null where there is no memory for it, or
    no room."""
    count = plan.form[plan.form_at]
    plan.form_at = plan.form_at + 1
    if count < 0:
        return made_leaf(plan, 0 - 1 - count, words)
    whole = new_tuple(count)
    for field in range(count):
        if whole != NULL:
            made = result_of(plan, words)
            if made == NULL:
                drop(whole)
                whole = NULL
            else:
                set_tuple_item(whole, field, made)
    return whole


@low_level
def all_results(plan: BatchPlan) -> Object:
    """The results of all instances; null where there is no memory for them, or no room."""
    start = plan.start
    plan.making.arena = start.flush.arena
    plan.making.offsets = start.flush.offsets
    invoke(plan.begin_making, plan.making)
    made = new_list(start.count)
    for i in range(start.count):
        if made != NULL:
            plan.form_at = 0
            item = result_of(plan, address_of(start.results[i * start.result_words]))
            if item == NULL:
                drop(made)
                made = NULL
            else:
                set_list_item(made, i, item)
    return made


@low_level
def none_failed(start: Start) -> Flag:
    """True if all instances were computed."""
    return all(start.flush.failures[i] == 0 for i in range(start.count))


@low_level
def let_in(plan: BatchPlan) -> None:
    """Let the next batch in; an error that is pending stays so."""
    plan.busy[0] = 0
    error = Array[Address](stack(3))
    fetch_error(address_of(error[0]), address_of(error[1]), address_of(error[2]))
    drop(call_object(plan.release, NULL, 0, NULL))
    restore_error(error[0], error[1], error[2])


@low_level
def call_batch(self: Object, args: Array[Object], count: Word, names: Object) -> Object:
    """The builtin. The interpreter's lock is given up while the batch runs, the program's is held
    until the results were copied."""
    plan = BatchPlan(as_address(tuple_item(self, 0)))
    if names != NULL or count != 1 or args[0].type != plan.list_type:
        return call_object(plan.slow, args, count, names)
    # Waiting for one's turn can be interrupted; that ends the call.
    taken = call_object(plan.acquire, NULL, 0, NULL)
    if taken == NULL:
        return NULL
    drop(taken)
    start = plan.start
    is_known = plan.known != 0 and plan.busy[0] == 0 and list_size(args[0]) == start.count
    given = NULL
    if is_known:
        given = part_of_list(args[0], 0, start.count)  # other threads may change the list
    if given == NULL or invoke(plan.read, plan.instances, given) != DONE:
        if given != NULL:
            drop(given)
        clear_error()  # of a list for which there was no memory
        drop(call_object(plan.release, NULL, 0, NULL))
        return call_object(plan.slow, args, count, names)
    plan.busy[0] = 1
    start.flush.threads = plan.state.threads
    plan.ran = 1
    plan.known = 0  # until it has ended as it should
    thread = give_up_lock()
    plan.code = invoke(plan.run, start)
    take_lock(thread)
    value = Object(NULL)
    if plan.code == 0 and none_failed(start):
        plan.known = 1
        value = all_results(plan)
    if value == NULL and pending_error() == NULL:
        value = call_object(plan.finish, args, count, NULL)
    drop(given)
    let_in(plan)
    return value


def batch_call_texts(declarations: dict[str, str]) -> list[str]:
    """The LLVM texts of `CALL_BATCH` and of what it calls."""
    functions = (
        copied_row, made_leaf, result_of, all_results, none_failed, let_in, call_batch,
    )  # fmt: skip
    return [low_level_text(f, declarations) for f in functions]
