"""PyTorch's dtypes, tensors and symbolic sizes in relaxlab's terms."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import add, mul
from typing import Any

import numpy as np

from relaxlab.frontend.complex import PARTS, array_of_parts
from relaxlab.frontend.symbols import Symbols
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.types import TensorType
from relaxlab.ops import scalar


def dtype_name(dtype: Any) -> str:
    """The name of a `torch.dtype`."""
    return str(dtype).removeprefix("torch.")


def as_array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor in main memory as an array over the same memory; complex numbers as their two parts
    along a last dimension. Raises Refused for dtypes that arrays do not have and for sparse
    tensors."""
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided":
        raise Refused(f"tensors of layout {tensor.layout} are not supported")
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    name = dtype_name(tensor.dtype)
    if name == "bfloat16":  # NumPy learns of it from another package
        torch = import_module("torch")
        return tensor.view(torch.uint16).numpy().view(numpy_dtype(name))
    if tensor.is_complex():
        return array_of_parts(tensor.resolve_conj().numpy())
    try:
        return tensor.numpy()
    except TypeError as error:
        raise Refused(str(error)) from error


def as_tensor(array: np.ndarray[Any, Any]) -> Any:
    """An array as a tensor over the same memory; one that nobody may write to is copied."""
    torch = import_module("torch")
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def dim_of(size: Any, symbols: Symbols) -> PrimExpr:
    """A size, an int or `torch.SymInt`, as an expression of symbols."""
    if isinstance(size, int):
        return expr.const(size)
    return from_sympy(size.node.expr, symbols)


def scalar_of(value: Any, symbols: Symbols) -> Any:
    """A number as it is; a symbolic integer as an expression of symbols, and a symbolic float as
    one of float64, which has Python's precision."""
    if not hasattr(value, "node"):
        return value
    if type(value).__name__ == "SymInt":
        return dim_of(value, symbols)
    e = value.node.expr
    if type(value).__name__ != "SymFloat" or not all(s.is_integer for s in e.free_symbols):
        raise Refused(
            f"its result is a number of Python, a {type(value).__name__}, that depends on data; "
            "compute with a tensor instead (x.sum() without .item())"
        )
    return float_from_sympy(e, symbols)


def type_of(value: Any, symbols: Symbols) -> TensorType:
    """The type of a tensor, or of one without data in a graph's metadata. That of complex numbers
    has a last dimension of their two parts."""
    shape, dtype = tuple(dim_of(d, symbols) for d in value.shape), dtype_name(value.dtype)
    if value.is_complex():
        if dtype not in PARTS:
            raise Refused(f"numbers of type {dtype}")
        return TensorType((*shape, expr.const(2)), PARTS[dtype])
    return TensorType(shape, dtype)


def from_sympy(e: Any, symbols: Symbols) -> PrimExpr:
    """An integer expression of SymPy, with the functions that PyTorch adds, as a scalar expression.

    Raises Refused for functions that are none of integers.
    """
    if e.is_Symbol:
        return symbols(e.name)
    if e.is_Integer:
        return expr.const(int(e))
    name = type(e).__name__
    if name == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
        return reduce(mul, [from_sympy(e.args[0], symbols)] * int(e.args[1]))
    if name == "Mul":
        whole, parts = _numerator_and_denominator(e)
        if parts != 1:
            return from_sympy(whole, symbols) // expr.const(parts)
    if name in ("CeilToInt", "FloorToInt", "RoundToInt", "TruncToInt"):
        return _rounded(name.removesuffix("ToInt").lower(), e.args[0], symbols)
    fold = _FUNCTIONS.get(name)
    if fold is None:
        raise Refused(f"the size {e} is no expression of integers that is known here ({name})")
    return reduce(fold, (from_sympy(a, symbols) for a in e.args))


def condition_of(e: Any, symbols: Symbols) -> PrimExpr:
    """A condition of SymPy on sizes as one on symbols. Raises Refused for functions that are not
    known."""
    name = type(e).__name__
    if e.is_Boolean and name.startswith("Boolean"):
        return expr.const(bool(e), "bool")
    if name == "Not":
        return expr.Not(condition_of(e.args[0], symbols))
    if name in ("And", "Or"):
        fold = expr.And if name == "And" else expr.Or
        return reduce(fold, (condition_of(a, symbols) for a in e.args))
    if name not in _COMPARISONS:
        raise Refused(f"the condition {e} is not known here ({name})")
    convert = from_sympy if all(a.is_integer for a in e.args) else float_from_sympy
    return _COMPARISONS[name](*(convert(a, symbols) for a in e.args))


def _rounded(how: str, e: Any, symbols: Symbols) -> PrimExpr:
    """A float expression as an integer. Quotients of integers stay exact."""
    if type(e).__name__ == "IntTrueDiv" and how in ("ceil", "floor"):
        a, b = (from_sympy(x, symbols) for x in e.args)
        return a // b if how == "floor" else 0 - (0 - a) // b
    how = "nearbyint" if how == "round" else how  # Python's goes to the even one of two
    return scalar.cast(scalar.call(how, float_from_sympy(e, symbols)), "int64")


def float_from_sympy(e: Any, symbols: Symbols) -> PrimExpr:
    """An expression of SymPy as one of float64. Raises Refused for functions that are not known."""
    if e.is_number:
        return expr.const(float(e), "float64")
    if e.is_integer:
        return scalar.cast(from_sympy(e, symbols), "float64")
    name = type(e).__name__
    if name == "ToFloat":
        return float_from_sympy(e.args[0], symbols)
    fold = _OF_FLOATS.get(name)
    of_one = name.removeprefix("OpaqueUnaryFn_")
    if fold is None and (of_one == name or of_one not in INTRINSICS):
        raise Refused(f"the number {e} is no function of sizes that is known here ({name})")
    first, *others = (float_from_sympy(a, symbols) for a in e.args)
    return reduce(fold, others, first) if fold else scalar.call(of_one, first)


def _numerator_and_denominator(e: Any) -> tuple[Any, int]:
    """A product as a quotient: `Rational(1, 2) * s` is exact where PyTorch writes it."""
    numerator, denominator = e.as_numer_denom()
    if not denominator.is_Integer:
        raise Refused(f"the size {e} divides by a symbol")
    return numerator, int(denominator)


_FUNCTIONS: dict[str, Any] = {
    "Add": add,
    "Mul": mul,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": lambda a, b: expr.Max(a, b),
    "Min": lambda a, b: expr.Min(a, b),
}

_COMPARISONS: dict[str, Any] = {
    "Equality": expr.EQ,
    "Unequality": expr.NE,
    "StrictLessThan": expr.LT,
    "LessThan": expr.LE,
    "StrictGreaterThan": expr.GT,
    "GreaterThan": expr.GE,
}

_OF_FLOATS: dict[str, Any] = {
    "Add": add,
    "Mul": mul,
    "IntTrueDiv": expr.Div,
    "FloatTrueDiv": expr.Div,
    "Pow": lambda a, b: scalar.call("pow", a, b),
    "FloatPow": lambda a, b: scalar.call("pow", a, b),
    "Max": _FUNCTIONS["Max"],
    "Min": _FUNCTIONS["Min"],
}
