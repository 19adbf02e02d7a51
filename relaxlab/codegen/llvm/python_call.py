"""Calls from Python as machine code: arguments to words, the program's entry, results to arrays.

One C function serves all functions of all programs. It is called as CPython calls a builtin
(`METH_FASTCALL | METH_KEYWORDS`); the first item of its `self`, a tuple, is the address of a
*plan*, which describes the arguments and where they go. Arrays are read where NumPy's C interface
has their fields, results are made by it. Calls that a plan does not cover are left to Python,
before anything was computed (`slow`) or after (`finish`).
"""

from __future__ import annotations

from relaxlab.codegen.llvm.context import BLOCK_HEADER, Block
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Double,
    Flag,
    Function,
    Int,
    Single,
    Word,
    address_of,
    external,
    invoke,
    low_level,
    stack,
)  # fmt: skip
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.plan import (
    DENSE,
    INTEGER,
    NEW_ARRAY,
    SET_BASE,
    SHAPE,
    TENSOR,
    ArrayObject,
    Object,
    Param,
    Plan,
    Result,
)  # fmt: skip
from relaxlab.codegen.llvm.support import free

LARGE = 0
"""The bytes of a block from which on results are left to Python, which are put in its place."""

# -- the interfaces of CPython and NumPy -----------------------------------------------------------


@external("PyTuple_Size")
def tuple_size(items: Object) -> Word: ...
@external("PyTuple_GetItem")
def tuple_item(items: Object, index: Word) -> Object: ...
@external("PyTuple_New")
def new_tuple(size: Word) -> Object: ...
@external("PyTuple_SetItem")
def set_tuple_item(items: Object, index: Word, item: Object) -> Int: ...
@external("PyList_Size")
def list_size(items: Object) -> Word: ...
@external("PyList_GetItem")
def list_item(items: Object, index: Word) -> Object: ...
@external("PyList_Append")
def append(items: Object, item: Object) -> Int: ...
@external("PyList_SetSlice")
def set_slice(items: Object, start: Word, end: Word, by: Object) -> Int: ...
@external("PyLong_AsLongLong")
def as_integer(number: Object) -> Word: ...
@external("PyLong_AsVoidPtr")
def as_address(number: Object) -> Address: ...
@external("PyLong_FromVoidPtr")
def from_address(address: Address) -> Object: ...
@external("PyFloat_AsDouble")
def as_double(number: Object) -> Double: ...
@external("PyErr_Occurred")
def pending_error() -> Object: ...
@external("PyErr_Clear")
def clear_error() -> None: ...
@external("PyErr_Fetch")
def fetch_error(kind: Address, value: Address, trace: Address) -> None: ...
@external("PyErr_Restore")
def restore_error(kind: Address, value: Address, trace: Address) -> None: ...
@external("Py_IncRef")
def keep(item: Address) -> None: ...
@external("Py_DecRef")
def drop(item: Object) -> None: ...
@external("PyCapsule_New")
def new_capsule(content: Address, name: Address, destructor: Function) -> Object: ...
@external("PyCapsule_GetPointer")
def content_of(capsule: Object, name: Address) -> Block: ...
@external("PyEval_SaveThread")
def give_up_lock() -> Address: ...
@external("PyEval_RestoreThread")
def take_lock(thread: Address) -> None: ...
@external("PyObject_Vectorcall")
def call_object(function: Object, args: Array[Object], count: Word, names: Object) -> Object: ...
@external(NEW_ARRAY)
def array_of_descr(
    type: Address, descr: Address, ndim: Int, dims: Address, strides: Address, data: Address,
    flags: Int, of: Object,
) -> Object: ...  # fmt: skip
@external(SET_BASE)
def set_base(array: Object, base: Object) -> Int: ...


# -- arguments -------------------------------------------------------------------------------------


