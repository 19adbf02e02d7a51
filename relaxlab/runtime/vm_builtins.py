"""The functions that `lower_builtins` and `store_shapes` call: reshapes, closures, and the heap of
shapes, an int64 array with what the symbols of a function stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.arrays import ExecutionError


def _require(holds: bool, context: str, text: str) -> None:
    if not holds:
        raise ExecutionError(f"{context}{text}")


def alloc_shape_heap(size: int) -> Any:
    """Return a heap of so many slots."""
    return np.zeros(int(size), "int64")


def check_tensor_info(x: Any, ndim: int, dtype: str, context: str) -> None:
    """Raise ExecutionError unless `x` has the rank and the dtype, -1 and "void" being any."""
    _require(hasattr(x, "shape"), context, "a tensor is expected")
    known = f"a tensor of {x.ndim} dimensions of {x.dtype}"
    _require(ndim in (-1, x.ndim), context, f"{ndim} dimensions are expected, not {known}")
    same = dtype in ("", "void") or x.dtype == numpy_dtype(dtype)
    _require(same, context, f"{dtype} is expected, not {known}")


def check_shape_info(shape: Any, ndim: int, context: str) -> None:
    """Raise ExecutionError unless `shape` is one of so many dimensions, or of any for -1."""
    _require(isinstance(shape, tuple), context, "a shape is expected")
    text = f"a shape of {ndim} dimensions is expected, not {shape}"
    _require(ndim in (-1, len(shape)), context, text)


def check_tuple_info(value: Any, count: int, context: str) -> None:
    """Raise ExecutionError unless `value` is a tuple of so many fields."""
    _require(isinstance(value, tuple | list) and len(value) == count, context, f"{count} fields")


def check_prim_value_info(value: Any, _: str, context: str) -> None:
    """Raise ExecutionError unless `value` is a number."""
    _require(np.ndim(value) == 0, context, "a scalar is expected")


def check_func_info(value: Any, context: str) -> None:
    """Raise ExecutionError unless `value` can be called."""
    _require(callable(value), context, "a function is expected")


def _match(sizes: Sequence[int], heap: Any, code: Iterator[int], context: str) -> None:
    for axis, (size, how, what) in enumerate(zip(sizes, code, code, strict=False)):
        if how == 1:
            heap[what] = size
        elif how in (0, 3):
            wanted = int(what if how == 0 else heap[what])
            _require(size == wanted, context, f"dimension {axis} is {size}, not {wanted}")


def match_shape(value: Any, heap: Any, count: int, *code: Any) -> None:
    """Store or check the dimensions of a tensor or a shape; the last argument says where."""
    *numbers, context = code
    sizes = value if isinstance(value, tuple) else value.shape
    _require(len(sizes) == count, context, f"{count} dimensions are expected, not {len(sizes)}")
    _match(sizes, heap, iter(map(int, numbers)), context)


def match_prim_value(value: Any, heap: Any, how: int, what: int, context: str) -> None:
    """Store or check a number."""
    _match((int(value),), heap, iter((int(how), int(what))), context)


def make_shape(heap: Any, _: int, *code: int) -> tuple[int, ...]:
    """Return a shape of numbers and of what slots have."""
    pairs = zip(code[::2], code[1::2], strict=True)
    return tuple(int(heap[what]) if how == 1 else int(what) for how, what in pairs)


def make_prim_value(heap: Any, how: int, what: int) -> int:
    """Return a number, or what a slot has."""
    return make_shape(heap, 1, how, what)[0]


def make_closure(func: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """Return a function with its last arguments."""
    return lambda *rest: func(*rest, *args)


def view(x: Any, shape: Sequence[int], dtype: str, offset: int) -> Any:
    """Return the bytes of a tensor from an offset on as a tensor of a shape and a dtype."""
    kind = numpy_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    data = np.ascontiguousarray(x).reshape(-1).view("uint8")
    return data[int(offset) : int(offset) + count].view(kind).reshape(tuple(shape))


class RowCache:
    """Rows of one shape, to which calls append."""

    def __init__(self, rows: Any, shape: Sequence[int], filled: int) -> None:
        self.rows, self.filled = np.array(rows).reshape(tuple(shape)), int(filled)

    def append(self, new: Any) -> None:
        """Add rows at the end, and make room for twice as many where it lacks. Raises
        ExecutionError for rows of another shape."""
        text = f"rows of {self.rows.shape[1:]} are kept, not {new.shape[1:]}"
        _require(self.rows.shape[1:] == new.shape[1:], "", text)
        end = self.filled + len(new)
        if end > len(self.rows):
            more = np.zeros((max(end, 2 * len(self.rows)), *self.rows.shape[1:]), self.rows.dtype)
            more[: self.filled] = self.rows[: self.filled]
            self.rows = more
        self.rows[self.filled : end] = new
        self.filled = end

    def view(self, shape: Sequence[int]) -> Any:
        """Return as many rows as the first dimension of a shape. Raises ExecutionError unless that
        is what there are."""
        _require(shape[0] == self.filled, "", f"{self.filled} rows are there, not {shape[0]}")
        return self.rows[: self.filled].reshape(tuple(shape)).copy()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "runtime.TVMTensorCreateView": view,
    "vm.builtin.reshape": lambda x, shape: np.reshape(x, tuple(shape)),
    "vm.builtin.shape_of": lambda x: tuple(x.shape),
    "vm.builtin.tensor_to_shape": lambda x: tuple(int(v) for v in x),
    "vm.builtin.ensure_zero_offset": lambda x: x,
    "vm.builtin.attention_kv_cache_create": RowCache,
    "vm.builtin.attention_kv_cache_append": RowCache.append,
    "vm.builtin.attention_kv_cache_view": RowCache.view,
    "vm.builtin.debug_print": lambda place, x: print(f"{place}: {x}"),
    "vm.builtin.invoke_closure": lambda func, *args: func(*args),
    **{
        f"vm.builtin.{f.__name__}": f
        for f in (
            alloc_shape_heap, check_func_info, check_prim_value_info, check_shape_info,
            check_tensor_info, check_tuple_info, make_closure, make_prim_value, make_shape,
            match_prim_value, match_shape,
        )
    },
}  # fmt: skip
"""By name, as programs call them."""