@low_level
def fill(plan: Plan, args: Array[Object]) -> Flag:
    """True if all arguments are as foreseen; their words are written."""
    guarded = plan.guarded
    for i in range(plan.open):
        value, param = args[i], plan.params[i]
        if value.type != param.type:
            return False
        if param.kind == TENSOR:
            array = ArrayObject(value)
            size = fill_tensor(array, param)
            end = array.data + size
            if size < 0 or not all(
                end <= plan.guards[g].start or array.data >= plan.guards[g].end
                for g in range(guarded)
            ):
                return False
            if plan.grows:
                plan.guards[guarded].start = array.data
                plan.guards[guarded].end = end
                guarded += 1
        elif param.kind == SHAPE:
            if not fill_shape(value, param):
                return False
        elif param.kind == INTEGER:
            number = as_integer(value)
            if pending_error() != NULL:
                clear_error()
                return False
            if number < param.dims[0] or number > param.dims[1]:
                return False
            param.to[0] = number
        elif param.size == 4:
            Array[Single](param.to)[0] = as_double(value)
            Array[Int](param.to)[1] = 0
        else:
            Array[Double](param.to)[0] = as_double(value)
    return True


@low_level
def fill_tensor(array: ArrayObject, param: Param) -> Word:
    """The bytes of an array, whose words are written; -1 if it is not as foreseen."""
    if array.descr != param.descr or array.flags & param.flags != param.flags:
        return -1
    if array.ndim != param.ndim or array.data & param.mask != 0:
        return -1
    param.to[0] = Word(array.data)
    size = param.size
    for axis in range(param.ndim):
        dim = array.dims[axis]
        if param.dims[axis] >= 0 and param.dims[axis] != dim:
            return -1
        param.to[axis + 1] = dim
        size *= dim
    return size


@low_level
def fill_shape(value: Object, param: Param) -> Flag:
    """True if a tuple is a shape of that many dimensions; its words are written."""
    if tuple_size(value) != param.ndim:
        return False
    for axis in range(param.ndim):
        item = tuple_item(value, axis)
        if item.type != param.descr:
            return False
        dim = as_integer(item)
        if dim < 0:  # -1 where it does not fit
            clear_error()
            return False
        param.to[axis] = dim
    return True


# -- blocks ----------------------------------------------------------------------------------------


@low_level
def lend(plan: Plan) -> None:
    """The blocks in the Python list `spare` become the context's linked list."""
    count = list_size(plan.spare)
    for i in range(count):
        block = Block(as_address(list_item(plan.spare, i)))
        block.next = plan.context.spare
        plan.context.spare = block
    if count:
        set_slice(plan.spare, 0, count, NULL)


@low_level
def take_back(plan: Plan) -> None:
    """The rest of the linked list returns to the Python list."""
    block = plan.context.spare
    while block != NULL:
        following = block.next
        number = from_address(block)
        append(plan.spare, number)
        drop(number)
        block = following
    plan.context.spare = NULL


@low_level
def own(plan: Plan, args: Array[Object], values: Array[Object]) -> Flag:
    """True if every array of the result is an argument or a block of its own, and no block is
    large. Then `values` has the arguments, null for blocks, and the other blocks are freed."""
    block = plan.context.owned
    while block != NULL:
        # Empty arrays are left to Python, too.
        if block.size < 1 or block.size >= LARGE:
            return False
        block.is_result = 0
        block = block.next
    for i in range(plan.leaves):
        result = plan.results[i]
        word = Array[Address](address_of(plan.out[result.at]))
        block = plan.context.owned
        while block != NULL and block != word[0] - BLOCK_HEADER:
            block = block.next
        values[i] = NULL
        if block == NULL:
            values[i] = find(plan, args, result, word)
            if values[i] == NULL:
                return False
        elif block.is_result:
            return False
        else:
            block.is_result = 1
    block = plan.context.owned
    while block != NULL:
        following = block.next
        if not block.is_result:
            free(block)
        block = following
    plan.context.owned = NULL
    return True


@low_level
def find(plan: Plan, args: Array[Object], result: Result, word: Array[Address]) -> Object:
    """The argument that is the same array as a result, or null."""
    for i in range(plan.open):
        param, array = plan.params[i], ArrayObject(args[i])
        if (
            param.kind == TENSOR
            and param.ndim == result.ndim
            and param.descr == result.descr
            and array.data == word[0]
            and all(array.dims[axis] == Word(word[axis + 1]) for axis in range(result.ndim))
        ):
            return args[i]
    return NULL


# -- results ---------------------------------------------------------------------------------------


@low_level
def free_content(capsule: Object) -> None:
    """Free the block of a capsule, of which the last array is gone."""
    free(content_of(capsule, NULL))


@low_level
def make_array(plan: Plan, result: Result, word: Array[Address]) -> Object:
    """An array over a block, which it owns; null where there is no memory for it."""
    owner = new_capsule(word[0] - BLOCK_HEADER, NULL, free_content)
    if owner == NULL:
        return NULL
    keep(result.descr)
    array = array_of_descr(
        plan.ndarray, result.descr, result.ndim, address_of(word[1]), NULL, word[0], DENSE, NULL
    )
    if array == NULL:
        drop(owner)
        return NULL
    set_base(array, owner)
    return array


@low_level
def make(plan: Plan, words: Array[Address], values: Array[Object]) -> Object:
    """The result, from its words and from `values`; null where there is no memory for it. Each
    block gets its owner, whatever fails."""
    whole = NULL if plan.single else new_tuple(plan.leaves)
    failed = whole == NULL and not plan.single
    for i in range(plan.leaves):
        value = values[i]
        if value != NULL:
            keep(value)
        else:
            value = make_array(plan, plan.results[i], address_of(words[plan.results[i].at]))
        if value == NULL:
            failed = True
        if plan.single:
            whole = value
        elif whole != NULL:
            set_tuple_item(whole, i, value)
        else:
            drop(value)
    if failed:
        drop(whole)
        return NULL
    return whole


# -- the call --------------------------------------------------------------------------------------


@low_level
def call(self: Object, args: Array[Object], count: Word, names: Object) -> Object:
    """The builtin. The interpreter's lock is given up while the program runs, the executable's is
    held until its words were read."""
    plan = Plan(as_address(tuple_item(self, 0)))
    if names != NULL or plan.open != count:
        return call_object(plan.slow, args, count, names)
    # Waiting for one's turn can be interrupted; that ends the call.
    taken = call_object(plan.acquire, NULL, 0, NULL)
    if taken == NULL:
        return NULL
    drop(taken)
    if plan.state.busy or not fill(plan, args):
        unlock(plan)
        return call_object(plan.slow, args, count, names)
    plan.state.busy = 1
    plan.context.kernel_failed = 0  # of a call whose report was interrupted
    lend(plan)
    thread = give_up_lock()
    code = invoke(plan.entry, plan.context, plan.state.threads)
    take_lock(thread)
    take_back(plan)
    plan.state.code = code
    if code == 0 and plan.leaves >= 0:
        values = Array[Object](stack(plan.leaves))
        if own(plan, args, values):
            words = Array[Address](stack(plan.words))
            for i in range(plan.words):
                words[i] = plan.out[i]
            plan.state.busy = 0
            unlock(plan)
            return make(plan, words, values)
    value = call_object(plan.finish, args, count, NULL)
    plan.state.busy = 0
    error = Array[Address](stack(3))  # `release` is not to be called with an error pending
    fetch_error(address_of(error[0]), address_of(error[1]), address_of(error[2]))
    unlock(plan)
    restore_error(error[0], error[1], error[2])
    return value


@low_level
def unlock(plan: Plan) -> None:
    """Let the next call in."""
    drop(call_object(plan.release, NULL, 0, NULL))


def python_call(declarations: dict[str, str], large: int) -> list[str]:
    """Return the function `CALL` and its helpers; blocks of `large` bytes and more are left to
    Python."""
    functions = (
        fill, fill_tensor, fill_shape, lend, take_back, own, find, free_content, make_array, make,
        call, unlock,
    )  # fmt: skip
    return [low_level_text(f, declarations, given={"LARGE": large}) for f in functions]
